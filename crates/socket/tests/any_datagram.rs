//! Datagrams of any length, in one piece or in fragments, from the kernel and to it, through a TUN interface that loses, doubles and reorders:
//! whatever arrives is what was sent, and where nothing is lost all of it arrives.
//!
//! Chance, out of a seed, says what the interface is and how wide the path: `LANEWAY_SEEDS=4711..4712 cargo test -p laneway --test any_datagram --
//! --ignored`, as root; `LANEWAY_PCAP=FILE` keeps the packets of one.

mod common;
#[allow(dead_code, reason = "any_story uses all of it")]
#[path = "any_story/dice.rs"]
mod dice;

use common::{in_namespace_of, is_in_namespace, try_seeds};
use dice::Dice;
use laneway::on_lane::Rates;
use laneway::{Config, Device, Stack, UdpSocket};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::thread::scope;
use std::time::Duration;

/// Settings that are tried at the same time: much of the time is waited.
const AT_ONCE: usize = 8;
/// Datagrams each way.
const COUNT: usize = 60;
/// So many bytes may be on their way, which the buffers of both ends have room for.
const UNDER_WAY: usize = 66_000;
/// Nothing takes longer to arrive, if it arrives.
const SOON: Duration = Duration::from_millis(300);

#[derive(Debug)]
struct Plan {
    seed: u64,
    v6: bool,
    lanes: usize,
    mtu: usize,
    /// What the kernel believes to be the MTU of the path, if not that of the interface.
    path_mtu: Option<usize>,
    offloads: bool,
    rates: Rates,
    /// No two have the same length, so that it says which one it is.
    lengths: Vec<usize>,
}

impl Plan {
    fn from_seed(seed: u64) -> Plan {
        let mut dice = Dice::new(seed);
        let v6 = dice.one_in(2);
        let least = if v6 { 1_280 } else { 576 };
        let mtu = dice.pick(&[least, 1_400, 1_500, 1_500, 1_501, 9_000]);
        let part = |dice: &mut Dice, most: usize| if dice.one_in(2) { 0 } else { dice.below(most) as u32 };
        let rates = match dice.one_in(3) {
            true => Rates::default(),
            false => Rates {
                loss_ppm: part(&mut dice, 30_000),
                duplicate_ppm: part(&mut dice, 100_000),
                reorder_ppm: part(&mut dice, 300_000),
                // Of two damaged fragments, one may hide what the other shows.
                corrupt_ppm: 0,
                mark_ppm: 0,
            },
        };
        let header = if v6 { 48 } else { 28 };
        // An IPv6 packet says its length without its header.
        let most = 65_535 - if v6 { 8 } else { header };
        let mut lengths = Vec::new();
        while lengths.len() < COUNT {
            let length = match dice.below(5) {
                0 => dice.below(20),
                1 => dice.below(mtu),
                // Around what fits a whole number of packets.
                2 => ((1 + dice.below(6)) * (mtu - header) + dice.below(60)).saturating_sub(30),
                3 => most - dice.below(20),
                _ => dice.below(most + 1),
            };
            if length <= most && !lengths.contains(&length) {
                lengths.push(length);
            }
        }
        Plan {
            seed,
            v6,
            lanes: dice.pick(&[1, 1, 2, 3]),
            mtu,
            path_mtu: dice.one_in(3).then(|| least + dice.below(mtu - least + 1)),
            offloads: dice.one_in(2),
            rates,
            lengths,
        }
    }

    fn loses(&self) -> bool {
        self.rates.loss_ppm > 0
    }
}

/// What stands in a datagram of this length.
fn bytes(length: usize, seed: u64) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ length.wrapping_mul(31) ^ seed as usize) as u8).collect()
}

/// A socket of either kind.
trait Socket: Sync {
    fn send(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize>;
    fn receive(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
}

macro_rules! socket {
    ($($socket:ty)+) => {
        $(
            impl Socket for $socket {
                fn send(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
                    self.send_to(bytes, to)
                }
                fn receive(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
                    self.recv_from(buf)
                }
            }
        )+
    };
}
socket!(UdpSocket std::net::UdpSocket);

/// Sends them all from the one to the other, and looks at what arrives; `at` are the addresses of both.
fn carry(plan: &Plan, from: &dyn Socket, to: &dyn Socket, at: [SocketAddr; 2]) {
    let mut came: BTreeMap<usize, usize> = plan.lengths.iter().map(|length| (*length, 0)).collect();
    let mut buf = vec![0; 66_000];
    let mut hear = |under_way: &mut usize| {
        let Ok((n, whose)) = to.receive(&mut buf) else { return false };
        assert_eq!(whose, at[0], "of {n} bytes");
        let times = came.get_mut(&n).unwrap_or_else(|| panic!("none of {n} bytes was sent"));
        assert!(buf[..n] == bytes(n, plan.seed), "of the {n} bytes some are others");
        *times += 1;
        *under_way = under_way.saturating_sub(n);
        true
    };
    let mut under_way = 0;
    for length in &plan.lengths {
        // Whatever is not heard of soon is lost.
        while under_way > 0 && under_way + length > UNDER_WAY {
            if !hear(&mut under_way) {
                under_way = 0;
            }
        }
        assert_eq!(from.send(&bytes(*length, plan.seed), at[1]).unwrap(), *length);
        under_way += length;
    }
    while hear(&mut under_way) {}
    let missing: Vec<_> = came.iter().filter(|(_, times)| **times == 0).map(|(length, _)| *length).collect();
    assert!(plan.loses() || missing.is_empty(), "nothing was lost, and of these lengths nothing came: {missing:?}");
    assert!(missing.len() < COUNT, "nothing came at all");
    let most = came.values().max();
    assert!(plan.rates.duplicate_ppm > 0 || most == Some(&1), "nothing was doubled, and one came {most:?} times");
}

fn run(plan: &Plan) {
    let [ours, kernels] = if plan.v6 { ["fd77::2", "fd77::1"] } else { ["10.77.0.2", "10.77.0.1"] };
    let cidr = format!("{ours}/{}", if plan.v6 { 64 } else { 24 });
    let builder = Stack::builder(Device::tun_with_mtu("lwdatagram", plan.mtu)).address(&cidr).unwrap();
    let config = Config { software_checksums: !plan.offloads, ..Config::default() };
    let builder = builder.lanes(plan.lanes).config(config).fault(plan.rates, plan.seed);
    let builder = match std::env::var_os("LANEWAY_PCAP") {
        Some(file) => builder.pcap(file),
        None => builder,
    };
    let stack = builder.start().unwrap();
    if let Some(mtu) = plan.path_mtu {
        let route = format!("route replace {ours} dev lwdatagram mtu {mtu}");
        assert!(Command::new("ip").args(route.split(' ')).status().expect("there is ip(8)").success());
    }
    let at = |ip: &str| SocketAddr::new(ip.parse::<IpAddr>().unwrap(), 0);
    let here = UdpSocket::bind_on(&stack, at(ours)).unwrap();
    let there = std::net::UdpSocket::bind(at(kernels)).unwrap();
    // It counts what a fragment lies in, which may be many times what is in it.
    set_socket_recv_buffer_size_force(&there, 8 << 20).expect("root may");
    here.set_read_timeout(Some(SOON)).unwrap();
    there.set_read_timeout(Some(SOON)).unwrap();
    let names = [here.local_addr().unwrap(), there.local_addr().unwrap()];
    scope(|scope| {
        scope.spawn(|| carry(plan, &here, &there, names));
        scope.spawn(|| carry(plan, &there, &here, [names[1], names[0]]));
    });
    assert_eq!(here.dropped(), 0);
}

#[test]
#[ignore = "needs root: makes a network namespace and a TUN interface"]
fn whatever_arrives_is_what_was_sent() {
    let test = "whatever_arrives_is_what_was_sent";
    if is_in_namespace() {
        return try_seeds(0..1, 1, Plan::from_seed, run);
    }
    try_seeds(0..40, AT_ONCE, Plan::from_seed, |plan| in_namespace_of(plan.seed, test));
}
