#!/usr/bin/env bash
# Runs every fuzz target for so many seconds, from its corpus on: scripts/fuzz.sh SECONDS [SEED]
# With a seed (not 0) the mutations are the same in every run: a short run is then a check, and a long one a search.
# What is new goes to fuzz/corpus-new; what fails, to fuzz/artifacts, with the command that repeats it.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60} seed=${2:-0}
export PATH="$PWD/target/tools/bin:$PATH:$HOME/.cargo/bin"
targets=$(cargo +nightly fuzz list --fuzz-dir fuzz)
[ -n "$targets" ] || { echo "fuzz.sh: there is no target in fuzz/" >&2; exit 1; }
cargo +nightly fuzz build --fuzz-dir fuzz

fuzz_one() { # target
    local target=$1 corpus=("fuzz/corpus-new/$1") log
    mkdir -p "fuzz/corpus-new/$target"
    [ -d "fuzz/corpus/$target" ] && corpus+=("fuzz/corpus/$target")
    log=$(mktemp)
    if ! cargo +nightly fuzz run --fuzz-dir fuzz "$target" "${corpus[@]}" -- -seed="$seed" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 >"$log" 2>&1; then
        echo "$target: FAILED"
        # The whole of it is long, and the reason stands in its middle.
        grep -nE -A3 'panicked|ERROR:|SUMMARY:|Base64|Test unit|cargo fuzz run|stat::' "$log" | head -n 80
        tail -n 20 "$log"
        rm -f "$log"
        return 255 # no further one is begun
    fi
    echo "$target: $seconds s, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs"
    rm -f "$log"
}
export -f fuzz_one
export seconds seed
# As many at a time as there are cores: each uses one.
echo "$targets" | xargs -P "$(nproc)" -I{} bash -c 'fuzz_one {}'
