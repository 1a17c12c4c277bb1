#!/bin/sh
# Counts instructions per operation, and says where they go: crates/lab/callgrind.sh crr|rr [--conns N] [any option of bench]
set -eu
unit=${1:-}
case $unit in
    crr) ops=20000 ;;
    rr) ops=100000 ;;
    *) echo "usage: $0 crr|rr [--conns N] [options of 'laneway-lab bench']" >&2; exit 2 ;;
esac
shift
command -v valgrind >/dev/null || { echo "$0: valgrind is missing; install it with: apt-get install valgrind" >&2; exit 2; }
cd "$(dirname "$0")/../.."
lab=${LANEWAY_LAB:-}  # a binary that is built already
if [ -z "$lab" ]; then
    cargo build --quiet --release -p laneway-lab
    lab=${CARGO_TARGET_DIR:-target}/release/laneway-lab
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
valgrind --quiet --tool=callgrind --callgrind-out-file="$out/callgrind" --toggle-collect='*counted_operations*' \
    "$lab" bench "$unit" --ops "$ops" "$@" >"$out/facts" 2>"$out/log" || { cat "$out/log" >&2; exit 1; }
cat "$out/facts"
done=$(awk '$1 == "ops" { print $2 }' "$out/facts")
total=$(awk '$1 == "summary:" || $1 == "totals:" { print $2; exit }' "$out/callgrind")
echo "instructions per operation (both ends): $((total / done))"
echo
echo "per operation  share  function"
# A function appears once for each file that was inlined into it: the lines are added up.
callgrind_annotate --inclusive=no --auto=no --tree=none --threshold=100 "$out/callgrind" >"$out/annotated"
awk -v ops="$done" -v total="$total" '/^ *[0-9,]+ \([ 0-9.]+%\)/ && !/PROGRAM TOTALS/ {
        name = $0; gsub(/,/, "", $1)
        sub(/^ *[0-9,]+ \([ 0-9.]+%\) */, "", name); sub(/ \[.*/, "", name); sub(/^[^:]*:/, "", name)
        ir[name] += $1
    }
    END { for (name in ir) printf "%13.0f %5.1f%%  %s\n", ir[name] / ops, 100 * ir[name] / total, name }' \
    "$out/annotated" | sort -rn | head -n "${TOP:-25}"
