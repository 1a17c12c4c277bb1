//! How conversations begin: with SYN and SYN-ACK, over an old one that is in TIME-WAIT, or by a cookie.

use super::flow::{Flow, Half};
use super::segment::timestamps;
use laneway_wire::tcp::Segment;

pub(super) fn on_syn(
    flow: &mut Flow,
    (host, now_us): (usize, u64),
    seg: &Segment<'_>,
    v4: bool,
    // Maximum segment lifetime, if what is in TIME-WAIT there stays for twice that, and does not make room for others before.
    msl_us: Option<u64>,
    slack: i32,
) -> Option<String> {
    if !seg.payload.is_empty() || seg.flags.fin() {
        return Some("a SYN with text or FIN".into());
    }
    if seg.flags.ack() {
        // A SYN-ACK for what we know of; or for an old duplicate, which its receiver will refuse.
        let again = flow.now[host].as_ref().is_some_and(|old| old.iss != seg.seq);
        let believed = flow.now[host].as_ref().is_some_and(|old| old.answered);
        let settled = |peer: &Half| again && (peer.talks || believed);
        let known = flow.now[1 - host].as_ref().is_some_and(|peer| seg.ack == peer.iss + 1 && !settled(peer));
        if !known {
            flow.ghost[host] = Some(seg.seq);
            return None;
        }
    }
    let mut found = None;
    let fresh = match &flow.now[host] {
        None => true,
        // The same number again, unless the flow was given up and taken again within one tick of the clock of numbers.
        Some(old) if old.iss == seg.seq && (seg.flags.ack() || !old.talks) => false,
        // Cookies and forgotten half-open entries: another number for the same SYN, before anything was said.
        Some(old) if seg.flags.ack() && old.top == old.iss + 1 && !old.talks => true,
        // A second answer to a SYN, after the first was forgotten: its opener has believed in neither.
        Some(_) if seg.flags.ack() => {
            if let Some(peer) = &mut flow.now[1 - host] {
                peer.acked = None;
                peer.edge = None;
                peer.may_send_to = None;
            }
            true
        }
        Some(_) => {
            flow.before = std::mem::take(&mut flow.now);
            flow.talk_before = flow.talk_now.take();
            true
        }
    };
    if fresh {
        //= https://www.rfc-editor.org/rfc/rfc6191#section-2
        let new = Half::new(seg, v4);
        if let (Some(old), Some(peer)) = (&flow.before[host], &flow.before[1 - host])
            && old.fin.is_some()
            && peer.fin.is_some()
            && old.fin_heard_us.zip(msl_us).is_some_and(|(since_us, msl_us)| now_us < since_us + 2 * msl_us)
            && seg.seq.before(old.top)
            && old.closes_first
            && !old.reset
            && !peer.reset
        {
            found = Some(format!(
                "the flow is used again at {}, before the end of its former use {}",
                seg.seq.raw(),
                old.top.raw()
            ));
        }
        flow.now[host] = Some(new);
    }
    let [a, b] = &mut flow.now;
    let (me, peer) = if host == 0 { (a, b) } else { (b, a) };
    if let Some(me) = me {
        me.ecn.on_syn(seg);
        let base = match peer {
            Some(peer) if seg.flags.ack() => {
                if !peer.offer.sack && seg.options.sack_permitted
                    || peer.offer.scale.is_none() && seg.options.window_scale.is_some()
                    || !peer.offer.timestamps && seg.options.timestamps.is_some()
                {
                    found = Some("a SYN-ACK with an option that the SYN did not have".into());
                }
                Some(peer.iss + 1)
            }
            _ => None,
        };
        if let Some(base) = base {
            let edge = base + u32::from(seg.window.raw());
            // After its FIN this is the answer to an old duplicate of the SYN, by one who has forgotten what came of the first.
            let known = me.edge.filter(|_| me.fin.is_none());
            me.edge = Some(known.map_or(edge, |old| old.latest(edge)));
            me.acked = Some(base);
            if me.fin.is_none() {
                found = found.or(me.told.on_window(base, seg.window.raw(), 0));
            }
        }
        if let Some(what) = timestamps(me, peer.as_ref(), seg.options.timestamps, slack) {
            found = found.or(Some(what));
        }
    }
    found
}

/// A SYN is answered, and whoever answers it should be in TIME-WAIT: is it one that may end that?
pub(super) fn on_wake(flow: &Flow, host: usize, now_us: u64, seg: &Segment<'_>, msl_us: u64) -> Option<String> {
    let halves = if flow.now[host].is_some() { &flow.now } else { &flow.before };
    let (me, peer) = (halves[host].as_ref()?, halves[1 - host].as_ref()?);
    let fin = me.fin.filter(|_| me.closes_first && !me.reset && !me.ended && !peer.reset)?;
    let waits = |since_us: u64| now_us < since_us + 2 * msl_us;
    if !me.una.after(fin) || !me.fin_heard_us.is_some_and(waits) {
        return None;
    }
    let later = (seg.ack - 1).after(peer.top);
    let had_timestamps = me.offer.timestamps && peer.offer.timestamps;
    let age = match (seg.options.timestamps, peer.ts_recent) {
        (Some(_), _) if !had_timestamps => 1,
        (Some(ts), Some(last)) => ts.echo.wrapping_sub(last) as i32,
        _ => 0,
    };
    //= https://www.rfc-editor.org/rfc/rfc6191#section-2
    (age < 0 || (age == 0 && !later)).then(|| {
        let was = peer.top.raw();
        format!(
            "TIME-WAIT is given up for a SYN at {}, when {was} was heard before: {age} ms since",
            (seg.ack - 1).raw()
        )
    })
}

/// Whether a host says this in the use of a flow before this one. Who keeps nothing of the cookies that it sends (RFC 4987 section 3.6) cannot
/// know that the opener has given one up meanwhile, and has been sent another: the one whose ACK comes first begins a connection. That
/// can be only one of which nothing was said before the flow was taken again, and only while nothing is said in the present use, or when that is
/// over and nothing is kept of it.
pub(super) fn is_revived(flow: &Flow, host: usize, seg: &Segment<'_>) -> bool {
    let (Some(now), Some(before)) = (&flow.now[host], &flow.before[host]) else { return false };
    let is_of = |half: &Half| half.offset(seg.seq).is_some_and(|offset| offset > 0);
    let answers = |half: &Half| half.acked.is_some() && !half.talks;
    let is_over = |half: &Half| half.fin.is_some_and(|fin| half.una.after(fin)) && !half.closes_first;
    (before.revived || answers(before)) && (answers(now) || is_over(now)) && !is_of(now) && is_of(before)
}
