#!/bin/sh
# Counts what a stream between two threads costs: callgrind instructions for a byte, of the thread that writes, of its lane, of the
# lane that receives, and of the thread that reads. A copy is about one, for callgrind counts each byte of it.
#
#     crates/stack/stream.sh MEBIBYTES TURN_US
#
# With 20 µs a turn the ring keeps what is sent; with 1000 the path is long, and it is copied.
set -eu
command -v valgrind >/dev/null || { echo "$0: valgrind is missing; install it with: apt-get install valgrind" >&2; exit 2; }
cd "$(dirname "$0")/../.."
stream=${LANEWAY_STREAM:-}  # a binary that is built already
if [ -z "$stream" ]; then
    cargo build --quiet --release -p laneway-stack --example stream
    stream=${CARGO_TARGET_DIR:-target}/release/examples/stream
fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for part in writer sending_lane receiving_lane reader; do
    done=$(valgrind --quiet --tool=callgrind --callgrind-out-file="$out" --toggle-collect="*counted_$part*" \
        "$stream" "${1:-32}" "${2:-20}" | awk '$1 == "mebibytes" { print $2 }')
    awk -v part="$part" -v done="$done" '$1 == "summary:" || $1 == "totals:" {
        printf "%-15s %6.3f instructions a byte\n", part, $2 / done / 1048576; exit }' "$out"
done
