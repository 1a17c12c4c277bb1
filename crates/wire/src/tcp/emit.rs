//! Owns writing: `Header` to bytes, with the checksum that is filled in once the payload stands behind it.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → [tcp::output] → ip::output → egress → device::tx`

use super::flags::Flags;
use super::options::{Options, TIMESTAMPS_ONLY, Timestamps};
use super::seq::SeqNum;
use super::window::UnscaledWindow;
use super::{CHECKSUM_OFFSET, HEADER_LEN};
use crate::checksum::Sum;

/// The meaning of a header: a [`Segment`](super::Segment) without its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// SEG.SEQ.
    pub seq: SeqNum,
    /// SEG.ACK; meaningful if ACK is set.
    pub ack: SeqNum,
    /// Control bits.
    pub flags: Flags,
    /// SEG.WND, as scaled for the wire.
    pub window: UnscaledWindow,
    /// SEG.UP; meaningful if URG is set.
    pub urgent: u16,
    /// The options.
    pub options: Options,
}

impl Header {
    /// Bytes of the header with its options: 20 to 60.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Writes [`Header::len`] bytes to the front of `buf`, the checksum field zero.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) {
        self.emit_here(buf);
    }

    /// The same as part of the caller, who mostly knows what options there are.
    #[inline(always)]
    pub fn emit_here(&self, buf: &mut [u8]) {
        if let Some(timestamps) = self.options.timestamps
            && self.options.has_timestamps_only()
        {
            return self.emit_usual(timestamps, buf);
        }
        if let Some(syn) = self.usual_syn() {
            return syn.emit(buf);
        }
        if self.options.has_none()
            && let Some(out) = buf.first_chunk_mut()
        {
            return self.emit_bare(out);
        }
        let len = self.len();
        if buf.len() < len {
            too_short(buf.len(), len);
        }
        let Some((head, rest)) = buf.split_first_chunk_mut::<HEADER_LEN>() else { too_short(HEADER_LEN, len) };
        self.fixed(len, head);
        if len > HEADER_LEN {
            self.options.emit(&mut rest[..len - HEADER_LEN]);
        }
    }

    /// As [`emit`](Self::emit) with these timestamps for options and nothing else: 32 bytes, as nearly all segments have them.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline(always)]
    pub fn emit_usual(&self, timestamps: Timestamps, buf: &mut [u8]) {
        let have = buf.len();
        let Some(out) = buf.first_chunk_mut::<32>() else { too_short(have, 32) };
        let [ports, seq, ack, control, urgent] = self.words(32);
        let options = u32::from_be_bytes(TIMESTAMPS_ONLY);
        put([(ports, seq), (ack, control), (urgent, options), (timestamps.val, timestamps.echo)], out);
    }

    /// All of the header of a SYN as [`Segment::usual_syn`](super::Segment::usual_syn) reads them, if it has those options and no others.
    #[inline(always)]
    pub fn usual_syn(&self) -> Option<UsualSyn> {
        let [mss, sack_and_timestamps, val, echo, scale] = self.options.usual_syn_words()?;
        let [ports, seq, ack, control, urgent] = self.words(UsualSyn::LEN);
        let words = [(ports, seq), (ack, control), (urgent, mss), (sack_and_timestamps, val), (echo, scale)];
        Some(UsualSyn(words.map(eight)))
    }

    /// Without options: in the pieces in which it is summed, as [`put`] has it.
    #[inline(always)]
    fn emit_bare(&self, out: &mut [u8; HEADER_LEN]) {
        let [ports, seq, ack, control, urgent] = self.words(HEADER_LEN);
        let (first, rest) = out.split_at_mut(4);
        first.copy_from_slice(&ports.to_be_bytes());
        if let Some(rest) = rest.first_chunk_mut::<16>() {
            put([(seq, ack), (control, urgent)], rest);
        }
    }

    /// The fixed part: five stores.
    #[inline(always)]
    fn fixed(&self, len: usize, out: &mut [u8; HEADER_LEN]) {
        for (place, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(self.words(len)) {
            *place = word.to_be_bytes();
        }
    }

    /// The fixed part of a header of `len` bytes, in words of 32 bits.
    #[inline(always)]
    fn words(&self, len: usize) -> [u32; 5] {
        let ports = u32::from(self.src_port) << 16 | u32::from(self.dst_port);
        let control = (len as u32 / 4) << 28 | u32::from(self.flags.bits()) << 16 | u32::from(self.window.raw());
        [ports, self.seq.raw(), self.ack.raw(), control, u32::from(self.urgent)]
    }

    /// See [`fill_checksum`].
    #[inline]
    pub fn fill_checksum(buf: &mut [u8], pseudo: Sum) {
        fill_checksum(buf, pseudo);
    }

    /// See [`fill_partial`].
    #[inline]
    pub fn fill_partial(buf: &mut [u8], pseudo: Sum) {
        fill_partial(buf, pseudo);
    }
}

/// The header of a SYN or SYN-ACK as nearly all are, in the eights in which it is written: put together while each word is in a register, and not
/// when they are read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsualSyn([u64; 5]);

impl UsualSyn {
    /// Bytes of the header with its options.
    pub const LEN: usize = 40;

    /// As [`Header::emit`].
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline(always)]
    pub fn emit(self, buf: &mut [u8]) {
        let have = buf.len();
        let Some(out) = buf.first_chunk_mut::<{ UsualSyn::LEN }>() else { too_short(have, UsualSyn::LEN) };
        for (place, eight) in out.as_chunks_mut::<8>().0.iter_mut().zip(self.0) {
            *place = eight.to_be_bytes();
        }
    }
}

/// Two words as they are written together.
#[inline(always)]
fn eight((first, second): (u32, u32)) -> u64 {
    u64::from(first) << 32 | u64::from(second)
}

/// Writes words in the eights in which whoever sums them reads them: a processor waits for what it reads in other pieces than it has just
/// written.
#[inline(always)]
fn put<const PAIRS: usize, const LEN: usize>(words: [(u32, u32); PAIRS], out: &mut [u8; LEN]) {
    for (place, words) in out.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = eight(words).to_be_bytes();
    }
}

/// Sums `buf`, an emitted header and its payload, and fills in its checksum. `pseudo` is the sum of the
/// [`pseudo_header`](crate::checksum::pseudo_header), which counts `buf.len()` bytes.
///
/// # Panics
/// If `buf` is shorter than a header.
#[inline]
pub fn fill_checksum(buf: &mut [u8], pseudo: Sum) {
    let sum = pseudo + Sum::of(buf);
    checksum_field(buf).copy_from_slice(&sum.checksum());
}

/// Leaves the folded sum of the pseudo-header in the checksum field, for a device that adds the rest.
///
/// # Panics
/// If `buf` is shorter than a header.
#[inline]
pub fn fill_partial(buf: &mut [u8], pseudo: Sum) {
    checksum_field(buf).copy_from_slice(&pseudo.fold().to_ne_bytes());
}

#[inline(always)]
fn checksum_field(buf: &mut [u8]) -> &mut [u8] {
    let have = buf.len();
    match buf.first_chunk_mut::<HEADER_LEN>() {
        Some(header) => &mut header[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2],
        None => too_short(have, HEADER_LEN),
    }
}

#[cold]
#[inline(never)]
fn too_short(have: usize, need: usize) -> ! {
    panic!("a TCP header of {need} bytes was emitted to a buffer of {have}");
}
