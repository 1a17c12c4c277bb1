#!/bin/sh
# Shows that `storm` finds what it is for: each patch beside this script plants one bug of the protocol in a copy of the
# tree, and storm must find it within the first 10,000 seeds. The tree without the bug must pass the seed that found it.
#
#   run.sh [PATCH...]      all patches, or these
#   SEEDS=0..10000         the seeds to look through
#   THREADS=N              threads of storm (default: all cores)
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
seeds=${SEEDS:-0..10000}
threads=${THREADS:-$(nproc)}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT INT TERM
export CARGO_TARGET_DIR=${PLANTED_TARGET_DIR:-$copy/target}
# The same code without the long link: a build for each patch is made here.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=none

mkdir "$copy/tree"
for part in Cargo.toml Cargo.lock rust-toolchain.toml crates; do
    cp -R "$root/$part" "$copy/tree/"
done
cd "$copy/tree"

build() {
    cargo build --quiet --release -p laneway-sim --bin storm 2>"$copy/log" || {
        cat "$copy/log" >&2
        exit 2
    }
}

build
cp "$CARGO_TARGET_DIR/release/storm" "$copy/sound"

[ $# -gt 0 ] || set -- "$here"/*.patch
failed=0
for patch in "$@"; do
    name=$(basename "$patch" .patch)
    if ! patch --quiet -p1 --fuzz=3 <"$patch"; then
        echo "$name: does not apply: the code it changes has moved; make it anew" >&2
        failed=1
        rm -rf "$copy/tree/crates" && cp -R "$root/crates" "$copy/tree/"
        continue
    fi
    build
    found=$("$CARGO_TARGET_DIR/release/storm" --seeds "$seeds" --threads "$threads" 2>"$copy/what") && status=0 || status=$?
    seed=$(printf '%s\n' "$found" | sed -n '1s/^storm --seed //p')
    if [ "$status" -ne 1 ] || [ -z "$seed" ]; then
        echo "$name: NOT FOUND in seeds $seeds" >&2
        failed=1
    elif ! "$copy/sound" --seed "$seed" >/dev/null 2>&1; then
        echo "$name: seed $seed fails without the bug, too" >&2
        failed=1
    else
        echo "$name: storm --seed $seed ($(sed -n '2s/ at .*//p' "$copy/what"))"
    fi
    patch --quiet -p1 --fuzz=3 -R <"$patch"
done
exit "$failed"
