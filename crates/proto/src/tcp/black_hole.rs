//! Owns the suspicion that a path swallows what is large: a router drops what does not fit its next link, and the message that would say so
//! never comes back. A connection is made, as small packets pass, and then hangs: a black hole (RFC 2923 section 2.1).
//!
//! As long as nothing is heard an outage looks the same, and nothing is to be learnt from one. So who has sent a large segment four times in vain sends a
//! small one; when that is answered large ones go again, and if they are not answered now, it is their size. What an outage costs by this is one segment.
//!
//! This is the half of packetization layer path MTU discovery (RFC 4821) that keeps connections alive. Nothing larger is tried: as what ICMP says,
//! what was found is forgotten after a time.

use super::Cx;
use super::congestion::Controller;
use super::connection::{Connection, Facts, effective_mss};
use crate::time::Instant;
use laneway_wire::tcp::SeqNum;

/// MTUs that are tried one after the other: what Ethernet carries, what every path of IPv6 does, and tunnels in tunnels mostly, too (RFC 8200 section 5);
/// and what every host of IPv4 takes (RFC 1122 section 3.3.2).
const TRIED: [u32; 3] = [1_500, 1_280, 576];

/// Later than this after large segments go again, silence says nothing of their size.
const TRIED_MS: u32 = 30_000;

/// What is suspected of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Suspicion {
    /// The MTU that it may have.
    mtu: u32,
    /// Text of a full segment before.
    mss: u16,
    /// Smaller ones were answered up to here, and at that time full ones began to go again.
    answered: Option<(SeqNum, Instant)>,
}

impl Connection {
    /// To be called when [a retransmission is due](Self::is_retransmission_due), before [`on_timeout`](Self::on_timeout). Says what the path carries, if that is
    /// known by this: all connections to this peer should hear of it. (This one does.)
    ///
    //= https://www.rfc-editor.org/rfc/rfc4821#section-7.7
    //# If eff_pmtu is larger than search_low, set eff_pmtu to search_low.
    #[cold]
    pub fn suspect_path(&mut self, cx: &Cx<'_>) -> Option<u32> {
        if !cx.config.tcp_mtu_probing {
            return None;
        }
        let before = self.suspicion();
        if let Some(Suspicion { mtu, answered: Some((una, since)), .. }) = before {
            self.forget_suspicion();
            // As long as less was answered than a large segment it may have been small ones.
            let is_large = self.snd.una.offset_from(una) >= self.snd.mss.into();
            if !is_large && self.is_too_large_for(mtu) && cx.now.since_us(since) <= u64::from(TRIED_MS) * 1_000 {
                self.carries(mtu);
                return Some(mtu);
            }
        }
        if self.retries < cx.config.tcp_retries1 {
            return None;
        }
        let tried = if self.key.is_v4() { &TRIED[..] } else { &TRIED[..2] };
        let mtu = tried.iter().copied().find(|mtu| self.is_too_large_for(*mtu))?;
        let mss = before.map_or(self.snd.mss, |suspicion| suspicion.mss);
        self.carries(mtu);
        self.tell(|told| told.suspicion = Some(Suspicion { mtu, mss, answered: None }));
        None
    }

    /// Something new was acknowledged after a loss. If it was a small segment in place of a large one, large ones may go again.
    #[cold]
    pub(super) fn doubt_suspicion(&mut self, now: Instant) {
        if let Some(Suspicion { mss, answered: None, .. }) = self.suspicion() {
            let una = self.snd.una;
            self.snd.mss = mss;
            self.congestion.on_mss(mss.into());
            self.rtt.on_small_answered();
            self.tell(|told| told.suspicion = told.suspicion.map(|is| Suspicion { answered: Some((una, now)), ..is }));
        }
    }

    /// Something is known.
    pub(super) fn forget_suspicion(&mut self) {
        if self.suspicion().is_some() {
            self.tell(|told| told.suspicion = None);
        }
    }

    fn suspicion(&self) -> Option<Suspicion> {
        self.told.as_ref()?.suspicion
    }

    /// Whether a segment that may be under way is.
    fn is_too_large_for(&self, mtu: u32) -> bool {
        let fits = effective_mss(self.snd.peer_mss, mtu, self.key.is_v4(), self.facts.has(Facts::TIMESTAMPS));
        self.flight().min(self.snd.wnd).min(self.snd.mss.into()) > fits.into()
    }
}

#[cfg(test)]
mod tests;
