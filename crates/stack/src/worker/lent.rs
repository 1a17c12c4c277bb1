//! Owns the frames of one batch, wherever they lie.

use crate::ingress::Vouched;
use crate::moving::Note;
use laneway_device::{Rx, RxFrame};
use laneway_sync::ring::records::RecordConsumer;

/// Frames that are lent for one batch. (No closure is: of one that is called in two places, neither would have it inline.)
pub(crate) trait Lent<'a>: Copy {
    /// The frame in this place; and what another lane has noted of it, if it is a packet by mail.
    fn frame(self, i: usize) -> (RxFrame<'a>, Option<Note>);
}

/// As a device lends them.
pub(super) struct ByDevice<'a, R>(pub(super) &'a R);

impl<R> Clone for ByDevice<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for ByDevice<'_, R> {}

impl<'a, R: Rx> Lent<'a> for ByDevice<'a, R> {
    #[inline(always)]
    fn frame(self, i: usize) -> (RxFrame<'a>, Option<Note>) {
        (self.0.frame(i), None)
    }
}

/// As they lie in a ring from another lane.
#[derive(Clone, Copy)]
pub(super) struct ByMail<'a>(pub(super) &'a RecordConsumer);

impl<'a> Lent<'a> for ByMail<'a> {
    #[inline(always)]
    fn frame(self, i: usize) -> (RxFrame<'a>, Option<Note>) {
        let (bytes, word) = self.0.record(i);
        (RxFrame { bytes, meta: Vouched::meta(word) }, Some(Note::of(word)))
    }
}

/// Those of them that were not turned away.
#[derive(Clone, Copy)]
pub(super) struct Admitted<'s, L>(pub(super) L, pub(super) &'s [u8]);

impl<'a, L: Lent<'a>> Lent<'a> for Admitted<'_, L> {
    #[inline(always)]
    fn frame(self, i: usize) -> (RxFrame<'a>, Option<Note>) {
        self.0.frame(self.1[i].into())
    }
}
