//! What every segment after the SYNs says: timestamps, an acknowledgement, a window, and what has arrived beyond the acknowledgement.

use super::flow::Half;
use super::text::on_text;
use laneway_proto::tcp::congestion::Algorithm;
use laneway_wire::tcp::{Segment, Timestamps};

/// What else there is to know of a segment that a host sends.
pub(super) struct Cx {
    pub(super) now_us: u64,
    pub(super) icmp: u64,
    /// An ICMP message may have asked for it.
    pub(super) asked: bool,
    pub(super) algorithm: Algorithm,
    /// See [`Rfc`](super::Rfc).
    pub(super) orderly: bool,
    /// See [`Rfc`](super::Rfc).
    pub(super) astray: Option<u64>,
    /// See [`Rfc`](super::Rfc).
    pub(super) mtu: u32,
}

pub(super) fn on_segment(
    me: &mut Half,
    peer: &Half,
    cx: &Cx,
    seg: &Segment<'_>,
    stream: &dyn Fn(usize, u64) -> Option<Vec<u8>>,
) -> Option<String> {
    let scale = match (me.offer.scale, peer.offer.scale) {
        (Some(mine), Some(_)) => mine,
        _ => 0,
    };
    let with_timestamps = me.offer.timestamps && peer.offer.timestamps;
    let with_sack = me.offer.sack && peer.offer.sack;
    let options = &seg.options;
    if with_timestamps != options.timestamps.is_some() && me.talks {
        return Some(format!("timestamps were {}agreed", if with_timestamps { "" } else { "not " }));
    }
    if let Some(what) = timestamps(me, Some(peer), options.timestamps, 0) {
        return Some(what);
    }
    // Acknowledgement: of what has arrived, and never back.
    let arrived = peer.arrived_to();
    if seg.ack.after(arrived) {
        return Some(format!("acknowledges {}, but only {} has arrived", seg.ack.raw(), arrived.raw()));
    }
    if let Some(last) = me.acked
        && seg.ack.before(last)
    {
        return Some(format!("acknowledges {} after {}", seg.ack.raw(), last.raw()));
    }
    me.acked = Some(seg.ack);
    // Window: its right edge never moves left, but for what the scale rounds off (RFC 7323 section 2.4).
    let edge = seg.ack + (u32::from(seg.window.raw()) << scale);
    if let Some(old) = me.edge
        && old.offset_from(edge) >= 1 << scale
    {
        return Some(format!("the window shrinks from {} to {}", old.raw(), edge.raw()));
    }
    me.edge = Some(me.edge.map_or(edge, |old| old.latest(edge)));
    // (After the peer's FIN it tells of nothing any more.)
    if peer.fin.is_none_or(|fin| seg.ack.at_or_before(fin))
        && let Some(what) = me.told.on_window(seg.ack, seg.window.raw(), scale)
    {
        return Some(what);
    }
    // Selective acknowledgements: first perhaps of what has arrived twice, then of what has arrived beyond the cumulative one.
    let twice = reports_twice(seg);
    // (What is left of the flow's former use may lie where this one has not yet begun, and seem repeated.)
    let former = twice && options.sack.iter().next().is_some_and(|block| block.end.at_or_before(peer.iss));
    //= https://www.rfc-editor.org/rfc/rfc2883#section-4
    //# Each duplicate contiguous sequence of data received is reported in at most one D-SACK block.
    me.reports += u64::from(twice && !former && seg.payload.is_empty());
    if me.reports > peer.repeats {
        return Some(format!("{} reports of what has arrived twice, which {} segments have", me.reports, peer.repeats));
    }
    for (i, block) in options.sack.iter().enumerate().skip(usize::from(former && with_sack)) {
        if !with_sack {
            return Some("SACK was not agreed".into());
        }
        let (arrived, times) =
            if twice && i == 0 { (&peer.repeated, "twice") } else { (&peer.arrived, "beyond the ACK") };
        let range = peer.offset(block.start).zip(peer.offset(block.end));
        let right = range.is_some_and(|(start, end)| start < end && arrived.has(start, end))
            && (block.start.after(seg.ack) || twice && i == 0);
        if !right {
            return Some(format!(
                "SACK {}..{} of what has not arrived {times} (ack {})",
                block.start.raw(),
                block.end.raw(),
                seg.ack.raw()
            ));
        }
    }
    on_text(me, peer, cx, seg, stream)
}

/// Whether the first block says what was received twice (RFC 2883 section 4): it lies below what is acknowledged, or in the second.
pub(super) fn reports_twice(seg: &Segment<'_>) -> bool {
    let mut blocks = seg.options.sack.iter();
    blocks.next().is_some_and(|first| {
        first.start.before(seg.ack)
            || blocks
                .next()
                .is_some_and(|second| second.start.at_or_before(first.start) && first.end.at_or_before(second.end))
    })
}

/// `slack`: it may be so many milliseconds older than one before it.
pub(super) fn timestamps(me: &mut Half, peer: Option<&Half>, ts: Option<Timestamps>, slack: i32) -> Option<String> {
    let ts = ts?;
    if let Some(last) = me.ts_sent
        && (ts.val.wrapping_sub(last) as i32) < -slack
    {
        return Some(format!("timestamp {} after {last}: they must not run backwards", ts.val));
    }
    me.ts_sent =
        Some(me.ts_sent.map_or(ts.val, |last| if ts.val.wrapping_sub(last) as i32 > 0 { ts.val } else { last }));
    if let Some(peer) = peer
        && let Some(latest) = peer.ts_arrived
        && ts.echo != 0
        && (ts.echo.wrapping_sub(latest) as i32) > 0
    {
        return Some(format!("timestamp echo {} beyond the latest that has arrived, {latest}", ts.echo));
    }
    None
}
