//! Owns what a lane knows of one connection that a thread has.

use super::super::lenders::Lent;
use super::super::watches::Watches;
use super::super::words::{CONNECTED, FULL, ROOM, TalkEnd, WRITE};
use super::wishes::Wishes;
use crate::app::{ConnId, Context};
use std::sync::atomic::Ordering::Relaxed;

/// A connection that a thread has.
pub(super) struct Record {
    pub(super) end: TalkEnd,
    pub(super) id: ConnId,
    pub(super) watches: Watches,
    /// What was asked for behind bytes that have not been taken yet.
    /// One word while there is none, which is nearly always.
    pub(super) notes: Option<Box<Wishes>>,
    /// What threads are to be told at the end of the poll.
    pub(super) news: u8,
    /// Whether it is on the lists of those that hold blocks.
    pub(super) lent: Lent,
    /// The application is gone, and only the bytes before its close remain to be sent.
    pub(super) closing: bool,
    /// The ring keeps what is sent until it is acknowledged.
    pub(super) keeps: bool,
    /// How many of its thread's bytes the connection has.
    pub(super) queued: u64,
    /// How many had been given back when it was last served, modulo 2³²: a ring does not hold that many.
    pub(super) seen: u32,
}

const _: () = assert!(size_of::<Record>() == 64, "as long as a line: serving a connection fetches no second one");

impl Record {
    /// Of a connection that begins, or of which its lane hears for the first time.
    pub(super) fn new(end: TalkEnd, id: ConnId) -> Self {
        let taken = end.taken();
        Record {
            end,
            id,
            watches: Watches::default(),
            notes: None,
            news: 0,
            lent: Lent::default(),
            closing: false,
            keeps: false,
            queued: taken,
            seen: taken as u32,
        }
    }

    /// Bytes that the connection does not have yet.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        (self.end.sent() - self.queued) as usize
    }

    /// It is over: what was written and not sent goes, and with it the memory. Who has written it may keep the conversation for long yet.
    #[cold]
    pub(super) fn throw_away(&mut self) {
        let end = self.end.sent(); // who writes on does not hold us up
        while self.end.taken() < end
            && let n @ 1.. = self.end.front().len()
        {
            self.end.advance(n);
        }
        self.end.retire();
    }

    /// Has the connection show what the ring had no room for, if there is some now.
    #[inline]
    pub(super) fn resume(&self, cx: &mut Context<'_>) {
        let pipe = self.end.pipe();
        if pipe.flags().get(FULL) != 0 && self.end.unread() <= pipe.receive_limit() / 3 * 2 {
            pipe.flags().take(FULL);
            cx.resume(self.id);
        }
    }

    /// Its thread waits to write although there is room: there was no block for what it would have written.
    #[inline]
    pub(super) fn waits_for_memory(&self) -> bool {
        let pipe = self.end.pipe();
        pipe.flags().get(WRITE | ROOM) != 0
            && pipe.writable() >= pipe.send_limit() / 3
            && pipe.lane().status.load(Relaxed) & CONNECTED != 0
    }
}
