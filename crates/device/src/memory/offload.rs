//! What a network card would have done: finishing a checksum, cutting a super-packet. In software, for receivers without the card.

use laneway_wire::checksum::Sum;
use laneway_wire::segmentation::Cut;

use crate::{Medium, PartialChecksum, TxMeta};

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
