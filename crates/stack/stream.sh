#!/bin/sh
# Counts what a stream between two threads costs: callgrind instructions for a mebibyte, of the thread that sends, of its lane, of the
# lane that receives, and of the thread that reads. crates/stack/stream.sh [MEBIBYTES]
set -eu
command -v valgrind >/dev/null || { echo "$0: valgrind is missing; install it with: apt-get install valgrind" >&2; exit 2; }
cd "$(dirname "$0")/../.."
cargo build --quiet --release -p laneway-stack --example stream
stream=${CARGO_TARGET_DIR:-target}/release/examples/stream
for part in send sending_lane receiving_lane receive; do
    valgrind --quiet --tool=callgrind --callgrind-out-file=/dev/stdout --toggle-collect="*counted_$part*" "$stream" "${1:-64}" |
        awk -v part="$part" '$1 == "mebibytes" { done = $2 }
            ($1 == "summary:" || $1 == "totals:") && !all { all = $2 }
            END { printf "%-15s %9.0f instructions a mebibyte\n", part, all / done }'
done
