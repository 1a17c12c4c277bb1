use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use super::*;
use crate::testing::{checksum_is_right, in_own_network, keep_only, make_partial, receive_until, tcp, udp};
use crate::{PartialChecksum, RxChecksum};

const KERNEL4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OURS4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const KERNEL6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const OURS6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

fn config() -> TunConfig {
    TunConfig {
        name: "lw%d".into(),
        mtu: Some(1400),
        addresses: vec![Prefix::new(KERNEL4, 24), Prefix::new(KERNEL6, 64)],
        ..TunConfig::default()
    }
}

fn send(tun: &mut Tun, frame: &[u8], meta: TxMeta) {
    let tx = &mut tun.queues[0].tx;
    tx.reserve(frame.len()).expect("a TUN always has room").copy_from_slice(frame);
    tx.commit(frame.len(), meta);
    tx.flush();
}

fn kernel_socket(address: impl Into<IpAddr>) -> UdpSocket {
    let socket = UdpSocket::bind((address.into(), 0)).expect("the kernel has this address");
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

/// One datagram each way, on both families.
fn exchange(config: TunConfig) {
    let partial = config.offload;
    let mut tun = Tun::open(&config).unwrap();
    let expected = Capabilities {
        medium: Medium::Ip,
        mtu: 1400,
        tx_checksum: partial,
        tso_max: if partial { 65_535 } else { 0 },
        rx_checksum: partial,
        mac: [0; 6],
    };
    assert_eq!(*tun.capabilities(), expected);
    let pairs: [(IpAddr, IpAddr); 2] = [(KERNEL4.into(), OURS4.into()), (KERNEL6.into(), OURS6.into())];
    for (kernel, ours) in pairs {
        let socket = kernel_socket(kernel);
        let port = socket.local_addr().unwrap().port();

        socket.send_to(b"to the stack", (ours, 7)).unwrap();
        let seen = receive_until(&mut tun.queues[0].rx, |bytes, meta| {
            if !bytes.ends_with(b"to the stack") {
                return false;
            }
            if partial {
                let header = if kernel.is_ipv4() { 20 } else { 40 };
                assert_eq!(meta.checksum, RxChecksum::Partial(PartialChecksum { start: header, offset: 6 }));
            } else {
                assert_eq!(meta.checksum, RxChecksum::Unknown);
                assert!(checksum_is_right(bytes));
            }
            true
        });
        assert!(seen, "the kernel's datagram arrived");

        let mut packet = udp((ours, 7), (kernel, port), b"to the kernel");
        let meta = if partial {
            TxMeta { checksum_partial: Some(make_partial(&mut packet, Medium::Ip)), ..TxMeta::default() }
        } else {
            TxMeta::default()
        };
        send(&mut tun, &packet, meta);
        // The same, from where its parts lie.
        assert!(tun.queues[0].tx.gather([&packet[..25], &packet[25..30], &packet[30..]], meta));
        for _ in 0..2 {
            let mut buffer = [0; 100];
            let (len, from) = socket.recv_from(&mut buffer).expect("the kernel took our datagram");
            assert_eq!(&buffer[..len], b"to the kernel");
            assert_eq!((from.ip(), from.port()), (ours, 7));
        }
    }
}

#[test]
fn datagrams_both_ways() {
    in_own_network("datagrams_both_ways", || exchange(config()));
}

#[test]
fn datagrams_both_ways_with_offload() {
    in_own_network("datagrams_both_ways_with_offload", || {
        exchange(TunConfig { offload: true, receive_super: true, ..config() });
    });
}

#[test]
fn the_kernel_cuts_our_super_packet() {
    in_own_network("the_kernel_cuts_our_super_packet", || {
        // One interface in, a second one without offload out: what the kernel forwards to the second is cut and summed.
        let mut with = Tun::open(&TunConfig { offload: true, ..config() }).unwrap();
        let (far4, far6) = (Ipv4Addr::new(198, 51, 100, 2), Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2));
        let addresses = vec![Prefix::new(Ipv4Addr::new(198, 51, 100, 1), 24), Prefix::new(far6, 64)];
        let mut without = Tun::open(&TunConfig { addresses, ..config() }).unwrap();
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        let far6 = Ipv6Addr::from(far6.to_bits() + 1);
        let payload: Vec<u8> = (0..4000u32).map(|i| i as u8).collect();
        let pairs: [(IpAddr, IpAddr, usize); 2] = [(OURS4.into(), far4.into(), 40), (OURS6.into(), far6.into(), 60)];
        for (ours, far, headers) in pairs {
            let mut packet = tcp((ours, 1000), (far, 2000), 1, &payload);
            let partial = make_partial(&mut packet, Medium::Ip);
            let meta = TxMeta { checksum_partial: Some(partial), gso_size: 1000, header_len: headers as u16 };
            for in_parts in [true, false] {
                if in_parts {
                    let (head, text) = packet.split_at(headers);
                    assert!(with.queues[0].tx.gather([head, &text[..960], &text[960..]], meta));
                } else {
                    send(&mut with, &packet, meta);
                }
                let mut got = Vec::new();
                assert!(receive_until(&mut without.queues[0].rx, |bytes, _| {
                    let protocol = if bytes[0] >> 4 == 4 { bytes[9] } else { bytes[6] };
                    if protocol == 6 {
                        assert!(bytes.len() <= headers + 1000, "cut to pieces");
                        assert!(checksum_is_right(bytes));
                        got.extend_from_slice(&bytes[headers..]);
                    }
                    got.len() == payload.len()
                }));
                assert_eq!(got, payload, "from {ours}");
            }
        }
        assert_eq!(with.counters[0].tx_refused.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn the_kernel_hands_over_super_packets_only_when_asked() {
    use std::io::Write;
    in_own_network("the_kernel_hands_over_super_packets_only_when_asked", || {
        for receive_super in [false, true] {
            let mut tun = Tun::open(&TunConfig { offload: true, receive_super, ..config() }).unwrap();
            // Just enough of a server to have the kernel send a window full of data.
            let client = std::thread::spawn(|| {
                let mut stream =
                    std::net::TcpStream::connect_timeout(&(OURS4, 80).into(), Duration::from_secs(2)).unwrap();
                stream.write_all(&[7; 20_000]).unwrap();
                std::thread::sleep(Duration::from_millis(100));
            });
            let mut syn = Vec::new();
            assert!(receive_until(&mut tun.queues[0].rx, |bytes, _| {
                syn = bytes.to_vec();
                bytes[0] == 0x45 && bytes[9] == 6
            }));
            let mut syn_ack = tcp((OURS4, 80), (KERNEL4, u16::from_be_bytes([syn[20], syn[21]])), 99, &[]);
            let next = u32::from_be_bytes(syn[24..28].try_into().unwrap()).wrapping_add(1);
            syn_ack[28..32].copy_from_slice(&next.to_be_bytes());
            syn_ack[33] = 0x12;
            let partial = make_partial(&mut syn_ack, Medium::Ip);
            send(&mut tun, &syn_ack, TxMeta { checksum_partial: Some(partial), ..TxMeta::default() });
            let mut longest = 0;
            let mut total = 0;
            receive_until(&mut tun.queues[0].rx, |bytes, meta| {
                if bytes[0] == 0x45 && bytes[9] == 6 {
                    assert_eq!(
                        bytes.len(),
                        usize::from(u16::from_be_bytes([bytes[2], bytes[3]])),
                        "nothing is cut off"
                    );
                    longest = longest.max(bytes.len());
                    total += bytes.len() - 40;
                    assert_eq!(meta.gso_size != 0, bytes.len() > 40 + 536, "a super-packet says so");
                }
                // Ten segments of 536 bytes (we announced no MSS) are what a new connection may send.
                total >= 5360
            });
            assert!(total >= 5360);
            assert_eq!(longest > 40 + 536, receive_super, "longest packet: {longest}");
            client.join().unwrap();
        }
    });
}

#[test]
fn a_tap_speaks_ethernet() {
    in_own_network("a_tap_speaks_ethernet", || {
        let mut tun = Tun::open(&TunConfig { medium: Medium::Ethernet, ..config() }).unwrap();
        let kernels = configure::mac(&tun.name).unwrap();
        let ours = tun.capabilities().mac;
        assert_ne!(kernels, ours);
        assert_eq!(ours[0] & 3, 2, "locally administered, unicast");
        let socket = kernel_socket(KERNEL4);
        socket.send_to(b"x", (OURS4, 7)).unwrap();
        // Who has 192.0.2.2?
        assert!(receive_until(&mut tun.queues[0].rx, |frame, _| {
            frame[..6] == [0xff; 6]
                && frame[6..12] == kernels
                && frame[12..14] == [8, 6]
                && frame[38..42] == OURS4.octets()
        }));
    });
}

#[test]
fn a_multi_queue_interface_persists_and_is_opened_again() {
    in_own_network("a_multi_queue_interface_persists_and_is_opened_again", || {
        let four = TunConfig { name: "lwp".into(), queues: 4, ..config() };
        let tun = Tun::open(&four).unwrap();
        assert_eq!(tun.queues.len(), 4);
        tun.set_persistent(true).unwrap();
        drop(tun);
        let other = Tun::open(&TunConfig { name: "lwp".into(), medium: Medium::Ethernet, ..config() });
        assert!(other.unwrap_err().to_string().contains("exists with other properties"));
        // Now with one queue and nothing to set: it must find out by itself that the device wants many.
        let again = Tun::open(&TunConfig { name: "lwp".into(), up: false, ..TunConfig::default() }).unwrap();
        assert_eq!(again.name, "lwp");
        again.set_persistent(false).unwrap();
        drop(again);
        assert!(configure::index("lwp").is_err(), "gone with its last queue");
    });
}

#[test]
fn errors_are_one_sentence_with_the_fix() {
    in_own_network("errors_are_one_sentence_with_the_fix", || {
        let _holder = Tun::open(&TunConfig { name: "lwb".into(), ..config() }).unwrap();
        let busy = Tun::open(&TunConfig { name: "lwb".into(), ..config() }).unwrap_err().to_string();
        assert!(busy.contains("the interface lwb is in use by another program"), "{busy}");
        ip("link add lwf type veth");
        let foreign = Tun::open(&TunConfig { name: "lwf".into(), ..config() }).unwrap_err().to_string();
        assert_eq!(foreign, "the interface lwf is no TUN interface: choose another name");
        assert_eq!(
            Tun::open(&TunConfig { name: "lo".into(), ..config() }).unwrap_err().to_string(),
            foreign.replace("lwf", "lo")
        );
    });
    let long = Tun::open(&TunConfig { name: "a-name-that-is-too-long".into(), ..TunConfig::default() });
    assert!(long.unwrap_err().to_string().contains("1 to 15 bytes"));
    for name in ["", "a/b", "a b", "a\tb", "a:1", ".", "..", "a\0b"] {
        assert!(check_name(name).unwrap_err().to_string().contains("without white space"), "{name:?}");
    }
    assert!(["lw0", "lw%d", "tun.5", "0123456789abcde"].iter().all(|name| check_name(name).is_ok()));
    let none = Tun::open(&TunConfig { queues: 0, ..TunConfig::default() });
    assert!(none.unwrap_err().to_string().contains("1 to 256 queues"));
    let missing = TunError::Node(io::Error::from_raw_os_error(libc::ENOENT)).to_string();
    assert!(missing.contains("modprobe tun"));
    let full = TunError::Node(io::Error::from_raw_os_error(libc::EMFILE)).to_string();
    assert!(full.contains("ulimit -n"), "{full}");
    let forbidden =
        TunError::Attach { name: "x%d".into(), error: io::Error::from_raw_os_error(libc::EPERM) }.to_string();
    assert!(forbidden.contains("CAP_NET_ADMIN") && forbidden.contains("ip tuntap add dev x0 "), "{forbidden}");
}

#[test]
fn the_kernel_finds_further_networks_behind_the_interface() {
    in_own_network("the_kernel_finds_further_networks_behind_the_interface", || {
        let far: [IpAddr; 2] = ["203.0.113.77".parse().unwrap(), "2001:db8:77::1".parse().unwrap()];
        let routes =
            vec![Prefix::new([203, 0, 113, 0], 24), Prefix::new("2001:db8:77::".parse::<Ipv6Addr>().unwrap(), 48)];
        let mut tun = Tun::open(&TunConfig { routes, ..config() }).unwrap();
        for (from, to) in [IpAddr::from(KERNEL4), KERNEL6.into()].into_iter().zip(far) {
            kernel_socket(from).send_to(b"far away", (to, 7)).unwrap();
            assert!(receive_until(&mut tun.queues[0].rx, |bytes, _| bytes.ends_with(b"far away")));
        }
    });
}

#[test]
fn frames_to_an_interface_that_is_down_are_counted() {
    in_own_network("frames_to_an_interface_that_is_down_are_counted", || {
        let mut tun = Tun::open(&TunConfig { up: false, addresses: Vec::new(), ..config() }).unwrap();
        let packet = udp((OURS4, 7), (KERNEL4, 7), b"lost");
        send(&mut tun, &packet, TxMeta::default());
        assert_eq!(tun.counters[0].tx_refused.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn an_interface_that_root_made_ready_needs_no_privilege() {
    in_own_network("an_interface_that_root_made_ready_needs_no_privilege", || {
        let routes =
            vec![Prefix::new([203, 0, 113, 0], 24), Prefix::new("2001:db8:77::".parse::<Ipv6Addr>().unwrap(), 48)];
        let config = TunConfig { name: "lwr0".into(), routes, ..config() };
        Tun::open(&config).unwrap().set_persistent(true).unwrap();
        keep_only(0);
        exchange(config.clone());

        // What root left open, it must still be asked for; the sentence says which.
        let other = |change: &dyn Fn(&mut TunConfig)| {
            let mut config = config.clone();
            change(&mut config);
            Tun::open(&config).unwrap_err().to_string()
        };
        let said = other(&|config| config.addresses[0].len = 25);
        assert!(said.contains("192.0.2.1/25") && said.contains("have root set it before"), "{said}");
        let said = other(&|config| config.addresses[1] = Prefix::new(OURS6, 64));
        assert!(said.contains("2001:db8::2/64"), "{said}");
        let said = other(&|config| config.routes[0].len = 25);
        assert!(said.contains("203.0.113.0/25"), "all of it is there, and was asked for as another network: {said}");
        let said = other(&|config| config.routes[0].len = 23);
        assert!(said.contains("203.0.113.0/23"), "{said}");
        let said = other(&|config| config.mtu = Some(1300));
        assert!(said.contains("the MTU (1300)"), "{said}");
    });
}

/// `peer` names the other end, and no network.
#[test]
fn a_point_to_point_interface_that_root_made_ready_needs_no_privilege() {
    in_own_network("a_point_to_point_interface_that_root_made_ready_needs_no_privilege", || {
        ip("tuntap add lwp mode tun");
        ip("link set lwp mtu 1400 up");
        ip("addr add 192.0.2.1 peer 192.0.2.2 dev lwp");
        ip("addr add 2001:db8::1 peer 2001:db8::2 dev lwp nodad");
        keep_only(0);
        let addresses = vec![Prefix::new(KERNEL4, 32), Prefix::new(KERNEL6, 128)];
        let of = |addresses| TunConfig { name: "lwp".into(), addresses, ..config() };
        exchange(of(addresses));
        let said = Tun::open(&of(vec![Prefix::new(OURS4, 32)])).unwrap_err().to_string();
        assert!(said.contains("192.0.2.2/32"), "the other end's is not the kernel's: {said}");
    });
}

/// Calls `ip` in the namespace of the calling thread.
fn ip(arguments: &str) {
    let status = std::process::Command::new("ip").args(arguments.split(' ')).status().expect("there is ip(8)");
    assert!(status.success(), "ip {arguments}");
}

#[test]
fn a_queue_of_a_deleted_interface_says_that_it_is_gone() {
    in_own_network("a_queue_of_a_deleted_interface_says_that_it_is_gone", || {
        let mut tun = Tun::open(&TunConfig { name: "lwg".into(), queues: 2, ..config() }).unwrap();
        ip("link set lwg down");
        for queue in &mut tun.queues {
            while queue.rx.poll(64) > 0 {}
            assert_eq!(queue.rx.failed(), None, "it can be brought up again");
        }
        ip("link del lwg");
        for (queue, counters) in tun.queues.iter_mut().zip(&tun.counters) {
            assert_eq!(queue.rx.poll(64), 0);
            assert_eq!(counters.rx_errors.load(Ordering::Relaxed), 1);
            let why = queue.rx.failed().expect("no frame will ever come");
            assert!(why.contains("the interface lwg is gone"), "{why}");
        }
    });
}

#[test]
fn what_an_earlier_program_asked_of_an_interface_is_forgotten() {
    in_own_network("what_an_earlier_program_asked_of_an_interface_is_forgotten", || {
        let plain = TunConfig { name: "lwo".into(), queues: 4, ..config() };
        let steering = Some(SteeringConfig { key: [0x6d; 40], table: [3; BUCKETS] });
        let earlier = TunConfig { offload: true, receive_super: true, steering, ..plain.clone() };
        let tun = Tun::open(&earlier).unwrap();
        assert!(tun.notes.is_empty(), "{:?}", tun.notes);
        tun.set_persistent(true).unwrap();
        drop(tun);

        let mut tun = Tun::open(&plain).unwrap();
        tun.set_persistent(false).unwrap();
        let mut queues = std::collections::HashSet::new();
        for number in 0..32 {
            kernel_socket(KERNEL4).send_to(&[number; 9], (OURS4, 7)).unwrap();
        }
        for (number, queue) in tun.queues.iter_mut().enumerate() {
            for i in 0..queue.rx.poll(64) {
                let frame = queue.rx.frame(i);
                if frame.bytes[0] == 0x45 && frame.bytes[9] == 17 {
                    assert_eq!(frame.meta, RxMeta::default());
                    assert!(checksum_is_right(frame.bytes), "nobody completes it");
                    queues.insert(number);
                }
            }
        }
        assert!(queues.len() > 1, "the kernel spreads flows as it likes: {queues:?}");
    });
}

#[test]
fn an_interface_that_somebody_has_open_is_left_as_it_is() {
    in_own_network("an_interface_that_somebody_has_open_is_left_as_it_is", || {
        let steering = Some(SteeringConfig { key: [0x6d; 40], table: [2; BUCKETS] });
        let first = TunConfig { name: "lwh".into(), queues: 4, steering, ..config() };
        let mut tun = Tun::open(&first).unwrap();
        assert!(tun.notes.is_empty(), "{:?}", tun.notes);
        let second = TunConfig {
            mtu: Some(1_300),
            queues: 2,
            steering: None,
            addresses: vec![Prefix::new(Ipv4Addr::new(198, 51, 100, 1), 24)],
            ..first.clone()
        };
        for down in [false, true] {
            // Also where it is down, which tells nobody of its carrier by its flags.
            ip(if down { "link set lwh down" } else { "link set lwh up" });
            let said = Tun::open(&second).unwrap_err().to_string();
            assert!(said.contains("the interface lwh is in use by another program"), "{said}");
            assert_eq!(configure::mtu("lwh").unwrap(), 1_400);
            assert!(UdpSocket::bind((Ipv4Addr::new(198, 51, 100, 1), 0)).is_err(), "it was given an address");
        }
        ip("link set lwh up");
        for number in 0..32 {
            kernel_socket(KERNEL4).send_to(&[number; 9], (OURS4, 7)).unwrap();
        }
        for (number, queue) in tun.queues.iter_mut().enumerate() {
            let mut datagrams = 0;
            for i in 0..queue.rx.poll(64) {
                datagrams += usize::from(queue.rx.frame(i).bytes[9] == 17 && queue.rx.frame(i).bytes[0] == 0x45);
            }
            assert_eq!(datagrams, if number == 2 { 32 } else { 0 }, "queue {number}: another rule than ours");
        }
        // Whoever it outlives leaves it to the next.
        tun.set_persistent(true).unwrap();
        drop(tun);
        Tun::open(&second).unwrap().set_persistent(false).unwrap();
    });
}

/// Whether that MTU is asked for, or the interface has it already; IPv4 does with it.
#[test]
fn an_mtu_that_leaves_no_room_for_ipv6_is_said() {
    in_own_network("an_mtu_that_leaves_no_room_for_ipv6_is_said", || {
        let small = TunConfig { name: "lws".into(), mtu: Some(1_279), ..config() };
        let refused = |config: &TunConfig| {
            let said = Tun::open(config).unwrap_err().to_string();
            assert!(said.contains("2001:db8::1/64 with an MTU of 1279") && said.contains("below 1280 bytes"), "{said}");
        };
        refused(&small);
        ip("tuntap add dev lws mode tun");
        ip("link set lws mtu 1279");
        refused(&TunConfig { mtu: None, ..small.clone() });
        let least = TunConfig { name: "lwl".into(), mtu: Some(1_280), ..small.clone() };
        assert_eq!(Tun::open(&least).unwrap().capabilities().mtu, 1_280, "the least that there is room in");
        let v4 = small.addresses.iter().filter(|prefix| prefix.address.is_ipv4()).cloned().collect();
        assert_eq!(Tun::open(&TunConfig { addresses: v4, ..small }).unwrap().capabilities().mtu, 1_279);
    });
}

/// Whether that is so of all new interfaces, as in many containers, or of one that is there; IPv4 does without.
#[test]
fn ipv6_that_is_switched_off_is_said() {
    in_own_network("ipv6_that_is_switched_off_is_said", || {
        let switch =
            |which: &str| std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1").unwrap();
        let refused = |config: &TunConfig, which: &str| {
            let said = Tun::open(config).unwrap_err().to_string();
            assert!(said.contains("2001:db8::1/64") && said.contains("IPv6 is switched off"), "{said}");
            assert!(said.contains(&format!("`sysctl -w net.ipv6.conf.{which}.disable_ipv6=0`")), "{said}");
        };
        ip("tuntap add dev lwn mode tun");
        switch("lwn");
        refused(&TunConfig { name: "lwn".into(), ..config() }, "lwn");
        switch("default");
        refused(&config(), "default");
        let v4 = config().addresses.into_iter().filter(|prefix| prefix.address.is_ipv4()).collect();
        assert_eq!(Tun::open(&TunConfig { addresses: v4, ..config() }).unwrap().capabilities().mtu, 1_400);
    });
}

#[test]
fn an_interface_that_was_down_has_both_its_addresses_again() {
    in_own_network("an_interface_that_was_down_has_both_its_addresses_again", || {
        let mut tun = Tun::open(&TunConfig { name: "lwd".into(), ..config() }).unwrap();
        ip("link set lwd down");
        ip("link set lwd up");
        for (kernel, ours) in [(IpAddr::from(KERNEL4), IpAddr::from(OURS4)), (KERNEL6.into(), OURS6.into())] {
            kernel_socket(kernel).send_to(b"after", (ours, 7)).unwrap();
            assert!(receive_until(&mut tun.queues[0].rx, |bytes, _| bytes.ends_with(b"after")), "{ours}");
        }
    });
}

#[test]
fn a_queue_that_somebody_has_made_longer_stays_so() {
    in_own_network("a_queue_that_somebody_has_made_longer_stays_so", || {
        for (is, becomes) in [(500, 8_192), (20_000, 20_000)] {
            let name = format!("lwq{is}");
            ip(&format!("tuntap add dev {name} mode tun multi_queue"));
            ip(&format!("link set {name} txqueuelen {is}"));
            let _tun = Tun::open(&TunConfig { name: name.clone(), ..config() }).unwrap();
            assert_eq!(queue_len(&name).unwrap(), becomes);
        }
    });
}

#[test]
fn nothing_waits_in_front_of_an_interface_that_we_have_made() {
    in_own_network("nothing_waits_in_front_of_an_interface_that_we_have_made", || {
        let waits_in = |name: &str| {
            let shown = std::process::Command::new("ip").args(["-o", "link", "show", "dev", name]).output().unwrap();
            let shown = String::from_utf8(shown.stdout).unwrap();
            shown.split_once(" qdisc ").map(|(_, rest)| rest.split(' ').next().unwrap().to_owned())
        };
        for queues in [1, 2] {
            let tun = Tun::open(&TunConfig { queues, ..config() }).unwrap();
            assert_eq!(waits_in(&tun.name).as_deref(), Some("noqueue"));
            ip(&format!("link set {} down", tun.name));
            ip(&format!("link set {} up", tun.name));
            assert_eq!(waits_in(&tun.name).as_deref(), Some("noqueue"), "also after it was down");
        }
        ip("tuntap add dev lwroot mode tun");
        ip("link set lwroot up");
        let chosen = waits_in("lwroot");
        assert_ne!(chosen.as_deref(), Some("noqueue"));
        let _tun = Tun::open(&TunConfig { name: "lwroot".into(), ..config() }).unwrap();
        assert_eq!(waits_in("lwroot"), chosen, "somebody else's is left as it is");
    });
}

/// Whoever may not have it is told why: it was made for somebody else, or there is none and only root makes one.
#[test]
fn who_may_not_have_an_interface_is_told_why() {
    in_own_network("who_may_not_have_an_interface_is_told_why", || {
        ip("tuntap add dev lwother mode tun user 12345");
        keep_only(0);
        let said = |name: &str| Tun::open(&TunConfig { name: name.into(), ..config() }).unwrap_err().to_string();
        let theirs = said("lwother");
        assert!(theirs.contains("the interface lwother was not made for this user"), "{theirs}");
        let none = said("lwnone");
        assert!(none.contains("may not be created without the capability CAP_NET_ADMIN"), "{none}");
    });
}

/// As far as 1,500 bytes: that much room there is, whatever the MTU was.
#[test]
fn an_mtu_that_grows_while_we_run_cuts_nothing_off() {
    in_own_network("an_mtu_that_grows_while_we_run_cuts_nothing_off", || {
        let mut tun = Tun::open(&config()).unwrap();
        configure::set_mtu(&tun.name, 1_500).unwrap();
        kernel_socket(KERNEL4).send_to(&[7; 1_472], (OURS4, 7)).unwrap();
        assert!(receive_until(&mut tun.queues[0].rx, |bytes, _| bytes.len() == 1_500 && checksum_is_right(bytes)));
    });
}

/// And no more are lent than were asked for.
#[test]
fn a_poll_lends_what_was_asked_for() {
    in_own_network("a_poll_lends_what_was_asked_for", || {
        let mut tun = Tun::open(&TunConfig { addresses: vec![Prefix::new(KERNEL4, 24)], ..config() }).unwrap();
        for number in 0..3 {
            kernel_socket(KERNEL4).send_to(&[number; 9], (OURS4, 7)).unwrap();
        }
        let rx = &mut tun.queues[0].rx;
        assert_eq!((rx.poll(1), rx.poll(2)), (1, 2));
    });
}

#[test]
fn our_link_address_is_ours_alone() {
    let kernels = [[0x02, 1, 2, 3, 4, 5], [0x00, 1, 2, 3, 4, 4], [0xff, 1, 2, 3, 4, 5]];
    assert_eq!(kernels.map(neighbour_of), [[0x02, 1, 2, 3, 4, 4], [0x02, 1, 2, 3, 4, 5], [0xfe, 1, 2, 3, 4, 4]]);
}
