//! Owns the answer to a segment that belongs to nothing here (RFC 9293 section 3.10.7.1).

use laneway_wire::tcp::{Flags, Header, Options, Segment, SeqNum, UnscaledWindow};

/// The RST that answers `seg`; `None` if that is itself an RST.
#[inline(always)]
pub fn answer(seg: &Segment<'_>) -> Option<Header> {
    if seg.flags.rst() {
        return None;
    }
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.1
    //# If the ACK bit is off, sequence number zero is used
    let (seq, ack, flags) = if seg.flags.ack() {
        (seg.ack, SeqNum::new(0), Flags::RST)
    } else {
        (SeqNum::new(0), seg.seq + seg.seq_len(), Flags::RST | Flags::ACK)
    };
    Some(Header {
        src_port: seg.dst_port,
        dst_port: seg.src_port,
        seq,
        ack,
        flags,
        window: UnscaledWindow::new(0),
        urgent: 0,
        options: Options::default(),
    })
}
