#!/bin/sh
# Shows that the seam costs nothing: callgrind instructions of the same lives of connections, through it and without it.
# Exit 1 if `lane` through the seam needs more than 1 % more.
set -eu
command -v valgrind >/dev/null || { echo "$0: valgrind is missing; install it with: apt-get install valgrind" >&2; exit 2; }
cd "$(dirname "$0")/../.."
lives=${1:-20000}
cargo build --quiet --release -p laneway-stack --example seam
seam=${CARGO_TARGET_DIR:-target}/release/examples/seam
count() {
    valgrind --quiet --tool=callgrind --callgrind-out-file=/dev/stdout --toggle-collect='*counted_*' "$seam" "$1" "$lives" |
        awk '$1 == "summary:" || $1 == "totals:" { print $2; exit }'
}
direct=$(count direct)
lane=$(count lane)
awk -v direct="$direct" -v lane="$lane" -v lives="$lives" 'BEGIN {
    printf "instructions per life: direct %.1f, through the seam %.1f, ratio %.4f\n", direct / lives, lane / lives, lane / direct
    exit !(direct > 0 && lane > 0 && lane <= direct * 1.01)
}'
