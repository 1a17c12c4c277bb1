//! Owns reading: `View`, a segment whose lengths are right, with `Segment`, what it says.
//!
//! The checksum is the caller's, who knows the addresses and what the device said:
//! [`checksum::verify_transport`](crate::checksum::verify_transport).

use super::emit::Header;
use super::flags::Flags;
use super::options::{Options, Timestamps, timestamps_only, usual_syn};
use super::seq::SeqNum;
use super::window::UnscaledWindow;
use super::{CHECKSUM_OFFSET, HEADER_LEN};
use crate::error::{Layer, Malformed, Why};

/// TCP header and payload, known to hold as many header bytes as the header says.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Checks the lengths in `bytes`, which begin with the TCP header and end with the payload.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Err(Malformed::new(Layer::Tcp, Why::Truncated));
        };
        let options_len = (usize::from(header[12] >> 4) * 4).checked_sub(HEADER_LEN);
        match options_len.and_then(|len| rest.split_at_checked(len)) {
            Some((options, payload)) => Ok(View { header, options, payload }),
            None => Err(Malformed::new(Layer::Tcp, Why::HeaderLength)),
        }
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        src_port(self.header)
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        dst_port(self.header)
    }

    /// Sequence number.
    #[inline]
    pub fn seq(&self) -> SeqNum {
        seq(self.header)
    }

    /// Acknowledgment number.
    #[inline]
    pub fn ack(&self) -> SeqNum {
        ack(self.header)
    }

    /// Control bits.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags::from_bits(self.header[13])
    }

    /// The checksum field as it is on the wire.
    #[inline]
    pub fn checksum(&self) -> [u8; 2] {
        [self.header[CHECKSUM_OFFSET], self.header[CHECKSUM_OFFSET + 1]]
    }

    /// Bytes of the header with its options.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// The options as bytes, not yet read.
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// The text of the segment.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Reads all of it; fails if an option's length is impossible.
    #[inline]
    pub fn segment(&self) -> Result<Segment<'a>, Malformed> {
        Ok(Segment::from_parts(self.header, Options::parse(self.options)?, self.payload))
    }
}

#[inline(always)]
fn src_port(h: &[u8; HEADER_LEN]) -> u16 {
    u16::from_be_bytes([h[0], h[1]])
}

#[inline(always)]
fn dst_port(h: &[u8; HEADER_LEN]) -> u16 {
    u16::from_be_bytes([h[2], h[3]])
}

#[inline(always)]
fn seq(h: &[u8; HEADER_LEN]) -> SeqNum {
    SeqNum::new(u32::from_be_bytes([h[4], h[5], h[6], h[7]]))
}

#[inline(always)]
fn ack(h: &[u8; HEADER_LEN]) -> SeqNum {
    SeqNum::new(u32::from_be_bytes([h[8], h[9], h[10], h[11]]))
}

#[inline(always)]
fn window(h: &[u8; HEADER_LEN]) -> UnscaledWindow {
    UnscaledWindow::new(u16::from_be_bytes([h[14], h[15]]))
}

/// A segment that is [usual](Segment::usual), of which nothing else was read yet: each of its words is when it is asked for. Who takes it in
/// asks for most of them once, and need not keep them at hand until then.
#[derive(Clone, Copy, Debug)]
pub struct Usual<'a> {
    header: &'a [u8; HEADER_LEN],
    options: &'a [u8; TIMESTAMPS_LEN],
    payload: &'a [u8],
}

/// Two NOPs and timestamps.
const TIMESTAMPS_LEN: usize = 12;

impl<'a> Usual<'a> {
    /// The segment in `bytes`, if it is one.
    #[inline(always)]
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let (head, payload) = bytes.split_first_chunk::<{ HEADER_LEN + TIMESTAMPS_LEN }>()?;
        if head[12] & 0xf0 != 0x80 {
            return None;
        }
        let (header, options) = (head.first_chunk()?, head.last_chunk()?);
        timestamps_only(options)?;
        Some(Usual { header, options, payload })
    }

    /// SEG.SEQ.
    #[inline(always)]
    pub fn seq(self) -> SeqNum {
        seq(self.header)
    }

    /// SEG.ACK.
    #[inline(always)]
    pub fn ack(self) -> SeqNum {
        ack(self.header)
    }

    /// Control bits.
    #[inline(always)]
    pub fn flags(self) -> Flags {
        Flags::from_bits(self.header[13])
    }

    /// SEG.WND, not yet scaled.
    #[inline(always)]
    pub fn window(self) -> UnscaledWindow {
        window(self.header)
    }

    /// The timestamps.
    #[inline(always)]
    pub fn timestamps(self) -> Timestamps {
        let [_, _, _, _, val @ .., e0, e1, e2, e3] = *self.options;
        Timestamps { val: u32::from_be_bytes(val), echo: u32::from_be_bytes([e0, e1, e2, e3]) }
    }

    /// The text.
    #[inline(always)]
    pub fn payload(self) -> &'a [u8] {
        self.payload
    }

    /// All of it, read.
    #[inline(always)]
    pub fn segment(self) -> Segment<'a> {
        Segment::from_parts(self.header, Options::timestamps(self.timestamps()), self.payload)
    }
}

/// The meaning of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment<'a> {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// SEG.SEQ: the first byte of text, or the SYN.
    pub seq: SeqNum,
    /// SEG.ACK; meaningful if ACK is set.
    pub ack: SeqNum,
    /// Control bits.
    pub flags: Flags,
    /// SEG.WND, not yet scaled.
    pub window: UnscaledWindow,
    /// SEG.UP; meaningful if URG is set.
    pub urgent: u16,
    /// The options.
    pub options: Options,
    /// The text.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Checks and reads a TCP header and payload. The checksum is the caller's.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Segment<'a>, Malformed> {
        match Segment::usual(bytes) {
            Some(segment) => Ok(segment),
            None => View::new(bytes)?.segment(),
        }
    }

    /// A segment of an established connection, as nearly all are: 32 bytes of header, the options timestamps alone. `None` says
    /// nothing bad: look closely then, with [`parse`](Self::parse).
    #[inline(always)]
    pub fn usual(bytes: &'a [u8]) -> Option<Segment<'a>> {
        Usual::of(bytes).map(Usual::segment)
    }

    /// A SYN or SYN-ACK as nearly all are: 40 bytes of header, with segment size, SACK permitted, timestamps and window scale, in
    /// the order in which Linux writes them, and we do. `None` as in [`usual`](Self::usual).
    #[inline(always)]
    pub fn usual_syn(bytes: &'a [u8]) -> Option<Segment<'a>> {
        let (head, payload) = bytes.split_first_chunk::<40>()?;
        if head[12] & 0xf0 != 0xa0 {
            return None;
        }
        let options = usual_syn(head.last_chunk()?)?;
        Some(Segment::from_parts(head.first_chunk()?, options, payload))
    }

    /// A segment without options, as a reset is. `None` as in [`usual`](Self::usual).
    #[inline(always)]
    pub fn bare(bytes: &'a [u8]) -> Option<Segment<'a>> {
        let (header, payload) = bytes.split_first_chunk()?;
        (header[12] & 0xf0 == 0x50).then(|| Segment::from_parts(header, Options::NONE, payload))
    }

    #[inline(always)]
    fn from_parts(header: &[u8; HEADER_LEN], options: Options, payload: &'a [u8]) -> Self {
        Segment {
            src_port: src_port(header),
            dst_port: dst_port(header),
            seq: seq(header),
            ack: ack(header),
            flags: Flags::from_bits(header[13]),
            window: window(header),
            urgent: u16::from_be_bytes([header[18], header[19]]),
            options,
            payload,
        }
    }

    /// SEG.LEN: what the segment takes of the sequence space; text, SYN and FIN.
    #[inline]
    pub fn seq_len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.flags.syn()) + u32::from(self.flags.fin())
    }

    /// The sequence number after the segment: SEG.SEQ + SEG.LEN.
    #[inline]
    pub fn end(&self) -> SeqNum {
        self.seq + self.seq_len()
    }

    /// The meaning without the text.
    #[inline]
    pub fn to_header(&self) -> Header {
        Header {
            src_port: self.src_port,
            dst_port: self.dst_port,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            urgent: self.urgent,
            options: self.options,
        }
    }
}
