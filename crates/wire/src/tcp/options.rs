//! Owns the TCP options: maximum segment size, window scale, selective acknowledgment, timestamps.

use super::OPTIONS_LEN_MAX;
use super::seq::{SeqNum, SeqRange};
use super::window::WindowScale;
use crate::error::{Layer, Malformed, Why};
use core::fmt;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// How nearly every segment of a connection with timestamps begins its options (RFC 7323 appendix A).
pub(super) const TIMESTAMPS_ONLY: [u8; 4] = [NOP, NOP, TIMESTAMPS, 10];

/// The timestamps option (RFC 7323 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Timestamps {
    /// The sender's clock, TSval.
    pub val: u32,
    /// The latest value of the receiver's clock that the sender heard, TSecr; meaningful with ACK only.
    pub echo: u32,
}

/// Up to four ranges that arrived beyond a gap (RFC 2018 section 3), or were received twice (RFC 2883).
#[derive(Clone, Copy, Default)]
pub struct SackBlocks {
    blocks: [SeqRange; 4],
    len: u8,
}

impl SackBlocks {
    /// None.
    pub const EMPTY: SackBlocks = SackBlocks { blocks: [SeqRange::new(SeqNum::new(0), SeqNum::new(0)); 4], len: 0 };

    /// How many.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Are there none?
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends one; a fifth is dropped, as no header has room for it.
    #[inline]
    pub fn push(&mut self, range: SeqRange) {
        if let Some(block) = self.blocks.get_mut(usize::from(self.len)) {
            *block = range;
            self.len += 1;
        }
    }

    /// The blocks, in the order of the option.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = SeqRange> + '_ {
        self.as_slice().iter().copied()
    }

    /// The blocks, in the order of the option.
    #[inline]
    pub fn as_slice(&self) -> &[SeqRange] {
        &self.blocks[..self.len().min(4)]
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SackBlocks {}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// The options of one segment. An option that comes twice counts as its last; unknown ones are skipped.
// The blocks come first because nearly every segment has none: what is written there is one run of zeros with nothing undefined before it. Else the
// compiler makes it elsewhere and copies it here in other pieces than it was written in, for which the processor waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Options {
    /// Selective acknowledgments (RFC 2018 section 3).
    pub sack: SackBlocks,
    /// Timestamps (RFC 7323 section 3).
    pub timestamps: Option<Timestamps>,
    /// Maximum segment size, bytes (RFC 9293 section 3.7.1).
    pub mss: Option<u16>,
    /// Window scale (RFC 7323 section 2).
    pub window_scale: Option<WindowScale>,
    /// May we send selective acknowledgments (RFC 2018 section 2)?
    pub sack_permitted: bool,
}

impl Options {
    /// None.
    pub const NONE: Options =
        Options { mss: None, window_scale: None, sack_permitted: false, timestamps: None, sack: SackBlocks::EMPTY };

    /// Timestamps and nothing else.
    #[inline]
    pub const fn timestamps(timestamps: Timestamps) -> Options {
        Options { timestamps: Some(timestamps), ..Options::NONE }
    }

    /// Reads the bytes between the fixed header and the payload.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Options, Malformed> {
        if bytes.is_empty() {
            return Ok(Options::NONE);
        }
        if let Ok(twelve) = <&[u8; 12]>::try_from(bytes)
            && let Some(timestamps) = timestamps_only(twelve)
        {
            return Ok(Options::timestamps(timestamps));
        }
        if let Ok(twenty) = <&[u8; 20]>::try_from(bytes)
            && let Some(options) = usual_syn(twenty)
        {
            return Ok(options);
        }
        parse_any(bytes)
    }

    /// Bytes that the options take, padded to whole 32-bit words; at most 40.
    #[inline]
    pub fn len(&self) -> usize {
        self.len_before_sack()
            + match self.sack_fitting() {
                0 => 0,
                n => 4 + 8 * n,
            }
    }

    /// Are there none?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Are the timestamps all there is, so that the bytes are always the same twelve but for the two values?
    #[inline]
    pub(super) fn has_timestamps_only(&self) -> bool {
        self.timestamps.is_some() && self.has_no_others()
    }

    /// Is there nothing to write?
    #[inline]
    pub(super) fn has_none(&self) -> bool {
        self.timestamps.is_none() && self.has_no_others()
    }

    /// Is there nothing beside timestamps?
    #[inline(always)]
    fn has_no_others(&self) -> bool {
        self.mss.is_none() && self.window_scale.is_none() && !self.sack_permitted && self.sack.is_empty()
    }

    #[inline]
    fn len_before_sack(&self) -> usize {
        let mut len = 0;
        if self.mss.is_some() {
            len += 4;
        }
        if self.timestamps.is_some() {
            len += 12;
        } else if self.sack_permitted {
            len += 4;
        }
        if self.window_scale.is_some() {
            len += 4;
        }
        len
    }

    /// How many SACK blocks are emitted: those that fit beside the other options (three beside timestamps).
    #[inline]
    fn sack_fitting(&self) -> usize {
        if self.sack.is_empty() {
            return 0;
        }
        let room = OPTIONS_LEN_MAX - self.len_before_sack();
        self.sack.len().min((room - 4) / 8)
    }

    /// The options of a SYN as [`usual_syn`] reads them, if they are those and no others, in words.
    #[inline(always)]
    pub(super) fn usual_syn_words(&self) -> Option<[u32; 5]> {
        let (Some(mss), Some(scale), Some(timestamps), true, true) =
            (self.mss, self.window_scale, self.timestamps, self.sack_permitted, self.sack.is_empty())
        else {
            return None;
        };
        let mss = u32::from_be_bytes([MSS, 4, 0, 0]) | u32::from(mss);
        let sack_and_timestamps = u32::from_be_bytes([SACK_PERMITTED, 2, TIMESTAMPS, 10]);
        let scale = u32::from_be_bytes([NOP, WINDOW_SCALE, 3, 0]) | u32::from(scale.get());
        Some([mss, sack_and_timestamps, timestamps.val, timestamps.echo, scale])
    }

    /// Writes the options to `buf`, which is [`Options::len`] bytes long, each on a word boundary.
    pub(super) fn emit(&self, buf: &mut [u8]) {
        let mut out = Words { buf, at: 0 };
        if let Some(mss) = self.mss {
            let [a, b] = mss.to_be_bytes();
            out.put([MSS, 4, a, b]);
        }
        // SACK-permitted takes the place of the padding before the timestamps.
        match (self.sack_permitted, self.timestamps) {
            (true, Some(_)) => out.put([SACK_PERMITTED, 2, TIMESTAMPS, 10]),
            (true, None) => out.put([NOP, NOP, SACK_PERMITTED, 2]),
            (false, Some(_)) => out.put(TIMESTAMPS_ONLY),
            (false, None) => {}
        }
        if let Some(timestamps) = self.timestamps {
            out.put(timestamps.val.to_be_bytes());
            out.put(timestamps.echo.to_be_bytes());
        }
        if let Some(scale) = self.window_scale {
            out.put([NOP, WINDOW_SCALE, 3, scale.get()]);
        }
        let blocks = self.sack_fitting();
        if blocks > 0 {
            out.put([NOP, NOP, SACK, 2 + 8 * blocks as u8]);
            for block in self.sack.iter().take(blocks) {
                out.put(block.start.raw().to_be_bytes());
                out.put(block.end.raw().to_be_bytes());
            }
        }
    }
}

/// The timestamps, if these twelve bytes are the usual padding and them.
#[inline(always)]
pub(super) fn timestamps_only(bytes: &[u8; 12]) -> Option<Timestamps> {
    let [a, b, c, d, v0, v1, v2, v3, e0, e1, e2, e3] = *bytes;
    ([a, b, c, d] == TIMESTAMPS_ONLY)
        .then_some(Timestamps { val: u32::from_be_bytes([v0, v1, v2, v3]), echo: u32::from_be_bytes([e0, e1, e2, e3]) })
}

/// The options of a SYN as Linux writes them, and we do: segment size, SACK permitted, timestamps, window scale.
#[inline(always)]
pub(super) fn usual_syn(bytes: &[u8; 20]) -> Option<Options> {
    // In two words and not byte by byte: each byte would be a comparison of its own.
    const BEFORE: u64 = u64::from_be_bytes([MSS, 4, 0, 0, SACK_PERMITTED, 2, TIMESTAMPS, 10]);
    const BEHIND: u32 = u32::from_be_bytes([NOP, WINDOW_SCALE, 3, 0]);
    let &[a, b, m0, m1, c, d, e, f, v0, v1, v2, v3, e0, e1, e2, e3, g, h, i, scale] = bytes;
    let before = u64::from_be_bytes([a, b, m0, m1, c, d, e, f]) & 0xffff_0000_ffff_ffff;
    if before != BEFORE || u32::from_be_bytes([g, h, i, scale]) & 0xffff_ff00 != BEHIND {
        return None;
    }
    Some(Options {
        mss: Some(u16::from_be_bytes([m0, m1])),
        window_scale: Some(WindowScale::new(scale)),
        sack_permitted: true,
        timestamps: Some(Timestamps {
            val: u32::from_be_bytes([v0, v1, v2, v3]),
            echo: u32::from_be_bytes([e0, e1, e2, e3]),
        }),
        sack: SackBlocks::EMPTY,
    })
}

/// Writes words one after another.
struct Words<'a> {
    buf: &'a mut [u8],
    at: usize,
}

impl Words<'_> {
    #[inline]
    fn put(&mut self, word: [u8; 4]) {
        self.buf[self.at..self.at + 4].copy_from_slice(&word);
        self.at += 4;
    }
}

const BAD_LENGTH: Malformed = Malformed::new(Layer::Tcp, Why::OptionLength);

/// The general case: a SYN, a selective acknowledgment, a stranger. At most 40 bytes, each looked at once.
#[inline(never)]
fn parse_any(mut bytes: &[u8]) -> Result<Options, Malformed> {
    let mut options = Options::NONE;
    loop {
        let (kind, len) = match *bytes {
            [] | [END, ..] => return Ok(options),
            [NOP, ref rest @ ..] => {
                bytes = rest;
                continue;
            }
            [kind, len, ..] => (kind, usize::from(len)),
            [_] => return Err(BAD_LENGTH),
        };
        if len < 2 {
            return Err(BAD_LENGTH);
        }
        let Some((option, rest)) = bytes.split_at_checked(len) else {
            return Err(BAD_LENGTH);
        };
        bytes = rest;
        match (kind, &option[2..]) {
            (MSS, &[a, b]) => options.mss = Some(u16::from_be_bytes([a, b])),
            (WINDOW_SCALE, &[shift]) => options.window_scale = Some(WindowScale::new(shift)),
            (SACK_PERMITTED, &[]) => options.sack_permitted = true,
            (TIMESTAMPS, &[v0, v1, v2, v3, e0, e1, e2, e3]) => {
                options.timestamps = Some(Timestamps {
                    val: u32::from_be_bytes([v0, v1, v2, v3]),
                    echo: u32::from_be_bytes([e0, e1, e2, e3]),
                });
            }
            (SACK, data) => {
                let (blocks, rest) = data.as_chunks::<8>();
                if blocks.is_empty() || !rest.is_empty() {
                    return Err(BAD_LENGTH);
                }
                options.sack = SackBlocks::EMPTY;
                for &[s0, s1, s2, s3, e0, e1, e2, e3] in blocks {
                    options.sack.push(SeqRange {
                        start: SeqNum::new(u32::from_be_bytes([s0, s1, s2, s3])),
                        end: SeqNum::new(u32::from_be_bytes([e0, e1, e2, e3])),
                    });
                }
            }
            (MSS | WINDOW_SCALE | SACK_PERMITTED | TIMESTAMPS, _) => return Err(BAD_LENGTH),
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
            //# MUST-6: A TCP implementation MUST ignore without error any TCP Option it does not implement, assuming
            //# that the option has a length field.
            _ => {}
        }
    }
}
