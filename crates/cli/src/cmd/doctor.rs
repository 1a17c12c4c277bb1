//! `laneway doctor`: what this machine allows, and the command that would allow more.

use crate::ask::Out;
use crate::failure::Failure;
use laneway_stack::device::Medium;
use laneway_stack::device::cookies_ebpf;
use laneway_stack::device::steering_ebpf::{Peers, Steering, even_table};
use laneway_stack::device::tun::{Tun, TunConfig, TunError};
use laneway_stack::runtime::cores;
use rustix::process::{Gid, Resource, getegid, geteuid, getgroups, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use serde_json::json;
use std::fs;
use std::io::ErrorKind;

/// Says what this machine allows Laneway to do, and for what it does not allow, the command that would change it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  laneway doctor\n  sudo laneway doctor --json")]
pub struct Args {
    /// Say it as JSON: an array of {"check","state","found","fix"}.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// As it should be.
    Good,
    /// Works, and could be better.
    Limited,
    /// Does not work.
    Missing,
}

struct Line {
    check: &'static str,
    state: State,
    found: String,
    fix: Option<String>,
}

impl Line {
    fn good(check: &'static str, found: impl Into<String>) -> Line {
        Line { check, state: State::Good, found: found.into(), fix: None }
    }
    fn limited(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Line {
        Line { check, state: State::Limited, found: found.into(), fix: Some(fix.into()) }
    }
    fn missing(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Line {
        Line { check, state: State::Missing, found: found.into(), fix: Some(fix.into()) }
    }
}

/// Looks, and says. What is missing is no failure of the doctor's.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut lines = vec![memory(), kernel(), core_count(), node(), capability()];
    lines.extend(interfaces());
    lines.extend([steering(), cookies(), files(), locked_memory(), processes()]);
    lines.extend([ipv6(), forwarding(), virtual_machine()]);
    let mut out = Out::new();
    if args.json {
        let state = |state| match state {
            State::Good => "good",
            State::Limited => "limited",
            State::Missing => "missing",
        };
        let all: Vec<_> = lines
            .iter()
            .map(|l| json!({"check": l.check, "state": state(l.state), "found": l.found, "fix": l.fix}))
            .collect();
        out.line(serde_json::Value::from(all))?;
        return out.flush();
    }
    for line in &lines {
        let mark = match line.state {
            State::Good => "ok     ",
            State::Limited => "limited",
            State::Missing => "missing",
        };
        out.line(format_args!("{mark}  {:<22}  {}", line.check, line.found))?;
        if let Some(fix) = &line.fix {
            out.line(format_args!("{:33}→ {fix}", ""))?;
        }
    }
    let serve = match lines.iter().find(|l| l.check == "TUN interface").map(|l| l.state) {
        Some(State::Missing) => "does not work for this user yet: see above",
        Some(State::Limited) => "works here, on an interface that was made ready: see above",
        _ => "works here",
    };
    out.line("\nlaneway demo   works here, without privileges")?;
    out.line(format_args!("laneway serve  {serve}"))?;
    out.flush()
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn memory() -> Line {
    Line::good("in-memory network", "always there; needs nothing")
}

/// What the kernel calls itself.
fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The two numbers that a release begins with.
fn version(release: &str) -> (u32, u32) {
    let number = |i: usize| release.split(['.', '-']).nth(i).and_then(|part| part.parse().ok()).unwrap_or(0);
    (number(0), number(1))
}

fn kernel() -> Line {
    let release = release();
    if version(&release) >= (5, 6) {
        Line::good("kernel", format!("Linux {release}"))
    } else {
        Line::limited(
            "kernel",
            format!("Linux {release}"),
            "Linux 5.6 or later has openat2(2), with which links are followed safely: upgrade the kernel",
        )
    }
}

fn core_count() -> Line {
    let (usable, online) = (cores().len(), std::thread::available_parallelism().map_or(1, usize::from));
    let found = format!("{usable} usable: so many lanes can have one each");
    if usable > online {
        let limit = format!("{found}, but the CPU quota allows the time of {online}");
        return Line::limited(
            "cores",
            limit,
            "raise the quota of this control group: `systemctl set-property <unit> CPUQuota=`",
        );
    }
    if usable >= 2 {
        Line::good("cores", found)
    } else {
        Line::limited("cores", found, "lanes on several cores need several cores; look at `taskset -p $$`")
    }
}

fn node() -> Line {
    let opened = fs::File::options().read(true).write(true).open("/dev/net/tun");
    match opened {
        Ok(_) => Line::good("/dev/net/tun", "can be opened"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Line::missing(
            "/dev/net/tun",
            "is not there",
            "sudo modprobe tun    (in a container: start it with `--device /dev/net/tun`)",
        ),
        Err(error) => {
            Line::missing("/dev/net/tun", format!("cannot be opened: {error}"), "sudo chmod 666 /dev/net/tun")
        }
    }
}

fn capability() -> Line {
    if capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN)) {
        return Line::good("CAP_NET_ADMIN", "held: interfaces can be made and given addresses");
    }
    Line::missing(
        "CAP_NET_ADMIN",
        "not held: interfaces cannot be made",
        format!("run with sudo, or once: {}", grant()),
    )
}

/// The command that gives the program every capability that it has a use for. One, because each takes back what the one before gave.
fn grant() -> String {
    let program = std::env::current_exe().map_or_else(|_| "laneway".into(), |path| path.display().to_string());
    format!("sudo setcap cap_net_admin,cap_bpf+ep {program}")
}

/// Opens one for a moment, under a name of the kernel's choice.
fn interfaces() -> Vec<Line> {
    let open =
        |queues: usize, offload: bool| Tun::open(&TunConfig { queues, offload, up: false, ..TunConfig::default() });
    let single = match open(1, false) {
        Ok(tun) => Line::good("TUN interface", format!("can be made (tried with {})", tun.name)),
        Err(TunError::Attach { .. }) if !made_ready().is_empty() => {
            let found = format!("none can be made; {} was made ready for this user", made_ready().join(", "));
            return vec![Line::limited("TUN interface", found, format!("laneway serve DIR --tun {}", made_ready()[0]))];
        }
        Err(error @ TunError::Attach { .. }) => {
            let fix = "run with sudo, or have root make one ready: sudo ip tuntap add dev lw0 mode tun multi_queue user $USER && sudo ip address add 10.9.0.1/24 dev lw0 && sudo ip link set lw0 up";
            return vec![Line::missing("TUN interface", error.to_string(), fix)];
        }
        Err(error) => {
            return vec![Line::missing("TUN interface", error.to_string(), "see the line about /dev/net/tun")];
        }
    };
    let many = match open(2, false) {
        Ok(_) => Line::good("multi-queue TUN", "one queue for each lane"),
        Err(error) => Line::limited("multi-queue TUN", error.to_string(), "use --lanes 1, or a kernel from 3.8 on"),
    };
    let offload = match open(1, true) {
        Ok(_) => Line::good("vnet_hdr", "checksums and segmentation can be left to the kernel"),
        Err(error) => {
            Line::limited("vnet_hdr", error.to_string(), "a kernel with virtio headers on TUN (any since 2.6.27)")
        }
    };
    vec![single, many, offload]
}

/// The TUN interfaces that this user may open without a privilege.
fn made_ready() -> Vec<String> {
    let user = geteuid().as_raw();
    let groups: Vec<u32> = getgroups().unwrap_or_default().into_iter().chain([getegid()]).map(Gid::as_raw).collect();
    let Ok(interfaces) = fs::read_dir("/sys/class/net") else { return Vec::new() };
    let names = interfaces.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_ready = |name: &String| {
        let of = |what: &str| read(&format!("/sys/class/net/{name}/{what}"));
        let said = (of("tun_flags"), of("owner"), of("group"));
        let (Some(flags), Some(owner), Some(group)) = said else { return false };
        may_open(&flags, &owner, &group, user, &groups)
    };
    let mut ready: Vec<String> = names.filter(is_ready).collect();
    ready.sort();
    ready
}

/// The kernel's rule, of what it says of an interface: it is a TUN, and for this user and one of these groups; -1 is anybody.
fn may_open(flags: &str, owner: &str, group: &str, user: u32, groups: &[u32]) -> bool {
    const IFF_TUN: u32 = 1;
    let flags = flags.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or(0);
    let is = |who: &str, ours: &[u32]| who == "-1" || who.parse().is_ok_and(|who| ours.contains(&who));
    flags & IFF_TUN != 0 && is(owner, &[user]) && is(group, groups)
}

fn steering() -> Line {
    let load = |peers| Steering::load(&[0x6d; 40], Medium::Ip, &even_table(2), Some((&peers, 2)));
    match Peers::new().and_then(load) {
        Ok(_) => Line::good("steering eBPF", "the kernel can choose lanes by our hash, and keep strangers' SYNs apart"),
        Err(error) => Line::limited(
            "steering eBPF",
            format!(
                "{error}: frames that land on the wrong lane are passed on, and a flood of SYNs waits in one queue with everything else"
            ),
            format!("run with sudo, or once: {}", grant()),
        ),
    }
}

fn cookies() -> Line {
    match cookies_ebpf::check() {
        Ok(()) => {
            Line::good("SYN cookies in eBPF", "SYNs to an endpoint that is overrun are answered where they are sent")
        }
        Err(error) => Line::limited(
            "SYN cookies in eBPF",
            format!("{error}: the SYNs of a flood come to the lanes, which answer as many as they have time for"),
            match error.kind() {
                ErrorKind::PermissionDenied => format!("run with sudo, or once: {}", grant()),
                _ => "Linux 6.6 or later".to_owned(),
            },
        ),
    }
}

fn limit(value: Option<u64>) -> String {
    value.map_or_else(|| "unlimited".into(), |value| value.to_string())
}

fn files() -> Line {
    let now = getrlimit(Resource::Nofile);
    let found = format!("{} (most: {})", limit(now.current), limit(now.maximum));
    // What asks for files asks for as many as may be had.
    if now.maximum.is_none_or(|n| n >= 65_536) {
        return Line::good("open files", found);
    }
    let fix = "sudo prlimit --pid $$ --nofile=1048576:1048576    (each large file under way needs one on each lane)";
    Line::limited("open files", found, fix)
}

fn locked_memory() -> Line {
    locked_memory_of(version(&release()), getrlimit(Resource::Memlock).current)
}

fn locked_memory_of(kernel: (u32, u32), now: Option<u64>) -> Line {
    const CHECK: &str = "locked memory";
    let found = now.map_or_else(|| limit(now), |bytes| format!("{bytes} bytes"));
    if kernel >= (5, 11) {
        return Line::good(CHECK, format!("{found}: this kernel counts no eBPF maps against it"));
    }
    if now.is_none_or(|bytes| bytes >= 64 << 20) {
        return Line::good(CHECK, found);
    }
    let fix = "sudo prlimit --pid $$ --memlock=unlimited:unlimited    (kernels before 5.11 count eBPF maps against it)";
    Line::limited(CHECK, found, fix)
}

fn processes() -> Line {
    let now = getrlimit(Resource::Nproc).current;
    if now.is_none_or(|n| n >= 1_024) {
        Line::good("threads", limit(now))
    } else {
        Line::limited("threads", limit(now), "ulimit -u 4096")
    }
}

fn ipv6() -> Line {
    // New interfaces begin with this; one that was made ready has its own.
    match read("/proc/sys/net/ipv6/conf/default/disable_ipv6").as_deref() {
        Some("0") => Line::good("IPv6", "on: a new TUN interface can have such an address"),
        Some(_) => Line::limited(
            "IPv6",
            "switched off: a new TUN interface can have no such address",
            "sudo sysctl -w net.ipv6.conf.default.disable_ipv6=0    (in a container pass that in: `--sysctl`)",
        ),
        None => Line::limited(
            "IPv6",
            "not known: the kernel has none, or /proc/sys is not there",
            "sudo mount -t proc proc /proc    (or boot without `ipv6.disable=1`)",
        ),
    }
}

fn forwarding() -> Line {
    let is_on = |path: &str| read(path).map(|value| value != "0");
    let Some(v4) = is_on("/proc/sys/net/ipv4/ip_forward") else {
        let found = "not known: /proc/sys is not there, and says who reaches a TUN interface's network";
        return Line::limited("IP forwarding", found, "sudo mount -t proc proc /proc");
    };
    // A kernel without IPv6 has nothing of it to forward.
    let v6 = is_on("/proc/sys/net/ipv6/conf/all/forwarding").unwrap_or(v4);
    let found = match (v4, v6) {
        (true, true) => {
            let found = "on: other machines can reach a TUN interface's network through this one";
            return Line::good("IP forwarding", found);
        }
        (true, false) => "on for IPv4 alone: only this machine reaches a TUN interface's IPv6 network",
        (false, true) => "on for IPv6 alone: only this machine reaches a TUN interface's IPv4 network",
        (false, false) => "off: only this machine reaches a TUN interface's network",
    };
    let fix = "sudo sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1";
    Line::limited("IP forwarding", found, fix)
}

fn virtual_machine() -> Line {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let is_guest =
        info.lines().any(|line| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor"));
    if is_guest {
        Line::limited(
            "machine",
            "virtual: measured times include what other guests do",
            "measure on a machine of your own, with `cpupower frequency-set -g performance`",
        )
    } else {
        Line::good("machine", "no hypervisor seen")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_open_an_interface_that_was_made_ready() {
        let (tun, tap) = ("0x5901", "0x5902");
        let may = |flags, owner, group| may_open(flags, owner, group, 1_000, &[100, 200]);
        assert!(may(tun, "1000", "-1") && may(tun, "-1", "200") && may(tun, "-1", "-1") && may(tun, "1000", "100"));
        assert!(!may(tap, "1000", "-1") && !may(tun, "0", "-1") && !may(tun, "1000", "0") && !may(tun, "0", "100"));
        assert!(!may("", "1000", "-1"));
    }

    #[test]
    fn locked_memory_is_short_where_maps_are_counted_against_it() {
        let state = |release, now| locked_memory_of(version(release), now).state;
        let (little, enough) = (Some(8 << 20), Some(64 << 20));
        assert!(state("5.10.0-28-amd64", little) == State::Limited && state("4.19", little) == State::Limited);
        assert!(state("5.10.0-28-amd64", enough) == State::Good && state("5.10.0", None) == State::Good);
        assert!(state("5.11.0", little) == State::Good && state("6.1-rc1", little) == State::Good);
    }
}
