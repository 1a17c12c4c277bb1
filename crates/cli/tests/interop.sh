#!/usr/bin/env bash
# Laneway serves; clients that know nothing of it judge: curl, ab, wrk, h2load, ping, nmap, hping3, tshark.
#
#   crates/cli/tests/interop.sh [--quick] [--only NAME] [BINARY]
#
# Everything happens in network namespaces of its own; nothing of this machine's network is touched. Needs root. What
# cannot be done here is said and skipped; where CI is set, a skipped check is a failed one.
# --quick: smaller numbers, for every push. BINARY: default target/release/laneway. The example axum_tls is taken from
# beside it, or from where `cargo test` leaves it; AXUM_TLS names another.
set -u
export LC_ALL=C

quick=
only=
binary=
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=1 ;;
        --only) shift; only=${1:?--only wants a name} ;;
        --help | -h) sed -n '2,10p' "$0"; exit 0 ;;
        -*) echo "interop.sh: no option $1; see --help" >&2; exit 2 ;;
        *) binary=$1 ;;
    esac
    shift
done
top=$(cd "$(dirname "$0")/../../.." && pwd)
binary=${binary:-${CARGO_TARGET_DIR:-$top/target}/release/laneway}
if [ ! -x "$binary" ]; then
    echo "interop.sh: $binary is not there: build it with 'cargo build --release -p laneway-cli'" >&2
    exit 2
fi
binary=$(realpath "$binary")

if [ -n "$quick" ]; then
    tls_s=2 big_mib=64 ab_n=20000 load_n=20000 wrk_s=3 parallel_kib=512 flood_s=2 flood_rounds=1
else
    tls_s=10 big_mib=1024 ab_n=200000 load_n=200000 wrk_s=10 parallel_kib=4096 flood_s=3 flood_rounds=5
fi

net=lwi$$ far=lwf$$
work=$(mktemp -d)
www=$work/www
server=
passed=0 failed=0 skipped=0

clean() {
    stop_server >/dev/null 2>&1
    for pid in $(ip netns pids "$net" 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
    ip netns del "$net" 2>/dev/null
    ip netns del "$far" 2>/dev/null
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

ok() { passed=$((passed + 1)); printf 'ok       %-28s %s\n' "$1" "${2:-}"; }
bad() { failed=$((failed + 1)); printf 'FAILED   %-28s %s\n' "$1" "${2:-}"; }
skip() {
    skipped=$((skipped + 1))
    printf 'skipped  %-28s %s\n' "$1" "$2"
}
wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }
# have NAME TOOL PACKAGE: whether the check NAME can be made.
have() { command -v "$2" >/dev/null || { skip "$1" "no $2: apt-get install $3"; return 1; }; }
on() { ip netns exec "$net" "$@"; }

if [ "$(id -u)" != 0 ]; then
    skip everything "needs root: sudo $0"
    [ -n "${CI:-}" ] && exit 1
    exit 0
fi
for tool in ip curl; do
    command -v $tool >/dev/null || { skip everything "no $tool: apt-get install iproute2 curl"; [ -n "${CI:-}" ] && exit 1; exit 0; }
done
if ! ip netns add "$net" 2>"$work/netns"; then
    skip everything "no network namespace can be made: $(cat "$work/netns")"
    [ -n "${CI:-}" ] && exit 1
    exit 0
fi
ip -n "$net" link set lo up
on sysctl -qw net.ipv4.ip_local_port_range="1024 65535"
ulimit -n 65536 2>/dev/null || ulimit -n "$(ulimit -Hn)"

mkdir -p "$www/sub"
echo hello >"$www/index.html"
echo nested >"$www/sub/a b.txt"
head -c $((big_mib << 20)) /dev/urandom >"$www/big.bin"
head -c $((parallel_kib << 10)) /dev/urandom >"$www/part.bin"
echo secret >"$work/secret"
ln -s ../secret "$www/leak"

v4=10.77.0.2 v6=fd77::2
# start_server OPTIONS...: serves $www in the namespace, and returns once it says so.
start_server() {
    stop_server
    : >"$work/server"
    # Not through `on`: the job must be the server itself, which signals are sent to.
    ip netns exec "$net" "$binary" serve "$www" --tun lw0 --addr $v4/24 --addr $v6/64 "$@" >"$work/server" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        grep -q '^SIGUSR1' "$work/server" && return 0
        kill -0 $server 2>/dev/null || break
        sleep 0.05
    done
    bad "server" "does not start: $(cat "$work/server")"
    server=
    return 1
}
stop_server() {
    [ -n "$server" ] || return 0
    kill -TERM "$server" 2>/dev/null
    wait "$server"
    server_code=$?
    server=
}
counter() { awk -v name="$1" '$1 == name { value = $2 } END { print value + 0 }' "$work/server"; }
sum() { sha256sum | cut -d' ' -f1; }
big_sum=$(sum <"$www/big.bin")
part_sum=$(sum <"$www/part.bin")

check_http() {
    local said
    said=$(on curl -sS -m 10 "http://$v4/")
    [ "$said" = hello ] && ok "curl" "IPv4" || bad "curl" "IPv4 said '$said'"
    said=$(on curl -sS -m 10 "http://[$v6]/")
    [ "$said" = hello ] && ok "curl" "IPv6" || bad "curl" "IPv6 said '$said'"
    said=$(on curl -sS -m 10 -r 2-3 -w ' %{http_code}' "http://$v4/index.html")
    [ "$said" = "ll 206" ] && ok "range" || bad "range" "said '$said'"
    said=$(on curl -sS -m 10 -r -3 -w ' %{http_code}' "http://$v4/index.html" | tr -d '\n')
    [ "$said" = "lo 206" ] && ok "suffix range" || bad "suffix range" "said '$said'"
    said=$(on curl -sS -m 10 -r 100- -o /dev/null -w '%{http_code}' "http://$v4/index.html")
    [ "$said" = 416 ] && ok "range beyond the end" || bad "range beyond the end" "said '$said'"
    said=$(on curl -sS -m 10 -I "http://$v4/index.html" | grep -ci '^content-length: 6')
    [ "$said" = 1 ] && ok "HEAD" || bad "HEAD"
    said=$(on curl -sS -m 10 "http://$v4/sub/a%20b.txt")
    [ "$said" = nested ] && ok "encoded name" || bad "encoded name" "said '$said'"
    on curl -sS -m 10 "http://$v4/sub/" | grep -q 'a b.txt' && ok "listing" || bad "listing"
    local tag
    tag=$(on curl -sS -m 10 -I "http://$v4/index.html" | tr -d '\r' | awk 'tolower($1) == "etag:" { print $2 }')
    said=$(on curl -sS -m 10 -H "If-None-Match: $tag" -o /dev/null -w '%{http_code}' "http://$v4/index.html")
    [ "$said" = 304 ] && ok "not modified" || bad "not modified" "said '$said'"
    for path in /../secret /%2e%2e/secret /sub/..%2f..%2fsecret //../secret /leak; do
        said=$(on curl -sS -m 10 --path-as-is -w ' %{http_code}' "http://$v4$path" | tr '\n' ' ')
        case $said in
            *secret*) bad "no way out" "$path said '$said'" ;;
            *40[04]*) ok "no way out" "$path" ;;
            *) bad "no way out" "$path said '$said'" ;;
        esac
    done
    said=$(on curl -sS -m 10 -X POST -d x -o /dev/null -w '%{http_code}' "http://$v4/")
    [ "$said" = 405 ] && ok "method not allowed" || bad "method not allowed" "said '$said'"
}

check_misuse() {
    local out code
    out=$(on "$binary" serve "$www" --tun lw0 --addr 10.79.0.2/24 2>&1)
    code=$?
    [ $code = 2 ] && grep -q 'another stack answers' <<<"$out" && ok "busy control socket" "refused" || bad "busy control socket" "code $code: $out"
    out=$(on "$binary" serve "$www" --tun lw0 --addr 10.79.0.2/24 --control none 2>&1)
    code=$?
    [ $code = 2 ] && grep -q 'in use by another program' <<<"$out" && ok "busy interface" "refused" || bad "busy interface" "code $code: $out"
    out=$(on "$binary" serve "$www" --tun lw1 --addr $v4/24 2>&1)
    code=$?
    [ $code = 2 ] && grep -q 'overlaps' <<<"$out" && ok "overlapping address" "refused" || bad "overlapping address" "code $code: $out"
}

check_download() {
    local name address got speed
    for name in IPv4 IPv6; do
        [ $name = IPv4 ] && address=$v4 || address="[$v6]"
        got=$(on curl -sS -m 600 -w '%{stderr}%{speed_download}' "http://$address/big.bin" 2>"$work/speed" | sum)
        speed=$(awk '{ printf "%.0f MB/s", $1 / 1e6 }' "$work/speed")
        [ "$got" = "$big_sum" ] && ok "$big_mib MiB download" "$name, sha256 equal, $speed" || bad "$big_mib MiB download" "$name: another sha256 ($speed)"
    done
}

ab_check() {
    local name=$1 out
    shift
    out=$(on ab -q -r -s 60 "$@" "http://$v4/index.html" 2>&1)
    local fails rate done_n
    fails=$(awk '/^Failed requests:/ { print $3 }' <<<"$out")
    done_n=$(awk '/^Complete requests:/ { print $3 }' <<<"$out")
    rate=$(awk '/^Requests per second:/ { print $4 }' <<<"$out")
    [ "$fails" = 0 ] && [ -n "$rate" ] && ok "$name" "$done_n requests, 0 failed, $rate/s" || bad "$name" "$(grep -E 'Failed|apr_|Complete' <<<"$out" | tr '\n' ' ')"
}

check_ab() {
    have "ab" ab apache2-utils || return
    ab_check "ab -c 100" -c 100 -n $ab_n
    ab_check "ab -k -c 100" -k -c 100 -n $ab_n
}

check_wrk() {
    have "wrk" wrk wrk || return
    local out
    out=$(on wrk -c 1000 -t 2 -d ${wrk_s}s --timeout 10s "http://$v4/index.html" 2>&1)
    if grep -q 'Socket errors' <<<"$out" || ! grep -q 'Requests/sec' <<<"$out" || grep -q 'Non-2xx' <<<"$out"; then
        bad "wrk -c 1000" "$(grep -E 'errors|Non-2xx|unable' <<<"$out" | tr '\n' ' ')"
    else
        ok "wrk -c 1000" "$(awk '/Requests\/sec/ { print $2 }' <<<"$out")/s, no socket error"
    fi
}

check_h2load() {
    have "h2load" h2load nghttp2-client || return
    local out
    out=$(on h2load --h1 -n $load_n -c 100 "http://$v4/index.html" 2>&1)
    grep -q "$load_n succeeded, 0 failed, 0 errored, 0 timeout" <<<"$out" && ok "h2load --h1" "$(sed -n 's/^finished in [^,]*, \([^,]*\),.*/\1/p' <<<"$out")" || bad "h2load --h1" "$(grep '^requests:' <<<"$out")"
}

check_ping() {
    have "ping" ping iputils-ping || return
    local address out
    for address in $v4 $v6; do
        out=$(on ping -q -c 5 -i 0.2 -W 2 -s 3000 $address 2>&1)
        grep -q ' 5 received' <<<"$out" && ok "ping -s 3000" "$address" || bad "ping -s 3000" "$address: $(grep received <<<"$out")"
    done
}

check_nmap() {
    have "nmap" nmap nmap || return
    local address flag out
    for address in $v4 $v6; do
        flag=
        [ $address = $v6 ] && flag=-6
        # shellcheck disable=SC2086
        # From a port below those that clients choose: to one that was used before, TIME_WAIT answers a SYN with an ACK, and rightly.
        out=$(on nmap $flag -g 1000 -sS -p- -n -Pn -T4 --min-rate 5000 $address 2>&1)
        [ "$(grep -c '^[0-9]*/tcp *open' <<<"$out")" = 1 ] && grep -q '^80/tcp *open' <<<"$out" && grep -q '65534 closed' <<<"$out" &&
            ok "nmap -sS -p-" "$address: 80 open, 65534 closed" || bad "nmap -sS -p-" "$address: $(grep -E 'tcp|shown' <<<"$out" | head -5 | tr '\n' ' ')"
    done
}

# The same attack, once on us and once into the void: what is left for ab should be nearly the same.
# flooded NAME HPING_OPTIONS...: what ab keeps of its rate while the same flood goes where nobody answers; the median of some rounds.
flooded() {
    local name=$1 round target
    shift
    local -a ratios
    for round in $(seq $flood_rounds); do
        local -A rates
        for target in 10.78.0.9 $v4; do
            ip netns exec "$net" hping3 -q --flood -S -p 80 "$@" $target >/dev/null 2>&1 &
            local flood=$!
            sleep 0.5
            rates[$target]=$(on ab -q -r -s 60 -t $flood_s -n 10000000 -c 50 "http://$v4/index.html" 2>&1 | awk '/^Requests per second:/ { print $4 } /^Failed requests:/ && $3 > 0 { print "failed" }' | tr '\n' ' ')
            kill -INT $flood 2>/dev/null
            wait $flood 2>/dev/null
        done
        case "${rates[$v4]}" in *failed*) bad "$name" "ab has failed requests (${rates[$v4]})"; return ;; esac
        ratios+=("$(awk -v a="${rates[$v4]}" -v b="${rates[10.78.0.9]}" 'BEGIN { printf "%.2f", (b + 0) ? a / b : 0 }')")
    done
    local ratio
    ratio=$(printf '%s\n' "${ratios[@]}" | sort -n | sed -n "$(((flood_rounds + 1) / 2))p")
    # A short run on a busy machine says only that service goes on.
    awk -v r="$ratio" -v bar="${quick:+0.2}" 'BEGIN { exit !(r >= (bar ? bar : 0.8)) }' && ok "$name" "ab keeps $ratio of its rate (rounds: ${ratios[*]})" ||
        bad "$name" "ab keeps only $ratio of its rate (rounds: ${ratios[*]}; ${rates[$v4]}/s against ${rates[10.78.0.9]}/s)"
}

check_flood() {
    have "SYN flood" hping3 hping3 || return
    have "SYN flood" ab apache2-utils || return
    # Where nobody answers: what is sent there is dropped by the kernel, after it went the same way.
    ip -n "$net" link add void0 type dummy 2>/dev/null || ip -n "$net" link add void0 type veth peer name void1 2>/dev/null ||
        ip -n "$net" tuntap add dev void0 mode tun || { skip "SYN flood" "no interface without a far end can be made: modprobe dummy"; return; }
    ip -n "$net" link set void0 arp off up
    ip -n "$net" addr add 10.78.0.1/24 dev void0
    flooded "SYN flood, forged" --rand-source
    # From the address that ab has, and that refuses what it has not asked for.
    flooded "SYN flood, one address"
    ip -n "$net" link del void0
}

check_fault() {
    local i wrong=0 pids=()
    for i in $(seq 64); do
        (
            got=$(on curl -sS -m 300 "http://$v4/part.bin" 2>>"$work/curl" | sum)
            [ "$got" = "$part_sum" ]
        ) &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i" || wrong=$((wrong + 1)); done
    [ $wrong = 0 ] && ok "64 downloads, bad network" "$parallel_kib KiB each, loss 1 %, reorder 1 %, corruption 0.1 %: all sums equal" ||
        bad "64 downloads, bad network" "$wrong of 64 are wrong: $(sort "$work/curl" | uniq -c | sort -rn | head -3 | tr '\n' ' ')"
}

# A client behind a router whose next link is narrow, and whose ICMP messages do not get through.
check_black_hole() {
    local got name address before took
    ip netns add "$far" && ip -n "$net" link add hole0 type veth peer name far0 netns "$far" || { bad "black hole" "no second namespace"; return; }
    ip -n "$net" addr add 10.81.0.1/24 dev hole0 && ip -n "$net" addr add fd81::1/64 dev hole0 nodad && ip -n "$net" link set hole0 up
    ip -n "$far" addr add 10.81.0.2/24 dev far0 && ip -n "$far" addr add fd81::2/64 dev far0 nodad && ip -n "$far" link set far0 up
    ip -n "$far" route add default via 10.81.0.1 && ip -n "$far" -6 route add default via fd81::1
    on sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
    ip -n "$net" route replace 10.81.0.0/24 dev hole0 mtu lock 1400
    ip -n "$net" -6 route add fd81::2/128 dev hole0 mtu lock 1400
    # What the router says by itself; what it forwards goes on.
    ip -n "$net" rule add iif lo to $v4 blackhole
    ip -n "$net" -6 rule add iif lo to $v6 blackhole
    for name in IPv4 IPv6; do
        [ $name = IPv4 ] && address=$v4 || address="[$v6]"
        before=$(date +%s%N)
        got=$(ip netns exec "$far" curl -sS -m 60 "http://$address/part.bin" 2>>"$work/curl" | sum)
        took=$((($(date +%s%N) - before) / 1000000))
        [ "$got" = "$part_sum" ] && [ $took -gt 2900 ] && ok "black hole" "$name, found after $took ms, sha256 equal" ||
            bad "black hole" "$name, after $took ms: $(tail -1 "$work/curl")"
        got=$(ip netns exec "$far" curl -sS -m 2 "http://$address/part.bin" 2>>"$work/curl" | sum)
        [ "$got" = "$part_sum" ] && ok "black hole" "$name, known to the next" || bad "black hole" "$name, not known to the next: $(tail -1 "$work/curl")"
    done
    ip -n "$net" rule del iif lo to $v4 blackhole
    ip -n "$net" -6 rule del iif lo to $v6 blackhole
    stop_server
    got=$(counter TcpExtTCPMTUPFail)
    [ "$got" = 2 ] && ok "black hole" "counted" || bad "black hole" "counted $got times"
    ip netns del "$far"
}

# A client that asks for ECN, over a network that marks.
check_ecn() {
    local got name address marked
    on sysctl -qw net.ipv4.tcp_ecn=1
    for name in IPv4 IPv6; do
        [ $name = IPv4 ] && address=$v4 || address="[$v6]"
        got=$(on curl -sS -m 60 "http://$address/part.bin" 2>>"$work/curl" | sum)
        [ "$got" = "$part_sum" ] && ok "ECN" "$name, sha256 equal" || bad "ECN" "$name: $(tail -1 "$work/curl")"
    done
    on curl -sS -m 60 "http://$v4/[1-30]" -o /dev/null
    on sysctl -qw net.ipv4.tcp_ecn=2
    stop_server
    got=$(counter IpExtInCEPkts)
    marked=$(on awk '/^IpExt:/ && !of { for (i = 2; i <= NF; i++) if ($i == "InCEPkts") of = i; next } /^IpExt:/ { print $of }' /proc/net/netstat)
    [ "$got" -gt 0 ] && [ "$marked" -gt 0 ] && ok "ECN" "$got marked packets have come, $marked of ours" || bad "ECN" "$got marked packets have come, $marked of ours"
}

check_capture() {
    have "capture" tshark tshark || return
    on curl -sS -m 10 "http://$v4/part.bin" -o /dev/null
    on curl -sS -m 10 "http://[$v6]/part.bin" -o /dev/null
    command -v ab >/dev/null && on ab -q -c 10 -n 500 "http://$v4/index.html" >/dev/null 2>&1
    on ping -q -c 1 -s 3000 $v4 >/dev/null
    stop_server
    local out packets
    out=$(tshark -r "$work/capture.pcapng" -o tcp.check_checksum:TRUE -o ip.check_checksum:TRUE -q -z expert 2>/dev/null)
    packets=$(tshark -r "$work/capture.pcapng" 2>/dev/null | wc -l)
    if [ "$packets" -lt 100 ]; then
        bad "capture" "only $packets packets"
    elif grep -qE '^Errors|[Mm]alformed|checksum.*incorrect|Bad checksum' <<<"$out"; then
        bad "capture" "$(grep -A8 -E '^Errors|alformed' <<<"$out" | tr '\n' ' ')"
    else
        ok "capture" "$packets packets, nothing malformed, no error"
        sed -n '/^Warns/,/^$/p' <<<"$out" | sed 's/^/         /'
    fi
}

check_end() {
    kill -USR1 "$server"
    sleep 0.3
    grep -q '^#laneway' "$work/server" && ok "SIGUSR1" "prints counters" || bad "SIGUSR1" "prints no counters"
    ip netns exec "$net" curl -sS -m 60 --limit-rate 1M "http://$v4/big.bin" -o /dev/null 2>/dev/null &
    local client=$!
    sleep 0.3
    local begin=$SECONDS
    stop_server
    [ "$server_code" = 0 ] && [ $((SECONDS - begin)) -le 4 ] && ok "SIGTERM" "ends in good order under load" || bad "SIGTERM" "code $server_code after $((SECONDS - begin)) s"
    wait $client
    [ -z "$(ip -n "$net" link show lw0 2>/dev/null)" ] && ok "interface" "is gone afterwards" || bad "interface" "is still there"
}

# A running server is asked what it does, while it does it.
check_ask() {
    have "ask" ab apache2-utils || return
    local out code lines
    # What is asked is heard in the file system, not in the network namespace.
    export LANEWAY_RUNTIME_DIR=$work/run
    start_server --lanes 2 || return
    "$binary" trace -w "$work/ask.pcapng" --port 80 --snaplen 96 2>"$work/trace" &
    local tracer=$!
    "$binary" watch -n 4 --json >"$work/watch" 2>&1 &
    local watcher=$!
    "$binary" nstat >/dev/null 2>&1
    (while kill -0 $watcher 2>/dev/null; do "$binary" ss -a --json; done) >"$work/ss" 2>&1 &
    local lister=$!
    ab_check "ab while asked" -c 100 -n $((ab_n / 2))
    wait $watcher $lister
    out=$("$binary" ss -a) && grep -q '^LISTEN .*\[::\]:80' <<<"$out" && grep -q 'TIME-WAIT .*timer:(timewait' <<<"$out" \
        && ok "ss -a" "$(wc -l <<<"$out") lines" || bad "ss -a" "$(head -3 <<<"$out")"
    lines=$(grep -c '"state":' "$work/ss")
    [ "$lines" -gt 0 ] && ! grep -qv '^{' "$work/ss" && ok "ss --json under load" "$lines rows" || bad "ss --json under load" "$(grep -v '^{' "$work/ss" | head -1)"
    out=$("$binary" nstat --json Tcp) && grep -q '"TcpPassiveOpens":[1-9]' <<<"$out" && ok "nstat" "increments" || bad "nstat" "$out"
    out=$("$binary" nstat --json Tcp) && ! grep -q TcpPassiveOpens <<<"$out" && ok "nstat" "none since the last call" || bad "nstat" "$out"
    grep -q '"TCPaccept":[1-9]' "$work/watch" && [ "$(wc -l <"$work/watch")" = 4 ] && ok "watch" "sees connections" || bad "watch" "$(head -1 "$work/watch")"
    kill -INT $tracer && wait $tracer
    code=$?
    if [ $code != 0 ]; then
        bad "trace" "code $code: $(cat "$work/trace")"
    elif have "trace" tshark tshark; then
        lines=$(tshark -r "$work/ask.pcapng" 'tcp.flags.syn == 1 && tcp.flags.ack == 0' 2>/dev/null | wc -l)
        [ "$lines" -gt 0 ] && ok "trace" "$lines SYNs, $(cat "$work/trace")" || bad "trace" "no SYN: $(cat "$work/trace")"
    fi
    stop_server
    out=$("$binary" ss 2>&1)
    code=$?
    [ $code = 2 ] && grep -q 'no stack is running' <<<"$out" && ok "ss" "nobody to ask" || bad "ss" "code $code: $out"
    unset LANEWAY_RUNTIME_DIR
}

# Every way of sharing connections serves, and its locks are shown meanwhile.
check_sharing() {
    have "sharing" ab apache2-utils || return
    local sharing seen asker
    export LANEWAY_RUNTIME_DIR=$work/run
    for sharing in global accept timewait decomposed epoch lane; do
        start_server --sharing $sharing --lanes 2 || continue
        (while [ ! -e "$work/enough" ]; do "$binary" locks; "$binary" locks --who; "$binary" locks --json; "$binary" locks --callers; "$binary" lanes -n 1 --interval 100ms; done) >"$work/locks" 2>&1 &
        asker=$!
        ab_check "--sharing $sharing, ab" -c 100 -n $((ab_n / 8))
        touch "$work/enough"
        wait $asker
        rm "$work/enough"
        # A heading, a line for each lane and one for all: and the lanes were seen at work.
        if awk '$1 == "lane" && $2 == "busy" { looks++ } $1 == "all" && $2 > 0 && $6 > 0 { busy++; if ($9 > smtx) smtx = $9 }
                END { printf "%d looks, at the most %d contended a second", looks, smtx; exit !(looks > 0 && busy > 0) }' "$work/locks" >"$work/lanes"; then
            ok "lanes, $sharing" "$(cat "$work/lanes")"
        else
            bad "lanes, $sharing" "$(grep -A 3 '^lane' "$work/locks" | head -4)"
        fi
        seen=$("$binary" locks)
        if [ $sharing = lane ]; then
            grep -q '^there is no lock' <<<"$seen" && ok "locks, $sharing" "none" || bad "locks, $sharing" "$seen"
        elif grep -q '^ *max *wait_max *total *wait_total *count *avg *wait_avg *cnt_hold *cnt_lock name' <<<"$seen" && grep -q '(pcb): connection: ' <<<"$seen" && ! grep -q '^laneway: ' "$work/locks"; then
            ok "locks, $sharing" "$(grep -c 'sites.rs' <<<"$seen") places, asked $(grep -c wait_max "$work/locks") times under load"
        else
            bad "locks, $sharing" "$(grep '^laneway: ' "$work/locks" | head -1) $(head -2 <<<"$seen")"
        fi
    done
    unset LANEWAY_RUNTIME_DIR
}

# An interface that is there already says where it is.
check_settings() {
    local out
    stop_server
    printf '[interface]\ntun = "lw9"\ncontrol = "none"\n[sysctl]\ntcp_timestamps = 0\n' >"$work/laneway.toml"
    for is in 10.78.0.1/24 '10.78.0.1 peer 10.78.0.2'; do
        ip -n "$net" tuntap add lw9 mode tun multi_queue && ip -n "$net" addr add $is dev lw9 && ip -n "$net" link set lw9 mtu 1400 up
        LANEWAY_LOG=info ip netns exec "$net" "$binary" serve "$www" --config "$work/laneway.toml" >"$work/server" 2>"$work/log" &
        server=$!
        for _ in $(seq 100); do grep -q '^SIGUSR1' "$work/server" && break; sleep 0.05; done
        out=$(on curl -sS -m 10 http://10.78.0.2/)
        [ "$out" = hello ] && ok "settings" "address by netlink, of $is" || bad "settings" "of $is, said '$out': $(cat "$work/server" "$work/log")"
        out=$(ip -n "$net" -4 -o addr show dev lw9)
        [ "$(wc -l <<<"$out")" = 1 ] && ok "settings" "an interface with $is stays as it is" || bad "settings" "addresses were added: $out"
        stop_server
        ip -n "$net" link del lw9
    done
    for out in 'configuration is loaded' 'stack runs' 'device is open' ' listens ' 'stack has stopped'; do
        grep -q "INFO .*$out" "$work/log" || break
        out=
    done
    [ -z "$out" ] && [ "$(wc -l <"$work/log")" -lt 30 ] && ok "LANEWAY_LOG=info" "$(wc -l <"$work/log") lines" || bad "LANEWAY_LOG=info" "no '$out': $(head -40 "$work/log")"
}

# An application that knows nothing of Laneway but its listener: axum behind rustls, asked over TLS.
check_tls() {
    have "axum and rustls" wrk wrk || return
    local example out rate at=10.80.0.2 built="${CARGO_TARGET_DIR:-$top/target}"
    # The newer, if both are there.
    example=${AXUM_TLS:-$(ls -t "$(dirname "$binary")/examples/axum_tls" "$built"/{release,debug}/examples/axum_tls 2>/dev/null | head -1)}
    if [ ! -x "$example" ]; then
        skip "axum and rustls" "no ${example:-example}: cargo build --release -p laneway --features axum --example axum_tls"
        return
    fi
    stop_server
    ip netns exec "$net" "$example" --tun lw2 --addr $at/24 >"$work/server" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        grep -q "https://$at/" "$work/server" && break
        kill -0 $server 2>/dev/null || break
        sleep 0.05
    done
    for scheme in http https; do
        out=$(on curl -sS -k -m 10 -w ' %{http_code}' "$scheme://$at/" 2>&1)
        [ "$out" = "hello from a lane"$'\n'" 200" ] && ok "axum, curl" "$scheme, the whole body" || bad "axum, curl" "$scheme said '$out': $(cat "$work/server")"
    done
    out=$(on wrk -t2 -c100 -d${tls_s}s --timeout 10s "https://$at/" 2>&1)
    rate=$(awk '/Requests\/sec/ { print $2 }' <<<"$out")
    if grep -qE 'Socket errors|Non-2xx' <<<"$out" || ! grep -qE '^ *[1-9][0-9]* requests in' <<<"$out"; then
        bad "axum and rustls, wrk" "$(grep -E 'errors|Non-2xx|unable|requests in' <<<"$out" | tr '\n' ' ')"
    else
        ok "axum and rustls, wrk" "$(awk '/ requests in / { print $1 }' <<<"$out") requests, 0 failed, $rate/s"
    fi
    kill -0 $server 2>/dev/null && ok "axum and rustls" "still serves" || bad "axum and rustls" "has ended: $(cat "$work/server")"
    ip -n "$net" link del lw2
    for _ in $(seq 40); do kill -0 $server 2>/dev/null || break; sleep 0.05; done
    kill -0 $server 2>/dev/null && out="goes on" || out=
    stop_server
    [ -z "$out" ] && [ "$server_code" = 1 ] && grep -q 'the interface lw2 is gone' "$work/server" && ok "axum and rustls" "ends with its interface, and says so" ||
        bad "axum and rustls" "interface deleted: $out, code $server_code: $(cat "$work/server")"
}

echo "Laneway and real clients: $("$binary" --version), $(uname -sr), $(nproc) cores${quick:+, quick}"
if start_server; then
    wanted http && check_http
    wanted misuse && check_misuse
    wanted download && check_download
    wanted ab && check_ab
    wanted wrk && check_wrk
    wanted h2load && check_h2load
    wanted ping && check_ping
    wanted nmap && check_nmap
    wanted end && check_end
fi
# Under attack every core is needed.
if wanted flood && start_server --lanes "$(nproc)"; then
    check_flood
fi
if wanted fault && start_server --fault loss=1%,reorder=1%,corrupt=0.1%; then
    check_fault
fi
if wanted black_hole && start_server; then
    check_black_hole
fi
if wanted ecn && start_server --fault mark=50%; then
    check_ecn
fi
for lanes in 1 2 4; do
    if wanted lanes && start_server --lanes $lanes; then
        have "--lanes $lanes" ab apache2-utils && ab_check "--lanes $lanes, ab" -c 100 -n $((ab_n / 4))
    fi
done
wanted sharing && check_sharing
if wanted capture && start_server --pcap "$work/capture.pcapng"; then
    check_capture
fi
wanted ask && check_ask
wanted settings && check_settings
wanted tls && check_tls
stop_server

echo "$passed ok, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && { [ -z "${CI:-}" ] || [ "$skipped" = 0 ]; }
