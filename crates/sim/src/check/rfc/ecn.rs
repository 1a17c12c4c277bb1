//! Marks: who may set them, who echoes them, and until when (RFC 3168).

use super::flow::Half;
use laneway_wire::tcp::{Flags, Segment, SeqNum};

/// What the IP header says: nothing, ECT(0), CE.
const NOT_ECT: u8 = 0b00;
const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;

/// What one host has said of marks, and heard.
#[derive(Clone, Debug)]
pub(super) struct Ecn {
    /// Its SYN, or SYN-ACK, was one that sets ECN up; `None`: it has sent such and others, and which is believed nobody can see.
    sets_up: Option<bool>,
    /// Text that was marked has reached it.
    ce_came: bool,
    /// An echo has, or it has sent something again: its window may be smaller for it.
    reduces: bool,
    /// What it acknowledges from here on it echoes.
    echoes_from: Option<SeqNum>,
    /// An echo has reached it then that was not of what it had said CWR for: it owes another.
    owes_cwr_since_us: Option<u64>,
    /// Where the text began that said CWR last. Until more than that is acknowledged, an echo may be from before.
    said_cwr_at: Option<SeqNum>,
}

impl Ecn {
    /// Of one who sends a SYN or SYN-ACK.
    pub(super) fn new(syn: &Segment<'_>) -> Self {
        Ecn {
            sets_up: Some(sets_up(syn)),
            ce_came: false,
            reduces: false,
            echoes_from: None,
            owes_cwr_since_us: None,
            said_cwr_at: None,
        }
    }

    /// It sends one more.
    pub(super) fn on_syn(&mut self, syn: &Segment<'_>) {
        self.sets_up = self.sets_up.filter(|so| *so == sets_up(syn));
    }
}

//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1
fn sets_up(syn: &Segment<'_>) -> bool {
    let both = syn.flags.contains(Flags::ECE | Flags::CWR);
    if syn.flags.ack() { syn.flags.contains(Flags::ECE) && !both } else { both }
}

/// A host sends a segment that is no SYN, in a packet with this codepoint. It has taken in whatever came before `heard_us`.
pub(super) fn on_sent(me: &mut Half, peer: &Half, seg: &Segment<'_>, ecn: u8, heard_us: u64) -> Option<String> {
    let both = [me.ecn.sets_up, peer.ecn.sets_up];
    let (may, must) = (both.iter().all(|so| *so != Some(false)), both.iter().all(|so| *so == Some(true)));
    let is_new_text = !seg.payload.is_empty() && seg.seq.at_or_after(me.top);
    // The first byte may be one that a closed window was probed with.
    let has_new_text = is_new_text || seg.seq == me.top - 1 && seg.payload.len() > 1;
    match ecn {
        // (A byte alone may be a probe of a closed window, which must not be marked: section 6.1.6.)
        NOT_ECT if must && is_new_text && seg.payload.len() > 1 && !me.revived => {
            return Some("new text that is not marked ECT(0)".into());
        }
        NOT_ECT => {}
        ECT_0 if may && has_new_text => {}
        _ => return Some(format!("the ECN codepoint {ecn:#04b}, with {} bytes", seg.payload.len())),
    }
    let (ece, cwr) = (seg.flags.contains(Flags::ECE), seg.flags.contains(Flags::CWR));
    if ece && !(may && me.ecn.ce_came) {
        return Some("ECE, and nothing has come that was marked".into());
    }
    me.ecn.reduces |= seg.seq_len() > 0 && seg.seq.before(me.top);
    if cwr && !(may && me.ecn.reduces && has_new_text) {
        return Some("CWR, and nobody has said ECE, nor was anything lost, or without new text".into());
    }
    if cwr {
        (me.ecn.owes_cwr_since_us, me.ecn.said_cwr_at) = (None, Some(seg.seq));
    }
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
    //# If the sender receives an ECN-Echo (ECE) ACK packet (that is, an ACK packet with the ECN-Echo flag set in the TCP header), then the
    //# sender knows that congestion was encountered in the network on the path from the sender to the receiver.
    if is_new_text && seg.payload.len() > 1 && me.ecn.owes_cwr_since_us.is_some_and(|since_us| since_us < heard_us) {
        return Some("new text after ECE, and no CWR".into());
    }
    // (A record in TIME-WAIT keeps nothing of it.)
    (must && !ece && me.fin_heard_us.is_none() && me.ecn.echoes_from.is_some_and(|from| seg.ack.at_or_after(from)))
        .then(|| "acknowledges what was marked, and does not say so".into())
}

/// A segment that acknowledges something new has reached the host. Whether it says that something was marked, for which no smaller window was announced yet.
pub(super) fn on_acked(me: &mut Half, peer: &Half, seg: &Segment<'_>, now_us: u64) -> bool {
    let must = [me.ecn.sets_up, peer.ecn.sets_up] == [Some(true); 2];
    let is_another = me.ecn.said_cwr_at.is_none_or(|at| me.una.after(at));
    if !must || !is_another || !seg.flags.contains(Flags::ECE) || me.ecn.owes_cwr_since_us.is_some() {
        return false;
    }
    me.ecn.owes_cwr_since_us = Some(now_us);
    true
}

/// A segment has reached the host, in a packet with this codepoint. `is_new`: no byte of it has before, and it will be taken in.
pub(super) fn on_arrived(me: &mut Half, seg: &Segment<'_>, ecn: u8, is_new: bool) {
    me.ecn.reduces |= seg.flags.contains(Flags::ECE);
    if seg.payload.is_empty() {
        return;
    }
    if seg.flags.contains(Flags::CWR) {
        me.ecn.echoes_from = None;
    }
    if ecn == CE {
        me.ecn.ce_came = true;
        if is_new {
            me.ecn.echoes_from.get_or_insert(seg.seq + seg.payload.len() as u32);
        }
    }
}
