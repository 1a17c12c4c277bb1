use super::*;
use crate::testing::{checksum_is_right, in_own_network, ipv4, ipv6, keep_only, make_partial, receive_until, tcp};
use crate::tun::{Prefix, Tun, TunConfig, TunRx};
use crate::{FloodGate, Rx, Tx, TxMeta};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::FromRawFd;

const KERNEL: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];
const OURS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2))];

fn answers(address: IpAddr, port: u16) -> CookieAnswer {
    CookieAnswer {
        address,
        port,
        cookie_secret: [1, 2],
        timestamp_secret: [3, 4],
        now_us: 3_600_000_000,
        mss_table: [64, 536, 1220, 1360, 1400, 1440, 1460, 8940],
        mss: 1460,
        window: 65_535,
        window_scale: Some(7),
        timestamps: true,
        sack: true,
        ecn: true,
        hop_limit: 64,
        traffic_class: 0,
    }
}

fn open() -> Tun {
    let addresses = KERNEL.map(|ip| Prefix::new(ip, if ip.is_ipv4() { 24 } else { 64 })).into();
    Tun::open(&TunConfig { name: "lwc%d".into(), addresses, ..TunConfig::default() }).unwrap()
}

/// Whether it is so within some seconds.
fn soon(mut is_so: impl FnMut() -> bool) -> bool {
    (0..5_000).any(|_| {
        thread::sleep(Duration::from_millis(1));
        is_so()
    })
}

fn connects(to: IpAddr, port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::new(to, port), Duration::from_millis(200)).is_ok()
}

/// The flags of the next TCP segment from or to this port, if one comes.
fn next_flags(rx: &mut TunRx, port: u16) -> Option<u8> {
    let mut flags = None;
    receive_until(rx, |packet, _| {
        let (protocol, tcp) = if packet[0] >> 4 == 4 { (packet[9], &packet[20..]) } else { (packet[6], &packet[40..]) };
        let is_it = protocol == 6 && (tcp[..2] == port.to_be_bytes() || tcp[2..4] == port.to_be_bytes());
        flags = is_it.then(|| tcp[13]);
        is_it
    });
    flags
}

/// Has the kernel send an IP packet as it is.
fn send_raw(packet: &[u8]) {
    let v4 = packet[0] >> 4 == 4;
    // SAFETY: no memory is passed.
    let fd =
        unsafe { libc::socket(if v4 { libc::AF_INET } else { libc::AF_INET6 }, libc::SOCK_RAW, libc::IPPROTO_RAW) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: it has just been made, and nobody else knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let sent = if v4 {
        let octets = packet[16..20].try_into().unwrap();
        let to = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(octets) },
            sin_zero: [0; 8],
        };
        // SAFETY: packet and address live through the call, with the lengths that are passed.
        unsafe {
            let to_len = size_of_val(&to) as u32;
            libc::sendto(socket.as_raw_fd(), packet.as_ptr().cast(), packet.len(), 0, (&raw const to).cast(), to_len)
        }
    } else {
        let to = libc::sockaddr_in6 {
            sin6_family: libc::AF_INET6 as u16,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: packet[24..40].try_into().unwrap() },
            sin6_scope_id: 0,
        };
        // SAFETY: as above.
        unsafe {
            let to_len = size_of_val(&to) as u32;
            libc::sendto(socket.as_raw_fd(), packet.as_ptr().cast(), packet.len(), 0, (&raw const to).cast(), to_len)
        }
    };
    assert_eq!(sent, packet.len() as isize, "{}", io::Error::last_os_error());
}

/// Has the kernel send an Ethernet frame by the interface with this number.
fn send_frame(interface: u32, frame: &[u8]) {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: it has just been made, and nobody else knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let to = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: u16::from_ne_bytes([frame[12], frame[13]]),
        sll_ifindex: interface as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: [0; 8],
    };
    // SAFETY: frame and address live through the call, with the lengths that are passed.
    let sent = unsafe {
        let to_len = size_of_val(&to) as u32;
        libc::sendto(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0, (&raw const to).cast(), to_len)
    };
    assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
}

/// A SYN, or a RST, without options.
fn bare(from: IpAddr, from_port: u16, to: IpAddr, seq: u32, flags: u8) -> Vec<u8> {
    let mut packet = tcp((from, from_port), (to, 80), seq, &[]);
    let at = if from.is_ipv4() { 20 } else { 40 };
    packet[at + 8..at + 12].fill(0);
    packet[at + 13] = flags;
    packet
}

#[test]
fn while_an_endpoint_is_overrun_the_kernel_completes_handshakes_with_it() {
    in_own_network("while_an_endpoint_is_overrun_the_kernel_completes_handshakes_with_it", || {
        const CAP_NET_ADMIN: u64 = 1 << 12;
        const CAP_BPF: u64 = 1 << 39;
        keep_only(CAP_NET_ADMIN | CAP_BPF);
        let mut tun = open();
        let rx = &mut tun.queues[0].rx;
        let mut alarms = rx.alarms();
        for ip in OURS {
            assert!(!connects(ip, 80), "nobody answers yet");
            assert_eq!(next_flags(rx, 80), Some(0x02), "but is asked");
            while rx.poll(64) > 0 {}

            assert!(!alarms.heard());
            rx.overrun(&answers(ip, 80));
            assert!(soon(|| alarms.heard()) && !alarms.heard());
            assert_eq!(rx.answered(), 0);
            for _ in 0..10 {
                assert!(connects(ip, 80), "{ip}");
                assert_eq!(next_flags(rx, 80), Some(0x10), "the first that is seen is the ACK");
                while rx.poll(64) > 0 {}
            }
            assert_eq!((rx.answered(), rx.answered()), (10, 0));
            assert!(!connects(ip, 81), "another endpoint");
            assert_eq!(next_flags(rx, 81), Some(0x02));
        }
        std::thread::sleep(LASTS);
        for ip in OURS {
            while rx.poll(64) > 0 {}
            assert!(!connects(ip, 80), "it is not overrun for ever");
            let is_syn = |packet: &[u8], _| packet[if ip.is_ipv4() { 33 } else { 53 }] == 0x02;
            assert!(receive_until(rx, is_syn));
        }
        assert_eq!(rx.answered(), 0);
    });
}

/// Who floods us from where somebody answers has each SYN-ACK refused, and the lane is spared that, too.
#[test]
fn what_refuses_such_an_answer_is_dropped_once() {
    in_own_network("what_refuses_such_an_answer_is_dropped_once", || {
        let mut tun = open();
        let rx = &mut tun.queues[0].rx;
        for (from, to) in KERNEL.into_iter().zip(OURS) {
            let mut alarms = rx.alarms();
            rx.overrun(&answers(to, 80));
            assert!(soon(|| alarms.heard()));
            for port in 1_000..1_020 {
                // No socket of the kernel's is there: it answers the SYN-ACK with a RST.
                send_raw(&bare(from, port, to, 7, 0x02));
            }
            send_raw(&bare(from, 999, to, 8, 0x04));
            assert_eq!(next_flags(rx, 80), Some(0x04), "of a SYN that was not");
            assert_eq!(rx.answered(), 20);
            send_raw(&bare(from, 1_000, to, 8, 0x04));
            assert_eq!(next_flags(rx, 80), Some(0x04), "the second of its kind");
            while rx.poll(64) > 0 {}
        }
    });
}

/// Our link address, as [`framed`] has it.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// In an Ethernet frame from `02:…:01` to ours.
fn framed(packet: &[u8]) -> Vec<u8> {
    let ethertype: [u8; 2] = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    [&MAC, &[2, 0, 0, 0, 0, 1], &ethertype[..], packet].concat()
}

#[test]
fn the_answer_goes_back_where_the_syn_came_from() {
    in_own_network("the_answer_goes_back_where_the_syn_came_from", || {
        for (from, to) in KERNEL.into_iter().zip(OURS) {
            let back = tried_out(&answers(to, 80), MAC, &framed(&bare(from, 1_000, to, 7, 0x02))).unwrap().unwrap();
            assert_eq!(back[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
            assert!(checksum_is_right(&back[14..]));
            if from.is_ipv4() {
                assert!(laneway_wire::checksum::Sum::of(&back[14..34]).checksum() == [0, 0]);
            }
        }
    });
}

/// A bridge sends what is for somebody whom it does not know to all, and would believe that he is here if we answered in his name.
#[test]
fn what_is_for_another_link_address_is_not_answered() {
    in_own_network("what_is_for_another_link_address_is_not_answered", || {
        for (from, to) in KERNEL.into_iter().zip(OURS) {
            for at in 0..6 {
                let mut frame = framed(&bare(from, 1_000, to, 7, 0x02));
                frame[at] ^= 0x80;
                assert!(tried_out(&answers(to, 80), MAC, &frame).unwrap().is_none(), "another at {at}");
            }
        }
    });
}

#[test]
fn on_tap_the_kernel_answers_what_is_for_us() {
    in_own_network("on_tap_the_kernel_answers_what_is_for_us", || {
        let config = TunConfig { name: "lwc%d".into(), medium: Medium::Ethernet, ..TunConfig::default() };
        let mut tun = Tun::open(&config).unwrap();
        let (ours, interface) = (tun.capabilities().mac, crate::tun::configure::index(&tun.name).unwrap());
        let rx = &mut tun.queues[0].rx;
        for (from, to) in KERNEL.into_iter().zip(OURS) {
            let mut alarms = rx.alarms();
            rx.overrun(&answers(to, 80));
            assert!(soon(|| alarms.heard()));
            let mut frame = framed(&bare(from, 1_000, to, 7, 0x02));
            frame[..6].copy_from_slice(&ours);
            send_frame(interface, &frame);
            assert_eq!(rx.answered(), 1);
            frame[5] ^= 2;
            send_frame(interface, &frame);
            assert_eq!(rx.answered(), 0, "it is for somebody else");
            assert!(receive_until(rx, |bytes, _| bytes == frame));
        }
    });
}

/// Of a SYN whose checksum is yet to be completed, the answer's is completed in its place.
#[test]
fn the_answer_has_a_right_checksum_wherever_it_leaves() {
    in_own_network("the_answer_has_a_right_checksum_wherever_it_leaves", || {
        let mut tun = open();
        // One interface in, which leaves checksums to others, and one out, which does not.
        let on = |net: u8, offload| {
            let (v4, v6) = (Ipv4Addr::new(198, 51, net, 1), Ipv6Addr::new(0x2001, 0xdb8, net.into(), 0, 0, 0, 0, 1));
            let addresses = vec![Prefix::new(v4, 24), Prefix::new(v6, 64)];
            Tun::open(&TunConfig { name: "lwc%d".into(), addresses, offload, ..TunConfig::default() }).unwrap()
        };
        let (mut with, mut without) = (on(100, true), on(101, false));
        for (setting, value) in [
            ("ipv4/ip_forward", "1"),
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv4/conf/all/rp_filter", "0"),
            (&format!("ipv4/conf/{}/rp_filter", with.name), "0"),
        ] {
            std::fs::write(format!("/proc/sys/net/{setting}"), value).unwrap();
        }
        let far: [IpAddr; 2] =
            [Ipv4Addr::new(198, 51, 101, 2).into(), Ipv6Addr::new(0x2001, 0xdb8, 101, 0, 0, 0, 0, 2).into()];
        for (from, to) in far.into_iter().zip(OURS) {
            let mut alarms = tun.queues[0].rx.alarms();
            tun.queues[0].rx.overrun(&answers(to, 80));
            assert!(soon(|| alarms.heard()));
            for (port, is_partial) in [(1_000, false), (1_001, true)] {
                let mut syn = bare(from, port, to, 7, 0x02);
                let checksum_partial = Some(make_partial(&mut syn, Medium::Ip));
                let meta = TxMeta { checksum_partial: checksum_partial.filter(|_| is_partial), ..TxMeta::default() };
                let tx = &mut with.queues[0].tx;
                tx.reserve(syn.len()).unwrap().copy_from_slice(&syn);
                tx.commit(syn.len(), meta);
                tx.flush();
                let is_answer = |packet: &[u8], _| {
                    let tcp = &packet[if packet[0] >> 4 == 4 { 20 } else { 40 }..];
                    let is_it = tcp[2..4] == u16::to_be_bytes(port) && tcp[13] == 0x12;
                    assert!(!is_it || checksum_is_right(packet), "{from}, is_partial: {is_partial}");
                    is_it
                };
                assert!(receive_until(&mut without.queues[0].rx, is_answer), "{from}, is_partial: {is_partial}");
            }
        }
    });
}

#[test]
fn what_is_not_as_nearly_all_syns_are_goes_to_the_lane() {
    in_own_network("what_is_not_as_nearly_all_syns_are_goes_to_the_lane", || {
        let [from, to] = [KERNEL[0], OURS[0]];
        let plain = bare(from, 1_000, to, 7, 0x02);
        let is_answered = |packet: &[u8]| tried_out(&answers(to, 80), MAC, &framed(packet)).unwrap().is_some();
        assert!(is_answered(&plain));
        // A longer IP header, a fragment, another protocol, flags; and what says that there are options where there are none.
        for (at, byte) in [
            (0, 0x46),
            (6, 0x20),
            (7, 1),
            (9, 17),
            (33, 0x12),
            (33, 0x06),
            (33, 0x03),
            (33, 0x10),
            (32, 0x40),
            (32, 0x60),
        ] {
            let mut packet = plain.clone();
            packet[at] = byte;
            assert!(!is_answered(&packet), "{byte:#x} at {at}");
        }
        let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) else { unreachable!() };
        let with = |behind: &[u8], header_words: u8| {
            let mut segment = plain[20..].to_vec();
            segment[12] = header_words << 4;
            segment.extend(behind);
            ipv4(from, to, 6, &segment)
        };
        assert!(!is_answered(&with(b"text", 5)));
        for options in [[2, 5, 5], [3, 1, 7], [8, 12, 0], [9, 0, 0], [1, 5, 1]] {
            let [a, b, c] = options;
            assert!(!is_answered(&with(&[a, b, c, 9], 6)), "{options:?} says nothing sensible");
        }
        for options in [[1, 1, 1, 1], [0, 2, 9, 9], [4, 2, 1, 0], [254, 4, 9, 9], [3, 3, 99, 1]] {
            assert!(is_answered(&with(&options, 6)), "{options:?}");
        }
        assert!(!is_answered(&with(&[1; 20], 10)), "more options than anybody has");

        // IPv6 with an extension header.
        let (IpAddr::V6(from), IpAddr::V6(to)) = (KERNEL[1], OURS[1]) else { unreachable!() };
        let extended = [&[6, 0, 1, 4, 0, 0, 0, 0], &bare(from.into(), 1_000, to.into(), 7, 0x02)[40..]].concat();
        let packet = ipv6(from, to, 60, &extended);
        assert!(tried_out(&answers(to.into(), 80), MAC, &framed(&packet)).unwrap().is_none());
    });
}

#[test]
fn where_the_kernel_refuses_the_lane_goes_on_by_itself() {
    in_own_network("where_the_kernel_refuses_the_lane_goes_on_by_itself", || {
        keep_only(1 << 12); // CAP_NET_ADMIN
        let mut tun = open();
        let rx = &mut tun.queues[0].rx;
        let mut alarms = rx.alarms();
        rx.overrun(&answers(OURS[0], 80));
        assert!(soon(|| matches!(*rx.cookies.state(), State::Refused)));
        rx.overrun(&answers(OURS[0], 80));
        assert!(!alarms.heard() && rx.answered() == 0);
        assert!(!connects(OURS[0], 80));
        assert_eq!(next_flags(rx, 80), Some(0x02));
    });
}
