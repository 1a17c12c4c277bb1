//! Owns the walk along the extension headers of an IPv6 packet (RFC 8200 section 4), bounded in headers and options.

use super::{HEADER_LEN, malformed};
use crate::error::{Malformed, Why};

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// Bytes of a fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;

/// Extension headers that one packet may have. The RFC's recommended order has seven (section 4.1).
const HEADERS_MAX: usize = 8;
/// Options, padding included, that one header may have. Linux lets eight pass, padding not counted.
const OPTIONS_MAX: usize = 24;

const PAD1: u8 = 0;

/// What a fragment header says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fragment {
    /// Where in the fragmentable part the bytes behind the header belong: bytes, a multiple of 8.
    pub offset: u32,
    /// This is not the last fragment.
    pub more: bool,
    /// Which fragments belong together, with the addresses.
    pub id: u32,
}

impl Fragment {
    /// Is it all of the datagram (RFC 6946)? Such a packet is never joined with others.
    #[inline]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Writes the header, before a `next_header`, to the first [`FRAGMENT_HEADER_LEN`] bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    pub fn emit(&self, next_header: u8, buf: &mut [u8]) {
        buf[0] = next_header;
        buf[1] = 0;
        let field = self.offset as u16 & 0xfff8 | u16::from(self.more);
        buf[2..4].copy_from_slice(&field.to_be_bytes());
        buf[4..8].copy_from_slice(&self.id.to_be_bytes());
    }
}

/// Where the extension headers end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Upper {
    /// The upper protocol; for a fragment, the kind of header that the fragmentable part begins with.
    pub protocol: u8,
    /// Where its bytes begin, counted from behind the fixed header.
    pub offset: usize,
    /// The packet is a fragment, and `offset` is where its piece begins; or it was an atomic one, and `offset` is
    /// beyond all of its headers.
    pub fragment: Option<Fragment>,
}

/// Is `next_header` one of the headers that [`walk`] passes?
#[inline]
pub const fn is_extension(next_header: u8) -> bool {
    matches!(next_header, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS)
}

/// Walks along `bytes`, which begin behind the fixed header with a header of kind `next_header`, to the upper protocol
/// or to a fragment's piece.
#[inline]
pub fn walk(next_header: u8, bytes: &[u8]) -> Result<Upper, Malformed> {
    if !is_extension(next_header) {
        return Ok(Upper { protocol: next_header, offset: 0, fragment: None });
    }
    walk_far(next_header, bytes).map_err(|(why, _)| malformed(why))
}

/// What [`walk`] refuses, and where that stands: counted from the beginning of the fixed header, as an ICMP parameter problem counts.
#[cold]
pub fn refused(next_header: u8, bytes: &[u8]) -> Option<(Why, usize)> {
    if is_extension(next_header) { walk_far(next_header, bytes).err() } else { None }
}

/// The upper protocol, and where it begins, whatever the headers before it hold. `None` if they do not end, or in a later fragment, which has
/// nothing of it.
#[cold]
pub fn skip(mut next_header: u8, bytes: &[u8]) -> Option<(u8, usize)> {
    let mut offset = 0;
    // As many as are walked, and what is behind the last of them.
    for _ in 0..=HEADERS_MAX {
        let rest = bytes.get(offset..).unwrap_or_default();
        let header_len = match (next_header, rest) {
            (FRAGMENT, [_, _, 0, 0..=7, ..]) => FRAGMENT_HEADER_LEN,
            (HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS, [_, len, ..]) => (usize::from(*len) + 1) * 8,
            (protocol, _) => return (!is_extension(protocol)).then_some((protocol, offset)),
        };
        next_header = rest[0];
        offset += header_len;
    }
    None
}

/// Where in a packet that has been walked the field stands that names the upper protocol. `headers`: all that is before that.
#[cold]
pub fn names_upper(headers: &[u8]) -> usize {
    let (mut named, mut at) = (6, HEADER_LEN);
    while let (Some(kind), Some(len)) = (headers.get(named), headers.get(at + 1)) {
        named = at;
        // What others say of their length is reserved in a fragment header.
        at += if *kind == FRAGMENT { FRAGMENT_HEADER_LEN } else { (usize::from(*len) + 1) * 8 };
    }
    named
}

#[cold]
#[inline(never)]
fn walk_far(mut next_header: u8, bytes: &[u8]) -> Result<Upper, (Why, usize)> {
    let mut offset = 0;
    let mut fragment = None;
    // Where `next_header` is named.
    let mut named = 6;
    for _ in 0..HEADERS_MAX {
        let rest = bytes.get(offset..).unwrap_or_default();
        let at = HEADER_LEN + offset;
        match next_header {
            HOP_BY_HOP if offset > 0 => return Err((Why::ExtensionOrder, named)),
            // Payload length zero and a hop-by-hop header: that is how a jumbogram begins (RFC 2675 section 3).
            HOP_BY_HOP if bytes.is_empty() => return Err((Why::Jumbogram, at)),
            FRAGMENT => {
                let Some(&[next, _, o0, o1, i0, i1, i2, i3]) = rest.first_chunk::<FRAGMENT_HEADER_LEN>() else {
                    return Err((Why::Truncated, at));
                };
                let field = u16::from_be_bytes([o0, o1]);
                let found = Fragment {
                    offset: u32::from(field & 0xfff8),
                    more: field & 1 != 0,
                    id: u32::from_be_bytes([i0, i1, i2, i3]),
                };
                // One atomic fragment may not hide another fragment header.
                if fragment.is_some() {
                    return Err((Why::ExtensionOrder, named));
                }
                // The whole would have it first, where it may stand. (What a later fragment names counts for nothing.)
                if next == HOP_BY_HOP && found.offset == 0 {
                    return Err((Why::ExtensionOrder, at));
                }
                fragment = Some(found);
                next_header = next;
                offset += FRAGMENT_HEADER_LEN;
                if !found.is_atomic() {
                    // What follows is a piece of a datagram: it is walked once the datagram is whole.
                    return Ok(Upper { protocol: next, offset, fragment });
                }
            }
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {
                let &[next, len, ..] = rest else {
                    return Err((Why::Truncated, at));
                };
                let header_len = (usize::from(len) + 1) * 8;
                let Some(header) = rest.get(..header_len) else {
                    return Err((Why::Truncated, at));
                };
                let looked = if next_header == ROUTING { check_routing(header) } else { check_options(header) };
                looked.map_err(|(why, within)| (why, at + within))?;
                next_header = next;
                offset += header_len;
            }
            protocol => {
                return Ok(Upper { protocol, offset, fragment });
            }
        }
        named = at;
    }
    if is_extension(next_header) {
        return Err((Why::TooManyExtensions, named));
    }
    Ok(Upper { protocol: next_header, offset, fragment })
}

/// A routing header may pass if it has been used up. Type 0 is as one that nobody knows (RFC 5095 section 3).
fn check_routing(header: &[u8]) -> Result<(), (Why, usize)> {
    match *header {
        //= https://www.rfc-editor.org/rfc/rfc8200#section-4.4
        //# If Segments Left is zero, the node must ignore the Routing header and proceed to process the next header in
        //# the packet
        [_, _, _, 0, ..] => Ok(()),
        [_, _, 0, ..] => Err((Why::RoutingType0, 2)),
        _ => Err((Why::RoutingHeader, 2)),
    }
}

/// Looks at the options of a hop-by-hop or destination options header; none is known here but padding.
fn check_options(header: &[u8]) -> Result<(), (Why, usize)> {
    let mut bytes = &header[2..];
    for _ in 0..OPTIONS_MAX {
        let at = header.len() - bytes.len();
        bytes = match *bytes {
            [] => return Ok(()),
            [PAD1, ref rest @ ..] => rest,
            [kind, len, ref rest @ ..] => {
                let Some(rest) = rest.get(usize::from(len)..) else {
                    return Err((Why::OptionLength, at));
                };
                match kind >> 6 {
                    0b00 => {}
                    0b01 => return Err((Why::OptionDiscard, at)),
                    0b10 => return Err((Why::OptionReport, at)),
                    _ => return Err((Why::OptionReportUnicast, at)),
                }
                rest
            }
            [_] => return Err((Why::OptionLength, at)),
        };
    }
    if bytes.is_empty() { Ok(()) } else { Err((Why::TooManyOptions, header.len() - bytes.len())) }
}
