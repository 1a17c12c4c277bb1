#!/usr/bin/env bash
# What a connection costs the whole machine: `laneway serve` through TUN, and nginx on the kernel through veth, for the same client.
#
#   crates/cli/tests/beside_nginx.sh [--rounds N] [--requests N] [--lanes L] [--json] [BINARY]
#
# Both servers stand in network namespaces of their own and hand out the same file; `ab` asks now the one, now the other, one
# connection a request, in turns, and nginx a second time, which shows what a difference of nothing looks like. Counted is what all
# cores were busy with meanwhile, interrupts included: the kernel bills received packets to whoever happens to run. So nothing else
# should run. Needs root, nginx and ab. Exit: 0 the bar holds, 1 it does not or a request failed, 2 it could not be tried.
set -u
export LC_ALL=C

rounds=5 requests=20000 lanes= json= binary=
bar=0.8
while [ $# -gt 0 ]; do
    case $1 in
        --rounds) shift; rounds=${1:?--rounds wants a number} ;;
        --requests) shift; requests=${1:?--requests wants a number} ;;
        --lanes) shift; lanes="--lanes ${1:?--lanes wants a number}" ;;
        --json) json=1 ;;
        --help | -h) sed -n '2,9p' "$0"; exit 0 ;;
        -*) echo "beside_nginx.sh: no option $1; see --help" >&2; exit 2 ;;
        *) binary=$1 ;;
    esac
    shift
done
top=$(cd "$(dirname "$0")/../../.." && pwd)
binary=${binary:-${CARGO_TARGET_DIR:-$top/target}/release/laneway}
PATH=$top/target/tools/nginx/usr/sbin:$PATH:/usr/sbin:/sbin

refuse() { echo "beside_nginx.sh: $*" >&2; exit 2; }
[ -x "$binary" ] || refuse "$binary is not there: build it with 'cargo build --release --bin laneway'"
[ "$(id -u)" = 0 ] || refuse "it makes network namespaces, which needs root: sudo $0"
for pair in ip:iproute2 ab:apache2-utils; do
    command -v "${pair%%:*}" >/dev/null || refuse "no ${pair%%:*}: apt-get install ${pair##*:}"
done
command -v nginx >/dev/null || refuse "no nginx: scripts/need.sh nginx"

client=lwc$$ far=lwf$$
work=$(mktemp -d)
clean() {
    for net in $client $far; do
        for pid in $(ip netns pids $net 2>/dev/null); do kill "$pid" 2>/dev/null; done
    done
    wait
    ip netns del $client 2>/dev/null
    ip netns del $far 2>/dev/null
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM
ulimit -n 65536 2>/dev/null || ulimit -n "$(ulimit -Hn)"

ip netns add $client && ip netns add $far || refuse "no network namespace can be made"
ip link add near0 netns $client type veth peer name far0 netns $far || refuse "no veth can be made"
ip -n $client addr add 10.81.0.1/24 dev near0
ip -n $far addr add 10.81.0.2/24 dev far0
for at in "$client lo" "$client near0" "$far lo" "$far far0"; do
    # shellcheck disable=SC2086
    set -- $at
    ip -n "$1" link set "$2" up
done
ip netns exec $client sysctl -qw net.ipv4.ip_local_port_range="1024 65535"

mkdir "$work/www"
chmod 755 "$work" "$work/www"
head -c 206 /dev/zero | tr '\0' x >"$work/www/index.html"
# As its users tune it: a worker a core, no log, files kept open.
cat >"$work/nginx.conf" <<CONF
user root;
worker_processes auto;
error_log $work/nginx.log;
pid $work/nginx.pid;
events { worker_connections 4096; }
http {
    access_log off;
    sendfile on;
    open_file_cache max=100;
    client_body_temp_path $work/body;
    proxy_temp_path $work/proxy;
    fastcgi_temp_path $work/fastcgi;
    uwsgi_temp_path $work/uwsgi;
    scgi_temp_path $work/scgi;
    server { listen 10.81.0.2:80 backlog=4096 reuseport; root $work/www; }
}
CONF
ip netns exec $far nginx -e "$work/nginx.log" -p "$work" -c "$work/nginx.conf" || refuse "nginx does not start: $(cat "$work/nginx.log")"
# shellcheck disable=SC2086
ip netns exec $client "$binary" serve "$work/www" --tun lw0 --addr 10.77.0.2/24 $lanes >"$work/server" 2>&1 &
for _ in $(seq 100); do
    grep -q '^SIGUSR1' "$work/server" && break
    sleep 0.05
done
grep -q '^SIGUSR1' "$work/server" || refuse "laneway serve does not start: $(cat "$work/server")"

# Hundredths of a second in which the cores were busy: user, nice, system, irq, softirq.
busy() { awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 }' /proc/stat; }
ticks=$(getconf CLK_TCK)
# ask WHO ADDRESS REQUESTS: prints microseconds of busy cores a connection, and connections a second.
ask() {
    local before out after
    before=$(busy)
    out=$(ip netns exec $client ab -q -s 60 -c 100 -n "$3" "http://$2/index.html" 2>&1)
    after=$(busy)
    awk -v ticks="$ticks" -v busy=$((after - before)) -v n="$3" '
        /^Failed requests:/ { failed = $3 } /^Complete requests:/ { done = $3 } /^Non-2xx/ { failed += $3 } /^Requests per second:/ { rate = $4 }
        END { if (done != n || failed != 0) exit 1; printf "%.2f %.0f\n", busy / ticks * 1e6 / n, rate }' <<<"$out" ||
        { echo "beside_nginx.sh: $1: not every request was answered: $(grep -E 'Failed|Complete|Non-2xx|apr_' <<<"$out" | tr '\n' ' ')" >&2; return 1; }
}

for who in "laneway 10.77.0.2" "nginx 10.81.0.2"; do
    # shellcheck disable=SC2086
    ask $who $((requests / 4)) >/dev/null || exit 1
done
for round in $(seq "$rounds"); do
    [ -t 2 ] && printf '\rround %d of %d' "$round" "$rounds" >&2
    for who in "laneway 10.77.0.2" "nginx 10.81.0.2" "nginx-aa 10.81.0.2"; do
        # shellcheck disable=SC2086
        figures=$(ask $who "$requests") || exit 1
        echo "$figures" >>"$work/${who%% *}"
    done
done
[ -t 2 ] && printf '\r\033[K' >&2

median() { cut -d' ' -f"$2" "$work/$1" | sort -g | awk '{ a[NR] = $1 } END { print NR % 2 ? a[(NR + 1) / 2] : (a[NR / 2] + a[NR / 2 + 1]) / 2 }'; }
list() { cut -d' ' -f1 "$work/$1" | paste -sd "${2:- }"; }
ratio=$(awk -v a="$(median laneway 1)" -v b="$(median nginx 1)" 'BEGIN { printf "%.3f", a / b }')
aa=$(awk -v a="$(median nginx-aa 1)" -v b="$(median nginx 1)" 'BEGIN { printf "%.3f", a / b }')
if [ -n "$json" ]; then
    for who in laneway nginx nginx-aa; do
        printf '{"who":"%s","busy_us_per_conn":%s,"conns_per_s":%s,"rounds":[%s]}\n' $who "$(median $who 1)" "$(median $who 2)" "$(list $who ,)"
    done
    printf '{"ratio":%s,"ratio_aa":%s,"bar":%s}\n' "$ratio" "$aa" $bar
else
    printf '%-10s %22s %14s   %s\n' "" "busy us a connection" "connections/s" "rounds"
    for who in laneway nginx nginx-aa; do
        printf '%-10s %22s %14s   %s\n' $who "$(median $who 1)" "$(median $who 2)" "$(list $who)"
    done
    echo "laneway / nginx $ratio (at most $bar); nginx / nginx $aa"
fi
awk -v r="$ratio" -v bar=$bar 'BEGIN { exit !(r <= bar) }' || { echo "beside_nginx.sh: a connection costs more than $bar of nginx's" >&2; exit 1; }
