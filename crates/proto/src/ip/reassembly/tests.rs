use super::*;
use crate::ip::input::input;
use crate::ip::output::{self, HeaderSpec};
use proptest::prelude::*;

const NOW: Instant = Instant::from_us(1_000_000);
const SECRET: HashKey = HashKey::new(1, 2);

fn v4(last: u8) -> Address {
    Address::from_v4([192, 0, 2, last])
}

fn v6(last: u8) -> Address {
    Address::from_v6([0x20, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
}

/// An IPv4 fragment of a UDP datagram, or of another protocol.
#[derive(Clone)]
struct Fragment {
    id: u16,
    offset: u32,
    more: bool,
    protocol: u8,
    ecn: u8,
    bytes: Vec<u8>,
}

fn fragment(offset: u32, len: usize, more: bool) -> Fragment {
    let bytes = (0..len).map(|i| (offset as usize + i) as u8).collect();
    Fragment { id: 7, offset, more, protocol: protocol::UDP, ecn: 0, bytes }
}

fn feed(reassembly: &mut Reassembly, fragment: &Fragment, now: Instant) -> Result<Option<Reassembled>, Discard> {
    feed_any(reassembly, fragment, /* to_group= */ false, now)
}

/// The same, of one that went to a group.
fn feed_to_group(
    reassembly: &mut Reassembly,
    fragment: &Fragment,
    now: Instant,
) -> Result<Option<Reassembled>, Discard> {
    feed_any(reassembly, fragment, /* to_group= */ true, now)
}

fn feed_any(
    reassembly: &mut Reassembly,
    fragment: &Fragment,
    to_group: bool,
    now: Instant,
) -> Result<Option<Reassembled>, Discard> {
    let mut packet = vec![0; 20];
    let header = ipv4::Header {
        dscp: 0,
        ecn: fragment.ecn,
        id: fragment.id,
        dont_fragment: false,
        more_fragments: fragment.more,
        fragment_offset: fragment.offset as u16,
        ttl: 64,
        protocol: fragment.protocol,
        src: v4(1),
        dst: v4(2),
        payload_len: fragment.bytes.len() as u16,
    };
    header.emit(&mut packet);
    packet.extend_from_slice(&fragment.bytes);
    let packet = Packet { to_group, ..input(&packet, false).unwrap() };
    reassembly.on_fragment(&packet, &SECRET, now)
}

/// An IPv6 fragment whose unfragmentable part has a hop-by-hop header if `hop_by_hop`.
fn packet_v6(hop_by_hop: bool, next: u8, offset: u32, more: bool, bytes: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 40];
    if hop_by_hop {
        packet.extend_from_slice(&[44, 0, 1, 4, 0, 0, 0, 0]);
    }
    let at = packet.len();
    packet.extend_from_slice(&[0; 8]);
    ipv6::Fragment { offset, more, id: 9 }.emit(next, &mut packet[at..]);
    packet.extend_from_slice(bytes);
    let spec = HeaderSpec::new(v6(1), v6(2), if hop_by_hop { 0 } else { 44 });
    let payload_len = packet.len() - 40;
    output::emit(&spec, &mut packet, payload_len);
    packet
}

#[test]
fn two_halves_make_a_whole_in_either_order() {
    for swapped in [false, true] {
        let mut reassembly = Reassembly::new(Config::default());
        let mut halves = [fragment(0, 16, true), fragment(16, 5, false)];
        if swapped {
            halves.reverse();
        }
        assert_eq!(feed(&mut reassembly, &halves[0], NOW), Ok(None));
        let whole = feed(&mut reassembly, &halves[1], NOW).unwrap().unwrap();
        let packet = input(&whole.packet, false).unwrap();
        assert_eq!(packet.payload, (0..21).collect::<Vec<u8>>());
        assert!(packet.fragment.is_none());
        assert!(reassembly.is_empty() && reassembly.bytes() == 0);
    }
}

#[test]
fn headers_before_the_fragment_header_stay() {
    for hop_by_hop in [false, true] {
        let mut reassembly = Reassembly::new(Config::default());
        let first = packet_v6(hop_by_hop, protocol::UDP, 0, true, &[1; 8]);
        let last = packet_v6(hop_by_hop, protocol::UDP, 8, false, &[2; 3]);
        assert_eq!(reassembly.on_fragment(&input(&last, false).unwrap(), &SECRET, NOW), Ok(None));
        let whole = reassembly.on_fragment(&input(&first, false).unwrap(), &SECRET, NOW).unwrap().unwrap();
        let packet = input(&whole.packet, false).unwrap();
        assert_eq!(packet.protocol, protocol::UDP);
        assert_eq!(packet.payload, [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2]);
        assert_eq!(packet.header.len(), if hop_by_hop { 48 } else { 40 });
    }
}

#[test]
fn repetition_is_tolerated_and_overlap_is_not() {
    let mut reassembly = Reassembly::new(Config::default());
    assert_eq!(feed(&mut reassembly, &fragment(0, 16, true), NOW), Ok(None));
    let bytes = reassembly.bytes();
    assert_eq!(feed(&mut reassembly, &fragment(0, 16, true), NOW), Ok(None));
    assert_eq!(reassembly.bytes(), bytes);
    assert_eq!(feed(&mut reassembly, &fragment(8, 16, true), NOW), Err(Discard::FragmentOverlap));
    // What would have completed it comes too late: the datagram stays refused.
    assert_eq!(feed(&mut reassembly, &fragment(16, 8, false), NOW), Err(Discard::FragmentOverlap));
    assert_eq!((reassembly.len(), reassembly.bytes()), (1, OVERHEAD));
    // Refused is not expired: no ICMP message, no second count. Then the id may be used again.
    let later = NOW.after_us(30_000_000);
    assert_eq!(reassembly.on_timeout(later), 0);
    assert_eq!(reassembly.bytes(), 0);
    assert_eq!(feed(&mut reassembly, &fragment(0, 16, true), later), Ok(None));
    assert!(feed(&mut reassembly, &fragment(16, 8, false), later).unwrap().is_some());
}

#[test]
fn a_repetition_with_other_bytes_is_an_overlap() {
    let mut reassembly = Reassembly::new(Config::default());
    feed(&mut reassembly, &fragment(0, 16, true), NOW).unwrap();
    let mut forged = fragment(0, 16, true);
    forged.bytes[9] ^= 1;
    assert_eq!(feed(&mut reassembly, &forged, NOW), Err(Discard::FragmentOverlap));
}

#[test]
fn ends_that_contradict_refuse_the_datagram() {
    for (a, b) in [
        (fragment(16, 8, false), fragment(32, 8, false)),
        (fragment(32, 8, false), fragment(16, 8, false)),
        (fragment(16, 8, false), fragment(24, 8, true)),
        (fragment(24, 8, true), fragment(16, 8, false)),
    ] {
        let mut reassembly = Reassembly::new(Config::default());
        feed(&mut reassembly, &a, NOW).unwrap();
        assert_eq!(feed(&mut reassembly, &b, NOW), Err(Discard::FragmentOverlap));
    }
}

#[test]
fn impossible_fragments_create_nothing() {
    let mut reassembly = Reassembly::new(Config::default());
    let refused = |reassembly: &mut Reassembly, f| feed(reassembly, &f, NOW).unwrap_err();
    assert_eq!(refused(&mut reassembly, fragment(8, 12, true)), Discard::FragmentMalformed);
    assert_eq!(refused(&mut reassembly, fragment(8, 0, false)), Discard::FragmentMalformed);
    assert_eq!(refused(&mut reassembly, fragment(65_528, 8, false)), Discard::FragmentMalformed);
    let tcp = Fragment { protocol: protocol::TCP, ..fragment(0, 16, true) };
    assert_eq!(refused(&mut reassembly, tcp), Discard::FragmentTiny);
    let mut options = Fragment { protocol: protocol::TCP, ..fragment(0, 24, true) };
    options.bytes[12] = 0xf0;
    assert_eq!(refused(&mut reassembly, options), Discard::FragmentTiny);
    // IPv6: the chain of headers has to end in the first fragment.
    let cut = packet_v6(false, 60, 0, true, &[17, 1, 1, 4, 0, 0, 0, 0]);
    assert_eq!(reassembly.on_fragment(&input(&cut, false).unwrap(), &SECRET, NOW), Err(Discard::FragmentTiny));
    let nested = packet_v6(false, 44, 0, true, &[17; 16]);
    assert_eq!(reassembly.on_fragment(&input(&nested, false).unwrap(), &SECRET, NOW), Err(Discard::FragmentTiny));
    assert!(reassembly.is_empty());
}

#[test]
fn congestion_marks_survive() {
    let join = |a, b| {
        let mut reassembly = Reassembly::new(Config::default());
        feed(&mut reassembly, &Fragment { ecn: a, ..fragment(0, 8, true) }, NOW).unwrap();
        feed(&mut reassembly, &Fragment { ecn: b, ..fragment(8, 8, false) }, NOW)
            .map(|whole| input(&whole.unwrap().packet, false).unwrap().ecn)
    };
    assert_eq!(join(2, 3), Ok(3));
    assert_eq!(join(1, 3), Ok(3));
    assert_eq!(join(1, 1), Ok(1));
    assert_eq!(join(2, 2), Ok(2));
    assert_eq!(join(0, 0), Ok(0));
    assert_eq!(join(3, 0), Err(Discard::FragmentMalformed));
}

#[test]
fn a_datagram_that_is_late_is_given_up() {
    let mut reassembly = Reassembly::new(Config::default());
    feed(&mut reassembly, &fragment(0, 16, true), NOW).unwrap();
    feed(&mut reassembly, &Fragment { id: 8, ..fragment(16, 16, true) }, NOW.after_us(1)).unwrap();
    let six = packet_v6(false, protocol::UDP, 0, true, &[1; 8]);
    reassembly.on_fragment(&input(&six, false).unwrap(), &SECRET, NOW).unwrap();
    let deadline = reassembly.poll_timeout().unwrap();
    assert_eq!(deadline.since_us(NOW), 30_000_000);
    assert_eq!(reassembly.poll_expired(NOW), None);
    let expired = reassembly.poll_expired(deadline).unwrap();
    let first = expired.first_fragment.unwrap();
    let quoted = first.packet();
    assert_eq!((quoted.src, quoted.dst, quoted.protocol), (v4(1), v4(2), protocol::UDP));
    assert_eq!((quoted.header.len(), quoted.payload), (20, &fragment(0, 16, true).bytes[..]));
    assert!(crate::icmp::error_reply(&quoted, crate::icmp::Problem::ReassemblyTimeExceeded).is_some());
    assert_eq!(reassembly.poll_expired(deadline), None);
    let expired = reassembly.poll_expired(deadline.after_us(1)).unwrap();
    assert_eq!(expired.first_fragment, None);
    assert_eq!(reassembly.poll_timeout().unwrap().since_us(NOW), 60_000_000);
    assert_eq!(reassembly.on_timeout(Instant::NEVER), 1);
    assert_eq!((reassembly.bytes(), reassembly.poll_timeout()), (0, None));
}

/// An error about a datagram that is given up fits the least MTU of IPv6: 1,280 bytes, of which its own headers take 48.
#[test]
fn no_more_is_quoted_than_fits_an_error() {
    for len in [1_200, 1_208, 1_216, 1_400] {
        let mut reassembly = Reassembly::new(Config::default());
        feed(&mut reassembly, &fragment(0, len, true), NOW).unwrap();
        let expired = reassembly.poll_expired(reassembly.poll_timeout().unwrap()).unwrap();
        let first = expired.first_fragment.unwrap();
        let quoted = first.packet();
        assert_eq!(quoted.header.len() + quoted.payload.len(), (20 + len).min(1_232));
        assert_eq!(quoted.payload, &fragment(0, len, true).bytes[..quoted.payload.len()]);
    }
}

#[test]
fn the_oldest_makes_room() {
    let config = Config { entries_max: 4, ..Config::default() };
    let mut reassembly = Reassembly::new(config);
    for id in 0..10 {
        feed(&mut reassembly, &Fragment { id, ..fragment(0, 8, true) }, NOW).unwrap();
    }
    assert_eq!((reassembly.len(), reassembly.evicted()), (4, 6));
    for id in 6..10 {
        assert!(feed(&mut reassembly, &Fragment { id, ..fragment(8, 8, false) }, NOW).unwrap().is_some());
    }
    assert_eq!(reassembly.bytes(), 0);
}

/// A sender that needs his numbers again within the time for which we wait would have the halves of two datagrams put together (RFC 4963).
#[test]
fn what_is_left_of_a_datagram_is_not_mixed_with_the_next_of_its_number() {
    let mut reassembly = Reassembly::new(Config::default());
    let whole = |reassembly: &mut Reassembly, id| {
        assert_eq!(feed(reassembly, &Fragment { id, ..fragment(0, 8, true) }, NOW), Ok(None));
        feed(reassembly, &Fragment { id, ..fragment(8, 8, false) }, NOW).unwrap().is_some()
    };
    for (others, mixed) in [(OVERTAKEN as u16 - 1, true), (OVERTAKEN as u16, false)] {
        let mut left = fragment(0, 8, true);
        left.bytes.fill(0xee);
        assert_eq!(feed(&mut reassembly, &Fragment { id: 0, ..left }, NOW), Ok(None));
        assert!((1..=others).all(|id| whole(&mut reassembly, id)));
        let second = Fragment { id: 0, ..fragment(8, 8, false) };
        let came = feed(&mut reassembly, &second, NOW).unwrap();
        assert_eq!(came.is_some(), mixed, "{others} others may only be what the network has overtaken it with");
    }
    assert_eq!((reassembly.len(), reassembly.evicted()), (1, 1));
    let first = feed(&mut reassembly, &Fragment { id: 0, ..fragment(0, 8, true) }, NOW).unwrap();
    assert!(first.is_some_and(|whole| whole.packet[20..28] == *fragment(0, 8, true).bytes), "that of the new one");
    assert_eq!((reassembly.len(), reassembly.bytes()), (0, 0));
}

#[test]
fn a_flood_of_small_fragments_has_no_memory_of_its_own() {
    let config = Config { entries_max: 4, ..Config::default() };
    let mut reassembly = Reassembly::new(config);
    let mut seen = std::collections::BTreeSet::new();
    for id in 0..100 {
        feed(&mut reassembly, &Fragment { id, ..fragment(0, 8, true) }, NOW).unwrap();
        seen.extend(reassembly.datagrams.iter().filter_map(|datagram| match &datagram.progress {
            Progress::Collecting(collecting) => Some(collecting.pieces[0].bytes.as_ptr()),
            Progress::Refused => None,
        }));
    }
    assert!(seen.len() <= 5, "{} pieces of memory for four datagrams", seen.len());
    // What is much shorter than the memory that is there does not take it.
    feed(&mut reassembly, &Fragment { id: 200, ..fragment(0, 200, true) }, NOW).unwrap();
    for id in 201..220 {
        feed(&mut reassembly, &Fragment { id, ..fragment(0, 8, true) }, NOW).unwrap();
    }
    let held = reassembly.datagrams.iter().map(|datagram| match &datagram.progress {
        Progress::Collecting(collecting) => collecting.pieces[0].bytes.capacity(),
        Progress::Refused => 0,
    });
    assert!(held.max() <= Some(16), "the budget counts 8 bytes");
}

/// What is whole at once leaves nothing behind until its time would have come.
#[test]
fn whole_datagrams_leave_no_record_of_themselves() {
    let mut reassembly = Reassembly::new(Config { entries_max: 4, ..Config::default() });
    for id in 0..1_000 {
        feed(&mut reassembly, &Fragment { id, ..fragment(0, 8, true) }, NOW).unwrap();
        let whole = feed(&mut reassembly, &Fragment { id, ..fragment(8, 8, false) }, NOW).unwrap();
        assert!(whole.is_some());
        assert_eq!((reassembly.len(), reassembly.poll_timeout()), (0, None));
    }
}

/// Whatever their hashes, datagrams are told apart, and each is found where it was put.
#[test]
fn datagrams_of_one_chain_are_told_apart() {
    let mut store = Store::new(8);
    let key = |id| Key { src: [0; 4], dst: [0; 4], id, protocol: 17 };
    let times = |id: u32| (if id.is_multiple_of(3) { Age::V6 } else { Age::V4 }, NOW.after_us(id.into()));
    let begin = |store: &mut Store, hash, id| {
        let at = store.begin(hash, key(id), times(id));
        store.get_mut(at).charged = id as usize;
        at
    };
    let places: Vec<At> = (0..8).map(|id| begin(&mut store, u64::from(id) % 2, id)).collect();
    for (id, at) in (0..8).zip(&places) {
        assert_eq!(store.find(u64::from(id) % 2, &key(id)), Some(*at));
        assert_eq!(store.find(u64::from(id + 1) % 2, &key(id)), None);
    }
    // From the middle, from the front and from the end of a chain, and so of those of one age.
    let mut left: Vec<u32> = (0..8).collect();
    for id in [3, 7, 1, 0, 6, 2, 4, 5] {
        assert_eq!(core::mem::take(store.end(places[id as usize])).charged, id as usize);
        assert_eq!(store.find(u64::from(id) % 2, &key(id)), None);
        left.retain(|other| *other != id);
        let found: Vec<u32> =
            (0..8).filter(|id| store.find(u64::from(*id) % 2, &key(*id)) == Some(places[*id as usize])).collect();
        assert_eq!((&found, store.len()), (&left, left.len()));
        for age in [Age::V6, Age::V4] {
            let oldest = left.iter().find(|id| times(**id).0 == age);
            assert_eq!(store.oldest_of(age), oldest.map(|id| (places[*id as usize], times(*id).1)));
        }
        assert_eq!(store.oldest(), left.first().map(|id| places[*id as usize]));
        let mut walked: Vec<usize> = store.iter().map(|datagram| datagram.charged).collect();
        walked.sort_unstable();
        assert!(walked.into_iter().eq(left.iter().map(|id| *id as usize)));
    }
    begin(&mut store, 9, 9);
    assert_eq!((store.len(), store.iter().count()), (1, 1));
}

#[test]
fn pieces_of_one_datagram_are_counted() {
    let mut reassembly = Reassembly::new(Config { pieces_max: 4, ..Config::default() });
    for i in 1..5 {
        feed(&mut reassembly, &fragment(i * 16, 8, true), NOW).unwrap();
    }
    assert_eq!(feed(&mut reassembly, &fragment(160, 8, true), NOW), Err(Discard::FragmentBudget));
    assert_eq!(reassembly.bytes(), OVERHEAD);
}

#[test]
fn a_budget_too_small_for_one_datagram_takes_none() {
    let mut reassembly = Reassembly::new(Config { bytes_max: 100, ..Config::default() });
    assert_eq!(feed(&mut reassembly, &fragment(0, 64, true), NOW), Err(Discard::FragmentBudget));
    let mut reassembly = Reassembly::new(Config { entries_max: 0, ..Config::default() });
    assert_eq!(feed(&mut reassembly, &fragment(0, 64, true), NOW), Err(Discard::FragmentBudget));
    assert!(reassembly.is_empty());
}

proptest! {
    /// Whatever comes in whatever order: the budget holds, and after the timeout nothing is left.
    #[test]
    fn the_budget_holds(
        fragments in prop::collection::vec((0u16..12, 0u32..20, 0usize..6, any::<bool>(), 0u8..4, 0u64..3_000_000), 1..200)
    ) {
        let config = Config { bytes_max: 1500, entries_max: 6, pieces_max: 5, ..Config::default() };
        let mut reassembly = Reassembly::new(config);
        let mut now = NOW;
        for (id, offset, len, more, ecn, wait) in fragments {
            now = now.after_us(wait);
            reassembly.on_timeout(now);
            let f = Fragment { id, ecn, ..fragment(offset * 8, len * 8, more) };
            if !more && offset == 0 {
                continue;
            }
            if let Ok(Some(whole)) = feed(&mut reassembly, &f, now) {
                prop_assert!(input(&whole.packet, false).unwrap().fragment.is_none());
            }
            prop_assert!(reassembly.bytes() <= config.bytes_max);
            prop_assert!(reassembly.len() <= config.entries_max);
            let charged: usize = reassembly.datagrams.iter().map(|datagram| datagram.charged).sum();
            prop_assert_eq!(charged, reassembly.bytes());
            prop_assert_eq!(reassembly.datagrams.iter().count(), reassembly.len());
        }
        reassembly.on_timeout(Instant::NEVER);
        prop_assert!(reassembly.is_empty() && reassembly.bytes() == 0);
    }
}

/// Its memory is that of one before it; what was seen of that one's fragments is not.
#[test]
fn who_takes_the_place_of_another_has_none_of_its_marks() {
    let mut reassembly = Reassembly::new(Config { entries_max: 1, ..Config::default() });
    feed(&mut reassembly, &Fragment { id: 1, ecn: 3, ..fragment(0, 8, true) }, NOW).unwrap();
    assert_eq!(feed(&mut reassembly, &Fragment { id: 2, ..fragment(0, 8, true) }, NOW), Ok(None));
    let whole = feed(&mut reassembly, &Fragment { id: 2, ..fragment(8, 8, false) }, NOW).unwrap().unwrap();
    assert_eq!(input(&whole.packet, false).unwrap().ecn, 0, "marked, and by the datagram before it");
    // Nor what came of that one, nor its end, nor that it went to a group.
    for fragment in [fragment(8, 8, true), fragment(16, 8, false)] {
        assert_eq!(feed_to_group(&mut reassembly, &Fragment { id: 3, ..fragment }, NOW), Ok(None));
    }
    assert_eq!(feed(&mut reassembly, &Fragment { id: 4, ..fragment(0, 16, true) }, NOW), Ok(None));
    assert_eq!(feed(&mut reassembly, &Fragment { id: 4, ..fragment(16, 8, true) }, NOW), Ok(None));
    let whole = feed(&mut reassembly, &Fragment { id: 4, ..fragment(24, 8, false) }, NOW).unwrap().unwrap();
    assert_eq!((whole.packet.len(), whole.to_group), (20 + 32, false));
}

/// No error answers a datagram of which any part went to a group.
#[test]
fn one_fragment_to_a_group_makes_it_one_to_a_group() {
    for to_group in 0..3 {
        let mut reassembly = Reassembly::new(Config::default());
        let mut whole = None;
        for (number, fragment) in
            [fragment(0, 8, true), fragment(8, 8, true), fragment(16, 8, false)].iter().enumerate()
        {
            let feed = if number == to_group { feed_to_group } else { feed };
            whole = feed(&mut reassembly, fragment, NOW).unwrap();
        }
        assert!(whole.expect("it is whole").to_group, "only fragment {to_group} was");
    }
}

/// The first fragment's class is the whole's; what marks of congestion there are is asked of all of them.
#[test]
fn the_class_of_the_first_fragment_is_that_of_the_whole() {
    const CLASS: u8 = 0b1011_1000;
    let mut reassembly = Reassembly::new(Config::default());
    let piece = |offset, more, ecn: u8| {
        let spec = HeaderSpec { dscp_ecn: CLASS | ecn, flow_label: 0xabcde, ..HeaderSpec::new(v6(1), v6(2), 44) };
        let mut packet = packet_v6(false, protocol::UDP, offset, more, &[1; 8]);
        output::emit(&spec, &mut packet, 16);
        packet
    };
    let (first, last) = (piece(0, true, 2), piece(8, false, 3));
    assert_eq!(reassembly.on_fragment(&input(&first, false).unwrap(), &SECRET, NOW), Ok(None));
    let whole = reassembly.on_fragment(&input(&last, false).unwrap(), &SECRET, NOW).unwrap().unwrap();
    assert_eq!(whole.packet[..4], [0x6b, 0x8a | 0x30, 0xbc, 0xde]);

    let mut piece = |offset, more, ecn: u8| {
        let mut packet = vec![0; 20];
        let spec = HeaderSpec { dscp_ecn: CLASS | ecn, id: 7, ..HeaderSpec::new(v4(1), v4(2), protocol::UDP) };
        packet.extend_from_slice(&[1; 8]);
        output::emit(&HeaderSpec { dont_fragment: false, ..spec }, &mut packet, 8);
        let info = FragmentInfo { id: 7, offset, more };
        let packet = Packet { fragment: Some(info), ..input(&packet, false).unwrap() };
        reassembly.on_fragment(&packet, &SECRET, NOW)
    };
    assert_eq!(piece(0, true, 2), Ok(None));
    let whole = piece(8, false, 3).unwrap().unwrap();
    assert_eq!(whole.packet[..2], [0x45, CLASS | 3]);
}

/// Behind other headers there may be nothing left of the transport's.
#[test]
fn headers_that_are_whole_are_not_yet_all() {
    let mut reassembly = Reassembly::new(Config::default());
    let options = [protocol::UDP, 0, 1, 4, 0, 0, 0, 0];
    let none = packet_v6(false, 60, 0, true, &options);
    assert_eq!(reassembly.on_fragment(&input(&none, false).unwrap(), &SECRET, NOW), Err(Discard::FragmentTiny));
    let all = packet_v6(false, 60, 0, true, &[&options[..], &[1; 8]].concat());
    assert_eq!(reassembly.on_fragment(&input(&all, false).unwrap(), &SECRET, NOW), Ok(None));
}

/// Over IPv6 it may be much longer than what is behind it.
#[test]
fn the_first_header_is_charged_as_well() {
    let mut reassembly = Reassembly::new(Config::default());
    let packet = packet_v6(true, protocol::UDP, 0, true, &[1; 8]);
    assert_eq!(reassembly.on_fragment(&input(&packet, false).unwrap(), &SECRET, NOW), Ok(None));
    assert_eq!(reassembly.bytes(), 2 * OVERHEAD + 40 + 8 + 8 + 8);
}

/// RFC 791 section 3.2: the protocol says which fragments belong together, too. RFC 8200 section 4.5: over IPv6 it does not, and what the first
/// fragment says follows counts.
#[test]
fn protocols_are_told_apart_over_ipv4_alone() {
    let mut reassembly = Reassembly::new(Config::default());
    assert_eq!(feed(&mut reassembly, &fragment(0, 8, true), NOW), Ok(None));
    let other = Fragment { protocol: protocol::ICMPV4, ..fragment(8, 8, false) };
    assert_eq!(feed(&mut reassembly, &other, NOW), Ok(None));
    assert_eq!(reassembly.len(), 2);
    let first = packet_v6(false, protocol::UDP, 0, true, &[1; 8]);
    let last = packet_v6(false, protocol::TCP, 8, false, &[2; 8]);
    assert_eq!(reassembly.on_fragment(&input(&first, false).unwrap(), &SECRET, NOW), Ok(None));
    let whole = reassembly.on_fragment(&input(&last, false).unwrap(), &SECRET, NOW).unwrap().unwrap();
    assert_eq!(input(&whole.packet, false).unwrap().protocol, protocol::UDP);
}

/// The first fragment's header may be longer than that by which the length of the others was judged.
#[test]
fn a_whole_that_is_too_long_with_the_first_header_is_none() {
    let mut reassembly = Reassembly::new(Config::default());
    let mut header = vec![0; 60];
    let options_len = 40;
    ipv4::Header {
        dscp: 0,
        ecn: 0,
        id: 7,
        dont_fragment: false,
        more_fragments: true,
        fragment_offset: 0,
        ttl: 64,
        protocol: protocol::UDP,
        src: v4(1),
        dst: v4(2),
        payload_len: options_len + 32_000,
    }
    .emit(&mut header[..20]);
    header[0] = 0x4f;
    header[20..].fill(1); // no operation
    header[10..12].fill(0);
    let checksum = Sum::of(&header).checksum();
    header[10..12].copy_from_slice(&checksum);
    header.resize(60 + 32_000, 0);
    assert_eq!(reassembly.on_fragment(&input(&header, false).unwrap(), &SECRET, NOW), Ok(None));
    let rest = fragment(32_000, 65_515 - 32_000, false);
    assert_eq!(feed(&mut reassembly, &rest, NOW), Err(Discard::FragmentMalformed));
    assert!(reassembly.is_empty());
}

/// RFC 5722: two of them that say otherwise whether more follows do not belong to one datagram.
#[test]
fn a_repetition_that_says_otherwise_is_an_overlap() {
    let mut reassembly = Reassembly::new(Config::default());
    feed(&mut reassembly, &fragment(8, 8, true), NOW).unwrap();
    assert_eq!(feed(&mut reassembly, &fragment(8, 8, false), NOW), Err(Discard::FragmentOverlap));
}

/// Where its own datagram is the oldest, a fragment makes no room for itself.
#[test]
fn a_datagram_does_not_outlive_the_room_that_it_makes() {
    let config = Config { bytes_max: 2_400, ..Config::default() };
    let mut reassembly = Reassembly::new(config);
    feed(&mut reassembly, &Fragment { id: 1, ..fragment(0, 800, true) }, NOW).unwrap();
    feed(&mut reassembly, &Fragment { id: 2, ..fragment(0, 800, true) }, NOW).unwrap();
    let more = Fragment { id: 1, ..fragment(800, 800, true) };
    assert_eq!(feed(&mut reassembly, &more, NOW), Err(Discard::FragmentBudget));
    assert_eq!((reassembly.len(), reassembly.evicted()), (1, 0));
    assert!(feed(&mut reassembly, &Fragment { id: 2, ..fragment(800, 8, false) }, NOW).unwrap().is_some());
    assert_eq!(reassembly.bytes(), 0);
}

/// It was counted when it was refused.
#[test]
fn a_refused_datagram_makes_room_without_a_word() {
    let mut reassembly = Reassembly::new(Config { entries_max: 1, ..Config::default() });
    feed(&mut reassembly, &Fragment { id: 1, ..fragment(0, 16, true) }, NOW).unwrap();
    feed(&mut reassembly, &Fragment { id: 1, ..fragment(8, 16, true) }, NOW).unwrap_err();
    feed(&mut reassembly, &Fragment { id: 2, ..fragment(0, 16, true) }, NOW).unwrap();
    assert_eq!((reassembly.len(), reassembly.evicted()), (1, 0));
}

/// A fragment header inside a fragment would have it put together twice, whatever stands before it.
#[test]
fn nothing_is_fragmented_twice() {
    let mut reassembly = Reassembly::new(Config::default());
    let mut inner = [0; 24];
    ipv6::Fragment { offset: 0, more: false, id: 3 }.emit(protocol::UDP, &mut inner[..8]);
    let direct = packet_v6(false, 44, 0, true, &inner);
    let mut options = vec![44, 0, 1, 4, 0, 0, 0, 0];
    options.extend_from_slice(&inner);
    let behind_options = packet_v6(false, 60, 0, true, &options);
    // Nor where what stands behind that header has no place there.
    let mut broken = inner;
    broken[0] = 0;
    broken[8..12].copy_from_slice(&[protocol::UDP, 0, 1, 4]);
    let broken = packet_v6(false, 44, 0, true, &broken);
    for packet in [direct, behind_options, broken] {
        let packet = input(&packet, false).unwrap();
        assert_eq!(reassembly.on_fragment(&packet, &SECRET, NOW), Err(Discard::FragmentTiny));
    }
    assert!(reassembly.is_empty());
}
