//! What a user meets: misuse is answered in sentences, and a stack of each kind serves.

use super::*;
use laneway_stack::device::{RxFrame, memory};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

struct Echo;

impl App for Echo {
    fn on_data(&mut self, cx: &mut Context<'_>, connection: ConnId, data: &[u8]) -> usize {
        cx.send(connection, data)
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        cx.resume(connection);
    }
}

/// Sends `total` bytes, checks that they come back, closes.
struct Stream {
    to_start: usize,
    total: usize,
    sent: usize,
    received: usize,
    done: Sender<(CloseReason, usize)>,
}

fn byte(at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

impl Stream {
    fn pump(&mut self, cx: &mut Context<'_>, id: ConnId) {
        while self.sent < self.total {
            let chunk: Vec<u8> = (self.sent..self.total.min(self.sent + 10_000)).map(byte).collect();
            let taken = cx.send(id, &chunk);
            self.sent += taken;
            if taken < chunk.len() {
                return;
            }
        }
    }
}

impl App for Stream {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        if self.to_start > 0 {
            self.to_start -= 1;
            cx.connect(None, Address::from_v4([10, 0, 0, 1]), 7, 0).unwrap();
        }
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.pump(cx, id);
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.pump(cx, id);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        for (i, got) in data.iter().enumerate() {
            assert_eq!(*got, byte(self.received + i), "byte {} is wrong", self.received + i);
        }
        self.received += data.len();
        if self.received == self.total {
            cx.close(id);
        }
        data.len()
    }
    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, _: u64, reason: CloseReason) {
        let _ = self.done.send((reason, self.received));
    }
}

fn stream(total: usize, change: impl Fn(Builder) -> Builder) {
    let (here, there) = Device::memory_pair(1).unwrap();
    let server = change(Stack::builder(here).address("10.0.0.1/24").unwrap()).start(|_| Echo).unwrap();
    server.listen("0.0.0.0:7".parse().unwrap(), 16).unwrap();
    let (done, ended) = channel();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap();
    let client = client.start(|_| Stream { to_start: 1, total, sent: 0, received: 0, done: done.clone() }).unwrap();
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)).expect("the stream is stuck"), (CloseReason::Normal, total));
    assert_eq!(client.stop().failure, None);
    assert_eq!(server.stop().failure, None);
}

#[test]
fn a_stream_comes_back_whole() {
    stream(3_000_000, |builder| builder);
}

#[test]
fn a_stream_comes_back_whole_with_shared_tables() {
    for sharing in Sharing::ALL {
        stream(100_000, |builder| builder.sharing(sharing));
    }
}

#[test]
fn a_stream_comes_back_whole_over_a_bad_link() {
    let rates = Rates { loss_ppm: 10_000, reorder_ppm: 10_000, corrupt_ppm: 1_000, duplicate_ppm: 1_000, mark_ppm: 0 };
    stream(1_000_000, |builder| builder.fault(rates, 7));
}

#[test]
fn misuse_is_answered_in_a_sentence() {
    let (here, _there) = Device::memory_pair(2).unwrap();
    let error = Stack::builder(here).start(|_| Echo).unwrap_err().to_string();
    assert!(error.contains("needs an address"), "{error}");
    for (bad, says) in [
        ("10.0.0.0/24", "name of its network"),
        ("10.0.0.255/24", "broadcast"),
        ("127.0.0.1/8", "loopback"),
        ("224.0.0.1/24", "group"),
        ("240.0.0.2/24", "reserved"),
        ("0.1.2.3/24", "reserved"),
        ("::/64", "any address"),
        ("fd00::/64", "anycast"),
        ("fd00::4/126", "anycast"),
    ] {
        let (here, _there) = Device::memory_pair(1).unwrap();
        let error = Stack::builder(here).address(bad).unwrap().start(|_| Echo).unwrap_err().to_string();
        assert!(error.contains(says), "{bad}: {error}");
    }
    for good in ["10.0.0.0/31", "fd00::/127", "fd00::/128", "fd00::1:0/64"] {
        assert!(check_addresses(&[good.parse().unwrap()]).is_ok(), "{good}");
    }
    for (queues, lanes, says) in
        [(2, 3, "3 lanes on a device with 2 queues"), (1, 0, "0 lanes on a device with 1 queue:")]
    {
        let (here, _there) = Device::memory_pair(queues).unwrap();
        let builder = Stack::builder(here).address("10.0.0.1/24").unwrap().lanes(lanes);
        let error = builder.start(|_| Echo).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let builder = Stack::builder(Device::tun("lane0")).address("10.0.0.1/24").unwrap().lanes(257);
    let error = builder.start(|_| Echo).unwrap_err().to_string();
    assert!(error.contains("257 lanes: a TUN interface has one queue for each, 1 to 256"), "{error}");
    let (here, _there) = Device::memory_pair(1).unwrap();
    let config = Config { ip_default_ttl: 0, ..Config::default() };
    let builder = Stack::builder(here).address("10.0.0.1/24").unwrap().config(config);
    let error = builder.start(|_| Echo).unwrap_err().to_string();
    assert!(error.contains("the setting ip_default_ttl is 0"), "{error}");
    for (gateways, says) in [
        (&["10.0.0.9", "10.0.0.8"][..], "one of each family"),
        (&["10.0.1.9"], "in no network of the stack's (10.0.0.1/24)"),
        (&["fd00::9"], "in no network"),
        (&["10.0.0.1"], "the stack's own address"),
        (&["10.0.0.255"], "the broadcast address of its network"),
        (&["10.0.0.0"], "the name of its network"),
    ] {
        let (here, _there) = Device::memory_pair(1).unwrap();
        let builder = Stack::builder(here).address("10.0.0.1/24").unwrap();
        let builder = gateways.iter().fold(builder, |builder, ip| builder.gateway(ip.parse().unwrap()));
        let error = builder.start(|_| Echo).unwrap_err().to_string();
        assert!(error.contains(says), "{gateways:?}: {error}");
    }
    let ours = ["fd00::1/64".parse().unwrap()];
    assert!(check_gateways(&ours, &["fe80::9".parse().unwrap()]).is_ok(), "a router's address on the link");
    for nobody in ["::", "ff02::2", "224.0.0.2", "255.255.255.255", "0.0.0.0"] {
        assert!(check_gateways(&[], &[nobody.parse().unwrap()]).is_err(), "{nobody} without addresses");
    }
    let (here, _there) = Device::memory_pair(1).unwrap();
    assert!(Stack::builder(here).address("10.0.0.300/24").is_err());
    let error = Device::memory_pair(0).expect_err("no lane");
    assert_eq!(format!("{error:?}"), error.to_string(), "what `main` prints is the sentence");
}

#[test]
fn the_other_usable_address() {
    let other = |text: &str| {
        let cidr: Cidr = text.parse().unwrap();
        other_usable(&cidr, &[cidr.address]).map(|cidr| cidr.to_string())
    };
    assert_eq!(other("10.0.0.2/24").as_deref(), Some("10.0.0.1/24"));
    assert_eq!(other("10.0.0.1/24").as_deref(), Some("10.0.0.2/24"));
    assert_eq!(other("10.0.0.1/31").as_deref(), Some("10.0.0.0/31"));
    assert_eq!(other("10.0.0.1/32"), None);
    assert_eq!(other("fd00::2/64").as_deref(), Some("fd00::1/64"));
    assert_eq!(other("fd00::1/64").as_deref(), Some("fd00::2/64"));
    assert_eq!(other("fd00::1/127").as_deref(), Some("fd00::/127"));
    assert_eq!(other("fd00::1/128"), None);
}

/// Before the interface is asked for, and not after it has been given what this stack wanted of it.
#[test]
fn a_stack_that_answers_at_the_control_socket_is_found_before_the_interface_is_touched() {
    let path = std::env::temp_dir().join(format!("laneway-before-{}.sock", std::process::id()));
    let _listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let builder = Stack::builder(Device::tun("no interface's name")).address("10.0.0.1/24").expect("an address");
    let refused = builder.control(crate::control::ControlSocket::At(path.clone())).start(|_| Echo);
    std::fs::remove_file(&path).expect("it is ours");
    let Err(said) = refused.map_err(|error| error.to_string()) else { panic!("there is one") };
    assert!(said.starts_with("another stack answers at the control socket"), "{said}");
}

/// Nothing ever comes. A descriptor would tell, if there is one.
struct Silent {
    polls: Arc<AtomicUsize>,
    tells: Option<File>,
}

impl Rx for Silent {
    fn poll(&mut self, _: usize) -> usize {
        self.polls.fetch_add(1, Relaxed);
        0
    }
    fn frame(&self, i: usize) -> RxFrame<'_> {
        panic!("frame {i} of none")
    }
    fn release(&mut self) {}
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.tells.as_ref().map(AsFd::as_fd)
    }
}

#[test]
fn a_device_that_tells_is_not_asked() {
    let asked = |tells: Option<File>| {
        let polls = Arc::new(AtomicUsize::new(0));
        let rx = Silent { polls: polls.clone(), tells };
        let tx = memory::link(LinkConfig::default()).0.remove(0).tx;
        let builder = Stack::builder(Device::queues(vec![Queue { rx, tx }.boxed()])).address("10.0.0.1/24").unwrap();
        let stack = builder.spin(Duration::ZERO).pin(false).start(|_| Echo).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let before = polls.load(Relaxed);
        std::thread::sleep(Duration::from_millis(300));
        let asked = polls.load(Relaxed) - before;
        assert_eq!(stack.stop().failure, None);
        asked
    };
    let (silent, _open) = std::os::unix::net::UnixStream::pair().unwrap();
    let (told, not_told) = (asked(Some(OwnedFd::from(silent).into())), asked(None));
    assert!(told < 10 && not_told > 20, "asked {told} times where it tells, {not_told} times where it does not");
}

/// What the API takes or gives has a name here, so that a program needs no other crate of ours to say it.
#[test]
fn what_is_counted_refused_and_set_can_be_named() {
    let mut counters = Counters::default();
    counters.discard(Discard::IpNoRoute);
    assert_eq!(counters.discarded(Discard::IpNoRoute), 1);
    let nowhere: Result<RouteTable, RouteError> = RouteTableBuilder::default().build();
    assert!(nowhere.is_ok_and(|table| table.is_empty()));
    let tcp = TcpConfig { tcp_congestion_control: Algorithm::Reno, ..TcpConfig::default() };
    assert!(Config { tcp, ..Config::default() }.check().is_ok());
    let (device, _) =
        Device::memory_pair_with(LinkConfig { medium: Medium::Ethernet, ..LinkConfig::default() }).unwrap();
    assert_eq!(device.medium(), Medium::Ethernet);
    let refused =
        Stack::builder(Device::tun("")).address("10.0.0.1/24").unwrap().start(|_| Echo).map(drop).unwrap_err();
    assert!(matches!(&refused, StartError::Tun(TunError::Config(_))), "{refused}");
}
