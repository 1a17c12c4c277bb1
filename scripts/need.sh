#!/usr/bin/env bash
# Installs what a step needs, as far as it may: scripts/need.sh rust|clients|valgrind|miri|fuzz|nginx …
# Programs come from Debian's packages, as root. Without root it says what is missing, and which command adds it.
# Exit 1 if something is still missing.
set -uo pipefail
cd "$(dirname "$0")/.."

missing_packages() { # of "program:package" pairs, those whose program is not there
    for pair in "$@"; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null || printf '%s\n' "${pair##*:}"
    done | sort -u | tr '\n' ' '
}

apt() { # packages for these "program:package" pairs
    local packages
    packages=$(missing_packages "$@")
    [ -z "$packages" ] && return 0
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        echo "installing: $packages"
        export DEBIAN_FRONTEND=noninteractive
        # shellcheck disable=SC2086
        apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages >/dev/null
        packages=$(missing_packages "$@")
        [ -z "$packages" ] && return 0
        echo "still missing: $packages" >&2
    else
        echo "missing: ${packages}(as root: apt-get install $packages)" >&2
    fi
    return 1
}

rust() {
    apt cc:gcc || return 1
    if ! command -v cargo >/dev/null && [ ! -x "$HOME/.cargo/bin/cargo" ]; then
        apt rustup:rustup || { echo "missing: Rust; install rustup, and the toolchain that rust-toolchain.toml names comes by itself" >&2; return 1; }
    fi
    export PATH="$PATH:$HOME/.cargo/bin"
    # The toolchain that rust-toolchain.toml names.
    cargo --version >/dev/null 2>&1 || rustup toolchain install >/dev/null || return 1
}

nightly() { # with these components
    local present
    present=$(rustup toolchain list 2>/dev/null | grep -c '^nightly')
    if [ "$present" -eq 0 ]; then
        echo "installing: a nightly toolchain, by rustup"
        rustup toolchain install nightly --profile minimal --no-self-update >/dev/null || return 1
    fi
    for component in "$@"; do
        rustup component add --toolchain nightly "$component" >/dev/null 2>&1 || {
            echo "missing: the component $component of the nightly toolchain; install it: rustup component add --toolchain nightly $component" >&2
            echo "if that nightly has none: rustup toolchain install nightly --profile minimal --component $component (takes the newest that has)" >&2
            return 1
        }
    done
}

fuzz() {
    nightly || return 1
    apt c++:g++ || return 1
    command -v cargo-fuzz >/dev/null || [ -x target/tools/bin/cargo-fuzz ] && return 0
    echo "installing: cargo-fuzz, into target/tools"
    CARGO_TARGET_DIR=target/tools/build cargo install --quiet --locked --debug --root target/tools cargo-fuzz
}

# Unpacked into target/tools and not installed: the package would start a server of its own.
nginx() {
    local at=target/tools/nginx
    # `type -P`, for `command -v` would find this function.
    [ -n "$(PATH="$PATH:/usr/sbin:/sbin" type -P nginx)" ] || [ -x $at/usr/sbin/nginx ] && return 0
    if ! command -v apt-get >/dev/null; then
        echo "missing: nginx" >&2
        return 1
    fi
    echo "unpacking: nginx, into $at"
    mkdir -p $at && (cd $at && { apt-get download -qq nginx 2>/dev/null || { apt-get update -qq && apt-get download -qq nginx; }; } &&
        dpkg -x nginx_*.deb .) && [ -x $at/usr/sbin/nginx ]
}

failed=0
for what in "$@"; do
    case $what in
        rust) rust ;;
        clients)
            apt ab:apache2-utils wrk:wrk h2load:nghttp2-client curl:curl nmap:nmap hping3:hping3 ip:iproute2 ping:iputils-ping \
                tshark:tshark ;;
        valgrind) apt valgrind:valgrind objdump:binutils addr2line:binutils ;;
        miri) nightly miri rust-src ;;
        fuzz) fuzz ;;
        nginx) apt ab:apache2-utils ip:iproute2 && nginx ;;
        *) echo "need.sh: nothing is known of '$what'" >&2; false ;;
    esac || failed=1
done
exit $failed
