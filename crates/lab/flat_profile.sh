#!/bin/sh
# Where the lanes of a running stack spend their time: the flat profile by function, and who calls the waiting for a lock.
#
#   crates/lab/flat_profile.sh PID [SECONDS]       PID of `laneway serve`, under load; default 5 s
#
# Samples of cpu-clock, 997 a second, of the threads lane-*: what a lane waits for at a lock is on the processor and is seen. The
# callers of each lock, exactly and not by samples, are told by `laneway locks --callers`.
set -eu
pid=${1:-}
seconds=${2:-5}
case $pid in
    '' | *[!0-9]*) echo "usage: $0 PID [SECONDS]; to find it: pgrep -x laneway" >&2; exit 2 ;;
esac
command -v perf >/dev/null || { echo "$0: perf is missing; install it with: apt-get install linux-perf" >&2; exit 2; }
tids=$(for task in /proc/"$pid"/task/*; do
    case $(cat "$task/comm" 2>/dev/null) in lane-*) basename "$task" ;; esac
done | paste -sd, -)
[ -n "$tids" ] || { echo "$0: process $pid has no thread named lane-*: it is no running stack, or has ended" >&2; exit 2; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# Unwinding goes by the frames' descriptions, because released code keeps no frame pointer.
perf record --quiet -e cpu-clock -F 997 --call-graph dwarf,4096 -t "$tids" -o "$out/data" -- sleep "$seconds" >"$out/log" 2>&1 || {
    cat "$out/log" >&2
    exit 1
}
# One line for each sample: the functions from the innermost outwards.
perf script --no-inline -i "$out/data" -F ip,sym 2>/dev/null | awk '
    NF == 0 { if (stack != "") print stack; stack = ""; next }
    { name = $0; sub(/^[ \t]*[0-9a-f]+ +/, "", name); sub(/\+0x[0-9a-f]+$/, "", name); sub(/::h[0-9a-f]+$/, "", name)
      gsub(/\t/, " ", name); stack = stack (stack == "" ? "" : "\t") name }
    END { if (stack != "") print stack }' >"$out/stacks"
[ -s "$out/stacks" ] || { echo "$0: no sample was taken: were the lanes idle?" >&2; exit 1; }
echo "   %   cumulative    samples  name"
awk -F '\t' '{ n[$1]++ } END { for (name in n) printf "%d\t%s\n", n[name], name }' "$out/stacks" | sort -rn |
    awk -F '\t' -v all="$(wc -l <"$out/stacks")" -v top="${TOP:-20}" '
        NR <= top { sum += $1; printf "%5.1f  %8.1f  %11d  %s\n", 100 * $1 / all, 100 * sum / all, $1, $2 }'
echo
echo "callers of the waiting for a lock"
awk -F '\t' '$1 ~ /(BucketLock|SpinRwLock).*wait/ {
        # The first that is not the lock itself.
        for (i = 2; i <= NF && $i ~ /laneway_sync|RwLock|BucketLock|Profiled/; i++);
        n[$1 "\t" (i <= NF ? $i : "?")]++; all++
    }
    END { for (pair in n) { split(pair, of, "\t"); printf "%5.1f%%  %8d  %s from %s\n", 100 * n[pair] / all, n[pair], of[1], of[2] }
          if (!all) print "none: no lane was seen waiting for a lock" }' "$out/stacks" | sort -rn
