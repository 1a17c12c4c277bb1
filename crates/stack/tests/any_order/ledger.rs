//! Owns what was said and what was heard. Everybody's bytes begin with his number in here: so it is known who talks to whom, whichever ports
//! they have, and they may have others' by now.

use crate::dice::Dice;
use std::collections::HashSet;
use std::sync::OnceLock;

/// The most that is said at once.
pub const SAID_MAX: usize = 65_536;
/// A prime, so that no size divides it.
const PERIOD: usize = 65_521;
/// So far apart do two who come after each other begin.
const APART: usize = 4_099;
/// Bytes of a number.
pub const NUMBER: usize = 4;

/// What is said by `who` from his byte `at` on: one long table of random bytes, each from a place of his own.
pub fn text(who: usize, at: usize, len: usize) -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut dice = Dice::new(0, 9);
        let mut table: Vec<u8> = (0..PERIOD).map(|_| dice.below(256) as u8).collect();
        table.extend_from_within(..);
        table.extend_from_within(..PERIOD);
        table
    });
    &table[(who * APART + at) % PERIOD..][..len]
}

/// One end of a connection, and what stays known of it when it has left.
#[derive(Default, Debug)]
pub struct Voice {
    side: usize,
    pub said: usize,
    pub heard: usize,
    /// Of the number of the one who is heard, what has come.
    head: Vec<u8>,
    /// Who is heard.
    pub hears: Option<usize>,
    /// Who hears it.
    pub heard_by: Option<usize>,
    /// Its thread is gone.
    pub left: bool,
}

#[derive(Default)]
pub struct Ledger {
    /// What somebody says may be heard again, when who heard it first has left: see [`has_cookies`](crate::plan::Plan::has_cookies).
    may_return: bool,
    pub voices: Vec<Voice>,
    /// For each UDP socket how many datagrams it has sent, and which have come.
    sent: Vec<u32>,
    came: HashSet<(usize, u32)>,
}

impl Ledger {
    pub fn new(may_return: bool) -> Ledger {
        Ledger { may_return, ..Ledger::default() }
    }

    pub fn begins(&mut self, side: usize) -> usize {
        self.voices.push(Voice { side, ..Voice::default() });
        self.voices.len() - 1
    }

    /// What that one says next, `len` bytes.
    pub fn next(&self, who: usize, len: usize) -> Vec<u8> {
        let at = self.voices[who].said;
        let mut next = text(who, at, len).to_vec();
        let number = (who as u32).to_le_bytes();
        if at < NUMBER {
            let part = &number[at..NUMBER.min(at + len)];
            next[..part.len()].copy_from_slice(part);
        }
        next
    }

    pub fn hears(&mut self, who: usize, mut bytes: &[u8]) {
        while self.voices[who].head.len() < NUMBER
            && let Some((first, rest)) = bytes.split_first()
        {
            let me = &mut self.voices[who];
            me.head.push(*first);
            me.heard += 1;
            bytes = rest;
            if me.head.len() == NUMBER {
                self.meets(who);
            }
        }
        let Some(peer) = self.voices[who].hears else { return };
        let at = self.voices[who].heard;
        self.voices[who].heard += bytes.len();
        let said = self.voices[peer].said;
        assert!(at + bytes.len() <= said, "{who} hears {} bytes of {peer}, who has said {said}", at + bytes.len());
        let expected = text(peer, at, bytes.len());
        if bytes != expected {
            let n = bytes.iter().zip(expected).take_while(|(found, expected)| found == expected).count();
            panic!("{who} hears something else than {peer} has said, from byte {} on", at + n);
        }
    }

    /// It is known now whom he hears.
    fn meets(&mut self, who: usize) {
        let number = self.voices[who].head.as_slice().try_into().expect("it is as long as that");
        let peer = u32::from_le_bytes(number) as usize;
        let side = self.voices[who].side;
        let Some(voice) = self.voices.get(peer).filter(|voice| voice.side != side) else {
            panic!("{who} hears somebody who says that he is {peer}, and there is none");
        };
        if let Some(other) = voice.heard_by {
            assert!(self.may_return && self.voices[other].left, "{who} hears {peer}, and so does {other}");
        }
        assert!(voice.hears.is_none_or(|heard| heard == who), "{who} hears {peer}, who hears {:?}", voice.hears);
        self.voices[peer].heard_by = Some(who);
        self.voices[who].hears = Some(peer);
    }

    /// Whom that one talks with, if one of the two has heard of the other.
    pub fn peer(&self, who: usize) -> Option<usize> {
        self.voices[who].hears.or(self.voices[who].heard_by)
    }

    /// A UDP socket.
    pub fn binds(&mut self) -> usize {
        self.sent.push(0);
        self.sent.len() - 1
    }

    /// The next datagram of a socket, to a port.
    pub fn datagram(&mut self, socket: usize, port: u16, len: usize) -> Vec<u8> {
        let count = self.sent[socket];
        self.sent[socket] += 1;
        datagram(socket, count, port, len)
    }

    /// A datagram comes to a port.
    pub fn comes(&mut self, port: u16, bytes: &[u8]) {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + NUMBER].try_into().expect("it has a head"));
        let (socket, count) = (word(0) as usize, word(NUMBER));
        assert!(self.sent.get(socket).is_some_and(|sent| count < *sent), "nobody has sent that datagram");
        assert!(bytes == datagram(socket, count, port, bytes.len()), "the datagram is another than was sent here");
        assert!(self.came.insert((socket, count)), "datagram {count} of socket {socket} comes twice");
    }
}

/// Who sends it, the how manieth it is, and whereto; and then anything.
fn datagram(socket: usize, count: u32, port: u16, len: usize) -> Vec<u8> {
    let mut bytes = text(socket, count as usize, len).to_vec();
    bytes[..NUMBER].copy_from_slice(&(socket as u32).to_le_bytes());
    bytes[NUMBER..2 * NUMBER].copy_from_slice(&count.to_le_bytes());
    bytes[2 * NUMBER..][..2].copy_from_slice(&port.to_le_bytes());
    bytes
}
