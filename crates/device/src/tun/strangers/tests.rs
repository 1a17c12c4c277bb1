use super::*;
use crate::testing::{in_own_network, keep_only};
use crate::tun::{Prefix, QUEUES_MAX, SteeringConfig, Tun, TunConfig, TunRx};
use crate::{FloodGate, Rx};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd};

const MS: u64 = 1_000_000;
const PARTS: u32 = 4;

#[test]
fn while_nobody_else_is_served_strangers_have_all_of_the_time() {
    let mut share = Share::new(PARTS);
    for ms in 1..1_000 {
        share.grow(ms * MS, false);
        assert!(share.is_open, "after {ms} ms");
        share.spend(MS);
    }
}

#[test]
fn while_others_are_served_strangers_have_a_quarter() {
    let mut share = Share::new(PARTS);
    let (mut spent, mut shut) = (0, 0);
    for step in 1..=40_000 {
        share.grow(step * MS / 10, step % 50 == 0); // somebody else each 5 ms
        if share.is_open {
            share.spend(MS / 10);
            spent += MS / 10;
        } else {
            shut += 1;
            assert!(share.opens_in_ns() <= u64::from(PARTS) * 2 * LEAST_NS as u64, "{}", share.opens_in_ns());
        }
    }
    let (quarter, saved) = (4_000 * MS / u64::from(PARTS), MOST_NS as u64);
    assert!((quarter..quarter + 2 * saved + 10 * MS).contains(&spent), "{spent} of {quarter}");
    assert!(shut > 0);
    share.grow(4_000 * MS + CROWDED_NS + MS, false);
    assert!(share.is_open && !share.is_crowded(4_000 * MS + CROWDED_NS + MS), "nobody else any more");
}

/// A lane that was kept from its core for long owes no more than could be saved up, and opens by the clock.
#[test]
fn what_took_long_is_made_up_for() {
    let mut share = Share::new(PARTS);
    share.grow(MS, true);
    share.spend(20 * MS);
    share.grow(2 * MS, true);
    assert!(!share.is_open);
    let opens = share.opens_in_ns();
    assert!(opens <= u64::from(PARTS) * (MOST_NS + LEAST_NS) as u64, "{opens}");
    share.grow(2 * MS + opens - 4 * u64::from(PARTS), true);
    assert!(!share.is_open, "not yet");
    share.grow(2 * MS + opens, true);
    assert!(share.is_open);
}

#[test]
fn the_kernel_is_told_of_each_once_a_minute() {
    let mut told = Told::default();
    let ips: Vec<IpAddr> = (0..1_000).map(|i| Ipv4Addr::from_bits(0x0a00_0000 + i).into()).collect();
    let news = |told: &mut Told, s| ips.iter().filter(|ip| told.is_news(**ip, s)).count();
    assert!(news(&mut told, 1) > 950, "few are mistaken for one another");
    assert_eq!(news(&mut told, 59), 0);
    assert!(news(&mut told, 60) > 950);
    let many = (0..200_000u32).filter(|i| told.is_news(Ipv4Addr::from_bits(*i).into(), 60)).count();
    assert!(many < TOLD_MAX, "no more than so many a second");
    assert!(told.is_news(Ipv4Addr::from_bits(7).into(), 61), "all are forgotten");
}

fn config(queues: usize) -> TunConfig {
    TunConfig {
        name: "lwx%d".into(),
        queues,
        steering: Some(SteeringConfig { key: [0x6d; 40], table: crate::steering_ebpf::even_table(queues) }),
        strangers_apart: Some(PARTS),
        ..TunConfig::default()
    }
}

fn open(queues: usize) -> (Tun, [IpAddr; 2]) {
    let kernel = [Ipv4Addr::new(192, 0, 2, 1).into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()];
    let addresses = vec![Prefix::new(kernel[0], 24), Prefix::new(kernel[1], 64)];
    let tun = Tun::open(&TunConfig { addresses, ..config(queues) }).unwrap();
    assert!(tun.notes.is_empty(), "{:?}", tun.notes);
    (tun, kernel)
}

#[test]
fn where_strangers_cannot_be_kept_apart_there_is_one_queue_for_all() {
    in_own_network("where_strangers_cannot_be_kept_apart_there_is_one_queue_for_all", || {
        let one_queue = TunConfig { name: "lwx0".into(), ..TunConfig::default() };
        Tun::open(&one_queue).unwrap().set_persistent(true).unwrap();
        let tun = Tun::open(&TunConfig { name: "lwx0".into(), ..config(1) }).unwrap();
        assert!(tun.queues[0].rx.strangers.is_none() && tun.steering.is_none());
        assert!(tun.notes.is_empty(), "somebody has made it so: {:?}", tun.notes);
        drop(tun);

        let many = QUEUES_MAX / 2 + 1;
        let tun = Tun::open(&config(many)).unwrap();
        assert!(tun.queues.len() == many && tun.queues[0].rx.strangers.is_none() && tun.steering.is_some());
        drop(tun);

        const CAP_NET_ADMIN: u64 = 1 << 12;
        keep_only(CAP_NET_ADMIN);
        for (queues, says) in [(1, "a flood of SYNs waits"), (2, "frames that land on the wrong lane are passed on")] {
            let tun = Tun::open(&config(queues)).unwrap();
            assert!(tun.queues.len() == queues && tun.queues[0].rx.strangers.is_none() && tun.steering.is_none());
            assert!(tun.notes.len() == 1 && tun.notes[0].contains("CAP_BPF"), "{:?}", tun.notes);
            assert!(tun.notes[0].contains(says), "{:?}", tun.notes);
        }
    });
}

/// Somebody of our network: the `last` of its addresses.
fn other(of: IpAddr, last: u8) -> IpAddr {
    match of {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, last).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()).into(),
    }
}

/// A SYN from the kernel, which nobody answers.
fn call(to: IpAddr, port: u16) {
    let refused = TcpStream::connect_timeout(&SocketAddr::new(to, port), Duration::from_millis(1));
    assert!(refused.is_err(), "who has answered?");
}

/// So many SYNs and datagrams wait in a queue.
fn waiting(rx: &mut TunRx, apart: bool) -> (usize, usize) {
    let (mut syns, mut datagrams) = (0, 0);
    loop {
        let file = if apart { &rx.strangers.as_ref().unwrap().file } else { &rx.file };
        rx.slots.count = 0;
        rx.slots.fill(file, 64, &rx.counters).unwrap();
        if rx.slots.count == 0 {
            return (syns, datagrams);
        }
        for i in 0..rx.slots.count {
            let packet = rx.frame(i).bytes;
            let (protocol, header) = if packet[0] >> 4 == 4 { (packet[9], 20) } else { (packet[6], 40) };
            match protocol {
                6 => syns += usize::from(packet[header + 13] & 0x17 == 0x02),
                17 => datagrams += 1,
                _ => {} // neighbours and multicast groups, which the kernel asks for by itself
            }
        }
    }
}

fn all_waiting(tun: &mut Tun) -> [(usize, usize); 2] {
    [false, true].map(|apart| {
        let each = tun.queues.iter_mut().map(|queue| waiting(&mut queue.rx, apart));
        each.fold((0, 0), |sum, queue| (sum.0 + queue.0, sum.1 + queue.1))
    })
}

#[test]
fn syns_of_strangers_wait_apart_until_somebody_vouches() {
    in_own_network("syns_of_strangers_wait_apart_until_somebody_vouches", || {
        for queues in [1, 3] {
            let (mut tun, kernel) = open(queues);
            assert_eq!(tun.queues.len(), queues, "those of strangers are not shown");
            for ip in kernel {
                let socket = UdpSocket::bind((ip, 0)).unwrap();
                let speak = || {
                    for last in 10..20 {
                        call(other(ip, last), 80);
                        socket.send_to(b"x", (other(ip, last), 9)).unwrap();
                    }
                };
                speak();
                assert_eq!(all_waiting(&mut tun), [(0, 10), (10, 0)], "{ip} is a stranger");
                tun.queues[queues - 1].rx.vouch(ip);
                speak();
                assert_eq!(all_waiting(&mut tun), [(10, 10), (0, 0)], "{ip} is known, on whichever queue");
            }
        }
    });
}

/// Whether a lane that begins to sleep would be woken within this time. What wakes it, it is told as its thread would tell it.
fn wakes(rx: &mut TunRx, ms: u64) -> bool {
    let rest = rx.rests();
    let sleeps = Duration::from_millis(ms).min(if rest.is_zero() { Duration::MAX } else { rest });
    let poll_for = |fd: BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut fds = [poll_for(rx.readiness().unwrap()), poll_for(rx.aside().unwrap())];
    let used = if rest.is_zero() { 2 } else { 1 };
    // SAFETY: so many descriptions are there, of descriptors that `rx` keeps open.
    let found = unsafe { libc::poll(fds.as_mut_ptr(), used, sleeps.as_millis() as libc::c_int) };
    if fds[1].revents != 0 {
        rx.look_aside();
    }
    found > 0 || (!rest.is_zero() && rest <= Duration::from_millis(ms))
}

#[test]
fn a_lane_is_woken_by_strangers_unless_they_have_had_their_share() {
    in_own_network("a_lane_is_woken_by_strangers_unless_they_have_had_their_share", || {
        let (mut tun, [ip, _]) = open(1);
        let rx = &mut tun.queues[0].rx;
        while wakes(rx, 50) {
            rx.poll(64); // what the kernel says when an interface comes up
        }
        call(other(ip, 10), 80);
        assert!(wakes(rx, 0), "a stranger");
        assert_eq!(rx.poll(64), 1);
        rx.release();
        assert!(!wakes(rx, 0));

        // He costs the lane more than his share, and there are others.
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        socket.send_to(b"x", (other(ip, 10), 9)).unwrap();
        assert_eq!(rx.poll(64), 1);
        for last in 10..60 {
            call(other(ip, last), 80);
        }
        assert_eq!(rx.poll(64), FEW, "only a few at once, for others are served");
        loop {
            call(other(ip, 10), 80);
            let began = Instant::now();
            let strangers = rx.strangers.as_mut().unwrap();
            strangers.share.at = strangers.now_ns();
            strangers.share.saved = -MOST_NS;
            strangers.share.others_at = Some(strangers.now_ns());
            let (lent, woken) = (rx.poll(64), wakes(rx, 0));
            // Where this thread was kept from its core meanwhile, his time has come.
            if began.elapsed() < Duration::from_millis(5) {
                assert_eq!((lent, woken), (0, false), "he has to wait, and wakes nobody");
                break;
            }
        }
        socket.send_to(b"x", (other(ip, 10), 9)).unwrap();
        assert!(wakes(rx, 0), "somebody else does");
        assert_eq!(rx.poll(64), 1);
        assert!(wakes(rx, 100), "when strangers have time again");
        std::thread::sleep(Duration::from_millis(2));
        assert!(wakes(rx, 0), "and they are there");
        assert!(rx.poll(64) > 0);
        assert!(rx.strangers.as_ref().unwrap().share.is_open);
        while rx.poll(64) > 0 {}
        assert!(!wakes(rx, 20));
    });
}

/// A queue of one's own that never runs dry does not keep strangers out for ever.
#[test]
fn strangers_are_looked_at_though_others_never_stop() {
    in_own_network("strangers_are_looked_at_though_others_never_stop", || {
        let (mut tun, _) = open(1);
        let strangers = tun.queues[0].rx.strangers.as_mut().unwrap();
        let looks = (0..8 * POLLS).filter(|_| strangers.allowance(32, 32) > 0).count();
        assert_eq!(looks, 8);
        assert_eq!(strangers.allowance(64, 0), 0, "no room");
    });
}
