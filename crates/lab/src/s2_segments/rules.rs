//! Owns what Linux did before: four rules for the end of the queue, each in the place of the product's.
//!
//! | rule | a super-segment's tail | a small segment is noted | an ACK |
//! |---|---|---|---|
//! | [`Split`] | goes by itself, and is tested then | if the whole is less than a segment | as soon as it is due |
//! | [`V1`] | goes with the rest, and is not tested | the same | the same |
//! | [`V2`] | the same | if the whole is no multiple of a segment | the same |
//! | [`Refined`] | is tested, and goes with the rest or waits | the same | the same |
//! | `lane` | the same | the same | when the application has had its turn |

use laneway_proto::tcp::nagle::{Segmentation, Tail};
use laneway_stack::sharing::{LaneOwned, Sharing, Site};
use laneway_stack::tables::Tables;

/// `split`: until 2013 the last super-segment was cut in two, full segments and the rest, even with TCP_NODELAY; the loop
/// came round again for the rest, and tested it.
pub struct Split;

impl Segmentation for Split {
    const NAME: &'static str = "split";
    const ACK_AFTER_TURN: bool = false;

    fn cut(tail: &Tail) -> u32 {
        if tail.needed > tail.mss {
            tail.needed - tail.partial()
        } else if tail.is_held() {
            0
        } else {
            tail.needed
        }
    }

    fn notes_small(len: u32, mss: u32) -> bool {
        len > 0 && len < mss
    }
}

/// `v1`: the first attempt. Nothing is split; only what is less than a segment is tested, and noted.
pub struct V1;

impl Segmentation for V1 {
    const NAME: &'static str = "v1";
    const ACK_AFTER_TURN: bool = false;

    fn cut(tail: &Tail) -> u32 {
        if tail.needed < tail.mss && tail.is_held() { 0 } else { tail.needed }
    }

    fn notes_small(len: u32, mss: u32) -> bool {
        len > 0 && len < mss
    }
}

/// `v2`: the second attempt. A super-segment with a small tail is noted; the tail is still not tested.
pub struct V2;

impl Segmentation for V2 {
    const NAME: &'static str = "v2";
    const ACK_AFTER_TURN: bool = false;

    fn cut(tail: &Tail) -> u32 {
        V1::cut(tail)
    }

    fn notes_small(len: u32, mss: u32) -> bool {
        !len.is_multiple_of(mss)
    }
}

/// `refined`: what was merged, and what Linux does to this day. The tail is tested before anything leaves.
pub struct Refined;

impl Segmentation for Refined {
    const NAME: &'static str = "refined";
    const ACK_AFTER_TURN: bool = false;

    fn cut(tail: &Tail) -> u32 {
        if tail.is_held() { tail.needed - tail.partial() } else { tail.needed }
    }

    fn notes_small(len: u32, mss: u32) -> bool {
        !len.is_multiple_of(mss)
    }
}

/// The product with another rule for the end of the queue, and nothing else changed.
pub struct Ruled<G> {
    tables: LaneOwned,
    rule: std::marker::PhantomData<G>,
}

impl<G: Segmentation> Sharing for Ruled<G> {
    type Section<'a> = &'a mut Tables;
    type Segmentation = G;
    // Lanes share nothing here, and that is what the name says; the rule has a name of its own.
    const NAME: &'static str = LaneOwned::NAME;

    fn spread(lanes: usize, make: impl FnMut() -> Tables) -> Vec<Self> {
        let own = LaneOwned::spread(lanes, make);
        own.into_iter().map(|tables| Ruled { tables, rule: std::marker::PhantomData }).collect()
    }

    #[inline]
    fn enter(&mut self, site: Site) -> &mut Tables {
        self.tables.enter(site)
    }

    #[inline]
    fn peek(&self) -> Option<&Tables> {
        self.tables.peek()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_proto::tcp::nagle::{Lane, vectors};

    fn failed<G: Segmentation>() -> Vec<u8> {
        vectors::failures::<G>().into_iter().map(|(number, _)| number).collect()
    }

    /// What history says. The split passes all that is about Nagle and pays with a packet (1, 2). Without the split and
    /// without a test of the tail, whatever has a tail behind a small segment is wrong (3, 4, 8, 9, 11), and a cork holds
    /// nothing back (6); the first attempt does not even know that the tail was small (10).
    #[test]
    fn each_fails_what_history_says() {
        assert_eq!(failed::<Split>(), [1, 2]);
        assert_eq!(failed::<V1>(), [3, 4, 6, 8, 9, 10, 11]);
        assert_eq!(failed::<V2>(), [3, 4, 6, 8, 9, 11]);
        assert!(failed::<Refined>().is_empty());
        assert!(failed::<Lane>().is_empty());
    }

    /// The objection to the second attempt, as it was put: 2000 bytes behind 100, and all 2000 leave.
    #[test]
    fn the_second_attempt_fails_as_was_objected() {
        let (_, why) = vectors::failures::<V2>().into_iter().find(|(number, _)| *number == 4).expect("it fails");
        assert!(why.contains("sent [1460, 540], right is [1460]"), "{why}");
    }
}
