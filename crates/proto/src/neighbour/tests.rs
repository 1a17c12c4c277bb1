use super::*;
use crate::ip;
use laneway_wire::ethernet::Header;
use laneway_wire::icmpv6;
use proptest::prelude::*;

const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const EVIL: Mac = Mac([2, 0, 0, 0, 0, 66]);
const NOW: Instant = Instant::from_us(10_000_000);
const SECOND: u64 = 1_000_000;

fn at(us: u64) -> Instant {
    NOW.after_us(us)
}

fn v4(last: u8) -> Address {
    Address::from_v4([192, 0, 2, last])
}

fn v6(last: u8) -> Address {
    Address::from_v6([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
}

/// This host is .1 and ::1 of the test networks.
fn is_local(ip: Address) -> bool {
    ip == v4(1) || ip == v6(1)
}

fn cache() -> NeighbourCache {
    NeighbourCache::new(Config::default())
}

fn arp(operation: arp::Operation, sender: (Address, Mac), target: Address) -> Vec<u8> {
    let packet = arp::Packet { operation, sender_mac: sender.1, sender: sender.0, target_mac: OURS, target };
    let mut bytes = vec![0; arp::LEN];
    packet.emit(&mut bytes);
    bytes
}

fn hear_arp(
    cache: &mut NeighbourCache,
    operation: arp::Operation,
    sender: (Address, Mac),
    target: Address,
    now: Instant,
) -> Result<Option<Answer>, Discard> {
    cache.on_arp(&arp(operation, sender, target), OURS, is_local, now)
}

fn hear_ndp(
    cache: &mut NeighbourCache,
    src: Address,
    dst: Address,
    hop_limit: u8,
    message: Message,
    now: Instant,
) -> Result<Option<Answer>, Discard> {
    let packet = Packet {
        src,
        dst,
        protocol: 58,
        hop_limit,
        ecn: 0,
        header: &[],
        payload: &[],
        fragment: None,
        to_group: false,
    };
    cache.on_ndp(&packet, &message, OURS, is_local, now)
}

fn advert(mac: Option<Mac>, solicited: bool, override_entry: bool) -> Message {
    Message::NeighbourAdvert { target: v6(2), router: false, solicited, override_entry, target_link: mac }
}

use arp::Operation::{Reply, Request as Ask};

/// The state of an entry, without its data.
fn state(cache: &NeighbourCache, ip: Address) -> &'static str {
    match cache.find(ip).map(|slot| cache.slots[slot as usize].state) {
        None => "none",
        Some(State::Incomplete { .. }) => "incomplete",
        Some(State::Reachable { .. }) => "reachable",
        Some(State::Stale { .. }) => "stale",
        Some(State::Delay { .. }) => "delay",
        Some(State::Probe { .. }) => "probe",
        Some(State::Failed) => "failed",
    }
}

#[test]
fn asked_and_answered() {
    let mut cache = cache();
    assert_eq!(cache.lookup(NOW, v4(2)), None);
    assert_eq!(cache.lookup(NOW, v4(2)), None);
    assert_eq!(cache.poll_transmit(), Some(Request { target: v4(2), unicast: None }));
    assert_eq!(cache.poll_transmit(), None);
    let version = cache.version();
    assert_eq!(hear_arp(&mut cache, Reply, (v4(2), PEER), v4(1), at(10)), Ok(None));
    assert_ne!(cache.version(), version);
    assert_eq!(cache.lookup(at(20), v4(2)), Some(PEER));
    assert_eq!(cache.poll_timeout(), None);
    assert_eq!(cache.iter().collect::<Vec<_>>(), [(v4(2), PEER)]);
}

#[test]
fn silence_is_asked_three_times_once_a_second_then_given_up() {
    let mut cache = cache();
    cache.lookup(NOW, v4(2));
    let mut asked = Vec::new();
    let mut now = NOW;
    while let Some(deadline) = cache.poll_timeout() {
        while cache.poll_transmit().is_some() {
            asked.push(now.since_us(NOW));
        }
        now = deadline;
        cache.on_timeout(now);
    }
    assert_eq!(asked, [0, SECOND, 2 * SECOND]);
    assert_eq!(now, at(3 * SECOND));
    assert_eq!((cache.poll_failed(), cache.poll_failed()), (Some(v4(2)), None), "nobody need ask to hear of it");
    // A packet starts it again at once: the last question is a second old.
    assert_eq!(cache.lookup(now, v4(2)), None);
    assert!(cache.poll_transmit().is_some());
    for second in 4..=6 {
        assert_eq!(cache.poll_failed(), None, "three questions, as before");
        cache.on_timeout(at(second * SECOND));
    }
    assert_eq!(cache.poll_failed(), Some(v4(2)));
}

#[test]
fn an_answer_that_comes_after_it_was_given_up_serves_who_waits_already() {
    let mut cache = cache();
    cache.lookup(NOW, v4(2));
    for second in 1..=3 {
        cache.on_timeout(at(second * SECOND));
    }
    assert_eq!(cache.poll_failed(), Some(v4(2)));
    assert_eq!(cache.lookup(at(3 * SECOND + 10), v4(2)), None);
    hear_arp(&mut cache, Reply, (v4(2), PEER), v4(1), at(3 * SECOND + 20)).unwrap();
    assert_eq!(cache.lookup(at(3 * SECOND + 30), v4(2)), Some(PEER));
    assert_eq!(cache.poll_timeout(), None);
}

#[test]
fn an_old_confirmation_is_probed_when_used() {
    let mut cache = cache();
    cache.lookup(NOW, v4(2));
    hear_arp(&mut cache, Reply, (v4(2), PEER), v4(1), NOW).unwrap();
    cache.poll_transmit();
    let old = 31 * SECOND;
    assert_eq!(cache.lookup(at(old), v4(2)), Some(PEER));
    assert_eq!(state(&cache, v4(2)), "delay");
    assert_eq!(cache.poll_timeout(), Some(at(old + 5 * SECOND)));
    cache.on_timeout(at(old + 5 * SECOND));
    assert_eq!(cache.poll_transmit(), Some(Request { target: v4(2), unicast: Some(PEER) }));
    assert_eq!(state(&cache, v4(2)), "probe");
    assert_eq!(cache.lookup(at(old + 5 * SECOND), v4(2)), Some(PEER));
    hear_arp(&mut cache, Reply, (v4(2), PEER), v4(1), at(old + 6 * SECOND)).unwrap();
    assert_eq!(state(&cache, v4(2)), "reachable");
}

#[test]
fn a_neighbour_that_left_is_given_up_and_an_upper_layer_can_vouch() {
    let mut cache = cache();
    cache.lookup(NOW, v4(2));
    hear_arp(&mut cache, Reply, (v4(2), PEER), v4(1), NOW).unwrap();
    cache.lookup(at(31 * SECOND), v4(2));
    cache.confirm(v4(2), at(33 * SECOND));
    assert_eq!((state(&cache, v4(2)), cache.poll_timeout()), ("reachable", None));
    cache.lookup(at(64 * SECOND), v4(2));
    while let Some(deadline) = cache.poll_timeout() {
        cache.on_timeout(deadline);
    }
    assert_eq!((state(&cache, v4(2)), cache.poll_failed()), ("failed", Some(v4(2))));
    cache.confirm(v4(2), at(73 * SECOND));
    assert_eq!(state(&cache, v4(2)), "failed");
    assert_eq!(cache.peek(v4(2)), None);
}

#[test]
fn a_question_for_us_is_answered_and_remembered() {
    let mut cache = cache();
    let answer = hear_arp(&mut cache, Ask, (v4(2), PEER), v4(1), NOW).unwrap().unwrap();
    let mut frame = [0; FRAME_LEN_MAX];
    answer.emit(&mut frame[..answer.len()]);
    let (header, body) = Header::parse(&frame[..answer.len()]).unwrap();
    assert_eq!((header.dst, header.src), (PEER, OURS));
    let reply = arp::Packet::parse(body).unwrap();
    assert_eq!((reply.operation, reply.sender, reply.sender_mac), (Reply, v4(1), OURS));
    assert_eq!((reply.target, reply.target_mac), (v4(2), PEER));
    assert_eq!(state(&cache, v4(2)), "stale");
    assert_eq!(cache.lookup(NOW, v4(2)), Some(PEER));
}

#[test]
fn what_nobody_asked_for_creates_nothing() {
    let mut cache = cache();
    assert_eq!(hear_arp(&mut cache, Reply, (v4(2), EVIL), v4(1), NOW), Ok(None));
    assert_eq!(hear_arp(&mut cache, Ask, (v4(2), EVIL), v4(3), NOW), Ok(None));
    assert_eq!(hear_arp(&mut cache, Ask, (v4(2), EVIL), v4(2), NOW), Ok(None));
    assert_eq!(hear_ndp(&mut cache, v6(2), v6(1), 255, advert(Some(EVIL), true, true), NOW), Ok(None));
    let ask = Message::NeighbourSolicit { target: v6(3), source_link: Some(EVIL) };
    assert_eq!(hear_ndp(&mut cache, v6(2), solicited_node(v6(3)), 255, ask, NOW), Ok(None));
    assert!(cache.is_empty());
}

#[test]
fn arp_cannot_take_over_in_the_first_second_and_never_confirms_unasked() {
    let mut cache = cache();
    cache.lookup(NOW, v4(2));
    hear_arp(&mut cache, Reply, (v4(2), PEER), v4(1), NOW).unwrap();
    hear_arp(&mut cache, Reply, (v4(2), EVIL), v4(1), at(SECOND / 2)).unwrap();
    assert_eq!(cache.peek(v4(2)), Some(PEER));
    // Later it may be an honest fail-over; it is believed, and probed after use.
    hear_arp(&mut cache, Ask, (v4(2), EVIL), v4(2), at(2 * SECOND)).unwrap();
    assert_eq!((cache.peek(v4(2)), state(&cache, v4(2))), (Some(EVIL), "stale"));
    // The same address again changes nothing.
    hear_arp(&mut cache, Reply, (v4(2), EVIL), v4(1), at(9 * SECOND)).unwrap();
    assert_eq!(state(&cache, v4(2)), "stale");
}

/// An advertisement whose target is an IPv4 address in IPv6's writing is no message, so it changes nothing that ARP has learnt.
#[test]
fn an_advertisement_for_a_mapped_address_changes_nothing() {
    let mut cache = cache();
    cache.lookup(NOW, v4(2));
    hear_arp(&mut cache, Reply, (v4(2), PEER), v4(1), NOW).unwrap();
    let advert = Message::NeighbourAdvert {
        target: v4(2),
        router: false,
        solicited: true,
        override_entry: true,
        target_link: Some(EVIL),
    };
    let mut bytes = vec![0; advert.len()];
    advert.emit(&mut bytes);
    if let Ok(message) = Message::parse(&bytes) {
        let _ = hear_ndp(&mut cache, v6(66), v6(1), 255, message, at(2 * SECOND));
    }
    assert_eq!(cache.lookup(at(3 * SECOND), v4(2)), Some(PEER));
}

#[test]
fn nonsense_is_refused() {
    let mut cache = cache();
    let refused = |cache: &mut NeighbourCache, ip, mac| hear_arp(cache, Ask, (ip, mac), v4(1), NOW).unwrap_err();
    assert_eq!(refused(&mut cache, v4(2), Mac::BROADCAST), Discard::ArpMalformed);
    assert_eq!(refused(&mut cache, v4(2), Mac([0; 6])), Discard::ArpMalformed);
    assert_eq!(refused(&mut cache, Address::from_v4([224, 0, 0, 1]), EVIL), Discard::ArpMalformed);
    assert_eq!(refused(&mut cache, Address::from_v4([255; 4]), EVIL), Discard::ArpMalformed);
    assert_eq!(refused(&mut cache, v4(1), EVIL), Discard::NeighbourConflict);
    assert_eq!(cache.on_arp(&[0; 27], OURS, is_local, NOW), Err(Discard::ArpMalformed));
    // A probe for our address (RFC 5227) is answered, and its sender is no neighbour yet.
    assert!(hear_arp(&mut cache, Ask, (Address::UNSPECIFIED_V4, PEER), v4(1), NOW).unwrap().is_some());
    let good = advert(Some(PEER), true, true);
    let refused = |cache: &mut NeighbourCache, dst, hop_limit, message| {
        hear_ndp(cache, v6(2), dst, hop_limit, message, NOW).unwrap_err()
    };
    assert_eq!(refused(&mut cache, v6(1), 254, good), Discard::NeighbourMalformed);
    let group = solicited_node(v6(1));
    assert_eq!(refused(&mut cache, group, 255, good), Discard::NeighbourMalformed);
    assert_eq!(refused(&mut cache, v6(1), 255, advert(Some(Mac::BROADCAST), true, true)), Discard::NeighbourMalformed);
    // Who advertises has an address.
    let nameless = hear_ndp(&mut cache, Address::UNSPECIFIED_V6, v6(1), 255, good, NOW);
    assert_eq!(nameless, Err(Discard::NeighbourMalformed));
    let ours = Message::NeighbourAdvert {
        target: v6(1),
        router: false,
        solicited: false,
        override_entry: true,
        target_link: Some(EVIL),
    };
    assert_eq!(refused(&mut cache, group, 255, ours), Discard::NeighbourConflict);
    assert!(cache.is_empty());
}

//= https://www.rfc-editor.org/rfc/rfc6980#section-5
//# Nodes MUST silently ignore the following Neighbor Discovery and SEcure Neighbor Discovery messages if the packets
//# carrying them include an IPv6 Fragmentation Header
#[test]
fn neighbour_discovery_in_fragments_is_refused() {
    let mut cache = cache();
    cache.lookup(NOW, v6(2));
    let whole = Packet {
        src: v6(2),
        dst: v6(1),
        protocol: 58,
        hop_limit: 255,
        ecn: 0,
        header: &[],
        payload: &[],
        fragment: None,
        to_group: false,
    };
    let first = Some(ip::input::FragmentInfo { id: 1, offset: 0, more: true });
    let said = advert(Some(EVIL), true, true);
    let refused = cache.on_ndp(&Packet { fragment: first, ..whole }, &said, OURS, is_local, NOW);
    assert_eq!((refused, state(&cache, v6(2))), (Err(Discard::NeighbourMalformed), "incomplete"));
    assert_eq!(cache.on_ndp(&whole, &said, OURS, is_local, NOW), Ok(None));
    assert_eq!(state(&cache, v6(2)), "reachable");
}

/// RFC 4861 section 6.1.2: who is no neighbour advertises no router.
#[test]
fn a_router_speaks_from_its_own_link() {
    use laneway_wire::ndp::RouterAdvert;
    let mut cache = cache();
    let far = Address::from_v6([0x20, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    let said = Message::RouterAdvert(RouterAdvert { source_link: Some(EVIL), ..RouterAdvert::default() });
    for (from, outcome, believed) in [(far, Err(Discard::NeighbourMalformed), None), (v6(2), Ok(None), Some(EVIL))] {
        cache.lookup(NOW, from);
        assert_eq!(hear_ndp(&mut cache, from, v6(1), 255, said, NOW), outcome, "{from}");
        assert_eq!(cache.peek(from), believed, "{from}");
    }
}

#[test]
fn a_solicitation_is_answered_to_its_sender_or_to_all() {
    let mut cache = cache();
    let group = solicited_node(v6(1));
    let read = |answer: Answer| {
        let mut frame = [0; FRAME_LEN_MAX];
        answer.emit(&mut frame[..answer.len()]);
        let (header, body) = Header::parse(&frame[..answer.len()]).unwrap();
        let packet = ip::input::input(body, false).unwrap();
        assert_eq!((packet.hop_limit, packet.src), (255, v6(1)));
        let message = icmpv6::View::new(packet.payload, &packet.src, &packet.dst).unwrap().message().unwrap();
        let icmpv6::Message::Ndp(said) = message else { panic!("{message:?}") };
        let Message::NeighbourAdvert { target, router, solicited, override_entry, target_link } = said else {
            panic!("{said:?}")
        };
        assert_eq!((target, target_link), (v6(1), Some(OURS)));
        assert!(override_entry && !router, "whoever knew another link address has this one now");
        (header.dst, packet.dst, solicited)
    };
    let ask = |source_link| Message::NeighbourSolicit { target: v6(1), source_link };
    let answer = hear_ndp(&mut cache, v6(2), group, 255, ask(Some(PEER)), NOW).unwrap().unwrap();
    assert_eq!(read(answer), (PEER, v6(2), true));
    assert_eq!(state(&cache, v6(2)), "stale");
    // Duplicate address detection by somebody without an address.
    let nobody = Address::UNSPECIFIED_V6;
    let answer = hear_ndp(&mut cache, nobody, group, 255, ask(None), NOW).unwrap().unwrap();
    let (to, dst, solicited) = read(answer);
    assert!(to.is_multicast() && dst.is_multicast() && !solicited);
    assert_eq!(hear_ndp(&mut cache, nobody, group, 255, ask(Some(PEER)), NOW), Err(Discard::NeighbourMalformed));
    assert_eq!(hear_ndp(&mut cache, nobody, v6(1), 255, ask(None), NOW), Err(Discard::NeighbourMalformed));
    // It did not say where it is: known or asked for.
    let answer = hear_ndp(&mut cache, v6(2), v6(1), 255, ask(None), NOW).unwrap().unwrap();
    assert_eq!(read(answer).0, PEER);
    assert_eq!(hear_ndp(&mut cache, v6(9), v6(1), 255, ask(None), NOW), Ok(None));
    assert_eq!(cache.poll_transmit(), Some(Request { target: v6(9), unicast: None }));
}

/// RFC 4861 section 7.2.5 and the table of appendix C, row by row: state before, the advertisement, state and address after.
#[test]
fn advertisements_change_what_the_table_says() {
    let other = Some(EVIL);
    let same = Some(PEER);
    for (before, mac, solicited, override_entry, after, link) in [
        ("incomplete", None, true, true, "incomplete", None),
        ("incomplete", same, true, false, "reachable", same),
        ("incomplete", same, false, true, "stale", same),
        ("reachable", other, true, false, "stale", same),
        ("reachable", other, false, false, "stale", same),
        ("stale", other, true, false, "stale", same),
        ("probe", other, true, false, "probe", same),
        ("stale", same, true, false, "reachable", same),
        ("delay", None, true, false, "reachable", same),
        ("probe", same, true, true, "reachable", same),
        ("stale", other, true, true, "reachable", other),
        ("reachable", other, false, true, "stale", other),
        ("delay", same, false, true, "delay", same),
        ("failed", same, true, true, "failed", None),
    ] {
        let mut cache = cache();
        cache.lookup(NOW, v6(2));
        if before != "incomplete" && before != "failed" {
            hear_ndp(&mut cache, v6(2), v6(1), 255, advert(same, before == "reachable", true), NOW).unwrap();
        }
        if before == "delay" || before == "probe" {
            cache.lookup(NOW, v6(2));
        }
        if before == "probe" {
            cache.on_timeout(at(5 * SECOND));
        }
        while before == "failed" && cache.poll_timeout().is_some() {
            cache.on_timeout(cache.poll_timeout().unwrap());
        }
        assert_eq!(state(&cache, v6(2)), before);
        hear_ndp(&mut cache, v6(2), v6(1), 255, advert(mac, solicited, override_entry), at(6 * SECOND)).unwrap();
        let row = (before, mac, solicited, override_entry);
        assert_eq!((state(&cache, v6(2)), cache.peek(v6(2))), (after, link), "{row:?}");
    }
}

#[test]
fn requests_are_written_for_both_families() {
    let mut frame = [0; FRAME_LEN_MAX];
    let request = Request { target: v4(2), unicast: None };
    request.emit(OURS, v4(1), &mut frame);
    let (header, body) = Header::parse(&frame[..request.len()]).unwrap();
    assert_eq!(header.dst, Mac::BROADCAST);
    let packet = arp::Packet::parse(body).unwrap();
    assert_eq!((packet.operation, packet.sender, packet.target), (Ask, v4(1), v4(2)));
    let request = Request { unicast: Some(PEER), ..request };
    request.emit(OURS, v4(1), &mut frame);
    let (header, _) = Header::parse(&frame[..request.len()]).unwrap();
    assert_eq!(header.dst, PEER, "who is known is asked, and not everybody");
    for unicast in [None, Some(PEER)] {
        let request = Request { target: v6(2), unicast };
        request.emit(OURS, v6(1), &mut frame);
        let (header, body) = Header::parse(&frame[..request.len()]).unwrap();
        let packet = ip::input::input(body, false).unwrap();
        assert_eq!(packet.dst, if unicast.is_some() { v6(2) } else { solicited_node(v6(2)) });
        assert_eq!(header.dst, unicast.unwrap_or(ethernet_group(packet.dst)));
        let message = icmpv6::View::new(packet.payload, &packet.src, &packet.dst).unwrap().message().unwrap();
        let expected = Message::NeighbourSolicit { target: v6(2), source_link: Some(OURS) };
        assert_eq!(message, icmpv6::Message::Ndp(expected));
    }
}

fn ethernet_group(ip: Address) -> Mac {
    crate::ethernet::multicast_mac_v6(ip.octets())
}

#[test]
fn a_scan_is_bounded_and_spares_the_answered() {
    let config = Config { entries_max: 64, ..Config::default() };
    let mut cache = NeighbourCache::new(config);
    for last in 10..20 {
        cache.lookup(NOW, v4(last));
        hear_arp(&mut cache, Reply, (v4(last), PEER), v4(1), NOW).unwrap();
    }
    for i in 0..10_000u32 {
        let [_, _, c, d] = i.to_be_bytes();
        assert_eq!(cache.lookup(at(u64::from(i)), Address::from_v4([10, 0, c, d])), None);
        if i < 100 {
            let forgotten = std::iter::from_fn(|| cache.poll_failed()).count();
            assert_eq!(forgotten, usize::from(i >= 54), "whose packets wait must hear that nobody is asked any more");
        }
    }
    assert_eq!(cache.failed.len(), 64, "nor does what nobody takes grow");
    assert_eq!(cache.len(), 64);
    assert!(cache.requests.len() <= 64 && cache.timers.len() <= 64 && cache.index.len() == 64);
    for last in 10..20 {
        assert_eq!(cache.peek(v4(last)), Some(PEER), "{last}");
    }
}

/// Of those that have answered, who has been used least lately makes room; and the hand comes by everybody.
#[test]
fn who_is_used_stays() {
    let answered = |cache: &mut NeighbourCache, last, now| {
        cache.lookup(now, v4(last));
        hear_arp(cache, Reply, (v4(last), PEER), v4(1), now).unwrap();
    };
    let mut cache = NeighbourCache::new(Config { entries_max: 32, ..Config::default() });
    (2..34).for_each(|last| answered(&mut cache, last, NOW));
    // The oldest is the gateway, to which everything goes.
    cache.lookup(NOW, v4(2));
    for last in 34..98 {
        let now = at(u64::from(last));
        assert_eq!(cache.lookup(now, v4(2)), Some(PEER));
        answered(&mut cache, last, now);
    }
    assert_eq!(cache.peek(v4(2)), Some(PEER));
    let mut left: Vec<Address> = cache.iter().map(|(ip, _)| ip).collect();
    left.sort_by_key(|ip| ip.octets());
    assert_eq!(left[1..], (67..98).map(v4).collect::<Vec<_>>(), "the latest beside it");

    let mut cache = NeighbourCache::new(Config { entries_max: 64, ..Config::default() });
    (2..66).for_each(|last| answered(&mut cache, last, NOW));
    (66..130).for_each(|last| answered(&mut cache, last, at(u64::from(last))));
    assert!((2..66).all(|last| cache.peek(v4(last)).is_none()), "each of the old ones has made room");
}

proptest! {
    /// Whatever is heard and looked up: bounds hold, index and timers agree with the slots, and silence ends every timer.
    #[test]
    fn the_books_balance(events in prop::collection::vec((0u8..7, 2u8..14, 2u8..6, any::<bool>(), 0u64..3_000_000), 1..300)) {
        let mut cache = NeighbourCache::new(Config { entries_max: 8, ..Config::default() });
        let mut now = NOW;
        for (what, who, mac, flag, wait) in events {
            now = now.after_us(wait);
            let mac = Mac([2, 0, 0, 0, 0, mac]);
            match what {
                0 => { cache.lookup(now, v4(who)); }
                1 => { cache.lookup(now, v6(who)); }
                2 => { let _ = hear_arp(&mut cache, if flag { Reply } else { Ask }, (v4(who), mac), v4(1), now); }
                3 => {
                    let ask = Message::NeighbourSolicit { target: v6(1), source_link: flag.then_some(mac) };
                    let _ = hear_ndp(&mut cache, v6(who), v6(1), 255, ask, now);
                }
                4 => {
                    let advert = Message::NeighbourAdvert {
                        target: v6(who), router: false, solicited: flag, override_entry: !flag, target_link: Some(mac),
                    };
                    let _ = hear_ndp(&mut cache, v6(who), v6(1), 255, advert, now);
                }
                5 => cache.confirm(v4(who), now),
                _ => cache.on_timeout(now),
            }
            prop_assert!(cache.len() <= 8 && cache.index.len() == cache.len() && cache.requests.len() <= 8);
            for (slot, entry) in cache.slots.iter().enumerate() {
                prop_assert_eq!(cache.find(entry.ip), Some(slot as u32));
                let armed = entry.deadline != Instant::NEVER;
                prop_assert_eq!(cache.timers.contains(&(entry.deadline, slot as u32)), armed);
                let waits = matches!(entry.state, State::Incomplete { .. } | State::Delay { .. } | State::Probe { .. });
                prop_assert_eq!(armed, waits);
            }
            prop_assert_eq!(cache.timers.len(), cache.slots.iter().filter(|entry| entry.deadline != Instant::NEVER).count());
        }
        for _ in 0..10 {
            if let Some(deadline) = cache.poll_timeout() {
                now = now.max(deadline).after_us(10_000_000);
                cache.on_timeout(now);
            }
        }
        prop_assert_eq!(cache.poll_timeout(), None);
    }
}

/// RFC 4861 section 7.3.3: as often as one who is not known is who does not answer any more.
#[test]
fn who_has_left_is_asked_three_times_as_well() {
    let mut cache = cache();
    hear_arp(&mut cache, Ask, (v4(2), PEER), v4(1), NOW).unwrap();
    cache.lookup(NOW, v4(2));
    let mut asked = 0;
    while let Some(deadline) = cache.poll_timeout() {
        cache.on_timeout(deadline);
        asked += std::iter::from_fn(|| cache.poll_transmit()).count();
    }
    assert_eq!((asked, cache.poll_failed()), (3, Some(v4(2))));
}

/// What is acknowledged went there: who is only heard of so is used as well.
#[test]
fn who_is_vouched_for_stays() {
    let mut cache = NeighbourCache::new(Config { entries_max: 2, ..Config::default() });
    for (last, now) in [(2, NOW), (3, at(1))] {
        cache.lookup(now, v4(last));
        hear_arp(&mut cache, Reply, (v4(last), PEER), v4(1), now).unwrap();
    }
    cache.confirm(v4(2), at(2));
    cache.lookup(at(3), v4(4));
    assert_eq!((cache.peek(v4(2)), cache.peek(v4(3))), (Some(PEER), None));
}

/// An answer to somebody else's question is no answer to ours, though we have asked the same.
#[test]
fn an_answer_to_another_confirms_nothing() {
    let mut cache = cache();
    cache.lookup(NOW, v4(2));
    hear_arp(&mut cache, Reply, (v4(2), PEER), v4(9), NOW).unwrap();
    assert_eq!(state(&cache, v4(2)), "stale");
}

/// The lock counts from the last change, and not from the first word.
#[test]
fn a_link_address_is_locked_anew_when_it_changes() {
    let mut cache = cache();
    hear_arp(&mut cache, Ask, (v4(2), PEER), v4(1), NOW).unwrap();
    hear_arp(&mut cache, Ask, (v4(2), EVIL), v4(1), at(2 * SECOND)).unwrap();
    hear_arp(&mut cache, Ask, (v4(2), PEER), v4(1), at(2 * SECOND + 500_000)).unwrap();
    assert_eq!(cache.peek(v4(2)), Some(EVIL));
    hear_arp(&mut cache, Ask, (v4(2), PEER), v4(1), at(3 * SECOND)).unwrap();
    assert_eq!(cache.peek(v4(2)), Some(PEER));
}

/// Who asks from one of our addresses is somebody who has taken it, unless it is our own question that has come back.
#[test]
fn a_question_from_our_own_address_is_a_conflict() {
    let ask = |source_link| Message::NeighbourSolicit { target: v6(1), source_link };
    let hear = |mac| hear_ndp(&mut cache(), v6(1), v6(1), 255, ask(mac), NOW);
    assert_eq!(hear(Some(OURS)), Ok(None));
    assert_eq!(hear(Some(EVIL)), Err(Discard::NeighbourConflict));
    assert_eq!(hear(None), Err(Discard::NeighbourConflict));
}

/// The link address of a group belongs to no station, whoever names it as his own.
#[test]
fn a_group_is_nobodys_link_address() {
    use laneway_wire::ndp::RouterAdvert;
    let group = Some(Mac([0x33, 0x33, 0, 0, 0, 1]));
    let solicit = Message::NeighbourSolicit { target: v6(1), source_link: group };
    let router = Message::RouterAdvert(RouterAdvert { source_link: group, ..RouterAdvert::default() });
    for said in [solicit, router] {
        let mut cache = cache();
        cache.lookup(NOW, v6(2));
        assert_eq!(hear_ndp(&mut cache, v6(2), v6(1), 255, said, NOW), Err(Discard::NeighbourMalformed));
        assert_eq!(cache.peek(v6(2)), None);
    }
}

/// A question is no answer: who asks us has not shown that he hears us.
#[test]
fn a_question_confirms_nothing() {
    let mut cache = cache();
    cache.lookup(NOW, v4(2));
    assert!(hear_arp(&mut cache, Ask, (v4(2), PEER), v4(1), NOW).unwrap().is_some());
    assert_eq!((state(&cache, v4(2)), cache.peek(v4(2))), ("stale", Some(PEER)));
}

/// Nor does it take away what is known, from the same link address.
#[test]
fn a_question_from_where_a_neighbour_is_known_to_be_changes_nothing() {
    let mut cache = cache();
    cache.lookup(NOW, v4(2));
    hear_arp(&mut cache, Reply, (v4(2), PEER), v4(1), NOW).unwrap();
    hear_arp(&mut cache, Ask, (v4(2), PEER), v4(1), at(2 * SECOND)).unwrap();
    assert_eq!(state(&cache, v4(2)), "reachable", "and is not probed for it");
    let ask = Message::NeighbourSolicit { target: v6(1), source_link: Some(PEER) };
    cache.lookup(NOW, v6(2));
    hear_ndp(&mut cache, v6(2), v6(1), 255, advert(Some(PEER), true, true), NOW).unwrap();
    hear_ndp(&mut cache, v6(2), v6(1), 255, ask, at(2 * SECOND)).unwrap();
    assert_eq!(state(&cache, v6(2)), "reachable");
}

/// Our own question for everybody comes back where a bridge sends it round.
#[test]
fn our_own_words_are_no_conflict_and_loopback_is_nobodys() {
    let mut cache = cache();
    assert_eq!(hear_arp(&mut cache, Ask, (v4(1), OURS), v4(2), NOW), Ok(None));
    assert_eq!(hear_arp(&mut cache, Ask, (v4(1), EVIL), v4(2), NOW), Err(Discard::NeighbourConflict));
    let loopback = Address::from_v4([127, 0, 0, 1]);
    assert_eq!(hear_arp(&mut cache, Ask, (loopback, PEER), v4(1), NOW), Err(Discard::ArpMalformed));
    assert!(cache.is_empty());
}

/// A router that nobody has asked for is none of ours.
#[test]
fn a_router_that_is_not_known_is_not_remembered() {
    use laneway_wire::ndp::RouterAdvert;
    let mut cache = cache();
    let said = Message::RouterAdvert(RouterAdvert { source_link: Some(EVIL), ..RouterAdvert::default() });
    assert_eq!(hear_ndp(&mut cache, v6(2), v6(1), 255, said, NOW), Ok(None));
    assert!(cache.is_empty());
}

/// Whom something is sent to is worth more than who was only heard of; and of those the one to whom it was sent last.
#[test]
fn who_is_only_heard_of_makes_room_first() {
    let mut cache = NeighbourCache::new(Config { entries_max: 3, ..Config::default() });
    for last in [2, 3, 4] {
        hear_arp(&mut cache, Ask, (v4(last), PEER), v4(1), at(last.into())).unwrap();
        // To the first something is sent, before the others are heard of.
        assert_eq!(cache.lookup(at(2), v4(2)), Some(PEER));
    }
    cache.lookup(at(9), v4(5));
    assert_eq!([2, 3, 4].map(|last| cache.peek(v4(last)).is_some()), [true, false, true]);

    let mut cache = NeighbourCache::new(Config { entries_max: 2, ..Config::default() });
    for (last, heard) in [(2, at(2)), (3, at(3))] {
        hear_arp(&mut cache, Ask, (v4(last), PEER), v4(1), heard).unwrap();
        cache.lookup(heard, v4(last));
    }
    cache.lookup(at(4), v4(2));
    cache.lookup(at(9), v4(5));
    assert_eq!([2, 3].map(|last| cache.peek(v4(last)).is_some()), [true, false], "used last of both");
}
