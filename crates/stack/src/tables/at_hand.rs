//! Owns what is asked for ahead, so that it is in the cache when it is needed.

use super::{Handle, Kind, NEAR_LINES, SLOT_LINES, Slot, Tables, Tcb, position};
use crate::app::ConnId;
use laneway_proto::tcp::BufferPool;
use laneway_sync::prefetch::{LINE, prefetch_line_to_write};

/// So many flows stay in the caches of a core by themselves.
const NEAR_FLOWS: usize = 2_048;
/// So many places of the index, too: 256 KiB.
const NEAR_PLACES: usize = 1 << 15;

impl Tables {
    /// There is more here than a core has at hand, so that it pays to ask for it ahead. Half-open entries do not count: nobody asks for those of a
    /// flood again, and the others are complete before they are far. Of an index that is made for many any place may be asked for, however few
    /// are taken: a flow that is new may have it.
    #[inline]
    pub fn are_far(&self) -> bool {
        self.flows.len() > NEAR_FLOWS + self.half_open.len() || self.flows.capacity() > NEAR_PLACES
    }

    /// Brings what [`recent`](Self::recent) will read into the cache.
    #[inline(always)]
    pub fn prefetch_recent(&self, mix: u64) {
        self.recent.prefetch(mix);
    }

    /// The connection or half-open entry that a flow of this [`mix`](laneway_wire::flow::FlowKey::mix) was found to be last, on its way into the cache.
    #[inline(always)]
    pub fn recent(&self, mix: u64) -> Option<Handle> {
        let handle = self.recent.find(mix)?;
        self.prefetch_handle(handle);
        Some(handle)
    }

    /// The same, where the [caches hold what it leads to](Self::are_far).
    #[inline(always)]
    pub fn recent_near(&self, mix: u64) -> Option<Handle> {
        self.recent.find(mix)
    }

    /// A handshake of a flow of this [`mix`](laneway_wire::flow::FlowKey::mix) is under way, and was noted lately.
    #[inline(always)]
    pub fn is_half_open_near(&self, mix: u64) -> bool {
        self.recent.is_half_open(mix)
    }

    /// Brings what a later `lookup` of this hash will read into the cache: first the bucket …
    #[inline]
    pub fn prefetch_bucket(&self, hash: u64) {
        self.flows.prefetch(hash);
    }

    /// … and, once that has arrived, the entity behind it, whose handle is the answer.
    #[inline]
    pub fn prefetch_entity(&self, hash: u64) -> Option<Handle> {
        let handle = Handle(self.flows.candidate(hash)?);
        self.prefetch_handle(handle);
        Some(handle)
    }

    /// Brings the bucket of a connection's flow into the cache, for what takes its place there.
    #[inline]
    pub fn prefetch_bucket_of(&self, connection: u32) {
        if let Some(slot) = self.slots.get(connection) {
            self.flows.prefetch(slot.hash);
        }
    }

    /// The same of a half-open entry whose flow has this [`mix`](laneway_wire::flow::FlowKey::mix).
    #[inline]
    pub fn prefetch_bucket_of_half_open(&self, mix: u64, half: Handle) {
        if let Some(hash) = self.recent.hash_of_half_open(mix, half) {
            self.flows.prefetch(hash);
        }
    }

    /// Brings what a connection has sent into the cache, once its slot has arrived there: with what comes it may be acknowledged, and then the answer is
    /// written into the same memory. Says by which token the application knows it.
    #[inline(always)]
    pub fn prefetch_sent(&self, connection: u32) -> Option<u64> {
        let Some(Slot { tcb: Tcb::Synchronized(connection), .. }) = self.slots.get(connection) else { return None };
        prefetch_line_to_write(connection.unacknowledged().as_ptr());
        Some(connection.token)
    }

    /// Brings what a handle names into the cache.
    #[inline(always)]
    pub fn prefetch_handle(&self, handle: Handle) {
        if handle.kind() == Kind::Connection {
            self.slots.prefetch_lines(handle.index(), NEAR_LINES);
        } else {
            self.prefetch_other(handle);
        }
    }

    fn prefetch_other(&self, handle: Handle) {
        match handle.kind() {
            Kind::Connection => {}
            Kind::HalfOpen => self.half_open.prefetch(handle.index()),
            Kind::TimeWaitV4 => self.tw4.prefetch(position(&self.tw4, handle)),
            Kind::TimeWaitV6 => self.tw6.prefetch(position(&self.tw6, handle)),
        }
    }

    /// Asks for the lines of a connection that will be needed soon.
    #[inline]
    pub fn prefetch(&self, id: ConnId) {
        self.slots.prefetch_lines(id.index(), NEAR_LINES);
    }
}

/// The line of a slot that segments do not ask for: who establishes a connection writes it, too.
#[inline(always)]
pub(crate) fn prefetch_far_line(slot: &Slot) {
    prefetch_line_to_write(std::ptr::from_ref(slot).cast::<u8>().wrapping_add((SLOT_LINES - 1) * LINE));
}

/// Brings the `n`th ring after the one that is lent next into the cache, for whoever will write to it: a connection that begins is about to
/// say something, and so is the one behind it.
#[inline(always)]
pub(crate) fn prefetch_ring(pool: &BufferPool, n: usize) {
    if let Some(ring) = pool.upcoming(n) {
        for line in 0..4 {
            prefetch_line_to_write(ring.as_ptr().wrapping_add(line * LINE));
        }
    }
}
