//! A capture of what passes a device, in pcapng (IETF draft-ietf-opsawg-pcapng), for any analyser.
//!
//! A [`Tap`] wraps either half of a queue and writes each frame down with its direction; a [`Capture`] is the file they share. Time is
//! told by whoever knows it: [`Capture::set_time`]. Capturing copies each frame and takes a lock; without it nothing changes.
//!
//! A frame whose checksum is left to an offload is written down with the checksum complete, so that an analyser does not complain of
//! what is only our thrift. Super-packets are written whole.

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memory::offload::{complete_checksum, unfinished};
use crate::{Capabilities, FloodGate, Medium, PartialChecksum, Queue, Rx, RxFrame, Tx, TxMeta};

mod place;

use place::Place;

/// Which way a frame went, as option `epb_flags` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received by this host.
    In = 1,
    /// Sent by this host.
    Out = 2,
}

/// Writes pcapng, block by block, little-endian.
#[derive(Debug)]
pub struct PcapngWriter<W> {
    out: W,
    interfaces: u32,
    block: Vec<u8>,
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const LINKTYPE_ETHERNET: u16 = 1;
const LINKTYPE_RAW: u16 = 101;
const OPT_END: u16 = 0;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;

impl<W: Write> PcapngWriter<W> {
    /// Begins a file with its section header.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = PcapngWriter { out, interfaces: 0, block: Vec::with_capacity(2048) };
        let byte_order_magic = 0x1a2b_3c4d_u32;
        let unknown_length = u64::MAX;
        writer.begin(SECTION_HEADER);
        writer.u32(byte_order_magic);
        writer.u16(/* major version */ 1);
        writer.u16(/* minor version */ 0);
        writer.block.extend(unknown_length.to_le_bytes());
        writer.option(SHB_USERAPPL, b"laneway");
        writer.option(OPT_END, b"");
        writer.end()?;
        Ok(writer)
    }

    /// Describes an interface; its number is what [`PcapngWriter::frame`] wants.
    pub fn interface(&mut self, name: &str, medium: Medium) -> io::Result<u32> {
        let (no_limit, reserved) = (0, 0);
        self.begin(INTERFACE_DESCRIPTION);
        self.u16(match medium {
            Medium::Ethernet => LINKTYPE_ETHERNET,
            Medium::Ip => LINKTYPE_RAW,
        });
        self.u16(reserved);
        self.u32(no_limit);
        self.option(IF_NAME, &name.as_bytes()[..name.len().min(255)]);
        self.option(IF_TSRESOL, &[6]); // 10^-6 s
        self.option(OPT_END, b"");
        self.end()?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// What has been written so far, or is to be.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// The same, to be emptied from time to time.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes one frame, of which `partial` is still to be completed. `now_us` counts from 1970 if it shall look like a date.
    pub fn frame(
        &mut self,
        interface: u32,
        direction: Direction,
        now_us: u64,
        bytes: &[u8],
        partial: Option<PartialChecksum>,
    ) -> io::Result<()> {
        self.frame_cut(interface, direction, now_us, bytes, bytes.len() as u32, partial)
    }

    /// Writes the beginning of a frame of `len` bytes. What is left of a checksum can be completed only in a whole one.
    pub fn frame_cut(
        &mut self,
        interface: u32,
        direction: Direction,
        now_us: u64,
        bytes: &[u8],
        len: u32,
        partial: Option<PartialChecksum>,
    ) -> io::Result<()> {
        self.begin(ENHANCED_PACKET);
        self.u32(interface);
        self.u32((now_us >> 32) as u32);
        self.u32(now_us as u32);
        self.u32(/* captured */ bytes.len() as u32);
        self.u32(/* on the wire */ len);
        let at = self.block.len();
        self.padded(bytes);
        if let Some(partial) = partial.filter(|_| bytes.len() as u32 == len) {
            complete_checksum(&mut self.block[at..at + bytes.len()], partial);
        }
        self.option(EPB_FLAGS, &(direction as u32).to_le_bytes());
        self.option(OPT_END, b"");
        self.end()
    }

    /// Says how many frames an interface has seen so far, and how many of them are missing here.
    pub fn statistics(&mut self, interface: u32, now_us: u64, received: u64, dropped: u64) -> io::Result<()> {
        self.begin(INTERFACE_STATISTICS);
        self.u32(interface);
        self.u32((now_us >> 32) as u32);
        self.u32(now_us as u32);
        self.option(ISB_IFRECV, &(received + dropped).to_le_bytes());
        self.option(ISB_IFDROP, &dropped.to_le_bytes());
        self.option(OPT_END, b"");
        self.end()
    }

    /// Hands everything to the operating system.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.u32(kind);
        self.u32(0); // the total length, known at the end
    }

    fn end(&mut self) -> io::Result<()> {
        let total = (self.block.len() + 4) as u32;
        self.u32(total);
        self.block[4..8].copy_from_slice(&total.to_le_bytes());
        self.out.write_all(&self.block)
    }

    fn u16(&mut self, value: u16) {
        self.block.extend(value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.block.extend(value.to_le_bytes());
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        self.u16(value.len() as u16);
        self.padded(value);
    }
}

/// A capture file that any number of taps write to. Clones are the same capture.
#[derive(Clone)]
pub struct Capture(Arc<Shared>);

struct Shared {
    now_us: AtomicU64,
    state: Mutex<State>,
}

struct State {
    writer: PcapngWriter<Box<dyn Write + Send>>,
    /// The first failure. After it nothing more is written: half a block would spoil what follows.
    error: Option<io::Error>,
}

impl Capture {
    /// Captures to a file, which is replaced if it exists.
    pub fn to_file(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(BufWriter::with_capacity(1 << 16, Place::create(path.as_ref())?))
    }

    /// Captures to anything that can be written to.
    pub fn new(out: impl Write + Send + 'static) -> io::Result<Self> {
        let writer = PcapngWriter::new(Box::new(out) as Box<dyn Write + Send>)?;
        Ok(Capture(Arc::new(Shared { now_us: AtomicU64::new(0), state: Mutex::new(State { writer, error: None }) })))
    }

    /// The time that frames are written down with from now on, in microseconds.
    #[inline]
    pub fn set_time(&self, now_us: u64) {
        self.0.now_us.store(now_us, Ordering::Relaxed);
    }

    /// Wraps a queue, under an interface name of its own.
    pub fn tap<R: Rx, T: Tx>(&self, name: &str, queue: Queue<R, T>) -> Queue<Tap<R>, Tap<T>> {
        let capabilities = *queue.tx.capabilities();
        let mut state = self.lock();
        let interface = state.writer.interface(name, capabilities.medium).unwrap_or_else(|error| {
            state.error.get_or_insert(error);
            0
        });
        drop(state);
        let medium = capabilities.medium;
        let tap = || Side { capture: self.clone(), interface, medium, buffer: Box::default(), reserved: 0, dropped: 0 };
        Queue {
            rx: Tap { inner: queue.rx, side: tap() },
            tx: Tap { inner: queue.tx, side: Side { buffer: vec![0; capabilities.frame_max()].into(), ..tap() } },
        }
    }

    /// Hands what was captured to the operating system, and says what went wrong so far.
    pub fn flush(&self) -> io::Result<()> {
        let mut state = self.lock();
        match state.error.take() {
            Some(error) => {
                // Stays failed, though the error itself can be given away only once.
                state.error = Some(io::Error::new(error.kind(), error.to_string()));
                Err(error)
            }
            None => state.writer.flush(),
        }
    }

    /// Why nothing more is written, if that is so.
    pub fn failure(&self) -> Option<String> {
        self.lock().error.as_ref().map(ToString::to_string)
    }

    fn record(&self, interface: u32, direction: Direction, bytes: &[u8], partial: Option<PartialChecksum>) {
        let mut state = self.lock();
        // Read under the lock, so that times in the file do not run backwards more than the tellers' do.
        let now_us = self.0.now_us.load(Ordering::Relaxed);
        if state.error.is_none()
            && let Err(error) = state.writer.frame(interface, direction, now_us, bytes, partial)
        {
            state.error = Some(error);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("now_us", &self.0.now_us).finish_non_exhaustive()
    }
}

/// One half of a queue, with everything that passes written down. Made by [`Capture::tap`].
#[derive(Debug)]
pub struct Tap<D> {
    inner: D,
    side: Side,
}

#[derive(Debug)]
struct Side {
    capture: Capture,
    interface: u32,
    medium: Medium,
    /// What is sent is written here first: a reservation cannot be read back.
    buffer: Box<[u8]>,
    reserved: usize,
    dropped: u64,
}

impl<D> Tap<D> {
    /// The device inside.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Frames that the device inside had no room for after all.
    pub fn dropped(&self) -> u64 {
        self.side.dropped
    }
}

impl<R: Rx> Rx for Tap<R> {
    fn poll(&mut self, max: usize) -> usize {
        let count = self.inner.poll(max);
        for i in 0..count {
            let frame = self.inner.frame(i);
            let partial = unfinished(self.side.medium, frame.bytes, frame.meta.checksum);
            self.side.capture.record(self.side.interface, Direction::In, frame.bytes, partial);
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

    fn aside(&self) -> Option<BorrowedFd<'_>> {
        self.inner.aside()
    }

    fn floodgate(&mut self) -> Option<&mut dyn FloodGate> {
        self.inner.floodgate()
    }

    fn failed(&self) -> Option<&str> {
        self.inner.failed()
    }
}

impl<T: Tx> Tx for Tap<T> {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        self.inner.reserve(len)?;
        self.side.reserved = len;
        Some(&mut self.side.buffer[..len])
    }

    fn commit(&mut self, len: usize, meta: TxMeta) {
        let bytes = &self.side.buffer[..len];
        let Some(into) = self.inner.reserve(self.side.reserved) else {
            self.side.dropped += 1;
            return;
        };
        into[..len].copy_from_slice(bytes);
        self.inner.commit(len, meta);
        self.side.capture.record(self.side.interface, Direction::Out, bytes, meta.checksum_partial);
    }

    fn flush(&mut self) {
        self.inner.flush();
    }
}

#[cfg(test)]
mod tests;
