//! `laneway serve`: a directory over HTTP, on a TUN interface.

use crate::aside::Aside;
use crate::failure::Failure;
use crate::http::files::Root;
use crate::http::patience::Patience;
use crate::http::server::Server;
use crate::http::warm::Warmer;
use crate::settings::{self, Settings};
use crate::signals::{self, Event};
use crate::{counters, open_files, parse};
use laneway::control::ControlSocket;
use laneway::on_lane::{Cidr, Counters, Device, Rates, References, Sharing, Stack, contains};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Serves a directory over HTTP/1.1 on a TUN interface, to anyone who can reach it.
///
/// The kernel's end of the interface gets an address of the same network, so that `curl http://ADDRESS/` works at once.
/// SIGUSR1 prints the counters, and so does the end: SIGINT, SIGTERM, or SIGHUP unless it was ignored at the start.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    /// The directory. It is opened once: one that is put in its place later is not served before the next start.
    dir: PathBuf,
    /// Name of the TUN interface; it is created if it does not exist.
    #[arg(long, value_name = "NAME")]
    tun: Option<String>,
    /// An address of ours with its network; may be given more than once, for IPv4 and IPv6 [default: beside those that
    /// the kernel has on an interface that exists]
    #[arg(long, value_name = "ADDRESS/BITS")]
    addr: Vec<Cidr>,
    /// Address of the kernel's end of the interface [default: the other usable one of each network]
    #[arg(long, value_name = "ADDRESS/BITS")]
    host_addr: Vec<Cidr>,
    /// Where everything else goes, one of each family [default: the kernel's end]
    #[arg(long, value_name = "ADDRESS", value_parser = parse::address)]
    gateway: Vec<IpAddr>,
    /// Port.
    #[arg(long, default_value_t = 80, value_parser = parse::number::<u16>(1..=65_535))]
    port: u16,
    /// Lanes [default: one for every second core; the kernel's side needs the others]
    #[arg(long, value_name = "N", value_parser = parse::number::<usize>(1..=256))]
    lanes: Option<usize>,
    /// MTU of the interface, in bytes.
    #[arg(long, value_name = "BYTES", value_parser = parse::mtu)]
    mtu: Option<u16>,
    /// Maximum segment lifetime: TIME_WAIT lasts twice as long [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse::msl_us, allow_hyphen_values = true)]
    msl: Option<u64>,
    /// How long a lane without work looks for some before it sleeps [default: 50us, or 0us with a lane on every core]
    #[arg(long, value_name = "TIME", value_parser = parse::spin_us, allow_hyphen_values = true)]
    spin: Option<u64>,
    /// Mistreat frames in both directions: loss=1%,reorder=1%,corrupt=0.1%,duplicate=1%,mark=1% (ECN)
    #[arg(long, value_name = "FAULTS", value_parser = parse::rates)]
    fault: Option<Rates>,
    /// Seed of the faults.
    #[arg(long, default_value_t = 1, value_name = "N", requires = "fault", value_parser = parse::number::<u64>(0..=u64::MAX))]
    seed: u64,
    /// Write every frame into this pcapng file.
    #[arg(long, value_name = "FILE", value_parser = parse::capture())]
    pcap: Option<PathBuf>,
    /// How lanes share connections: the product's way (`lane`), or one of those before it, whose locks `laneway locks` shows.
    #[arg(long, default_value = "lane", value_name = "NAME", value_parser = sharing_names())]
    sharing: String,
    /// What a packet does to its route: nothing, as the product, or one of the ways that it is compared with.
    #[arg(long, default_value = "lane", value_name = "NAME", value_parser = references_names())]
    references: String,
    /// Where the control socket shall be that `laneway ss` and its kin ask, or `none` [default: NAME.sock in
    /// /run/laneway for root, in $XDG_RUNTIME_DIR/laneway for others]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Settings for what the command line does not say; see `laneway config --help`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Say everything as JSON, one object per line.
    #[arg(long)]
    json: bool,
}

/// So long the end waits for who reads the last report.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(2);

const EXAMPLE: &str = "Example (needs CAP_NET_ADMIN):\n  sudo laneway serve . --tun lw0 --addr 10.9.0.2/24 --addr fd09::2/64 &\n  curl http://10.9.0.2/\n  curl 'http://[fd09::2]/'";

fn sharing_names() -> clap::builder::PossibleValuesParser {
    Sharing::ALL.map(Sharing::name).into()
}

fn references_names() -> clap::builder::PossibleValuesParser {
    References::ALL.map(References::name).into()
}

/// Runs until it is told to end.
pub fn run(args: Args) -> Result<(), Failure> {
    let root = open_root(&args.dir)?;
    open_files::raise();
    let settings = match &args.config {
        Some(path) => settings::read(path)?,
        None => Settings::default(),
    };
    let from_file = args.left_to(&settings).join(", ");
    serve(args, root, settings).map_err(|failure| match failure {
        // What cannot be may be there, and not where whoever has just called looks.
        Failure::Misuse(what) if !from_file.is_empty() => {
            Failure::Misuse(format!("{what}\nlaneway: the configuration has said {from_file}"))
        }
        failure => failure,
    })
}

fn serve(mut args: Args, root: Root, settings: Settings) -> Result<(), Failure> {
    let found = args.take(&settings)?;
    let tun = args.tun.clone().unwrap_or_default();
    check_overlap(&args)?;
    let (events, heard) = channel();
    signals::listen(events.clone()).map_err(|error| Failure::Failed(format!("signals cannot be heard: {error}")))?;
    let out = Aside::start("reports", std::io::stdout(), missed(args.json))
        .map_err(|error| Failure::Failed(format!("no thread for the output can be had: {error}")))?;

    let mut config = settings.config.clone();
    if let Some(msl) = args.msl {
        config.tcp.msl_us = msl;
    }
    let backlog = config.somaxconn;
    let device = match args.mtu {
        Some(mtu) => Device::tun_with_mtu(&tun, mtu.into()),
        None => Device::tun(&tun),
    };
    let mut builder = Stack::builder(device).config(config).grace(Duration::from_secs(2));
    builder = args.addr.iter().fold(builder, |builder, cidr| builder.cidr(*cidr));
    builder = args.host_addr.iter().fold(builder, |builder, cidr| builder.host_address(*cidr));
    builder = args.gateway.iter().fold(builder, |builder, ip| builder.gateway(*ip));
    if let Some(lanes) = args.lanes {
        builder = builder.lanes(lanes);
    }
    if let Some(us) = args.spin {
        builder = builder.spin(Duration::from_micros(us));
    }
    if let Some(rates) = args.fault {
        builder = builder.fault(rates, args.seed);
    }
    if let Some(path) = &args.pcap {
        builder = builder.pcap(path);
    }
    if let Some(sharing) = Sharing::ALL.into_iter().find(|sharing| sharing.name() == args.sharing) {
        builder = builder.sharing(sharing);
    }
    if let Some(references) = References::ALL.into_iter().find(|references| references.name() == args.references) {
        builder = builder.references(references);
    }
    let (socket, no_socket) = control_socket(args.control.as_deref(), &tun);
    if let Some(socket) = socket {
        builder = builder.control(socket);
    }
    let failed = events.clone();
    builder = builder.on_failure(move |what| drop(failed.send(Event::Failed(what.to_owned()))));

    let warmer =
        Warmer::start(256).map_err(|error| Failure::Failed(format!("no thread for the disk can be had: {error}")))?;
    let stack = builder.start(|_lane| Server::new(root.clone(), warmer.clone(), Patience::default()))?;
    warmer.attach(stack.waker());
    stack.listen(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), args.port), backlog)?;
    let faults = args.fault.map(|_| format!("frames are mistreated, as --fault and the seed {} have it", args.seed));
    say_hello(&out, &args, &stack, found.into_iter().chain(no_socket).chain(faults));

    let mut failure = None;
    while let Ok(event) = heard.recv() {
        match event {
            Event::Report => match stack.counters() {
                Ok(counters) => say_counters(&out, &args, &counters),
                Err(_) => break,
            },
            Event::End => break,
            Event::Failed(what) => {
                failure = Some(what);
                break;
            }
        }
    }
    let ended = stack.stop();
    say_counters(&out, &args, &ended.counters);
    out.finish(OUTPUT_PATIENCE);
    match failure.or(ended.failure) {
        Some(what) => Err(Failure::Failed(what)),
        None => Ok(()),
    }
}

impl Args {
    /// What the file says of the interface and the command line does not, each with its line.
    fn left_to(&self, settings: &Settings) -> Vec<String> {
        let open = [
            ("tun", self.tun.is_none()),
            ("addr", self.addr.is_empty()),
            ("host_addr", self.host_addr.is_empty()),
            ("gateway", self.gateway.is_empty()),
            ("lanes", self.lanes.is_none()),
            ("mtu", self.mtu.is_none()),
            ("spin", self.spin.is_none()),
            ("control", self.control.is_none()),
        ];
        let said = open.into_iter().filter(|(name, is_open)| *is_open && settings.lines.contains_key(name));
        said.map(|(name, _)| format!("{name} ({})", settings.source(name, ""))).collect()
    }

    /// What the command line leaves open is taken from the file, and addresses then from the interface; a sentence says so.
    fn take(&mut self, settings: &Settings) -> Result<Option<String>, Failure> {
        let file = settings.interface.clone();
        let or = |ours: &mut Vec<Cidr>, theirs: Vec<Cidr>| {
            if ours.is_empty() {
                *ours = theirs;
            }
        };
        self.tun = self.tun.take().or(file.tun);
        or(&mut self.addr, file.addr);
        or(&mut self.host_addr, file.host_addr);
        if self.gateway.is_empty() {
            self.gateway = file.gateway;
        }
        self.lanes = self.lanes.or(file.lanes);
        self.mtu = self.mtu.or(file.mtu);
        self.spin = self.spin.or(file.spin_us);
        self.control = self.control.take().or(file.control);
        let mut interface = settings::Interface {
            tun: self.tun.clone(),
            addr: std::mem::take(&mut self.addr),
            host_addr: std::mem::take(&mut self.host_addr),
            ..settings::Interface::default()
        };
        let said = settings::complete(&mut interface)?;
        (self.addr, self.host_addr) = (interface.addr, interface.host_addr);
        Ok(said)
    }
}

/// The control socket that is asked for, or why the usual one cannot be.
fn control_socket(asked: Option<&Path>, tun: &str) -> (Option<ControlSocket>, Option<String>) {
    match asked {
        Some(path) if path == Path::new("none") => (None, None),
        Some(path) => (Some(ControlSocket::At(path.to_owned())), None),
        None => {
            let socket = ControlSocket::Named(tun.to_owned());
            match socket.path() {
                Ok(_) => (Some(socket), None),
                Err(why) => (None, Some(format!("no control socket: {why}"))),
            }
        }
    }
}

fn open_root(dir: &Path) -> Result<Root, Failure> {
    Root::open(dir).map_err(|error| {
        let dir = dir.display();
        Failure::Misuse(match error.kind() {
            std::io::ErrorKind::NotFound => format!("the directory {dir} does not exist: make it, or name another"),
            std::io::ErrorKind::NotADirectory => format!("{dir} is not a directory: name the directory that it is in"),
            std::io::ErrorKind::PermissionDenied => format!(
                "the directory {dir} may not be read by this user: allow it with `chmod o+rx {dir}`, or name another"
            ),
            _ => format!("the directory {dir} cannot be opened: {error}"),
        })
    })
}

/// Two interfaces with overlapping networks: the kernel would send our packets to the other one. An address that it has itself on ours: it would
/// keep them.
fn check_overlap(args: &Args) -> Result<(), Failure> {
    // Without the list of interfaces the check is not possible, and opening the device will say what is wrong.
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return Ok(()) };
    let tun = args.tun.as_deref().unwrap_or_default();
    let mut taken = Vec::new();
    for interface in interfaces {
        let (Some(address), Some(mask)) = (interface.address, interface.netmask) else { continue };
        let (address, prefix) = if let (Some(ip), Some(mask)) = (address.as_sockaddr_in(), mask.as_sockaddr_in()) {
            (IpAddr::from(ip.ip()), mask.ip().to_bits().leading_ones())
        } else if let (Some(ip), Some(mask)) = (address.as_sockaddr_in6(), mask.as_sockaddr_in6()) {
            (ip.ip().into(), mask.ip().to_bits().leading_ones())
        } else {
            continue;
        };
        if interface.interface_name != tun {
            taken.push((Cidr { address, prefix: prefix as u8 }, interface.interface_name));
        } else if let Some(ours) = args.addr.iter().find(|ours| ours.address == address) {
            return Err(Failure::Misuse(format!(
                "{ours} cannot be ours, as the kernel has it itself, on {tun}: choose another address of that network"
            )));
        }
    }
    for (theirs, name) in &taken {
        if let Some(ours) = args.addr.iter().chain(&args.host_addr).find(|ours| overlap(ours, theirs)) {
            let example = free(ours, taken.iter().map(|(theirs, _)| theirs));
            let example = example.map_or_else(String::new, |free| format!(", for example {free}"));
            return Err(Failure::Misuse(format!(
                "{ours} overlaps {theirs} of the interface {name}: choose another network{example}"
            )));
        }
    }
    Ok(())
}

fn overlap(one: &Cidr, other: &Cidr) -> bool {
    contains(one, other.address) || contains(other, one.address)
}

/// An address of the same family whose network is nobody's yet.
fn free<'a>(like: &Cidr, taken: impl Iterator<Item = &'a Cidr> + Clone) -> Option<Cidr> {
    let v4 = (77..=254).map(|number| [10, number, 0, 2]).chain((77..=254).map(|number| [192, 168, number, 2]));
    let v6 = (0xfd77..=0xfdff).map(|first| [first, 0, 0, 0, 0, 0, 0, 2]);
    let is_free = |free: &Cidr| taken.clone().all(|theirs| !overlap(free, theirs));
    match like.address {
        IpAddr::V4(_) => v4.map(|ip| Cidr { address: ip.into(), prefix: 24 }).find(is_free),
        IpAddr::V6(_) => v6.map(|ip: [u16; 8]| Cidr { address: ip.into(), prefix: 64 }).find(is_free),
    }
}

fn urls(args: &Args) -> Vec<String> {
    let port = if args.port == 80 { String::new() } else { format!(":{}", args.port) };
    let url = |cidr: &Cidr| match cidr.address {
        IpAddr::V4(ip) => format!("http://{ip}{port}/"),
        // Such an address is one on every interface: without a zone (RFC 6874) nobody knows where to go.
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            format!("http://[{ip}%25{}]{port}/", args.tun.as_deref().unwrap_or_default())
        }
        IpAddr::V6(ip) => format!("http://[{ip}]{port}/"),
    };
    args.addr.iter().map(url).collect()
}

fn say_hello(out: &Aside, args: &Args, stack: &Stack, more: impl Iterator<Item = String>) {
    let urls = urls(args);
    let notes: Vec<String> = stack.notes().iter().cloned().chain(more).collect();
    if args.json {
        let control = stack.control_path().map(Path::to_string_lossy);
        let hello = serde_json::json!({"event": "serving", "urls": urls, "device": stack.device(), "lanes": stack.lanes(), "notes": notes, "control": control});
        return out.say(format!("{hello}\n").as_bytes());
    }
    let mut hello = format!("serving {} at {}\n", args.dir.display(), urls.join(" and "));
    hello += &format!("device: {}, lanes: {}\n", stack.device(), stack.lanes());
    if let Some(path) = stack.control_path() {
        hello += &format!("control socket: {}\n", path.display());
    }
    for note in &notes {
        hello += &format!("note: {note}\n");
    }
    out.say((hello + "SIGUSR1 prints the counters; Ctrl-C ends\n").as_bytes());
}

fn say_counters(out: &Aside, args: &Args, counters: &Counters) {
    let text = if args.json { format!("{}\n", counters::json(counters)) } else { counters::table(counters) };
    out.say(text.as_bytes());
}

/// The sentence about reports that were lost.
fn missed(json: bool) -> impl Fn(u64) -> String {
    move |reports| match json {
        true => format!("{}\n", serde_json::json!({"event": "lost", "reports": reports})),
        false => format!("{reports} reports were lost here, because nobody read them in time\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        serve: Args,
    }

    #[test]
    fn what_it_is_said_to_be_served_at_can_be_fetched() {
        let line = "serve . --tun lw0 --port 8080 --addr 10.9.0.2/24 --addr fd09::2/64 --addr fe80::2/64";
        let serve = Line::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{error}")).serve;
        let urls = ["http://10.9.0.2:8080/", "http://[fd09::2]:8080/", "http://[fe80::2%25lw0]:8080/"];
        assert_eq!(super::urls(&serve), urls);
    }

    /// What is refused because another has it is not what is proposed instead.
    #[test]
    fn the_network_that_is_proposed_is_free() {
        let cidr = |text: &&str| text.parse::<Cidr>().expect("an address");
        let proposed = |like: &str, taken: &[&str]| {
            let taken: Vec<Cidr> = taken.iter().map(cidr).collect();
            free(&cidr(&like), taken.iter()).map(|free| free.to_string())
        };
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(proposed("127.0.0.5/8", &["127.0.0.1/8", "::1/128"]), said("10.77.0.2/24"));
        assert_eq!(proposed("10.77.0.3/24", &["10.77.0.1/24", "10.78.0.1/16"]), said("10.79.0.2/24"));
        assert_eq!(proposed("10.77.0.3/24", &["10.1.0.1/8", "192.168.77.1/24"]), said("192.168.78.2/24"));
        assert_eq!(proposed("fd00::9/64", &["10.77.0.1/24"]), said("fd77::2/64"));
        assert_eq!(proposed("fd77::9/64", &["fd77::1/64"]), said("fd78::2/64"));
        assert_eq!(proposed("10.0.0.2/24", &["10.0.0.1/0"]), None);
    }
}
