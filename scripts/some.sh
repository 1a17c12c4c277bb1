#!/usr/bin/env bash
# Runs tests that are chosen by name, and fails where a program has none of them: a name that was changed would pass for ever after.
# scripts/some.sh cargo test …
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" 2>&1 | tee "$log" || exit 1
results=$(grep '^test result: ' "$log")
if [ -z "$results" ] || grep -q ' 0 passed' <<<"$results"; then
    printf '%s: nothing has run in one of these programs, or in none: %s\n' "$0" "$*" >&2
    exit 1
fi
