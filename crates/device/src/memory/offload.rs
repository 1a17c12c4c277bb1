//! What a network card would have done: finishing a checksum, cutting a super-packet. In software, for receivers without the card.

use laneway_wire::checksum::{Sum, pseudo_header};
use laneway_wire::flow::Address;
use laneway_wire::segmentation::Cut;

use crate::{Medium, PartialChecksum, RxChecksum, TxMeta};

/// Completes a checksum of which the field holds the pseudo-header's sum. A frame too short for what `partial` says stays as it is:
/// its checksum is wrong then, and the receiver will find out.
pub fn complete_checksum(frame: &mut [u8], partial: PartialChecksum) {
    let Some(covered) = frame.get_mut(usize::from(partial.start)..) else {
        return;
    };
    let sum = Sum::of(covered).checksum();
    let at = usize::from(partial.offset);
    if let Some(field) = covered.get_mut(at..at + 2) {
        // All ones and all zero are the same number here, but in UDP zero means "none" (RFC 768).
        let field_of_udp = at == 6;
        field.copy_from_slice(if field_of_udp && sum == [0, 0] { &[0xff, 0xff] } else { &sum });
    }
}

/// Where a received frame's transport checksum is still unfinished, for who writes the frame down. A device that vouches for the bytes
/// need not say; but then the field holds the sum of the pseudo-header alone.
pub fn unfinished(medium: Medium, frame: &[u8], checksum: RxChecksum) -> Option<PartialChecksum> {
    match checksum {
        RxChecksum::Partial(partial) => Some(partial),
        RxChecksum::Verified => pseudo_header_alone(medium, frame),
        RxChecksum::Unknown => None,
    }
}

fn pseudo_header_alone(medium: Medium, frame: &[u8]) -> Option<PartialChecksum> {
    let link = medium.header_len();
    let packet = match (medium, frame.get(12..14)) {
        (Medium::Ethernet, Some([0x08, 0x00] | [0x86, 0xdd])) | (Medium::Ip, _) => frame.get(link..)?,
        _ => return None,
    };
    let (addresses, protocol, header) = match packet.first()? >> 4 {
        4 => {
            let ip = packet.first_chunk::<20>()?;
            let part = |at: usize| Address::from_v4([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
            let is_fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0;
            ((!is_fragment).then(|| (part(12), part(16)))?, ip[9], usize::from(ip[0] & 15) * 4)
        }
        6 => {
            let ip = packet.first_chunk::<40>()?;
            let part = |at: usize| ip[at..].first_chunk().copied().map(Address::from_v6);
            ((part(8)?, part(24)?), ip[6], 40)
        }
        _ => return None,
    };
    let offset = match protocol {
        6 => 16,
        17 => 6,
        _ => return None,
    };
    let transport = packet.get(header..)?;
    let field = transport.get(offset..offset + 2)?;
    let alone = pseudo_header(&addresses.0, &addresses.1, protocol, transport.len() as u32).fold();
    let partial = PartialChecksum { start: (link + header) as u16, offset: offset as u16 };
    (field == alone.to_ne_bytes()).then_some(partial)
}

/// Turns one committed frame into plain frames with complete checksums. `emit(len, write)` is called once for each in order; it finds
/// `len` bytes of room and has `write` fill them, or drops the frame by not calling it.
///
/// A super-packet that cannot be cut (not TCP, or malformed) is passed on whole.
pub fn finish(medium: Medium, frame: &[u8], meta: &TxMeta, mut emit: impl FnMut(usize, &mut dyn FnMut(&mut [u8]))) {
    if meta.gso_size != 0
        && let Some((link, packet)) = frame.split_at_checked(medium.header_len())
        && let Ok(mut cut) = Cut::new(packet, usize::from(meta.gso_size))
    {
        while let Some(len) = cut.next_len() {
            let mut written = false;
            emit(link.len() + len, &mut |into| {
                let (into_link, into_packet) = into.split_at_mut(link.len());
                into_link.copy_from_slice(link);
                cut.write_next(&mut into_packet[..len]);
                written = true;
            });
            if !written {
                // The segment is lost, but those behind it are not: they must be cut at their own place.
                skip(&mut cut, len);
            }
        }
        return;
    }
    emit(frame.len(), &mut |into| {
        into.copy_from_slice(frame);
        if let Some(partial) = meta.checksum_partial {
            complete_checksum(into, partial);
        }
    });
}

/// Advances past one segment that nobody has room for.
#[cold]
fn skip(cut: &mut Cut<'_>, len: usize) {
    cut.write_next(&mut vec![0; len]);
}

#[cfg(test)]
mod tests;
