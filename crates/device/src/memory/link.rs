//! Two hosts joined by single-producer rings: the benchmark rig, and the embedded default.
//!
//! path: `[device::rx] → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → egress → [device::tx]`
//!
//! The sender writes its frame straight into the ring: that write is the DMA copy that hardware would make, and there is no other.
//! The receiver reads it in place. No lock, no call into the kernel, no heap after [`link`] returned.
//!
//! # Queues
//! Each sending queue has a ring to each receiving queue (N×M of them), so every ring keeps exactly one producer. Which receiving queue gets a frame is decided by [`Steer`], the virtual RSS, which looks at the frame *after* it was
//! written. The sender therefore writes into the ring that the frame before it went to, and copies when the guess was wrong: a stream
//! never pays, and among short frames the copy is one or two cache lines that are still hot. So a sender with several rings is full
//! as soon as one of them is: a frame whose destination is not known yet must not be lost.
//!
//! A sender that says which flow its frame is of ([`Tx::reserve_for`]) has it go where [`SteerFlow`] says, without a look at the frame and
//! without a copy, and only that ring needs room.
//!
//! # Offloads
//! A frame may carry an unfinished checksum (`tx_checksum`) or be a super-packet (`tso_max`). If the receiving end takes those
//! (`rx_checksum`, `rx_super`), nothing is computed at all: the bytes never leave memory, so saying "verified" is true. If it does not,
//! the sender's half finishes the checksum or cuts the frame on the way into the ring, see [`super::offload`].

mod gather;
mod spread;

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use laneway_sync::{Padded, RecordConsumer, RecordProducer, records};

use super::indirection::{Follower, Indirection};
use super::offload;
use crate::{BATCH_MAX, Capabilities, Medium, Queue, Rx, RxChecksum, RxFrame, RxMeta, Tx, TxMeta, frame_too_long};
use gather::Gather;
use spread::Spread;

/// Virtual RSS: maps a frame (link header included) to a receiving queue. Anything out of range is taken modulo the number of queues.
pub type Steer = Arc<dyn Fn(&[u8]) -> usize + Send + Sync>;

/// What [`Steer`] says of the frames of a flow, asked with what their sender calls the flow ([`Tx::reserve_for`]). `None`: that is unknown
/// here, and the frame is looked at.
pub type SteerFlow = Arc<dyn Fn(&dyn Any) -> Option<usize> + Send + Sync>;

/// The interrupt: called by [`Tx::flush`] with each receiving queue that got frames. It must be cheap when nobody sleeps.
pub type Wake = Arc<dyn Fn(usize) + Send + Sync>;

/// The most queues an end can have.
pub const QUEUES_MAX: usize = 64;

/// What [`link`] builds. Both ends are alike but for their link address and interrupt.
#[derive(Clone)]
pub struct LinkConfig {
    /// Queues of each end, 1 to [`QUEUES_MAX`].
    pub queues: usize,
    /// Queues of the second end, if it shall have another number of them.
    pub second_queues: Option<usize>,
    /// Capacity of each ring, in bytes. There are two for each pair of queues.
    pub ring_bytes: usize,
    /// Largest IP packet, in bytes.
    pub mtu: usize,
    /// What frames begin with.
    pub medium: Medium,
    /// Senders may leave checksums partial.
    pub tx_checksum: bool,
    /// Receivers take frames with a partial checksum as verified. Otherwise the sender's half completes it.
    pub rx_checksum: bool,
    /// Senders may hand over IP packets of up to this many bytes with a `gso_size`; 0: none.
    pub tso_max: usize,
    /// Receivers take super-packets whole. Otherwise the sender's half cuts them.
    pub rx_super: bool,
    /// Link addresses of the first and the second end.
    pub macs: [[u8; 6]; 2],
    /// Virtual RSS of the first and the second end: `steer[1]` chooses the queue of the second end for frames sent by the first.
    /// Never called with one queue. `None` with several: frames stay on the queue number that they were sent on.
    pub steer: [Option<Steer>; 2],
    /// The same for senders that say whose frame they send. Where there is none, the frame is looked at.
    pub steer_flow: [Option<SteerFlow>; 2],
    /// Indirection tables of the first and the second end. Where there is one, [`steer`](Self::steer) says the bucket of a frame, and the table
    /// which queue that goes to.
    pub tables: [Option<Arc<Indirection>>; 2],
    /// The interrupt of the first and the second end: `wake[1]` is called when frames arrive at the second end.
    pub wake: [Option<Wake>; 2],
}

impl Default for LinkConfig {
    fn default() -> Self {
        LinkConfig {
            queues: 1,
            second_queues: None,
            ring_bytes: 1 << 20,
            mtu: 1500,
            medium: Medium::Ip,
            tx_checksum: false,
            rx_checksum: false,
            tso_max: 0,
            rx_super: false,
            macs: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
            steer: [None, None],
            steer_flow: [None, None],
            tables: [None, None],
            wake: [None, None],
        }
    }
}

impl LinkConfig {
    /// All offloads on both ends: what a modern network card and its driver do.
    pub fn with_offloads(mut self) -> Self {
        self.tx_checksum = true;
        self.rx_checksum = true;
        self.tso_max = 65_535;
        self.rx_super = true;
        self
    }
}

impl fmt::Debug for LinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkConfig")
            .field("queues", &self.queues)
            .field("second_queues", &self.second_queues)
            .field("ring_bytes", &self.ring_bytes)
            .field("mtu", &self.mtu)
            .field("medium", &self.medium)
            .field("tx_checksum", &self.tx_checksum)
            .field("rx_checksum", &self.rx_checksum)
            .field("tso_max", &self.tso_max)
            .field("rx_super", &self.rx_super)
            .field("macs", &self.macs)
            .finish_non_exhaustive()
    }
}

/// A queue of a memory link.
pub type LinkQueue = Queue<LinkRx, LinkTx>;

/// Joins two hosts. Element `i` of each vector is queue `i` of that host; each can move to its own thread.
///
/// # Panics
/// If the configuration makes no sense: no queue or too many, or a ring that cannot hold four of the largest frames.
pub fn link(config: LinkConfig) -> (Vec<LinkQueue>, Vec<LinkQueue>) {
    let (n, m) = (config.queues, config.second_queues.unwrap_or(config.queues));
    for queues in [n, m] {
        assert!(
            (1..=QUEUES_MAX).contains(&queues),
            "an end of a memory link has 1 to {QUEUES_MAX} queues, not {queues}"
        );
    }
    let capabilities = |end: usize| Capabilities {
        medium: config.medium,
        mtu: config.mtu,
        tx_checksum: config.tx_checksum,
        tso_max: config.tso_max,
        rx_checksum: config.rx_checksum,
        mac: if config.medium == Medium::Ethernet { config.macs[end] } else { [0; 6] },
    };
    let wire_max = config.medium.header_len() + config.mtu.max(if config.rx_super { config.tso_max } else { 0 });
    assert!(
        config.ring_bytes >= 4 * wire_max,
        "ring_bytes is {}, but must hold at least four of the largest frames ({wire_max} bytes each)",
        config.ring_bytes
    );

    let (to_second, at_second) = rings(n, m, config.ring_bytes);
    let (to_first, at_first) = rings(m, n, config.ring_bytes);
    let build = |end: usize, outgoing: Vec<Vec<RecordProducer>>, incoming: Vec<Vec<RecordConsumer>>| {
        let peer = 1 - end;
        let halves = outgoing.into_iter().zip(incoming).enumerate();
        halves
            .map(|(queue, (out, inc))| Queue {
                rx: LinkRx::new(inc, queue),
                tx: LinkTx::new(out, queue, capabilities(end), &config, peer),
            })
            .collect::<Vec<_>>()
    };
    (build(0, to_second, at_first), build(1, to_first, at_second))
}

/// One direction: for each sending queue its producers by receiving queue, for each receiving queue its consumers by sending queue.
fn rings(senders: usize, receivers: usize, ring_bytes: usize) -> (Vec<Vec<RecordProducer>>, Vec<Vec<RecordConsumer>>) {
    let mut consumers: Vec<Vec<RecordConsumer>> = (0..receivers).map(|_| Vec::with_capacity(senders)).collect();
    let producers = (0..senders)
        .map(|_sender| {
            let row = consumers.iter_mut().map(|column| {
                let (producer, consumer) = records(ring_bytes);
                column.push(consumer);
                producer
            });
            row.collect()
        })
        .collect();
    (producers, consumers)
}

/// A record's second word: what the receiver shall be told about the frame.
#[derive(Clone, Copy)]
struct MetaWord(u64);

impl MetaWord {
    const VERIFIED: u64 = 1;

    #[inline]
    fn plain(gso_size: u16) -> Self {
        MetaWord(u64::from(gso_size) << 16)
    }

    #[inline]
    fn verified(gso_size: u16) -> Self {
        MetaWord(Self::VERIFIED | u64::from(gso_size) << 16)
    }

    #[inline]
    fn rx(self) -> RxMeta {
        // Of most frames there is nothing to tell.
        if self.0 == 0 {
            return RxMeta::default();
        }
        let checksum = if self.0 & Self::VERIFIED != 0 { RxChecksum::Verified } else { RxChecksum::Unknown };
        RxMeta { checksum, gso_size: (self.0 >> 16) as u16 }
    }
}

/// The receiving half of one queue of a memory link.
pub struct LinkRx {
    from: From,
    /// Frames lent.
    count: usize,
}

/// The common case lies in the queue itself, so that a frame costs no extra step to reach it. The other is on lines of its own: one
/// thread makes the queues of several lanes, one after the other, and the heap lays them side by side.
enum From {
    One(RecordConsumer),
    Many(Box<Padded<Gather>>),
}

impl LinkRx {
    fn new(mut rings: Vec<RecordConsumer>, queue: usize) -> Self {
        let from = if rings.len() == 1 {
            From::One(rings.remove(0))
        } else {
            From::Many(Box::new(Padded(Gather::new(rings, queue))))
        };
        LinkRx { from, count: 0 }
    }

    fn rings(&self) -> &[RecordConsumer] {
        match &self.from {
            From::One(ring) => std::slice::from_ref(ring),
            From::Many(gather) => &gather.rings,
        }
    }

    /// Whether the other end is gone. What it sent before can still be polled.
    pub fn is_closed(&self) -> bool {
        self.rings().iter().all(RecordConsumer::is_closed)
    }

    /// Whether nothing waits: what a lane asks once more before it parks. What is lent counts as waiting.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rings().iter().all(RecordConsumer::is_empty)
    }
}

impl Rx for LinkRx {
    #[inline(always)]
    fn poll(&mut self, max: usize) -> usize {
        if self.count != 0 {
            self.release();
        }
        self.count = match &mut self.from {
            From::One(ring) => ring.poll(max.min(BATCH_MAX)),
            From::Many(gather) => gather.poll(max.min(BATCH_MAX)),
        };
        self.count
    }

    #[inline(always)]
    fn frame(&self, i: usize) -> RxFrame<'_> {
        let (bytes, word) = match &self.from {
            From::One(ring) => ring.record(i),
            From::Many(gather) => gather.record(i),
        };
        RxFrame { bytes, meta: MetaWord(word).rx() }
    }

    #[inline(always)]
    fn release(&mut self) {
        match &mut self.from {
            From::One(ring) => ring.release(self.count),
            From::Many(gather) => gather.release(),
        }
        self.count = 0;
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl fmt::Debug for LinkRx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkRx").field("rings", &self.rings().len()).field("lent", &self.count).finish()
    }
}

/// The sending half of one queue of a memory link.
pub struct LinkTx {
    to: To,
    /// Frames longer than this are written to `scratch` and cut.
    wire_max: usize,
    /// Length of a reservation in `scratch`, where no ring has one.
    long: usize,
    /// One bit for each ring that holds committed frames not yet published.
    dirty: u64,
    /// The receiving end takes partial checksums as verified.
    peer_verifies: bool,
    /// The receiving end takes super-packets.
    peer_super: bool,
    wake: Option<Wake>,
    capabilities: Capabilities,
    /// Where a super-packet is written that the receiver wants cut. Empty if that cannot happen.
    scratch: Box<[u8]>,
    dropped: u64,
}

/// See [`From`].
enum To {
    One(RecordProducer),
    Many(Box<Padded<Spread>>),
}

impl LinkTx {
    fn new(
        mut rings: Vec<RecordProducer>,
        queue: usize,
        capabilities: Capabilities,
        config: &LinkConfig,
        peer: usize,
    ) -> Self {
        let header = config.medium.header_len();
        let wire_max = if config.rx_super { capabilities.frame_max() } else { header + config.mtu };
        for ring in &rings {
            assert!(
                ring.max_record() >= wire_max,
                "a ring of {} bytes cannot hold a frame of {wire_max}",
                config.ring_bytes
            );
        }
        let cuts = capabilities.tso_max > 0 && !config.rx_super;
        let scratch = if cuts { vec![0; capabilities.frame_max()] } else { Vec::new() };
        let to = if rings.len() == 1 {
            To::One(rings.remove(0))
        } else {
            To::Many(Box::new(Padded(Spread {
                guess: queue % rings.len(),
                home: queue % rings.len(),
                aimed: None,
                rings: rings.into(),
                steer: config.steer[peer].clone(),
                steer_flow: config.steer_flow[peer].clone(),
                follower: config.tables[peer].clone().map(|table| Follower::new(table, queue)),
            })))
        };
        LinkTx {
            to,
            wire_max,
            long: 0,
            dirty: 0,
            peer_verifies: config.rx_checksum,
            peer_super: config.rx_super,
            wake: config.wake[peer].clone(),
            capabilities,
            scratch: scratch.into(),
            dropped: 0,
        }
    }

    /// Frames lost because a ring filled up while a super-packet was being cut.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether the other end is gone.
    pub fn is_closed(&self) -> bool {
        match &self.to {
            To::One(ring) => ring.is_closed(),
            To::Many(spread) => spread.rings.iter().all(RecordProducer::is_closed),
        }
    }

    /// False, with nothing done: no ring has so much reserved.
    #[inline(always)]
    fn commit_word(&mut self, len: usize, word: MetaWord) -> bool {
        match &mut self.to {
            To::One(ring) => {
                if !ring.try_commit(len, word.0) {
                    return false;
                }
                self.dirty = 1;
            }
            To::Many(spread) => {
                let Some(ring) = spread.commit(len, word) else { return false };
                self.dirty |= 1 << ring;
            }
        }
        true
    }

    #[cold]
    fn reserve_long(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.capabilities.frame_max() {
            frame_too_long(len, self.capabilities.frame_max());
        }
        match &mut self.to {
            To::One(ring) => ring.give_up(),
            To::Many(spread) => spread.give_up(),
        }
        self.long = len;
        Some(&mut self.scratch[..len])
    }

    /// What is reserved in a ring.
    fn reserved(&mut self) -> Option<&mut [u8]> {
        match &mut self.to {
            To::One(ring) => ring.reserved(),
            To::Many(spread) => spread.reserved(),
        }
    }

    /// The receiver does not take this frame as it is.
    #[inline(never)]
    fn commit_for_less_capable(&mut self, len: usize, meta: TxMeta) {
        let is_long = self.reserved().is_none();
        assert!(!is_long || len <= self.long, "{len} bytes were committed, and so many are not reserved");
        self.long = 0;
        if meta.gso_size != 0 && !self.peer_super {
            if !is_long {
                // A super-packet no longer than a plain frame: it stands in the ring where its own pieces must go.
                let mut scratch = std::mem::take(&mut self.scratch);
                scratch[..len].copy_from_slice(&self.reserved().expect(GRANTED)[..len]);
                self.scratch = scratch;
            }
            return self.commit_cut(len, meta);
        }
        if is_long {
            // Longer than the receiver takes, and not to be cut. No network carries that.
            self.dropped += 1;
            return;
        }
        // Of a super-packet too: who takes no checksum for granted finds no other right one, and to him it is one long segment.
        if let Some(partial) = meta.checksum_partial {
            offload::complete_checksum(&mut self.reserved().expect(GRANTED)[..len], partial);
        }
        let word = MetaWord::plain(meta.gso_size);
        assert!(self.commit_word(len, word), "{len} bytes were committed in room for fewer");
    }

    /// The receiver takes no super-packets: cuts what stands in `scratch`.
    fn commit_cut(&mut self, len: usize, meta: TxMeta) {
        let scratch = std::mem::take(&mut self.scratch);
        offload::finish(self.capabilities.medium, &scratch[..len], &meta, |piece_len, write| {
            // A piece that is longer than the wire takes (the frame could not be cut) is lost like one that finds no room.
            let room = if piece_len <= self.wire_max { self.reserve(piece_len) } else { None };
            match room {
                Some(into) => {
                    write(into);
                    self.commit(piece_len, TxMeta::default());
                }
                None => self.dropped += 1,
            }
        });
        self.scratch = scratch;
    }

    /// Where the rings to the other end lie in memory, as addresses: all that this queue shares with it. For instruments that look
    /// for lines which two lanes should not share.
    pub fn memory(&self) -> Vec<Range<usize>> {
        let rings = match &self.to {
            To::One(ring) => std::slice::from_ref(ring),
            To::Many(spread) => &spread.rings,
        };
        rings.iter().flat_map(RecordProducer::memory).collect()
    }

    fn rings(&mut self) -> &mut [RecordProducer] {
        match &mut self.to {
            To::One(ring) => std::slice::from_mut(ring),
            To::Many(spread) => &mut spread.rings,
        }
    }
}

/// Asking a ring again for the length that it granted finds the same bytes: nothing was committed in between.
const GRANTED: &str = "this reservation was granted a moment ago";

impl Tx for LinkTx {
    #[inline]
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    #[inline(always)]
    fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.wire_max {
            return self.reserve_long(len);
        }
        match &mut self.to {
            To::One(ring) => ring.reserve(len),
            To::Many(spread) => spread.reserve(len),
        }
    }

    #[inline(always)]
    fn reserve_for(&mut self, len: usize, flow: &dyn Any) -> Option<&mut [u8]> {
        if len > self.wire_max {
            return self.reserve_long(len);
        }
        match &mut self.to {
            To::One(ring) => ring.reserve(len),
            To::Many(spread) => spread.reserve_for(len, flow),
        }
    }

    #[inline(always)]
    fn commit(&mut self, len: usize, meta: TxMeta) {
        let to_cut = meta.gso_size != 0 && !self.peer_super;
        let to_complete = meta.checksum_partial.is_some() && !self.peer_verifies;
        let word = if meta.checksum_partial.is_some() {
            MetaWord::verified(meta.gso_size)
        } else {
            MetaWord::plain(meta.gso_size)
        };
        // What is longer than the receiver takes was written elsewhere: of that no ring has anything reserved.
        if to_cut | to_complete || !self.commit_word(len, word) {
            self.commit_for_less_capable(len, meta);
        }
    }

    #[inline(always)]
    fn flush(&mut self) {
        if let To::Many(spread) = &mut self.to {
            spread.follow();
        }
        if self.dirty == 0 {
            return;
        }
        if let (To::One(ring), None) = (&mut self.to, &self.wake) {
            self.dirty = 0;
            return ring.publish();
        }
        while self.dirty != 0 {
            let ring = self.dirty.trailing_zeros() as usize;
            self.dirty &= self.dirty - 1;
            self.rings()[ring].publish();
            if let Some(wake) = &self.wake {
                wake(ring);
            }
        }
    }
}

impl fmt::Debug for LinkTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkTx")
            .field("capabilities", &self.capabilities)
            .field("dropped", &self.dropped)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
