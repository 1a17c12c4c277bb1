//! Owns a lane's side of neighbour resolution: packets that wait for a link address, at most three per next hop.
//!
//! Asking is the control thread's business, so that a next hop is asked once a second whatever the number of lanes.

use laneway_proto::time::Instant;
use laneway_wire::flow::Address;

/// Packets per next hop that wait.
const PACKETS_MAX: usize = 3;
/// Next hops that are waited for at a time.
const HOPS_MAX: usize = 256;
/// How long to wait before asking the control thread again.
const ASK_AGAIN_US: u64 = 1_000_000;

/// What became of a packet that has to wait.
#[must_use]
pub enum Wait {
    /// It waits, or the last one was too many; either way the control thread should be asked (again).
    Ask,
    /// It waits for an answer that is on its way.
    Asked,
    /// Enough packets wait for that neighbour.
    Full,
}

struct Waiting {
    next_hop: Address,
    asked_at: Instant,
    packets: Vec<Vec<u8>>,
}

/// Packets of one lane that wait for link addresses.
#[derive(Default)]
pub struct WaitingRoom {
    hops: Vec<Waiting>,
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
                return if ask { Wait::Ask } else { Wait::Full };
            }
            waiting.packets.push(packet.to_vec());
            return if ask { Wait::Ask } else { Wait::Asked };
        }
        if self.hops.len() >= HOPS_MAX {
            return Wait::Full;
        }
        self.hops.push(Waiting { next_hop, asked_at: now, packets: vec![packet.to_vec()] });
        Wait::Ask
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
