//! Text and FIN: whether they may be sent, are what was said, and are sent again in time.

use super::flow::{Again, Half};
use super::segment::Cx;
use super::{AT_ONCE_US, LATE_US};
use crate::check::loss::Sent;
use laneway_wire::tcp::{Segment, SeqNum};

/// No retransmission timer may be shorter: the floor, less one tick.
const RTO_LEAST_US: u64 = 198_000;
/// No tail loss probe may be sooner, unless it takes the place of the retransmission timer: what is added to two round trips, less one tick.
const PTO_LEAST_US: u64 = 9_000;

pub(super) fn on_text(
    me: &mut Half,
    peer: &Half,
    cx: &Cx,
    seg: &Segment<'_>,
    stream: &dyn Fn(usize, u64) -> Option<Vec<u8>>,
) -> Option<String> {
    let len = seg.payload.len() as u32;
    let end = seg.end();
    if len == 0 && !seg.flags.fin() {
        // A pure ACK stands at SND.NXT, which is SND.UNA again while a probe is taken for refused; a keepalive one before it. And at the edge
        // of the window, should a segment that is taken in late have moved that to the left of what was sent.
        if seg.seq != me.top && seg.seq.after(me.una) && !me.edges.contains(&seg.seq) {
            return Some(format!("an ACK at {}, when {} was sent", seg.seq.raw(), me.top.raw()));
        }
        return None;
    }
    let Some(from) = seg.seq.offset_from(me.iss + 1).try_into().ok().filter(|_| seg.seq.at_or_before(me.top)) else {
        return Some(format!("text at {}, but {} was sent", seg.seq.raw(), me.top.raw()));
    };
    if len > 0 {
        let limit = peer.offer.mss.saturating_sub(options_len(seg));
        if len > limit {
            return Some(format!("{len} bytes in a segment, but the peer takes {limit}"));
        }
        if let Some(want) = stream(from, len.into())
            && want != seg.payload
        {
            return Some(format!("bytes {from}..{} of the stream are not what was said", from + len as usize));
        }
        let Some(edge) = me.may_send_to else { return Some("text before any window".into()) };
        let beyond = (seg.seq + len).offset_from(edge);
        if beyond > 1 || (beyond == 1 && len != 1) {
            return Some(format!("text up to {} beyond the window's edge {}", (seg.seq + len).raw(), edge.raw()));
        }
        // What ends the queue is pushed. With nothing in flight the override timer, which runs no shorter than another, may send a small piece.
        // A full one is as large as one before it was: a cookie does not keep all of what the peer takes.
        let full = me.widest.min(cx.mtu.saturating_sub(60)).saturating_sub(options_len(seg));
        me.widest = me.widest.max(len + options_len(seg));
        let may_be_override = seg.seq == me.una && cx.now_us >= me.una_us + RTO_LEAST_US;
        if len < full
            && seg.seq == me.top
            && !seg.flags.psh()
            && !seg.flags.fin()
            && peer.told.is_fragment(len)
            && !may_be_override
        {
            return Some(format!("{len} bytes in a segment, when {full} would fill it and more waits"));
        }
        if let Some(fin) = me.fin
            && (seg.seq + len).after(fin)
        {
            return Some("text beyond the FIN".into());
        }
        // RFC 6928: nothing but the initial window before anything is heard of it.
        let heard_at_first = *me.heard_at_first.get_or_insert(me.heard);
        // What has reached another lane of the host may be taken in only after the first flight, and then looks like a duplicate or two.
        // And one for a tail loss probe.
        let probes = me.offer.sack && peer.offer.sack && may_probe(me, cx.now_us);
        let most = (10 + if cx.orderly { 0 } else { 2 } + u32::from(probes)) * peer.offer.mss.max(536);
        if me.heard == heard_at_first && (seg.seq + len).offset_from(me.iss + 1) as u32 > most {
            return Some("more than the initial window before the first acknowledgement".into());
        }
    }
    if seg.flags.fin() {
        let at = end - 1;
        if me.fin.is_some_and(|fin| fin != at) || (me.fin.is_none() && at.before(me.top) && !me.unsaid) {
            return Some(format!(
                "FIN at {}, when it was at {:?} and {} was sent",
                at.raw(),
                me.fin.map(SeqNum::raw),
                me.top.raw()
            ));
        }
        if me.fin.is_none() {
            me.closes_first = peer.fin.is_none_or(|fin| seg.ack.at_or_before(fin));
        }
        me.fin = Some(at);
    }
    let Cx { now_us, icmp, asked, algorithm, astray, .. } = *cx;
    let probe = is_probe(me, seg, asked);
    let mut found = if probe { on_probe(me, peer, cx, end) } else { None };
    if seg.seq.before(me.top) {
        found = found.or(on_again(me, peer, cx, seg));
    } else {
        me.left_us = now_us;
    }
    let sent = Sent {
        seq: seg.seq,
        end,
        una: me.una,
        top: me.top,
        heard: me.heard + icmp,
        mss: peer.offer.mss,
        ts: seg.options.timestamps.map(|ts| ts.val),
        timed: seg.seq.before(me.top)
            && me.again.is_some_and(|again| {
                // The first time, and if it is all that is under way, it may only ask (RFC 8985 section 7.2).
                let asks = again.since_first && end == me.top;
                again.seq == seg.seq && again.at_us == now_us && again.gap_us.is_some() && !asks
            }),
        asked,
        probe,
        behind: astray.is_some_and(|late_us| now_us <= me.una_us + late_us),
    };
    found = found.or(me.repair.on_sent(&sent, now_us, algorithm));
    if seg.seq == me.una && !seg.seq.before(me.top) {
        me.again = Some(Again {
            seq: seg.seq,
            at_us: now_us,
            timed: true,
            gap_us: None,
            since_first: true,
            heard: me.heard + icmp,
        });
    }
    me.top = me.top.latest(end);
    found
}

/// What was sent last is sent again, while nothing is being repaired: a tail loss probe (RFC 8985 section 7).
fn is_probe(me: &Half, seg: &Segment<'_>, asked: bool) -> bool {
    seg.seq.after(me.una) && seg.seq.before(me.top) && !asked && !me.repair.is_under_way(me.una)
}

fn on_probe(me: &mut Half, peer: &Half, cx: &Cx, end: SeqNum) -> Option<String> {
    let again = me.probed.replace(end) == Some(end);
    if end != me.top || !(me.offer.sack && peer.offer.sack) {
        Some("sent again, and nothing says that it is lost".into())
    } else if again {
        Some("a second tail loss probe, and nothing new was sent".into())
    } else if !may_probe(me, cx.now_us) {
        Some(format!("a tail loss probe {} µs after new text", cx.now_us - me.left_us))
    } else {
        None
    }
}

/// Whether a tail loss probe may be due: after new text, or when the retransmission timer may be (RFC 8985 section 7.2).
fn may_probe(me: &Half, now_us: u64) -> bool {
    now_us >= me.left_us + PTO_LEAST_US || now_us >= me.una_us + RTO_LEAST_US
}

/// The oldest is sent again. With nothing heard in between it was the timer, which backs off (RFC 6298 section 5.5).
///
/// Or three duplicate ACKs, if all of them came before it was sent and were taken in thereafter: to their receiver there was something in flight
/// that they do not acknowledge, and more RFC 5681 section 2 does not ask for.
fn on_again(me: &mut Half, peer: &Half, cx: &Cx, seg: &Segment<'_>) -> Option<String> {
    if seg.seq != me.una {
        return None;
    }
    let now_us = cx.now_us;
    let heard = me.heard + cx.icmp;
    let mut now = Again { seq: seg.seq, at_us: now_us, timed: false, gap_us: None, since_first: false, heard };
    let mut found = None;
    let with_sack = me.offer.sack && peer.offer.sack;
    let lately = me.repeats_us[0].is_some_and(|at_us| now_us <= at_us + LATE_US);
    let repeated = lately && me.says_una > 3 && !with_sack;
    // What came just before it was sent was perhaps taken in just after.
    let since = |last: &Again| now_us <= last.at_us + AT_ONCE_US && last.at_us <= me.heard_us + AT_ONCE_US;
    if let Some(last) = me.again
        && last.seq == seg.seq
        && last.heard == heard
        && !since(&last)
        && !(repeated && cx.astray.is_some())
    {
        now.timed = true;
        if last.timed {
            let gap = now_us - last.at_us;
            now.gap_us = Some(gap);
            now.since_first = last.gap_us.is_none() && with_sack;
            if gap < RTO_LEAST_US {
                found = Some(format!("sent again after {gap} µs, and nothing was heard"));
            } else if let Some(before) = last.gap_us.filter(|_| !last.since_first)
                && gap < before + before / 2
                && gap < 115_000_000
            {
                found = Some(format!("the retransmission timer does not back off: {gap} µs after {before} µs"));
            }
        }
    }
    me.again = Some(now);
    found
}

fn options_len(seg: &Segment<'_>) -> u32 {
    seg.options.len() as u32
}
