use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use laneway_wire::flow::{Address, FlowKey, toeplitz};

use super::*;
use crate::testing::{in_own_network, keep_only};
use crate::tun::{Prefix, SteeringConfig, Tun, TunConfig};
use crate::{Queue, Rx, Tx};

/// The verification key of Microsoft's RSS documentation.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

#[test]
fn the_windows_are_those_of_the_table() {
    // An input with one bit set hashes to that bit's window.
    for bit in 0..288 {
        let mut input = [0u8; 36];
        input[bit / 8] = 0x80 >> (bit % 8);
        assert_eq!(window(&KEY, bit), laneway_wire::flow::toeplitz_bytes(&KEY, &input));
    }
}

#[test]
fn tables_deal_evenly() {
    let table = even_table(3);
    let of = |queue| table.iter().filter(|q| **q == queue).count();
    assert_eq!((of(0), of(1), of(2)), (43, 43, 42));
    assert_eq!(bucket(0xffff_ff83), 3);
}

/// A received IP packet's flow as we own it; ports of zero if it has none that steering looks at.
fn flow(packet: &[u8]) -> FlowKey {
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let (remote, local, ports) = if packet[0] >> 4 == 4 {
        let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
        (
            Address::from_v4(packet[12..16].try_into().unwrap()),
            Address::from_v4(packet[16..20].try_into().unwrap()),
            (!fragment && matches!(packet[9], 6 | 17)).then_some(usize::from(packet[0] & 15) * 4),
        )
    } else {
        (
            Address::from_v6(packet[8..24].try_into().unwrap()),
            Address::from_v6(packet[24..40].try_into().unwrap()),
            matches!(packet[6], 6 | 17).then_some(40),
        )
    };
    let (remote_port, local_port) = ports.map_or((0, 0), |at| (port(at), port(at + 2)));
    FlowKey { local, remote, local_port, remote_port }
}

/// Polls every queue dry; each frame must be where the hash says. Says which queues got UDP, and whether a fragment was among them.
fn check_queues<R: Rx, T: Tx>(
    queues: &mut [Queue<R, T>],
    link: usize,
    table: &[u8; BUCKETS],
) -> (usize, HashSet<usize>, bool) {
    let mut seen = 0;
    let mut used = HashSet::new();
    let mut fragments = false;
    for (number, queue) in queues.iter_mut().enumerate() {
        loop {
            let count = queue.rx.poll(64);
            if count == 0 {
                break;
            }
            for i in 0..count {
                let bytes = queue.rx.frame(i).bytes;
                if link != 0 && !matches!(bytes[12..14], [8, 0] | [0x86, 0xdd]) {
                    continue;
                }
                let packet = &bytes[link..];
                let hash = toeplitz(&KEY, &flow(packet));
                assert_eq!(number, usize::from(table[bucket(hash)]), "{:?} hashes to {hash:#x}", flow(packet));
                if matches!((packet[0] >> 4, packet[9], packet[6]), (4, 17, _) | (6, _, 17 | 44)) {
                    seen += 1;
                    used.insert(number);
                    fragments |= packet[0] >> 4 == 4 && u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
                }
            }
            queue.rx.release();
        }
    }
    (seen, used, fragments)
}

fn steered(medium: Medium, strangers_apart: bool) {
    let kernel4 = Ipv4Addr::new(192, 0, 2, 1);
    let kernel6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let mut table = even_table(4);
    let mut tun = Tun::open(&TunConfig {
        name: "lws%d".into(),
        medium,
        queues: 4,
        addresses: vec![Prefix::new(kernel4, 24), Prefix::new(kernel6, 64)],
        steering: Some(SteeringConfig { key: KEY, table }),
        strangers_apart: strangers_apart.then_some(4),
        ..TunConfig::default()
    })
    .unwrap();
    assert!(tun.notes.is_empty(), "{:?}", tun.notes);
    if medium == Medium::Ethernet {
        // Nobody answers ARP here: broadcasts and multicasts need no neighbour.
        let socket = UdpSocket::bind((kernel4, 0)).unwrap();
        socket.set_broadcast(true).unwrap();
        for port in 1..=100 {
            socket.send_to(b"x", (Ipv4Addr::new(192, 0, 2, 255), port)).unwrap();
        }
        let (seen, used, _) = check_queues(&mut tun.queues, 14, &table);
        assert_eq!((seen, used.len()), (100, 4));
        return;
    }

    let send_all = || {
        for (from, network) in [(IpAddr::from(kernel4), 4), (IpAddr::from(kernel6), 6)] {
            let socket = UdpSocket::bind((from, 0)).unwrap();
            for i in 0..100u16 {
                let to: IpAddr = match network {
                    4 => Ipv4Addr::new(192, 0, 2, 2 + i as u8).into(),
                    _ => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, i.wrapping_mul(2503), 0, 0, 2 + i).into(),
                };
                socket.send_to(b"x", (to, 1 + i.wrapping_mul(641))).unwrap();
            }
        }
    };
    send_all();
    let (seen, used, fragments) = check_queues(&mut tun.queues, 0, &table);
    assert_eq!((seen, used.len(), fragments), (200, 4, false));

    let socket = UdpSocket::bind((kernel4, 0)).unwrap();
    // Path MTU discovery would keep the kernel from cutting.
    let off: libc::c_int = libc::IP_PMTUDISC_DONT;
    // SAFETY: the option takes an int, whose address and size are passed; it lives through the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            (&raw const off).cast(),
            size_of_val(&off) as u32,
        )
    };
    assert_eq!(set, 0);
    for last in 2..20 {
        socket.send_to(&[7; 3000], (Ipv4Addr::new(192, 0, 2, last), 9)).unwrap();
    }
    let (seen, _, fragments) = check_queues(&mut tun.queues, 0, &table);
    assert_eq!((seen, fragments), (18 * 3, true));

    assert_eq!(tun.steering.as_ref().unwrap().queue_len(), Some(8_192));
    // The table can be changed under way.
    table = [3; BUCKETS];
    tun.steering.as_ref().unwrap().set_table(&table).unwrap();
    send_all();
    let (seen, used, _) = check_queues(&mut tun.queues, 0, &table);
    assert_eq!((seen, used), (200, HashSet::from([3])));
}

#[test]
fn the_kernel_chooses_the_queue_that_our_hash_says() {
    in_own_network("the_kernel_chooses_the_queue_that_our_hash_says", || steered(Medium::Ip, false));
}

#[test]
fn the_kernel_chooses_the_queue_that_our_hash_says_on_ethernet() {
    in_own_network("the_kernel_chooses_the_queue_that_our_hash_says_on_ethernet", || steered(Medium::Ethernet, false));
}

#[test]
fn a_refusal_is_a_sentence() {
    let refused = SteeringError::Load(io::Error::from_raw_os_error(libc::EPERM)).to_string();
    assert!(refused.contains("CAP_BPF"), "{refused}");
}

#[test]
fn the_program_needs_no_more_capabilities_than_are_said() {
    in_own_network("the_program_needs_no_more_capabilities_than_are_said", || {
        const CAP_NET_ADMIN: u64 = 1 << 12;
        const CAP_BPF: u64 = 1 << 39;
        keep_only(CAP_NET_ADMIN | CAP_BPF);
        for strangers_apart in [false, true] {
            steered(Medium::Ip, strangers_apart);
            steered(Medium::Ethernet, strangers_apart);
        }
    });
}
