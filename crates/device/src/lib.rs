//! Frames in, frames out: the traits [`Rx`] and [`Tx`], and who owns a frame when.
//!
//! path: `[device::rx] → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → egress → [device::tx]`
//!
//! A device moves frames together with what the hardware said about them: the state of the checksum, and whether the frame is a
//! super-packet that stands for many. It routes nothing, and looks inside a frame only to do what hardware would do (finish a
//! checksum, cut a super-packet), or a router (mark it: [`fault`]).
//!
//! # One turn
//!
//! ```
//! use laneway_device::memory::{LinkConfig, link};
//! use laneway_device::{BATCH_MAX, Queue, Rx, Tx, TxMeta};
//!
//! /// Sends back whatever has come.
//! fn turn(queue: &mut Queue<impl Rx, impl Tx>) {
//!     let Queue { rx, tx } = queue;
//!     for i in 0..rx.poll(BATCH_MAX) {     // so many frames are lent
//!         let frame = rx.frame(i).bytes;   // read as often and in any order you like
//!         if let Some(out) = tx.reserve(frame.len()) {
//!             out.copy_from_slice(frame);  // written straight into the device's memory
//!             tx.commit(frame.len(), TxMeta::default()); // not yet visible to the other side
//!         }                                // else it is full: what does not fit is lost, or kept by whoever can
//!     }
//!     rx.release();                        // all lent frames go back
//!     tx.flush();                          // one store or one kick shows everything committed
//! }
//!
//! let (mut here, mut there) = link(LinkConfig::default()); // a queue at each end
//! here[0].tx.reserve(60).expect("nothing is in it").fill(7);
//! here[0].tx.commit(60, TxMeta::default());
//! here[0].tx.flush();
//! turn(&mut there[0]);
//! assert_eq!(here[0].rx.poll(BATCH_MAX), 1);
//! assert_eq!(here[0].rx.frame(0).bytes, [7; 60]);
//! ```
//!
//! # Who owns a frame when
//!
//! | frame | from | until | belongs to |
//! |---|---|---|---|
//! | received | [`Rx::poll`] | [`Rx::release`] | the device, lent read-only |
//! | to be sent | [`Tx::reserve`] | [`Tx::commit`] | the caller, who writes every byte of it |
//! | to be sent | [`Tx::commit`] | – | the device |
//!
//! A reservation that is not committed is forgotten by the next one; its bytes are never sent.

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

use std::any::Any;
use std::os::fd::BorrowedFd;

pub mod chance;
#[cfg(target_os = "linux")]
pub mod cookies_ebpf;
#[cfg(target_os = "linux")]
mod ebpf;
pub mod fault;
mod floodgate;
pub mod memory;
pub mod pcap;
#[cfg(target_os = "linux")]
pub mod steering_ebpf;
#[cfg(target_os = "linux")]
pub mod tun;

pub use floodgate::{Alarms, CookieAnswer, FloodGate};

#[cfg(test)]
mod testing;

/// The most frames that one [`Rx::poll`] lends.
pub const BATCH_MAX: usize = 64;

/// Buckets of a device that steers: a hash is reduced to one of so many, and a table says whose queue each is.
pub const BUCKETS: usize = 128;

/// Length of the Ethernet header that precedes the IP packet on [`Medium::Ethernet`].
pub const ETHERNET_HEADER_LEN: usize = 14;

/// What the bytes of a frame begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// An Ethernet header without VLAN tag and without frame check sequence (TAP, memory).
    Ethernet,
    /// An IP header (TUN, memory).
    Ip,
}

impl Medium {
    /// Bytes of link header before the IP packet.
    #[inline]
    pub const fn header_len(self) -> usize {
        match self {
            Medium::Ethernet => ETHERNET_HEADER_LEN,
            Medium::Ip => 0,
        }
    }
}

/// What a device can do; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// What frames begin with.
    pub medium: Medium,
    /// Largest IP packet on the wire, in bytes, without the link header.
    pub mtu: usize,
    /// The device completes partial checksums of frames that it sends ([`TxMeta::checksum_partial`]).
    pub tx_checksum: bool,
    /// Largest IP packet that may be handed over whole with [`TxMeta::gso_size`], in bytes; 0: none.
    pub tso_max: usize,
    /// The device may say [`RxChecksum::Verified`], or [`RxChecksum::Partial`], of frames that it receives, and be believed.
    pub rx_checksum: bool,
    /// Our own link address; all zero on [`Medium::Ip`].
    pub mac: [u8; 6],
}

impl Capabilities {
    /// The largest frame that [`Tx::reserve`] accepts, link header included, in bytes.
    #[inline]
    pub const fn frame_max(&self) -> usize {
        let packet = if self.tso_max > self.mtu { self.tso_max } else { self.mtu };
        self.medium.header_len() + packet
    }
}

/// A transport checksum of which only the pseudo-header part stands in the field, as virtio's `csum_start` and `csum_offset` say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Where the sum begins: the transport header's offset in the frame, in bytes.
    pub start: u16,
    /// Where the field stands, in bytes after `start` (TCP 16, UDP 6).
    pub offset: u16,
}

/// What the device says about the transport checksum of a received frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxChecksum {
    /// Nothing: software must verify.
    #[default]
    Unknown,
    /// The device verified it, or the bytes never left memory that it controls. The field itself need not be filled in.
    Verified,
    /// The sender left it to an offload that never ran. Where [`Capabilities::rx_checksum`] holds, sender and device share this
    /// machine's memory, and no wire has touched the bytes; elsewhere it says nothing about them. Whoever passes the frame on
    /// must complete it.
    Partial(PartialChecksum),
}

/// What the device says about a received frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxMeta {
    /// State of the transport checksum.
    pub checksum: RxChecksum,
    /// Payload bytes of each segment that a super-packet stands for; 0: a plain frame.
    pub gso_size: u16,
}

/// One received frame, lent until [`Rx::release`].
#[derive(Clone, Copy, Debug)]
pub struct RxFrame<'a> {
    /// The frame, beginning with what [`Capabilities::medium`] says.
    pub bytes: &'a [u8],
    /// What the device says about it.
    pub meta: RxMeta,
}

/// What the sender asks the device to do with a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxMeta {
    /// Complete this checksum. Only with [`Capabilities::tx_checksum`].
    pub checksum_partial: Option<PartialChecksum>,
    /// Cut the TCP payload into pieces of this many bytes; 0: a plain frame. Only up to [`Capabilities::tso_max`], and only together
    /// with `checksum_partial`.
    pub gso_size: u16,
    /// Bytes before the payload (link, IP and TCP header); wanted only when `gso_size` is not 0.
    pub header_len: u16,
}

/// The receiving half of one queue. Used by one thread at a time.
pub trait Rx {
    /// Borrows up to `max` frames (and no more than [`BATCH_MAX`]) from the device, and says how many.
    ///
    /// Frames that are still lent from an earlier poll go back first. Never blocks.
    fn poll(&mut self, max: usize) -> usize;

    /// The `i`-th frame lent by the last [`Rx::poll`].
    ///
    /// # Panics
    /// If `i` is not less than what the last poll said.
    fn frame(&self, i: usize) -> RxFrame<'_>;

    /// Gives all lent frames back to the device.
    fn release(&mut self);

    /// A descriptor that polls readable when a frame waits; `None` when the device has none and must be asked.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// A second descriptor, which polls readable when a frame waits that can wait: [`poll`](Rx::poll) looks there now and then by itself, and
    /// the next time if it is [told to](FloodGate::look_aside).
    fn aside(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// What the device can do against floods.
    fn floodgate(&mut self) -> Option<&mut dyn FloodGate> {
        None
    }

    /// Why there will never be another frame, in a sentence, if that is so: the device is gone.
    fn failed(&self) -> Option<&str> {
        None
    }
}

/// The sending half of one queue. Used by one thread at a time.
pub trait Tx {
    /// What the device can do.
    fn capabilities(&self) -> &Capabilities;

    /// Lends `len` bytes of the device's memory to write one frame into. The bytes hold anything; write all that you commit.
    ///
    /// `None`: full; try again after the next poll.
    ///
    /// # Panics
    /// If `len` exceeds [`Capabilities::frame_max`]: the caller ignored the path's MTU.
    fn reserve(&mut self, len: usize) -> Option<&mut [u8]>;

    /// As [`reserve`](Tx::reserve), for a frame of this flow, whatever the sender calls a flow: a device that chooses the receiving queue by
    /// flow, and was told how, need not look for it in the frame.
    #[inline(always)]
    fn reserve_for(&mut self, len: usize, flow: &dyn Any) -> Option<&mut [u8]> {
        let _ = flow;
        self.reserve(len)
    }

    /// Hands over the first `len` bytes of the last reservation.
    fn commit(&mut self, len: usize, meta: TxMeta);

    /// Whether a frame of `len` bytes costs less in parts than written into what [`reserve`](Tx::reserve) lends.
    #[inline]
    fn gathers(&self, len: usize) -> bool {
        let _ = len;
        false
    }

    /// Hands over one frame that lies in parts: headers in the first, payload in the others, where the sender keeps it. The
    /// bytes are taken before this returns. Worth it where [`gathers`](Tx::gathers) says so.
    ///
    /// False: full; try again after the next poll.
    ///
    /// # Panics
    /// As `reserve`.
    fn gather(&mut self, parts: [&[u8]; 3], meta: TxMeta) -> bool {
        let len = parts.iter().map(|part| part.len()).sum();
        let Some(mut buf) = self.reserve(len) else { return false };
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (here, rest) = buf.split_at_mut(part.len());
            here.copy_from_slice(part);
            buf = rest;
        }
        self.commit(len, meta);
        true
    }

    /// Makes everything committed visible to the other side.
    fn flush(&mut self);

    /// The frame that is reserved next is sent for the sake of `what`, by its number there. Whoever wraps a device to count
    /// who uses what looks at it; a device does not, and where there is none that does, nothing is left of the call.
    #[inline(always)]
    fn on_behalf(&mut self, what: &dyn Any, number: u32) {
        let _ = (what, number);
    }
}

/// The two halves of one queue.
#[derive(Debug)]
pub struct Queue<R, T> {
    /// Frames in.
    pub rx: R,
    /// Frames out.
    pub tx: T,
}

/// A queue of any device, for where the kind is chosen at run time. One indirect call per frame.
pub type AnyQueue = Queue<Box<dyn Rx + Send>, Box<dyn Tx + Send>>;

impl<R: Rx + Send + 'static, T: Tx + Send + 'static> Queue<R, T> {
    /// Forgets the kind of the device.
    pub fn boxed(self) -> AnyQueue {
        Queue { rx: Box::new(self.rx), tx: Box::new(self.tx) }
    }
}

impl<R: Rx + ?Sized> Rx for Box<R> {
    #[inline]
    fn poll(&mut self, max: usize) -> usize {
        (**self).poll(max)
    }
    #[inline]
    fn frame(&self, i: usize) -> RxFrame<'_> {
        (**self).frame(i)
    }
    #[inline]
    fn release(&mut self) {
        (**self).release();
    }
    #[inline]
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        (**self).readiness()
    }
    fn aside(&self) -> Option<BorrowedFd<'_>> {
        (**self).aside()
    }
    fn floodgate(&mut self) -> Option<&mut dyn FloodGate> {
        (**self).floodgate()
    }
    fn failed(&self) -> Option<&str> {
        (**self).failed()
    }
}

impl<T: Tx + ?Sized> Tx for Box<T> {
    #[inline]
    fn capabilities(&self) -> &Capabilities {
        (**self).capabilities()
    }
    #[inline]
    fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        (**self).reserve(len)
    }
    #[inline]
    fn reserve_for(&mut self, len: usize, flow: &dyn Any) -> Option<&mut [u8]> {
        (**self).reserve_for(len, flow)
    }
    #[inline]
    fn commit(&mut self, len: usize, meta: TxMeta) {
        (**self).commit(len, meta);
    }
    #[inline]
    fn gathers(&self, len: usize) -> bool {
        (**self).gathers(len)
    }
    #[inline]
    fn gather(&mut self, parts: [&[u8]; 3], meta: TxMeta) -> bool {
        (**self).gather(parts, meta)
    }
    #[inline]
    fn flush(&mut self) {
        (**self).flush();
    }
    // `on_behalf` is heard by whoever wraps the box, and by nothing that is in it.
}

/// The caller asked for a frame that the device cannot carry. Kept out of line, so that the check costs a compare.
#[cold]
#[inline(never)]
fn frame_too_long(len: usize, max: usize) -> ! {
    panic!(
        "a frame of {len} bytes was reserved on a device that carries at most {max}: the caller must respect Capabilities::mtu and tso_max"
    )
}
