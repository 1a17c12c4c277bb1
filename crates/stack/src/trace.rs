//! Owns looking at the packets of a running lane: a copy of each frame that a filter lets through, put into a ring that a
//! thread elsewhere reads.
//!
//! A lane that nobody looks at pays one branch a poll: `worker::turn` asks whether there is a [`Tap`], and the loop itself is
//! compiled twice, once for the device as it is and once for the device behind taps. A reader that is slow loses packets,
//! which are counted; it never stops a lane. A tap whose reader has gone is sent home, so that its memory is given back
//! by somebody who has time for it.

use crate::app::App;
use crate::host::Seat;
use crate::mail::ToControl;
use crate::sharing::Sharing;
use crate::worker::{self, Turn};
use laneway_device::memory::offload::unfinished;
use laneway_device::pcap::Direction;
use laneway_device::{Capabilities, Medium, PartialChecksum, Rx, RxFrame, Tx, TxMeta};
use laneway_proto::time::Instant;
use laneway_sync::ring::records::{RecordConsumer, RecordProducer, records};
use std::any::Any;
use std::cell::RefCell;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that wait for the reader, per lane.
const RING: usize = 4 << 20;
/// The most bytes of a frame that can be kept.
pub const SNAPLEN_MAX: u32 = 262_144;
/// What a record begins with: the frame's length, and where its partial checksum stands.
const HEADER: usize = 8;

/// Which packets are wanted. What is `None` matches everything; frames that are not IP match only an empty filter.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Filter {
    /// One of both addresses.
    pub host: Option<IpAddr>,
    /// One of both ports.
    pub port: Option<u16>,
    /// The IP protocol.
    pub protocol: Option<u8>,
}

impl Filter {
    /// Whether an IP packet is wanted.
    pub fn wants(&self, packet: &[u8]) -> bool {
        if *self == Filter::default() {
            return true;
        }
        let Some(peek) = peek(packet) else { return false };
        self.host.is_none_or(|host| peek.addresses.contains(&host))
            && self.port.is_none_or(|port| peek.ports.is_some_and(|ports| ports.contains(&port)))
            && self.protocol.is_none_or(|protocol| peek.protocol == protocol)
    }
}

/// What a filter looks at.
pub struct Peek {
    /// Source and destination.
    pub addresses: [IpAddr; 2],
    /// IP protocol.
    pub protocol: u8,
    /// Source and destination, where there are any: not in later fragments, not behind IPv6 extension headers.
    pub ports: Option<[u16; 2]>,
}

/// Looks at the beginning of an IP packet, which may be cut off. `None`: it is none.
pub fn peek(packet: &[u8]) -> Option<Peek> {
    let (addresses, protocol, at) = match packet.first()? >> 4 {
        4 => {
            let header = packet.first_chunk::<20>()?;
            let part = |from: usize| IpAddr::from([header[from], header[from + 1], header[from + 2], header[from + 3]]);
            let is_first = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
            let at = if is_first { usize::from(header[0] & 15) * 4 } else { usize::MAX };
            ([part(12), part(16)], header[9], at)
        }
        6 => {
            let header = packet.first_chunk::<40>()?;
            let part = |from: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&header[from..from + 16]);
                IpAddr::from(octets)
            };
            ([part(8), part(24)], header[6], 40)
        }
        _ => return None,
    };
    let ports = packet.get(at..).and_then(<[u8]>::first_chunk::<4>).filter(|_| matches!(protocol, 6 | 17));
    let ports = ports.map(|p| [u16::from_be_bytes([p[0], p[1]]), u16::from_be_bytes([p[2], p[3]])]);
    Some(Peek { addresses, protocol, ports })
}

/// The lane's end of a trace.
pub struct Tap {
    ring: RecordProducer,
    filter: Filter,
    snaplen: usize,
    /// Written by the lane alone.
    dropped: Arc<AtomicU64>,
}

/// The reader's end of one lane's trace. Dropping it ends the trace on that lane.
pub struct Reader {
    ring: RecordConsumer,
    dropped: Arc<AtomicU64>,
}

/// One frame out of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// Which way it went.
    pub direction: Direction,
    /// When its poll began.
    pub at: Instant,
    /// Its length, of which `bytes` may be only the beginning.
    pub len: u32,
    /// What was kept of it.
    pub bytes: &'a [u8],
    /// A checksum that the device was to complete.
    pub partial: Option<PartialChecksum>,
}

/// Both ends of a trace of one lane.
pub fn tap(filter: Filter, snaplen: u32) -> (Box<Tap>, Reader) {
    let (producer, consumer) = records(RING);
    let dropped = Arc::new(AtomicU64::new(0));
    let snaplen = snaplen.min(SNAPLEN_MAX) as usize;
    let tap = Tap { ring: producer, filter, snaplen, dropped: Arc::clone(&dropped) };
    (Box::new(tap), Reader { ring: consumer, dropped })
}

impl Reader {
    /// Shows up to `max` frames that have arrived; says how many.
    pub fn read(&mut self, max: usize, mut each: impl FnMut(Traced<'_>)) -> usize {
        let n = self.ring.poll(max);
        for i in 0..n {
            let (record, meta) = self.ring.record(i);
            let Some((header, bytes)) = record.split_first_chunk::<HEADER>() else { continue };
            let [l0, l1, l2, l3, s0, s1, o0, o1] = *header;
            let (start, offset) = (u16::from_le_bytes([s0, s1]), u16::from_le_bytes([o0, o1]));
            each(Traced {
                direction: if meta & 1 == 0 { Direction::In } else { Direction::Out },
                at: Instant::from_us(meta >> 1),
                len: u32::from_le_bytes([l0, l1, l2, l3]),
                bytes,
                partial: (offset != 0).then_some(PartialChecksum { start, offset }),
            });
        }
        self.ring.release(n);
        n
    }

    /// Frames that found the ring full so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The lane has ended, or has given the tap back.
    pub fn is_closed(&self) -> bool {
        self.ring.is_closed()
    }
}

impl Tap {
    fn see(
        &mut self,
        now: Instant,
        direction: Direction,
        medium: Medium,
        frame: &[u8],
        partial: Option<PartialChecksum>,
    ) {
        let packet = match medium {
            Medium::Ip => frame,
            Medium::Ethernet => match frame.get(12..14) {
                Some([0x08, 0x00] | [0x86, 0xdd]) => &frame[14..],
                _ => &[],
            },
        };
        if !self.filter.wants(packet) {
            return;
        }
        let kept = &frame[..frame.len().min(self.snaplen)];
        let Some(into) = self.ring.reserve(HEADER + kept.len()) else {
            self.dropped.store(self.dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return;
        };
        let (start, offset) = partial.map_or((0, 0), |p| (p.start, p.offset));
        into[..4].copy_from_slice(&(frame.len() as u32).to_le_bytes());
        into[4..6].copy_from_slice(&start.to_le_bytes());
        into[6..8].copy_from_slice(&offset.to_le_bytes());
        into[HEADER..].copy_from_slice(kept);
        self.ring.commit(HEADER + kept.len(), now.as_us() << 1 | u64::from(direction == Direction::Out));
    }
}

/// One poll of a lane, looked at by its taps if it has any.
#[inline]
pub(crate) fn turn<S: Sharing, R: Rx, T: Tx, A: App>(seat: &mut Seat<S, R, T, A>, now: Instant) -> Turn {
    if seat.lane.local.taps.is_empty() {
        return worker::turn(&mut seat.lane, now, &mut seat.queue.rx, &mut seat.queue.tx, &mut seat.app);
    }
    tapped_turn(seat, now)
}

#[cold]
#[inline(never)]
fn tapped_turn<S: Sharing, R: Rx, T: Tx, A: App>(seat: &mut Seat<S, R, T, A>, now: Instant) -> Turn {
    let Seat { lane, queue, app } = seat;
    let eye = RefCell::new(Eye { now, medium: lane.local.medium, taps: std::mem::take(&mut lane.local.taps) });
    let mut rx = TappedRx { inner: &mut queue.rx, eye: &eye };
    let mut tx = TappedTx { inner: &mut queue.tx, eye: &eye, buffer: Vec::new(), reserved: 0 };
    let turn = worker::turn(lane, now, &mut rx, &mut tx, app);
    let mut taps = eye.into_inner().taps;
    taps.append(&mut lane.local.taps); // those that came by mail in this turn
    let mut i = 0;
    while i < taps.len() {
        taps[i].ring.publish();
        if taps[i].ring.is_closed() {
            let _ = lane.local.mail.to_control.push(ToControl::TapDone(taps.swap_remove(i)));
        } else {
            i += 1;
        }
    }
    lane.local.taps = taps;
    turn
}

/// The taps for the time of one turn, seen from both halves of the queue.
struct Eye {
    now: Instant,
    medium: Medium,
    #[expect(clippy::vec_box, reason = "the box itself travels on: nothing is moved or allocated on a lane")]
    taps: Vec<Box<Tap>>,
}

impl Eye {
    fn see(&mut self, direction: Direction, frame: &[u8], partial: Option<PartialChecksum>) {
        for tap in &mut self.taps {
            tap.see(self.now, direction, self.medium, frame, partial);
        }
    }
}

struct TappedRx<'a> {
    inner: &'a mut dyn Rx,
    eye: &'a RefCell<Eye>,
}

impl Rx for TappedRx<'_> {
    fn poll(&mut self, max: usize) -> usize {
        let count = self.inner.poll(max);
        let mut eye = self.eye.borrow_mut();
        for i in 0..count {
            let frame = self.inner.frame(i);
            let partial = unfinished(eye.medium, frame.bytes, frame.meta.checksum);
            eye.see(Direction::In, frame.bytes, partial);
        }
        count
    }
    fn frame(&self, i: usize) -> RxFrame<'_> {
        self.inner.frame(i)
    }
    fn release(&mut self) {
        self.inner.release();
    }
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness()
    }
    fn failed(&self) -> Option<&str> {
        self.inner.failed()
    }
}

struct TappedTx<'a> {
    inner: &'a mut dyn Tx,
    eye: &'a RefCell<Eye>,
    /// What is sent is written here first: a reservation cannot be read back.
    buffer: Vec<u8>,
    reserved: usize,
}

impl Tx for TappedTx<'_> {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }
    fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        self.inner.reserve(len)?;
        self.reserved = len;
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
        Some(&mut self.buffer[..len])
    }
    fn commit(&mut self, len: usize, meta: TxMeta) {
        let bytes = &self.buffer[..len];
        // The reservation of a moment ago: nothing has been committed since, so it is there again.
        if let Some(into) = self.inner.reserve(self.reserved) {
            into[..len].copy_from_slice(bytes);
            self.inner.commit(len, meta);
            self.eye.borrow_mut().see(Direction::Out, bytes, meta.checksum_partial);
        }
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
    fn on_behalf(&mut self, what: &dyn Any, number: u32) {
        self.inner.on_behalf(what, number);
    }
}

#[cfg(test)]
mod tests;
