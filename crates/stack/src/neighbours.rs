//! Owns a lane's side of neighbour resolution: packets that wait for a link address, so many bytes of them and for at most as long as an
//! answer may take.
//!
//! Anybody can fill this, by asking something in the names of hosts that are not there. So what waits is bounded twice: for one next hop by what
//! a few of the longest datagrams are in fragments, of which none is worth anything without the others, and in all by less than that for each.
//! Beyond, room is made by the next hop for which most waits: who has not more than his share loses nothing, whatever others do.
//!
//! Asking is the control thread's business, so that a next hop is asked once a second whatever the number of lanes. It says who did not
//! answer, too; that a wait has an end does not depend on it.

use crate::snapshot::mix_pair;
use laneway_proto::time::Instant;
use laneway_wire::flow::Address;
use std::collections::VecDeque;

/// Bytes that wait for one next hop, bookkeeping included (the kernel's `unres_qlen_bytes`): three datagrams of 64 KiB in 45 fragments each.
const HOP_BYTES_MAX: usize = 212_992;
/// Bytes that wait in all, bookkeeping included. For as many next hops as there may be, that is 8 KiB of each.
const BYTES_MAX: usize = 2 << 20;
/// What a packet is taken to cost besides its bytes: allocations are not free, however small.
const OVERHEAD: usize = 64;
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
    /// Enough waits for that neighbour, and this one, which its sender keeps, does not.
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
    packets: VecDeque<Vec<u8>>,
    /// What they cost.
    bytes: usize,
}

impl Waiting {
    /// Drops the packet that came first, and says whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let Some(oldest) = self.packets.pop_front() else { return false };
        self.bytes -= cost(&oldest);
        // Nor are the places kept of what is gone: they are not counted.
        if self.packets.len() < self.packets.capacity() / 4 {
            self.packets.shrink_to(2 * self.packets.len());
        }
        true
    }
}

fn cost(packet: &[u8]) -> usize {
    packet.len() + OVERHEAD
}

/// Packets of one lane that wait for link addresses.
#[derive(Default)]
pub struct WaitingRoom {
    /// In the order in which their first packet came.
    hops: Vec<Waiting>,
    /// Of whom the control plane was told last, and when in milliseconds: by the hop, two places each.
    told: Vec<Option<(Address, u32)>>,
    /// Packets that have made room for others.
    pushed_out: usize,
}

impl WaitingRoom {
    /// Queues an IP packet for `next_hop`. If too much waits for that already, the oldest of it goes; but not for a packet that `is_kept`: whoever
    /// sends that tries again.
    pub fn wait(&mut self, next_hop: Address, packet: &[u8], is_kept: bool, now: Instant) -> Wait {
        let (at, ask) = match self.hops.iter().position(|waiting| waiting.next_hop == next_hop) {
            Some(at) => (at, now.since_us(self.hops[at].asked_at) >= ASK_AGAIN_US),
            None if self.hops.len() >= HOPS_MAX => return Wait::Crowded,
            None => {
                self.hops.push(Waiting { next_hop, since: now, asked_at: now, packets: VecDeque::new(), bytes: 0 });
                (self.hops.len() - 1, true)
            }
        };
        let waiting = &mut self.hops[at];
        if ask {
            waiting.asked_at = now;
        }
        while waiting.bytes + cost(packet) > HOP_BYTES_MAX {
            if is_kept {
                return Wait::Full { ask };
            }
            if !waiting.drop_oldest() {
                break;
            }
            self.pushed_out += 1;
        }
        waiting.bytes += cost(packet);
        waiting.packets.push_back(packet.to_vec());
        while self.bytes() > BYTES_MAX {
            let most = self.hops.iter_mut().max_by_key(|waiting| waiting.bytes);
            if !most.is_some_and(Waiting::drop_oldest) {
                break;
            }
            self.pushed_out += 1;
        }
        if ask { Wait::Ask } else { Wait::Asked }
    }

    /// What all that waits costs.
    fn bytes(&self) -> usize {
        self.hops.iter().map(|waiting| waiting.bytes).sum()
    }

    /// How many packets have made room for others since this was asked last.
    pub fn take_pushed_out(&mut self) -> usize {
        std::mem::take(&mut self.pushed_out)
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
    /// answer is how many packets went, if there is room now.
    pub fn make_room(&mut self, now: Instant) -> Option<usize> {
        let oldest = self.hops.first()?;
        let goes = self.hops.len() >= HOPS_MAX && now.since_us(oldest.since) >= ASK_AGAIN_US;
        goes.then(|| self.hops.remove(0).packets.len())
    }

    /// Gives up what has waited long enough.
    pub fn on_timeout(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let over = self.hops.iter().take_while(|waiting| now.since_us(waiting.since) >= WAIT_MAX_US).count();
        self.hops.drain(..over).flat_map(|waiting| waiting.packets).collect()
    }

    /// When `on_timeout` has to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.hops.first().map(|oldest| oldest.since.after_us(WAIT_MAX_US))
    }

    /// Takes the packets of every next hop for which `known` has an answer: `Some(true)` to be sent, `Some(false)` to be
    /// dropped.
    pub fn settle(&mut self, known: impl Fn(&Address) -> Option<bool>) -> Vec<(Address, VecDeque<Vec<u8>>, bool)> {
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
