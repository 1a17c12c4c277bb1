//! Owns telling connections that the path to their peer has become narrower: a walk over all of them, for which nothing is
//! kept on their path, a few thousand slots a poll, so that no ICMP message holds a lane up.
//!
//! One walk serves every peer that is known when it begins; what is learnt meanwhile has the next. So there is never more
//! to do than two walks, however many messages come. A connection that is made meanwhile has the new MTU from its path.

use crate::lane::Local;
use crate::tables::{Slot, Tables, Tcb};
use hashbrown::HashMap;
use laneway_wire::flow::Address;

/// Slots looked at in one poll.
const LOOKS_MAX: u32 = 2_048;

/// Paths that have become narrower, of which not every connection knows yet.
#[derive(Default)]
pub(crate) struct Narrowing {
    /// Those that the walk is about, with their MTU.
    walking: HashMap<Address, u32>,
    /// The slot that it looks at next.
    next: u32,
    /// Those that the next walk will be about.
    waiting: HashMap<Address, u32>,
}

impl Narrowing {
    /// The path to `remote` carries only `mtu` bytes now.
    pub(crate) fn learn(&mut self, remote: Address, mtu: u32) {
        self.waiting.insert(remote, mtu);
    }

    /// Some connection may not know yet.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.walking.is_empty() || !self.waiting.is_empty()
    }
}

/// Goes on with the walk.
#[cold]
pub(crate) fn walk(tables: &mut Tables, local: &mut Local) {
    let narrowing = &mut local.narrowing;
    if narrowing.walking.is_empty() {
        std::mem::swap(&mut narrowing.walking, &mut narrowing.waiting);
        narrowing.next = 0;
    }
    let end = tables.slots.end();
    let until = end.min(narrowing.next.saturating_add(LOOKS_MAX));
    for index in narrowing.next..until {
        tables.slots.prefetch(index + 4);
        if let Some(Slot { tcb: Tcb::Synchronized(connection), touched, .. }) = tables.slots.get_mut(index)
            && let Some(mtu) = narrowing.walking.get(&connection.key().remote)
        {
            connection.on_path_mtu(*mtu);
            if !*touched {
                *touched = true;
                local.touched.add(index);
            }
        }
    }
    narrowing.next = until;
    if until == end {
        narrowing.walking.clear();
    }
}

#[cfg(test)]
mod tests;
