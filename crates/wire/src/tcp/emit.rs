//! Owns writing: `Header` to bytes, with the checksum that is filled in once the payload stands behind it.
//!
//! path: device::rx → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → [tcp::output] → ip::output → egress → device::tx

use super::flags::Flags;
use super::options::{Options, TIMESTAMPS_ONLY};
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
        if let Some(timestamps) = self.options.timestamps
            && self.options.has_timestamps_only()
        {
            let have = buf.len();
            let Some(out) = buf.first_chunk_mut::<32>() else {
                too_short(have, 32)
            };
            out[..20].copy_from_slice(&self.fixed(32));
            out[20..24].copy_from_slice(&TIMESTAMPS_ONLY);
            out[24..28].copy_from_slice(&timestamps.val.to_be_bytes());
            out[28..32].copy_from_slice(&timestamps.echo.to_be_bytes());
            return;
        }
        let len = self.len();
        if buf.len() < len {
            too_short(buf.len(), len);
        }
        let (head, rest) = buf.split_at_mut(HEADER_LEN);
        head.copy_from_slice(&self.fixed(len));
        if len > HEADER_LEN {
            self.options.emit(&mut rest[..len - HEADER_LEN]);
        }
    }

    #[inline(always)]
    fn fixed(&self, len: usize) -> [u8; HEADER_LEN] {
        let [s0, s1] = self.src_port.to_be_bytes();
        let [d0, d1] = self.dst_port.to_be_bytes();
        let [q0, q1, q2, q3] = self.seq.raw().to_be_bytes();
        let [a0, a1, a2, a3] = self.ack.raw().to_be_bytes();
        let [w0, w1] = self.window.raw().to_be_bytes();
        let [u0, u1] = self.urgent.to_be_bytes();
        let offset = (len as u8 / 4) << 4;
        let flags = self.flags.bits();
        [
            s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, offset, flags, w0, w1, 0, 0, u0, u1,
        ]
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
