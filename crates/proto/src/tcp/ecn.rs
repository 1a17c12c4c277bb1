//! Owns explicit congestion notification (RFC 3168): routers mark what they would have dropped soon, its receiver says so, and its sender sends less.
//!
//! | who | says | until |
//! |---|---|---|
//! | sender | ECT(0) in the IP header of new text, and of nothing else | |
//! | router | CE there, in place of it | |
//! | receiver | ECE in all that it sends | the sender has said CWR |
//! | sender | CWR with the next new text, and its window is smaller | |
//!
//! Few peers ask for it, so what it knows lies [apart](super::told): others pay a branch for each packet.

use super::Cx;
use super::congestion::Controller;
use super::connection::{Connection, Facts, Phase};
use super::output::{Kind, Plan};
use crate::ip::output::Marks;
use laneway_wire::tcp::{Flags, SeqNum};

/// ECT(0): whoever sent it heeds marks.
const ECT_0: u8 = 0b10;
/// The two bits that are ours, whatever the application has said of the others.
const ECN: u8 = 0b11;

/// What a connection knows whose ends heed marks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Ecn {
    /// They do.
    is_used: bool,
    /// Text has come that was marked, and its sender has not said yet that it knows.
    echoes: bool,
    /// The window became smaller, and the peer is to be told.
    owes_cwr: bool,
    /// Until something beyond this is acknowledged, which has said CWR, echoes are of what has made it smaller already.
    heeded_to: Option<SeqNum>,
}

impl Connection {
    /// Both ends have just [agreed](super::Agreed::ecn) to heed marks.
    #[cold]
    pub fn use_ecn(&mut self) {
        self.tell(|told| told.ecn = Ecn { is_used: true, ..Ecn::default() });
    }

    /// Both ends heed marks. (`TCPI_OPT_ECN` of the kernel's `TCP_INFO`.)
    #[inline]
    pub fn uses_ecn(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.ecn.is_used)
    }

    fn ecn(&self) -> Option<&Ecn> {
        self.told.as_ref().map(|told| &told.ecn).filter(|ecn| ecn.is_used)
    }

    fn ecn_mut(&mut self) -> Option<&mut Ecn> {
        self.told.as_mut().map(|told| &mut told.ecn).filter(|ecn| ecn.is_used)
    }

    /// Marks of the packet of `plan`.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.5
    //# ECN-capable TCP implementations MUST NOT set either ECT codepoint (ECT(0) or ECT(1)) in the IP header for retransmitted
    //# data packets
    #[cold]
    pub fn marks_of(&self, plan: &Plan) -> Marks {
        let marks = self.marks();
        let is_new_text = plan.kind == Kind::New && plan.has_text_beyond(self.snd.nxt);
        let ect = if is_new_text && self.uses_ecn() { ECT_0 } else { 0 };
        Marks { dscp_ecn: marks.dscp_ecn & !ECN | ect, ..marks }
    }

    /// Control bits that `plan` knows nothing of.
    #[cold]
    pub fn notes_of(&self, plan: &Plan) -> Flags {
        let mut notes = Flags::NONE;
        if let Some(ecn) = self.ecn().filter(|_| plan.kind != Kind::Reset) {
            if ecn.echoes {
                notes = notes | Flags::ECE;
            }
            if ecn.owes_cwr && plan.kind == Kind::New && plan.has_text_beyond(self.snd.nxt) {
                notes = notes | Flags::CWR;
            }
        }
        notes
    }

    /// New text has left, which says CWR if that was owed.
    #[cold]
    pub(super) fn note_cwr_said(&mut self) {
        let is_heeded = self.has_heeded_mark();
        if let Some(ecn) = self.ecn_mut() {
            ecn.owes_cwr = false;
            if !is_heeded {
                ecn.heeded_to = None; // on the other side of the circle it would lie ahead again
            }
        }
    }

    /// Text has come with these control bits, marked or not.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.3
    //# When TCP receives a CE data packet at the destination end-system, the TCP data receiver sets the ECN-Echo flag in the TCP
    //# header of the subsequent ACK packet.
    #[cold]
    pub(super) fn heed_mark(&mut self, flags: Flags, is_marked: bool) {
        let Some(ecn) = self.ecn_mut() else { return };
        if flags.contains(Flags::CWR) {
            ecn.echoes = false;
        }
        if is_marked {
            ecn.echoes = true;
            self.facts.set(Facts::ACK_NOW);
        }
    }

    /// The peer says that something of ours was marked. It is taken for a loss, of which nothing has to be repaired, once for each window. `acked`: and
    /// acknowledges something new.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
    //# TCP should not react to congestion indications more than once every window of data (or more loosely, more than once every round-trip time).
    #[cold]
    pub(super) fn heed_echo(&mut self, acked: bool, cx: &Cx<'_>) {
        // What is said to one who has nothing under way was said before.
        if self.has_heeded_mark() || !acked && self.flight() == 0 {
            return;
        }
        let nxt = self.snd.nxt;
        let Some(ecn) = self.ecn_mut() else { return };
        ecn.heeded_to = Some(nxt);
        // What is lost has made the window smaller as it is.
        if matches!(self.phase, Phase::Open | Phase::Tail) {
            self.reduce(self.lately_in_flight(), cx.now);
            self.congestion.on_recovered(cx.now);
        } else {
            self.owe_cwr();
        }
        self.congestion.confirm();
    }

    /// The window became smaller, for a mark or a loss.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
    //# When an ECN-Capable TCP sender reduces its congestion window for any reason (because of a retransmit timeout, a Fast Retransmit,
    //# or in response to an ECN Notification), the TCP sender sets the CWR flag in the TCP header of the first new data packet sent
    //# after the window reduction.
    #[cold]
    pub(super) fn owe_cwr(&mut self) {
        if let Some(ecn) = self.ecn_mut() {
            ecn.owes_cwr = true;
        }
    }

    /// It is as large as before, and if there was no mark, there is nothing to tell.
    #[cold]
    pub(super) fn owe_no_cwr(&mut self) {
        if let Some(ecn) = self.ecn_mut() {
            ecn.owes_cwr &= ecn.heeded_to.is_some();
        }
    }

    /// The window is smaller for a mark, and the peer may not have heard so yet: CWR is with what left next.
    pub(super) fn has_heeded_mark(&self) -> bool {
        self.is_of_marked_window(self.snd.una)
    }

    /// What is oldest of what is under way had left before the window became smaller for a mark: its loss is one with that.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
    //# If that data packet is dropped in the network, then the sending TCP will have to reduce the congestion window again and retransmit
    //# the dropped packet.
    pub(super) fn is_in_marked_window(&self) -> bool {
        self.is_of_marked_window(self.snd.una + 1)
    }

    /// All up to `end` had left when the window became smaller for a mark.
    pub(super) fn is_of_marked_window(&self, end: SeqNum) -> bool {
        self.ecn().and_then(|ecn| ecn.heeded_to).is_some_and(|to| end.at_or_before(to))
    }
}

#[cfg(test)]
mod tests;
