//! Owns a lane's side of neighbour resolution: packets that wait for a link address, at most three per next hop and for at most as long
//! as an answer may take.
//!
//! Asking is the control thread's business, so that a next hop is asked once a second whatever the number of lanes. It says who did not
//! answer, too; that a wait has an end does not depend on it.

use crate::snapshot::mix_pair;
use laneway_proto::time::Instant;
use laneway_wire::flow::Address;

/// Packets per next hop that wait.
const PACKETS_MAX: usize = 3;
/// Next hops that are waited for at a time.
const HOPS_MAX: usize = 256;
/// How long to wait before asking the control thread again, and before making room for another next hop: by then an answer is late.
const ASK_AGAIN_US: u64 = 1_000_000;
/// How long a packet waits: for three requests, a second each, and for the news that they were in vain.
const WAIT_MAX_US: u64 = 4_000_000;

/// Next hops of which it is known when the control plane was told last.
const TOLD: usize = 256;
/// How often it is told, in milliseconds.
const TELL_AGAIN_MS: u32 = 1_000;

/// What became of a packet that has to wait.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// It waits, and the control thread should be asked (again).
    Ask,
    /// It waits for an answer that is on its way.
    Asked,
    /// Enough packets wait for that neighbour, and this one does not.
    Full {
        /// The control thread should be asked again.
        ask: bool,
    },
    /// Too many neighbours are waited for.
    Crowded,
}

struct Waiting {
    next_hop: Address,
    since: Instant,
    asked_at: Instant,
    packets: Vec<Vec<u8>>,
}

/// Packets of one lane that wait for link addresses.
#[derive(Default)]
pub struct WaitingRoom {
    /// In the order in which their first packet came.
    hops: Vec<Waiting>,
    /// Of whom the control plane was told last, and when in milliseconds: by the hop, two places each.
    told: Vec<Option<(Address, u32)>>,
}

impl WaitingRoom {
    /// Queues an IP packet for `next_hop`.
    pub fn wait(&mut self, next_hop: Address, packet: &[u8], now: Instant) -> Wait {
        if let Some(waiting) = self.hops.iter_mut().find(|w| w.next_hop == next_hop) {
            let ask = now.since_us(waiting.asked_at) >= ASK_AGAIN_US;
            if ask {
                waiting.asked_at = now;
            }
            if waiting.packets.len() >= PACKETS_MAX {
                return Wait::Full { ask };
            }
            waiting.packets.push(packet.to_vec());
            return if ask { Wait::Ask } else { Wait::Asked };
        }
        if self.hops.len() >= HOPS_MAX {
            return Wait::Crowded;
        }
        self.hops.push(Waiting { next_hop, since: now, asked_at: now, packets: vec![packet.to_vec()] });
        Wait::Ask
    }

    /// Whether the control plane has not been told for a second that a next hop is alive, or used: now it is.
    pub fn is_news(&mut self, next_hop: Address, alive: bool, now: Instant) -> bool {
        if self.told.is_empty() {
            self.told = vec![None; 2 * TOLD];
        }
        let place = mix_pair(&next_hop, &next_hop) % TOLD + if alive { TOLD } else { 0 };
        let now_ms = now.as_ms() as u32;
        let lately = |(hop, at_ms): (Address, u32)| hop == next_hop && now_ms.wrapping_sub(at_ms) < TELL_AGAIN_MS;
        let news = !self.told[place].is_some_and(lately);
        if news {
            self.told[place] = Some((next_hop, now_ms));
        }
        news
    }

    /// Makes room for another next hop, if there is none: whoever has waited longest goes, unless that has not been for a second. So
    /// strangers whose addresses nobody has cannot keep a neighbour out for longer, nor have more than 256 asked for in a second. The
    /// answer is how many packets went.
    pub fn make_room(&mut self, now: Instant) -> usize {
        match self.hops.first() {
            Some(oldest) if self.hops.len() >= HOPS_MAX && now.since_us(oldest.since) >= ASK_AGAIN_US => {
                self.hops.remove(0).packets.len()
            }
            _ => 0,
        }
    }

    /// Gives up those that have waited long enough, and says how many packets that were.
    pub fn on_timeout(&mut self, now: Instant) -> usize {
        let over = self.hops.iter().take_while(|waiting| now.since_us(waiting.since) >= WAIT_MAX_US).count();
        self.hops.drain(..over).map(|waiting| waiting.packets.len()).sum()
    }

    /// When `on_timeout` has to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.hops.first().map(|oldest| oldest.since.after_us(WAIT_MAX_US))
    }

    /// Takes the packets of every next hop for which `known` has an answer: `Some(true)` to be sent, `Some(false)` to be
    /// dropped.
    pub fn settle(&mut self, known: impl Fn(&Address) -> Option<bool>) -> Vec<(Address, Vec<Vec<u8>>, bool)> {
        let mut out = Vec::new();
        self.hops.retain_mut(|waiting| match known(&waiting.next_hop) {
            Some(reachable) => {
                out.push((waiting.next_hop, std::mem::take(&mut waiting.packets), reachable));
                false
            }
            None => true,
        });
        out
    }
}

#[cfg(test)]
mod tests;
