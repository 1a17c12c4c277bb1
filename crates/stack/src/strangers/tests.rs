//! Who is turned away when strangers have used up their stock, and who is not.

use super::*;
use crate::demux::tests::{acks_a_cookie, alarms_of, bare, says};
use crate::listing::tests::World;
use laneway_device::{Tx, TxMeta};
use proptest::prelude::*;

const SERVER: Address = Address::from_v4([10, 0, 0, 1]);

fn at_us(us: u64) -> Instant {
    Instant::from_us(us)
}

fn stranger(n: u16) -> FlowKey {
    let [a, b] = n.to_be_bytes();
    FlowKey { local: SERVER, remote: Address::from_v4([10, 0, a | 1, b]), local_port: 80, remote_port: 4_000 }
}

/// The stock is used up, and will be for long.
fn use_up(world: &mut World) {
    world.server.seats.iter_mut().for_each(|seat| seat.lane.local.strangers.stock = -1_000_000_000);
}

/// (Turned away, half-open entries, connections, RSTs sent) of the server.
fn met(world: &mut World) -> (u64, usize, usize, u64) {
    let counters = world.server.counters();
    let (half_open, open) = world.server.seats[0].lane.tables(|tables| (tables.half_open.len(), tables.slots.len()));
    (counters.discarded(Discard::TcpStranger), half_open, open, counters.get(Mib::TcpOutRsts))
}

#[test]
fn the_stock_grows_with_time_and_with_polls_that_find_nothing() {
    let mut strangers = Strangers::default();
    assert!(!strangers.have_to_wait());
    (0..FULL - 1).for_each(|_| strangers.on_nothing());
    assert!(!strangers.have_to_wait(), "one more may come");
    strangers.on_nothing();
    assert!(strangers.have_to_wait());
    strangers.on_poll(64, at_us(1_000_000_000));
    assert!(!strangers.have_to_wait(), "nobody has come for long");
    assert_eq!(strangers.stock, FULL);

    (0..FULL).for_each(|_| strangers.on_nothing());
    strangers.on_poll(64, at_us(1_000_000_100));
    assert!(strangers.have_to_wait(), "no time has passed");
    strangers.on_poll(64, at_us(1_000_002_000));
    assert_eq!(strangers.stock, EACH_MS * 2);
    strangers.on_poll(0, at_us(1_000_002_001));
    assert_eq!(strangers.stock, EACH_MS * 2 + EACH_IDLE_POLL);
}

/// In a flood many of those who are known begin at once. If their SYNs took nothing, their handshakes would give to strangers what nobody had.
#[test]
fn what_is_taken_beyond_the_stock_can_be_given_back() {
    let mut strangers = Strangers { stock: 1, grown_until: 0 };
    for many in [1, 1_000, FULL] {
        (0..many).for_each(|_| strangers.on_nothing());
        assert!(strangers.have_to_wait());
        (0..many).for_each(|_| strangers.on_welcome());
        assert_eq!(strangers.stock, 1, "after {many} handshakes");
    }
}

#[test]
fn what_is_taken_beyond_the_stock_is_paid_back_within_half_a_second() {
    let mut strangers = Strangers::default();
    (0..3 * FULL).for_each(|_| strangers.on_nothing());
    assert_eq!(strangers.stock, -FULL);
    strangers.on_poll(64, at_us(270_000));
    assert!(!strangers.have_to_wait());
    strangers.on_poll(64, at_us(540_000));
    assert_eq!(strangers.stock, FULL);
}

#[test]
fn who_completes_a_handshake_costs_nothing() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 100;
    world.turn(20);
    let stock = |world: &World| world.server.seats[0].lane.local.strangers.stock;
    assert_eq!(stock(&world), FULL);
    // Whoever only begins one does, until time has passed.
    let (key, none) = (stranger(1), SeqNum::new(0));
    says(&mut world, &key, bare(&key, SeqNum::new(77), none, Flags::SYN));
    assert_eq!(stock(&world), FULL - 1);
    world.turn(1);
    assert_eq!(stock(&world), FULL);
}

#[test]
fn a_strangers_packets_of_no_flow_are_turned_away_and_not_answered() {
    let mut world = World::new();
    let none = SeqNum::new(0);
    for (wait, expected) in [(false, (0, 1, 0, 2)), (true, (4, 1, 0, 2))] {
        if wait {
            use_up(&mut world);
        }
        let [a, b, c, d] = [1u16, 2, 3, 4].map(|n| stranger(n + 8 * u16::from(wait)));
        says(&mut world, &a, bare(&a, SeqNum::new(77), none, Flags::SYN));
        says(&mut world, &b, bare(&b, SeqNum::new(77), SeqNum::new(1), Flags::ACK));
        says(&mut world, &c, bare(&c, SeqNum::new(77), SeqNum::new(1), Flags::SYN | Flags::ACK));
        says(&mut world, &d, bare(&d, SeqNum::new(77), none, Flags::RST));
        assert_eq!(met(&mut world), expected);
    }
    let counters = world.server.counters();
    assert_eq!(counters.get(Mib::TcpInSegs), 8, "they have come all the same");
    assert_eq!(counters.get(Mib::IpExtInOctets), 8 * 40);
}

#[test]
fn who_has_a_path_begins_another_connection() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 1;
    world.turn(20);
    use_up(&mut world);
    world.client.seats[0].app.to_open = 20;
    world.turn(20);
    assert_eq!(met(&mut world), (0, 0, 21, 0));
    world.client.seats[0].app.to_close = 21;
    world.turn(20);
    world.server.seats[0].app.to_close = 21;
    world.turn(20);
    assert_eq!(met(&mut world), (0, 0, 0, 0));
}

/// The first packets of a client may have come just before the flood.
#[test]
fn who_has_a_half_open_entry_completes_his_handshake() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 1;
    while met(&mut world).1 == 0 {
        world.now = world.now.after_us(50);
        world.client.turn(world.now);
        world.server.turn(world.now);
    }
    use_up(&mut world);
    world.turn(20);
    assert_eq!(met(&mut world), (0, 0, 1, 0));
}

/// A device may have answered his SYN in our stead; and we may have, when there was time.
#[test]
fn who_bears_a_cookie_is_let_in() {
    let mut world = World::new();
    let key = stranger(1);
    use_up(&mut world);
    let at = world.now;
    acks_a_cookie(&mut world, &key, at);
    assert_eq!(met(&mut world), (1, 0, 0, 0), "nobody has sent cookies");
    alarms_of(&mut world).raise();
    let forged = bare(&key, SeqNum::new(77), SeqNum::new(1), Flags::ACK);
    says(&mut world, &key, forged);
    assert_eq!(met(&mut world), (2, 0, 0, 0));
    acks_a_cookie(&mut world, &key, at);
    assert_eq!(met(&mut world), (2, 0, 1, 0));
}

/// Of two lanes each knows its own: what belongs to the other goes there, and is judged there.
#[test]
fn a_lane_turns_away_nobody_whose_flow_is_anothers() {
    // Everything comes to the first lane.
    let mut world = World::steered(2, Some(std::sync::Arc::new(|_| 0)));
    world.client.seats[0].app.to_open = 40;
    world.turn(40);
    let open = |world: &mut World| [0, 1].map(|i| world.server.seats[i].lane.tables(|t| t.slots.len()));
    let [first, second] = open(&mut world);
    assert!(first > 0 && second > 0 && first + second == 40, "{first} and {second}");
    use_up(&mut world);
    world.client.seats[0].app.to_open = 40;
    world.client.seats[0].app.to_say = 10;
    world.turn(40);
    let [first, second] = open(&mut world);
    assert_eq!((first + second, met(&mut world).0), (80, 0));
    // A stranger is turned away by the lane that his flow belongs to.
    let none = SeqNum::new(0);
    for n in 0..64 {
        let key = stranger(n);
        says(&mut world, &key, bare(&key, SeqNum::new(77), none, Flags::SYN));
    }
    world.turn(2);
    let turned_away = [0, 1].map(|i| world.server.seats[i].lane.local.counters.discarded(Discard::TcpStranger));
    assert!(turned_away[0] > 0 && turned_away[1] > 0 && turned_away.iter().sum::<u64>() == 64, "{turned_away:?}");
}

/// An RST of no flow lies in the server's queue.
fn knocks(world: &mut World, key: &FlowKey) {
    let header = bare(&key.reversed(), SeqNum::new(77), SeqNum::new(0), Flags::RST);
    let header = laneway_wire::tcp::Header { src_port: key.remote_port, dst_port: 80, ..header };
    let client = &mut world.client.seats[0];
    let sent = crate::egress::answer(&mut client.lane.local, &mut client.queue.tx, &key.reversed(), |_, _| header);
    assert_eq!(sent, crate::egress::Sent::Yes);
}

/// Forty thousand at once, and somebody who is known among them.
#[test]
fn a_flood_costs_no_more_than_its_part_and_those_who_are_known_notice_nothing() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 1;
    world.turn(20);
    let began = world.now;
    for round in 0..10 {
        for n in 0..4_000 {
            let [a, b] = u16::to_be_bytes(round * 4_000 + n);
            let key = FlowKey {
                remote: Address::from_v4([10, 0, 100 + (a & 0x3f), b]),
                remote_port: 1 + u16::from(a),
                ..stranger(0)
            };
            knocks(&mut world, &key);
        }
        world.client.seats[0].queue.tx.flush();
        world.client.seats[0].app.to_open = 1;
        world.client.turn(world.now);
        for _ in 0..64 {
            world.now = world.now.after_us(1);
            world.server.turn(world.now);
        }
        world.client.turn(world.now);
    }
    world.turn(4);
    let passed = world.now.since_us(began);
    let counters = world.server.counters();
    let (taken_in, turned_away) =
        (counters.discarded(Discard::TcpNoConnection), counters.discarded(Discard::TcpStranger));
    assert_eq!(taken_in + turned_away, 40_000);
    let idle = counters.get(Mib::PollsIdle) * EACH_IDLE_POLL as u64;
    let part = FULL as u64 + (passed / 1_024 + 2) * EACH_MS as u64 + idle + 64;
    assert!(taken_in >= FULL as u64 && taken_in <= part, "{taken_in} of {part} in {passed} us");
    let (open, failed) = (world.server.seats[0].lane.tables(|t| t.slots.len()), world.client.counters());
    assert_eq!((open, failed.get(Mib::ConnectRetries)), (11, 0));
    // When it is over, strangers are heard again.
    world.now = world.now.after_us(1_000_000);
    let key = stranger(9);
    says(&mut world, &key, bare(&key, SeqNum::new(77), SeqNum::new(0), Flags::SYN));
    assert_eq!(world.server.counters().discarded(Discard::TcpStranger), turned_away);
}

/// Who is behind them does not wait for a poll of his own, and a lane that only turns strangers away has other things to do now and then.
#[test]
fn a_poll_goes_on_behind_those_who_are_turned_away_but_not_for_ever() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 1;
    world.turn(20);
    for (strangers, polls) in [(0, 1), (63, 1), (300, 1), (1_200, 3)] {
        use_up(&mut world);
        let open = met(&mut world).2;
        for n in 0..strangers {
            let key = stranger(n);
            knocks(&mut world, &key);
        }
        world.client.seats[0].queue.tx.flush();
        world.client.seats[0].app.to_open = 1;
        world.client.turn(world.now);
        for _ in 0..polls {
            assert_eq!(world.server.seats[0].lane.tables(|tables| tables.half_open.len()), 0, "behind {strangers}");
            world.server.turn(world.now);
        }
        assert_eq!(world.server.seats[0].lane.tables(|tables| tables.half_open.len()), 1, "behind {strangers}");
        world.turn(4);
        assert_eq!(met(&mut world).2, open + 1);
    }
}

/// A packet with an IPv4 header of so many words of options, or an IPv6 header before a destination options header if there are some.
fn packet(v6: bool, words: usize, fragment: Option<u16>, tcp: &[u8]) -> Vec<u8> {
    let more = fragment.is_some();
    let id = fragment.unwrap_or(0);
    if v6 {
        let mut extension = Vec::new();
        let mut next = protocol::TCP;
        if more {
            extension = vec![next, 0, 0, 1, 0, 0];
            extension.extend(id.to_be_bytes());
            next = 44;
        }
        if words > 0 {
            // Pad1 all over.
            let mut options = vec![next, (words - 1) as u8];
            options.resize(words * 8, 0);
            extension.splice(0..0, options);
            next = 60;
        }
        let len = (extension.len() + tcp.len()) as u16;
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend(len.to_be_bytes());
        bytes.extend([next, 64]);
        bytes.extend(Address::from_v6([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]).octets());
        bytes.extend(Address::from_v6([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]).octets());
        bytes.extend(extension);
        bytes.extend(tcp);
        return bytes;
    }
    let mut bytes = vec![0x45 + words as u8, 0];
    bytes.extend(((20 + words * 4 + tcp.len()) as u16).to_be_bytes());
    bytes.extend(id.to_be_bytes());
    bytes.extend(if more { [0x20, 0] } else { [0x40, 0] });
    bytes.extend([64, protocol::TCP, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    bytes.resize(20 + words * 4, 1);
    bytes.extend(tcp);
    bytes
}

proptest! {
    /// What is seen at a glance is what a close look finds.
    #[test]
    fn a_glance_sees_what_a_close_look_finds(
        v6: bool,
        words in 0usize..4,
        fragment in proptest::option::of(any::<u16>()),
        tcp in proptest::collection::vec(any::<u8>(), 24..=48),
    ) {
        let tcp = &tcp[..tcp.len() / 8 * 8];
        let bytes = packet(v6, words, fragment, tcp);
        let close = input::input(&bytes, true).expect("a packet");
        let usual = usual_glance(&bytes);
        prop_assert_eq!(usual.is_some(), !v6 && words == 0);
        let seen = usual.or_else(|| close_glance(&bytes)).expect("TCP");
        prop_assert_eq!((seen.src, seen.dst), (close.src, close.dst));
        prop_assert_eq!(seen.what.map_err(Some), match close.fragment {
            Some(fragment) => Err(Some(fragment.id)),
            None => Ok(close.payload.first_chunk().expect("a header")),
        });
    }

    #[test]
    fn nothing_that_comes_makes_a_glance_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), first in 0usize..4) {
        let mut bytes = bytes;
        if let Some(byte) = bytes.first_mut() {
            *byte = [0x45, 0x46, 0x60, *byte][first];
        }
        let _ = (usual_glance(&bytes), close_glance(&bytes));
    }
}

/// A first fragment of TCP is kept for a while, which is dear.
#[test]
fn a_strangers_fragments_are_turned_away_and_those_of_others_are_not() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 1;
    world.turn(20);
    use_up(&mut world);
    for (last, turned_away) in [(77, 1), (2, 1), (78, 2)] {
        let mut bytes = packet(false, 0, Some(last.into()), &[0; 24]);
        bytes[15] = last;
        let sum = laneway_wire::checksum::Sum::of(&bytes[..20]).checksum();
        bytes[10..12].copy_from_slice(&sum);
        let tx = &mut world.client.seats[0].queue.tx;
        tx.reserve(bytes.len()).expect("there is room").copy_from_slice(&bytes);
        tx.commit(bytes.len(), TxMeta::default());
        tx.flush();
        world.now = world.now.after_us(50);
        world.server.turn(world.now);
        assert_eq!(met(&mut world).0, turned_away, "10.0.0.{last}");
    }
}

/// On Ethernet, the type says what a frame carries, and what carries no IP is no stranger's. Nor is what a bridge shows us of others: it has not come to us.
#[test]
fn a_frame_is_turned_away_for_the_packet_that_its_type_says_it_carries() {
    let mut world = World::new();
    let (local, peer) = (&mut world.server.seats[0].lane.local, Mac([2; 6]));
    local.medium = Medium::Ethernet;
    let ours = local.paths.mac();
    let mut syn = [0; 24];
    syn[13] = SYN;
    for (to, v6, ethertype, expected) in [
        (ours, false, EtherType::IPV4, true),
        (ours, true, EtherType::IPV6, true),
        (Mac::BROADCAST, false, EtherType::IPV4, true),
        (ours, false, EtherType::ARP, false),
        (ours, false, EtherType(0x88cc), false),
        (peer, false, EtherType::IPV4, false),
        (peer, true, EtherType::IPV6, false),
    ] {
        let frame = [&ethernet::template(to, peer, ethertype)[..], &packet(v6, 0, None, &syn)].concat();
        // Those of another lane will do: nothing is asked of them.
        world.client.seats[0].lane.tables(|tables| {
            let mut is_turned_away = |frame| is_turned_away(local, tables, frame, None, (&mut 0, &mut 0));
            assert_eq!(is_turned_away(&frame), expected, "{ethertype:?} to {to:?}");
            assert!(!is_turned_away(&frame[..ethernet::HEADER_LEN]));
            assert!(!is_turned_away(&frame[..5]));
        });
    }
}
