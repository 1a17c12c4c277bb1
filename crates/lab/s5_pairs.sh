#!/bin/sh
# Instructions of an uncontended get and put, by callgrind: rcuref against a plain atomic pair. Exit 1 if rcuref needs more than
# 10 % more. The compare-exchange loop is shown beside them.
set -eu
command -v valgrind >/dev/null || { echo "$0: valgrind is missing; install it with: apt-get install valgrind" >&2; exit 2; }
cd "$(dirname "$0")/../.."
pairs=${1:-100000}
lab=${LANEWAY_LAB:-}  # a binary that is built already
if [ -z "$lab" ]; then
    cargo build --quiet --release -p laneway-lab
    lab=${CARGO_TARGET_DIR:-target}/release/laneway-lab
fi
count() {
    valgrind --quiet --tool=callgrind --callgrind-out-file=/dev/stdout --toggle-collect='*counted_*' "$lab" s5 --pairs "$1" "$pairs" |
        awk '$1 == "summary:" || $1 == "totals:" { print $2; exit }'
}
plain=$(count plain) && rcuref=$(count rcuref) && loop=$(count r0)
awk -v plain="$plain" -v rcuref="$rcuref" -v loop="$loop" -v pairs="$pairs" 'BEGIN {
    printf "instructions per get and put: plain atomic pair %.2f, rcuref %.2f (x %.3f), compare-exchange loop %.2f\n",
        plain / pairs, rcuref / pairs, rcuref / plain, loop / pairs
    exit !(plain > 0 && rcuref > 0 && rcuref <= plain * 1.10)
}'
