use super::*;
use crate::tables::Kind;
use laneway_wire::flow::{Address, FlowKey};

fn flow(host: u8, port: u16) -> FlowKey {
    let (local, remote) = (Address::from_v4([10, 0, 0, 1]), Address::from_v4([10, 0, 1, host]));
    FlowKey { local, remote, local_port: 80, remote_port: port }
}

#[test]
fn finds_what_was_noted_last_and_nothing_else() {
    let mut recent = RecentFlows::new(10_000);
    let flows: Vec<FlowKey> = (1..=64).flat_map(|host| (0..16).map(move |port| flow(host, 40_000 + port))).collect();
    for (index, key) in (0..).zip(&flows) {
        assert_eq!(recent.find(key.mix()), None, "{key:?} was never noted");
        recent.note(key.mix(), Handle::new(Kind::Connection, index));
    }
    let found = (0..).zip(&flows).filter(|(index, key)| match recent.find(key.mix()) {
        Some(handle) => {
            assert_eq!(handle, Handle::new(Kind::Connection, *index), "another flow's handle for {key:?}");
            true
        }
        None => false,
    });
    // A thousand flows on sixteen thousand places: hardly any meet.
    assert!(found.count() > flows.len() * 9 / 10);
}

#[test]
fn the_newer_of_two_in_one_place_stays() {
    let mut recent = RecentFlows::new(0);
    let first = flow(1, 1);
    let mask = recent.places.len() - 1;
    let other = (2..=u16::MAX).map(|port| flow(1, port)).find(|key| (key.mix() ^ first.mix()) as usize & mask == 0);
    let other = other.expect("sixty-five thousand flows on a thousand places");
    recent.note(first.mix(), Handle::new(Kind::Connection, 1));
    recent.note(other.mix(), Handle::new(Kind::Connection, 2));
    assert_eq!(recent.find(other.mix()), Some(Handle::new(Kind::Connection, 2)));
    assert_eq!(recent.find(first.mix()), None);
}

#[test]
fn a_hash_is_that_of_the_flow_and_the_handle_that_were_noted_last() {
    let mut recent = RecentFlows::new(0);
    let (first, other) = (flow(1, 1).mix(), flow(1, 2).mix());
    let half = |index| Handle::new(Kind::HalfOpen, index);
    recent.note_half_open(first, half(1), 11);
    recent.note_half_open(other, half(2), 12);
    assert_eq!(recent.find(first), Some(half(1)));
    assert_eq!(recent.hash_of_half_open(first, half(1)), Some(11));
    assert_eq!(recent.hash_of_half_open(first, half(2)), None, "another handle");
    assert_eq!(recent.hash_of_half_open(other, half(1)), None, "another flow");
    recent.note_half_open(first, half(2), 13);
    assert_eq!(recent.hash_of_half_open(first, half(1)), None, "it was noted before");
    assert_eq!(recent.hash_of_half_open(first, half(2)), Some(13));
    recent.note(first, Handle::new(Kind::Connection, 2));
    assert_eq!(recent.hash_of_half_open(first, half(2)), None, "it is half open no more");
}

#[test]
fn a_flow_is_known_as_half_open_until_it_is_a_connection() {
    let mut recent = RecentFlows::new(0);
    let half = |index| Handle::new(Kind::HalfOpen, index);
    let flows: Vec<u64> = (1..=16).flat_map(|host| (0..16).map(move |port| flow(host, port).mix())).collect();
    for (index, mix) in (0..).zip(&flows) {
        assert!(!recent.is_half_open(*mix));
        recent.note_half_open(*mix, half(index), 0);
        assert!(recent.is_half_open(*mix));
    }
    let are_half_open = |recent: &RecentFlows| flows.iter().filter(|mix| recent.is_half_open(**mix)).count();
    // Some have met in one place of some thousands.
    assert!(are_half_open(&recent) > flows.len() * 3 / 4);
    assert!(!recent.is_half_open(flows[0] ^ 1 << 40), "another flow in the same place");
    for (index, mix) in (0..).zip(&flows) {
        recent.note(*mix, Handle::new(Kind::Connection, index));
        assert!(!recent.is_half_open(*mix));
    }
    assert_eq!(are_half_open(&recent), 0);
}

#[test]
fn every_part_of_a_flow_matters() {
    let key = |at: usize| {
        let mut bytes = [0x20; 16];
        let mut other = [0x30; 16];
        let mut ports = [1, 2];
        match at {
            0..16 => bytes[at] ^= 1,
            16..32 => other[at - 16] ^= 1,
            32 | 33 => ports[at - 32] ^= 1,
            _ => {}
        }
        let (local, remote) = (Address::from_v6(bytes), Address::from_v6(other));
        FlowKey { local, remote, local_port: ports[0], remote_port: ports[1] }.mix()
    };
    for at in 0..34 {
        assert_ne!(key(at), key(34), "byte {at} does not matter");
    }
}
