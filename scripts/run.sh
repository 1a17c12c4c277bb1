#!/usr/bin/env bash
# Runs one of the longer checks by name, wherever it lives: scripts/run.sh interop|planted [arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
shift
for place in crates/*/"$name".sh; do
    [ -x "$place" ] && exec "$place" "$@"
done
echo "run.sh: no crate has a $name.sh" >&2
exit 1
