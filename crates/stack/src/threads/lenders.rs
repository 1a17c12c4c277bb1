//! Owns the lists of conversations that hold blocks, and says which of them to ask for those.
//!
//! A conversation that is idle holds no memory, so somebody has to see that it is idle. To look too soon costs more than it saves: of ten
//! thousand that say a word ten times a second each would give its blocks back and fetch others for the next. So those that hold no
//! more than a word needs are asked seldom, and those that hold more, often.

use crate::app::ConnId;
use laneway_proto::time::Instant;
use std::collections::VecDeque;

/// How long the smallest of blocks may lie idle before the lane looks whether it can have it back, in microseconds (ten thousand
/// conversations hold 5 MiB of them); and how long any other may.
const IDLE_US: [u64; 2] = [128_000, 4_000];
/// Between two looks at one list, in a round of many.
const AGAIN_US: u64 = 250;
/// Conversations of a list that are asked in one poll.
const ASKED_MAX: usize = 256;
/// Places that a list keeps when there is nobody on it.
const PLACES_KEPT: usize = 4_096;

/// Which list: of those that hold no more than a word needs, or of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holds {
    AWord,
    More,
}

impl Holds {
    #[inline]
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What a conversation's record remembers of it, for each list: the [bit](Holds::bit) that it is there, and four above it the bit that
/// something was said since that list was last gone through: its blocks are in use, though perhaps empty now.
#[derive(Clone, Copy, Default)]
pub(super) struct Lent(u8);

const SPOKE: u32 = 4;

impl Lent {
    /// Something was said. True: it is to be [listed](Lenders::add).
    #[inline]
    pub(super) fn speaks(&mut self, holds: Holds) -> bool {
        self.0 |= (Holds::AWord.bit() | Holds::More.bit()) << SPOKE;
        // Who is asked for more is asked for all of it.
        let is_new = self.0 & (holds.bit() | Holds::More.bit()) == 0;
        self.0 |= if is_new { holds.bit() } else { 0 };
        is_new
    }

    /// Nothing was said since this was last asked for that list.
    #[inline]
    pub(super) fn was_silent(&mut self, list: Holds) -> bool {
        let spoke = self.0 & list.bit() << SPOKE != 0;
        self.0 &= !(list.bit() << SPOKE);
        !spoke
    }

    /// It is not on that list any more.
    pub(super) fn leaves(&mut self, list: Holds) {
        self.0 &= !list.bit();
    }
}

/// A place among the lane's records, and whose it was when that was noted.
#[derive(Clone, Copy)]
pub(super) struct Lender {
    pub(super) index: u32,
    pub(super) id: ConnId,
}

struct List {
    of: VecDeque<Lender>,
    /// How many are left of this round, and how many were asked in this poll.
    left: usize,
    asked: usize,
    due: Instant,
}

/// Those that hold blocks.
pub(super) struct Lenders([List; 2]);

impl Default for Lenders {
    fn default() -> Self {
        Lenders([(); 2].map(|()| List { of: VecDeque::new(), left: 0, asked: 0, due: Instant::NEVER }))
    }
}

impl Lenders {
    #[inline]
    pub(super) fn add(&mut self, holds: Holds, lender: Lender, now: Instant) {
        let list = &mut self.0[holds as usize];
        if list.of.is_empty() {
            list.due = now.after_us(IDLE_US[holds as usize]);
        }
        list.of.push_back(lender);
    }

    /// Who is to be asked now, and on which list he is no more: who keeps his blocks is [added](Self::add) again.
    pub(super) fn next(&mut self, now: Instant) -> Option<(Holds, Lender)> {
        let (holds, list) =
            [Holds::AWord, Holds::More].into_iter().zip(&mut self.0).find(|(_, list)| list.due <= now)?;
        if list.left == 0 {
            list.left = list.of.len();
        }
        let lender = list.of.pop_front();
        list.left = list.left.saturating_sub(1);
        list.asked += 1;
        if list.left == 0 {
            (list.asked, list.due) = (0, now.after_us(IDLE_US[holds as usize]));
        } else if list.asked == ASKED_MAX {
            (list.asked, list.due) = (0, now.after_us(AGAIN_US));
        }
        Some((holds, lender?))
    }

    /// The poll has asked all that it was to ask.
    pub(super) fn settle(&mut self) {
        for list in &mut self.0 {
            if list.of.is_empty() {
                list.due = Instant::NEVER;
                // Ten thousand that spoke once are idle now, and shall cost what idle ones do.
                list.of.shrink_to(PLACES_KEPT);
            }
        }
    }

    /// When to ask again.
    #[inline]
    pub(super) fn due(&self) -> Instant {
        self.0[0].due.min(self.0[1].due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD_US: u64 = IDLE_US[0];
    const MORE_US: u64 = IDLE_US[1];

    fn lender(index: u32) -> Lender {
        Lender { index, id: ConnId::new(index, 0) }
    }

    /// Who is asked at that time.
    fn asked(lenders: &mut Lenders, us: u64) -> Vec<(Holds, u32)> {
        let now = Instant::from_us(us);
        let all = std::iter::from_fn(|| lenders.next(now)).map(|(holds, lender)| (holds, lender.index)).collect();
        lenders.settle();
        all
    }

    #[test]
    fn who_holds_little_is_asked_seldom() {
        let (mut lenders, start) = (Lenders::default(), Instant::from_us(0));
        assert_eq!(lenders.due(), Instant::NEVER);
        lenders.add(Holds::AWord, lender(1), start);
        lenders.add(Holds::More, lender(2), start);
        assert_eq!(lenders.due(), Instant::from_us(MORE_US));
        assert_eq!(asked(&mut lenders, MORE_US - 1), []);
        assert_eq!(asked(&mut lenders, MORE_US), [(Holds::More, 2)]);
        assert_eq!(lenders.due(), Instant::from_us(WORD_US));
        assert_eq!(asked(&mut lenders, WORD_US), [(Holds::AWord, 1)]);
        assert_eq!(lenders.due(), Instant::NEVER);
    }

    #[test]
    fn each_is_asked_once_in_a_round_and_few_in_a_poll() {
        let (mut lenders, all) = (Lenders::default(), 2 * ASKED_MAX as u32 + 88);
        (0..all).for_each(|index| lenders.add(Holds::More, lender(index), Instant::from_us(0)));
        let (mut at, mut of_round) = (MORE_US, Vec::new());
        for polls in [ASKED_MAX, ASKED_MAX, 88] {
            let some = asked(&mut lenders, at);
            assert_eq!(some.len(), polls);
            // All of them keep what they have.
            some.iter().for_each(|(holds, index)| lenders.add(*holds, lender(*index), Instant::from_us(at)));
            of_round.extend(some.into_iter().map(|(_, index)| index));
            assert_eq!(asked(&mut lenders, at + AGAIN_US - 1), []);
            at += AGAIN_US;
        }
        assert_eq!(of_round, (0..all).collect::<Vec<_>>());
        let next_round = at - AGAIN_US + MORE_US;
        assert_eq!((asked(&mut lenders, next_round - 1).len(), asked(&mut lenders, next_round).len()), (0, ASKED_MAX));
    }

    #[test]
    fn a_list_has_each_once_and_who_holds_more_is_on_one_for_all() {
        let mut lent = Lent::default();
        assert!(lent.speaks(Holds::AWord) && !lent.speaks(Holds::AWord));
        assert!(lent.speaks(Holds::More) && !lent.speaks(Holds::More) && !lent.speaks(Holds::AWord));
        // Each list hears of it for itself.
        assert!(!lent.was_silent(Holds::More) && lent.was_silent(Holds::More));
        assert!(!lent.was_silent(Holds::AWord) && lent.was_silent(Holds::AWord));
        lent.leaves(Holds::AWord);
        assert!(!lent.speaks(Holds::AWord), "the other list has it");
        lent.leaves(Holds::More);
        assert!(lent.speaks(Holds::AWord));
    }
}
