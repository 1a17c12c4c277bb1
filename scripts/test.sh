#!/usr/bin/env bash
# What CI runs: every check of the tree, one after the other, and a sum of them as the last line. `make test` calls it.
# A step that cannot run here is skipped and says why; with CI=true that is a failure.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/target/tools/bin:$PATH:/usr/sbin:/sbin:$HOME/.cargo/bin"
# Here a property is checked with the same cases every time; `cargo test` by itself searches with new ones.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
passed=() failed=() skipped=()

step() { # name, command …
    local name=$1 began=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    if "$@"; then
        passed+=("$name")
        printf '== %s: passed, %s s\n' "$name" $((SECONDS - began))
    else
        failed+=("$name")
        printf '== %s: FAILED, %s s\n' "$name" $((SECONDS - began))
    fi
}

skip() { # name, reason
    printf '\n== %s: skipped: %s\n' "$1" "$2"
    skipped+=("$1")
}

tool() { cargo run -q -p laneway-tools --bin "$1"; }

loom() {
    RUSTFLAGS="--cfg laneway_loom" CARGO_TARGET_DIR=target/loom \
        scripts/some.sh cargo test -p laneway-sync --release --lib loom
}

findfalse() {
    cargo build -q --profile types --bin laneway || return 1
    cargo run -q -p laneway-tools --bin findfalse -- "${CARGO_TARGET_DIR:-target}/types/laneway" --ours laneway --allow crates/tools/findfalse.allow
}

# One that does not would be noticed only where somebody runs all of them, which takes minutes.
planted_apply() {
    local patch bad=0
    for patch in crates/sim/planted/*.patch; do
        git apply --check "$patch" || bad=1
    done
    return $bad
}

documentation() { RUSTDOCFLAGS="-D warnings" cargo doc -q --workspace --all-features --no-deps; }

scripts/need.sh rust || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }

step "format" cargo fmt --all --check
step "crate edges" tool edges
step "invariants, links, exceptions" tool lint-tree
step "planted bugs apply" planted_apply
step "clippy" cargo clippy -q --workspace --all-targets --all-features -- -D warnings
step "tests" cargo test -q --workspace --all-targets --all-features
step "false sharing" findfalse
step "documentation tests" cargo test -q --workspace --all-features --doc
step "documentation" documentation
step "loom models" loom
step "release build" cargo build -q --release --bin laneway --bin storm
step "storm, 10,000 seeds" cargo run -q --release -p laneway-sim --bin storm -- --seeds 0..10000

if [ "$(id -u)" -ne 0 ]; then
    skip "interop" "it makes network namespaces and a TUN device, which needs root: sudo make test"
elif [ ! -c /dev/net/tun ]; then
    skip "interop" "there is no /dev/net/tun on this machine"
elif ! scripts/need.sh clients; then
    skip "interop" "programs are missing, see above"
else
    step "example for interop" cargo build -q --workspace --all-features --example axum_tls
    step "interop, quick" crates/cli/tests/interop.sh --quick
    step "the kernel at the other end" scripts/some.sh cargo test -q --workspace --all-features --test tun --test stopped --test any_stream --test any_datagram -- --ignored
fi

if scripts/need.sh fuzz; then
    step "fuzz, a few seconds a target" scripts/fuzz.sh 5 1
else
    skip "fuzz" "cargo-fuzz or a nightly toolchain is missing, see above"
fi

printf '\n'
[ ${#failed[@]} -gt 0 ] && printf 'failed: %s\n' "${failed[@]}"
[ ${#skipped[@]} -gt 0 ] && printf 'skipped: %s\n' "${skipped[@]}"
echo "${#passed[@]} passed, ${#failed[@]} failed, ${#skipped[@]} skipped"
[ ${#failed[@]} -eq 0 ] || exit 1
[ "${CI:-false}" != true ] || [ ${#skipped[@]} -eq 0 ] || exit 1
