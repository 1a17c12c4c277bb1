#!/usr/bin/env bash
# Clients of memcached that know nothing of Laneway judge `laneway-lab memcached`: memcapable, pymemcache, memaslap; and memcached
# itself, which is asked the same, answers beside it.
#
#   crates/lab/memcached_clients.sh [BINARY]        BINARY: laneway-lab; default target/release/laneway-lab
#   REFERENCES=r0 crates/lab/memcached_clients.sh   with another way of referring to routes
#
# Everything happens in a network namespace of its own. Needs root. Exit 1: somebody is not content. Exit 2: something is
# missing, and it is said what.
set -u
export LC_ALL=C
top=$(cd "$(dirname "$0")/../.." && pwd)
lab=${1:-${CARGO_TARGET_DIR:-$top/target}/release/laneway-lab}

# The tests of memcapable that are about commands which we have. Not claimed: flush, append, prepend, stat, and the binary protocol.
claimed="version quit verbosity set set_noreply get gets mget add add_noreply replace replace_noreply cas cas_noreply
    delete delete_noreply incr incr_noreply decr decr_noreply"

missing=
need() { # program or file, package
    command -v "$1" >/dev/null || { echo "missing: $1: apt-get install $2" >&2; missing=1; }
}
need ip iproute2
need memcached memcached
capable=$(command -v memccapable || command -v memcapable) || need memcapable libmemcached-tools
aslap=$(command -v memcaslap || command -v memaslap) || need memaslap libmemcached-tools
# Debian's package is of Debian's Python.
python=/usr/bin/python3
need $python python3
$python -c 'import pymemcache' 2>/dev/null || { echo "missing: pymemcache: apt-get install python3-pymemcache" >&2; missing=1; }
[ "$(id -u)" = 0 ] || { echo "it makes a network namespace and a TUN device, which needs root: sudo $0" >&2; missing=1; }
[ -x "$lab" ] || { echo "$lab is not there: cargo build --release -p laneway-lab" >&2; missing=1; }
[ -z "$missing" ] || exit 2

net=lwmc$$
work=$(mktemp -d)
pids=
clean() {
    # shellcheck disable=SC2086
    [ -z "$pids" ] || kill $pids 2>/dev/null
    wait 2>/dev/null
    ip netns del "$net" 2>/dev/null
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM
ip netns add "$net" || { echo "no network namespace can be made" >&2; exit 2; }
ip -n "$net" link set lo up
on() { ip netns exec "$net" "$@"; }

ours=10.79.0.2 theirs=127.0.0.1 port=11211
on "$lab" memcached --tun lwmc0 --addr $ours/24 --lanes 2 --references "${REFERENCES:-lane}" --seconds 300 >"$work/server" 2>&1 &
pids=$!
on memcached -u nobody -U 0 -l $theirs -p $port >"$work/memcached" 2>&1 &
pids="$pids $!"
for server in $ours $theirs; do
    for _ in $(seq 100); do
        on $python -c "import socket; socket.create_connection(('$server', $port), 1)" 2>/dev/null && continue 2
        sleep 0.1
    done
    echo "nobody answers at $server: $(cat "$work/server" "$work/memcached")" >&2
    exit 2
done

passed=0 failed=0
ok() { passed=$((passed + 1)); printf 'ok       %-28s %s\n' "$1" "${2:-}"; }
bad() { failed=$((failed + 1)); printf 'FAILED   %-28s %s\n' "$1" "${2:-}"; }

# memcapable: claimed is what is named above, whatever else passes is told.
on "$capable" -h $theirs -p $port -t 2 -a >"$work/reference" 2>&1
on "$capable" -h $ours -p $port -t 2 -a >"$work/capable" 2>&1
# Between the name and the verdict it may print what it did not expect.
verdict() {
    awk -v name="ascii $1" 'sub(/ +\[pass\].*/, "") { if ($0 == name) print "pass"; open = ""; next }
        /^ascii / { open = $0; sub(/  +.*/, "", open) }
        /\[FAIL\]/ { if (open == name) print "FAIL"; open = "" }' "$2"
}
unclaimed=
while read -r name; do
    word=${name// /_}
    seen=$(verdict "$name" "$work/capable")
    if ! grep -qw "$word" <<<"$claimed"; then
        unclaimed="$unclaimed, $name ($seen)"
    elif [ "$seen" = pass ]; then
        ok "memcapable, $name"
    elif [ "$(verdict "$name" "$work/reference")" != pass ]; then
        ok "memcapable, $name" "not content with memcached either"
    else
        bad "memcapable, $name" "${seen:-no answer}"
    fi
done < <(sed -n 's/^ascii \([a-z ]*[a-z]\) *\[.*/\1/p' "$work/reference")
[ "$(grep -c '^ascii' "$work/capable")" -gt 0 ] || bad "memcapable" "$(head -3 "$work/capable")"
echo "not claimed: ${unclaimed#, }"

# The same questions to both, by pymemcache and byte for byte.
on $python "$(dirname "$0")/memcached_clients.py" $ours:$port $theirs:$port >"$work/python" 2>&1
code=$?
cat "$work/python"
[ $code = 0 ] && ok "pymemcache, and bytes" || bad "pymemcache, and bytes" "exit $code"

# Load, every answer looked at.
on "$aslap" -s $ours:$port -T 1 -c 16 -x "${OPERATIONS:-20000}" -v 1.0 -X 100 >"$work/aslap" 2>&1
code=$?
said=$(sed -n 's/^verify_failed: *//p' "$work/aslap"; grep -o 'TPS: [0-9]*' "$work/aslap")
if [ $code = 0 ] && grep -q '^verify_failed: 0$' "$work/aslap" && grep -q '^verify_misses: 0$' "$work/aslap"; then
    ok "memaslap, all answers verified" "$(grep -o 'Net_rate.*\|TPS: [0-9]*' "$work/aslap" | head -1)"
else
    bad "memaslap, all answers verified" "exit $code: $said $(head -c 300 "$work/aslap")"
fi

kill -0 "${pids%% *}" 2>/dev/null && ok "the server still runs" || bad "the server still runs" "$(tail -3 "$work/server")"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
