//! Resets.

use super::flow::{Flow, Half};
use laneway_wire::tcp::{Segment, SeqNum};

/// An RST must be where its receiver expects it, or quote what it answers (RFC 9293 section 3.5.3).
///
/// `astray`: of two windows that came to two lanes, either may be the last that the host has heard.
pub(super) fn on_reset(flow: &mut Flow, host: usize, seg: &Segment<'_>, astray: bool) -> Option<String> {
    let answers = |(ack, end): &(Option<SeqNum>, SeqNum)| match ack {
        Some(ack) => seg.seq == *ack && !seg.flags.ack(),
        None => seg.seq.raw() == 0 && seg.flags.ack() && seg.ack == *end,
    };
    // At SND.NXT; which is the first again if a cookie has come back a second time. Or at the end of the window, if that lies before: what a
    // probe carried was refused, or the window was taken back.
    let refused = |h: &Half| seg.seq.before(h.top) && (h.last_edge == Some(seg.seq) || astray && seg.seq == h.una);
    let ours =
        |half: &Option<Half>| half.as_ref().is_some_and(|h| seg.seq == h.top || seg.seq == h.iss + 1 || refused(h));
    // What is over here may begin again where an old acknowledgement stands that looks like a cookie's, and be given up there.
    let over = |half: &Half| half.ended || half.reset || half.fin.is_some();
    let was_over = flow.now[host].as_ref().is_some_and(over);
    let begun_again = |(ack, _): &(Option<SeqNum>, SeqNum)| seg.flags.ack() && *ack == Some(seg.seq);
    for halves in [&mut flow.now, &mut flow.before] {
        if let Some(me) = &mut halves[host] {
            me.owes_since_us = None;
            me.reset = true;
        }
    }
    if was_over && flow.lately[host].iter().any(begun_again) {
        return None;
    }
    if flow.lately[host].iter().any(answers) || ours(&flow.now[host]) || ours(&flow.before[host]) {
        return None;
    }
    Some(format!(
        "RST with seq {} answers nothing, and is not at {:?}",
        seg.seq.raw(),
        flow.now[host].as_ref().map(|h| h.top.raw())
    ))
}
