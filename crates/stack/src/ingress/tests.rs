//! Which segments go through TCP as one: those whose headers say the same, whichever bit of them is another.

use super::*;

const KEY: FlowKey = FlowKey {
    local: Address::from_v4([10, 0, 0, 1]),
    remote: Address::from_v4([10, 0, 0, 2]),
    local_port: 80,
    remote_port: 40_000,
};

fn word(of: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([of[at], of[at + 1], of[at + 2], of[at + 3]])
}

/// A segment with timestamps, as nearly all are.
fn segment(seq: u32, ack: u32, ts: u32, text: usize) -> Vec<u8> {
    let mut tcp = vec![7; PLAIN_HEADER + text];
    tcp[..4].copy_from_slice(&[0x9c, 0x40, 0, 80]);
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&ack.to_be_bytes());
    tcp[12..20].copy_from_slice(&[8 << 4, ACK, 1, 0, 0, 0, 0, 0]);
    tcp[20..24].copy_from_slice(&TIMESTAMPS);
    tcp[24..28].copy_from_slice(&ts.to_be_bytes());
    tcp
}

/// Whether two segments of one flow go through TCP as one, and which of them is read.
fn merged<'a>(first: &'a [u8], second: &'a [u8]) -> Option<&'a [u8]> {
    let arriving = |tcp: &'a [u8]| Arriving {
        key: KEY,
        mix: KEY.mix(),
        hash: 0,
        tcp,
        packet: tcp,
        size: 0,
        verified: true,
        via: Via::Direct,
        hint: None,
    };
    let arrived = [arriving(first), arriving(second)];
    let (read, run, others) = run(&arrived).expect("there are two");
    (run.len() == 1 && others.is_empty()).then_some(read.tcp)
}

/// Bits of the header behind the ports.
fn bits() -> impl Iterator<Item = (usize, u8)> {
    (4..PLAIN_HEADER).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit)))
}

#[test]
fn what_continues_says_nothing_else() {
    let (first, next) = (segment(1_000, 9, 5, 100), segment(1_100, 9, 5, 50));
    assert_eq!(merged(&first, &next), Some(&first[..]));
    for (at, bit) in bits() {
        let mut other = next.clone();
        other[at] ^= bit;
        // Its checksum has been verified, and the urgent pointer means nothing without URG.
        let says_the_same = (16..20).contains(&at) || (at, bit) == (13, PSH);
        assert_eq!(merged(&first, &other).is_some(), says_the_same, "byte {at}, bit {bit:#x}");
    }
    // Whoever pushes wants an answer; and nothing continues what is empty.
    let mut pushed = first.clone();
    pushed[13] |= PSH;
    assert_eq!(merged(&pushed, &next), None);
    assert_eq!(merged(&segment(1_000, 9, 5, 0), &segment(1_000, 9, 5, 50)), None);
    assert_eq!(merged(&first, &segment(1_100, 9, 5, 0)), None);
    // A header that says that it is shorter than any can be is for whoever reads it to refuse.
    for words in 0..5 {
        let mut short = first.clone();
        short[12] = words << 4;
        assert_eq!(merged(&short, &next), None);
        assert_eq!(merged(&first, &short), None);
    }
}

#[test]
fn what_supersedes_says_all_that_was_said() {
    let (first, next) = (segment(1_000, 0x0101_0101, 0x0101_0101, 0), segment(1_000, 0x0303_0303, 0x0303_0303, 0));
    assert_eq!(merged(&first, &next), Some(&next[..]), "the later window counts");
    for (at, bit) in bits() {
        let mut other = next.clone();
        other[at] ^= bit;
        let grown = |at| word(&other, at).wrapping_sub(word(&first, at)) as i32;
        let says_all = match at {
            8..12 => grown(8) > 0,
            24..28 => grown(24) >= 0,
            14..20 | 28..32 => true,
            _ => false,
        };
        assert_eq!(merged(&first, &other).is_some(), says_all, "byte {at}, bit {bit:#x}");
    }
    assert_eq!(merged(&next, &next), None, "a repeated one says that something is missing");
}
