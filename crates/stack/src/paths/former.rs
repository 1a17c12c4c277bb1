//! Owns whose path had to make room for another's, lately or as long as they have a connection: they are no strangers.

use crate::snapshot::mix_pair;
use laneway_proto::time::Instant;
use laneway_wire::flow::Address;

/// Bits of each of two sets: for 10,000 addresses one stranger of twenty-seven is taken for one of them.
const BITS: usize = 1 << 18;
const WORDS: usize = BITS / 64;
/// An address is remembered for so long at least, and mostly not for twice as long.
const KEPT_US: u64 = 128_000_000;
/// Connections looked at in one step of a walk.
const LOOKS_MAX: u32 = 32;

/// Two sets of addresses, of which the newer one is added to, until it takes the place of the older one. Nobody is missed, and some are taken for
/// others: it is a Bloom filter with one hash. That is no secret: who could choose addresses that are taken for a known one could as well
/// choose that one.
///
/// Meanwhile a walk over all connections adds their peers, so that none is forgotten who has one.
pub(crate) struct Former {
    sets: Option<Box<[[u64; WORDS]; 2]>>,
    since: Instant,
    /// The connection that the walk looks at next.
    next: u32,
    /// It has been to all of them since the newer set was begun.
    has_walked: bool,
}

impl Former {
    pub(super) const NONE: Self = Former { sets: None, since: Instant::ZERO, next: 0, has_walked: false };

    /// Whether an address was [noted](Self::note) lately.
    #[inline(always)]
    pub(super) fn has(&self, address: &Address) -> bool {
        let Some(sets) = &self.sets else { return false };
        let (word, bit) = place(address);
        (sets[0][word] | sets[1][word]) & bit != 0
    }

    /// Remembers an address.
    #[cold]
    pub(super) fn note(&mut self, address: &Address, now: Instant) {
        let sets = self.sets.get_or_insert_with(|| {
            self.since = now;
            // Boxed before it is filled: it is large.
            vec![[0; WORDS]; 2].into_boxed_slice().try_into().expect("two")
        });
        if now.since_us(self.since) >= KEPT_US && self.has_walked {
            (self.since, self.next, self.has_walked) = (now, 0, false);
            let [newer, older] = &mut **sets;
            std::mem::swap(newer, older);
            newer.fill(0);
        }
        let (word, bit) = place(address);
        sets[0][word] |= bit;
    }

    /// A millisecond has passed: goes on with the walk over connections, of which `peer` says whose they are.
    #[inline(always)]
    pub(crate) fn on_tick(&mut self, connections: u32, peer: impl Fn(u32) -> Option<Address>) {
        if self.sets.is_some() && !self.has_walked {
            self.walk(connections, peer);
        }
    }

    #[inline(never)]
    fn walk(&mut self, connections: u32, peer: impl Fn(u32) -> Option<Address>) {
        let Some(sets) = &mut self.sets else { return };
        let until = connections.min(self.next.saturating_add(LOOKS_MAX));
        for address in (self.next..until).filter_map(peer) {
            let (word, bit) = place(&address);
            sets[0][word] |= bit;
        }
        self.next = until;
        self.has_walked = until == connections;
    }
}

#[inline(always)]
fn place(address: &Address) -> (usize, u64) {
    let bit = mix_pair(address, &Address::UNSPECIFIED_V6) % BITS;
    (bit / 64, 1 << (bit % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> Address {
        Address::from_v4(n.to_be_bytes())
    }

    #[test]
    fn who_is_noted_is_remembered_for_two_minutes_at_least_and_five_at_most() {
        let mut former = Former::NONE;
        assert!(!former.has(&address(1)));
        former.note(&address(1), Instant::ZERO);
        for seconds in (0..128).step_by(8) {
            former.note(&address(2), Instant::ZERO.after_us(seconds * 1_000_000));
            former.on_tick(0, |_| None);
            assert!(former.has(&address(1)), "after {seconds} s");
        }
        for seconds in [130, 255] {
            former.note(&address(3), Instant::ZERO.after_us(seconds * 1_000_000));
            former.on_tick(0, |_| None);
            assert!(former.has(&address(1)) && former.has(&address(2)), "after {seconds} s");
        }
        former.note(&address(3), Instant::ZERO.after_us(300_000_000));
        assert!(!former.has(&address(1)) && former.has(&address(3)));
    }

    #[test]
    fn who_has_a_connection_is_remembered_however_long_he_says_nothing() {
        let mut former = Former::NONE;
        former.note(&address(1), Instant::ZERO);
        // The tenth slot is empty.
        let peer = |index: u32| (index != 9).then(|| address(1_000 + index));
        for minute in 1..60 {
            former.note(&address(1_000 + minute % 100), Instant::ZERO.after_us(minute as u64 * 60_000_000));
            (0..minute % 7).for_each(|_| former.on_tick(100, peer));
            let known = (0..100).filter(|i| former.has(&address(1_000 + i))).count();
            assert!(minute < 6 || known >= 99, "{known} after {minute} minutes");
        }
        assert!(!former.has(&address(1)), "he has none");
    }

    #[test]
    fn of_ten_thousand_none_is_missed_and_few_others_are_taken_for_one_of_them() {
        let mut former = Former::NONE;
        // Neighbours in one network, as clients are.
        let known = |i: u32| address(0x0a00_0000 + i);
        (0..10_000).for_each(|i| former.note(&known(i), Instant::ZERO));
        assert!((0..10_000).all(|i| former.has(&known(i))));
        let strangers = 100_000;
        let mistaken = (0..strangers).filter(|i| former.has(&address(0x6400_0000 + i * 977))).count();
        assert!(mistaken < strangers as usize / 20, "{mistaken} of {strangers}");
    }
}
