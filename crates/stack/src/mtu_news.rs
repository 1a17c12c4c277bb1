//! Owns telling connections that the path to their peer has become narrower, or is as wide again as it was: a walk over all of them, for which
//! nothing is kept on their path, a few thousand slots a poll, so that no ICMP message holds a lane up.
//!
//! One walk serves every peer that is known when it begins; what is learnt meanwhile has the next. So there is never more
//! to do than two walks, however many messages come. A connection that is made meanwhile has the new MTU from its path.

use crate::lane::Local;
use crate::mail::ToControl;
use crate::tables::{Slot, Tables, Tcb};
use hashbrown::HashMap;
use laneway_wire::flow::Address;

/// Slots looked at in one poll.
const LOOKS_MAX: u32 = 2_048;

/// Paths that carry another MTU than they did, of which not every connection knows yet.
#[derive(Default)]
pub(crate) struct MtuNews {
    /// Those that the walk is about, with their MTU.
    walking: HashMap<Address, u32>,
    /// The slot that it looks at next.
    next: u32,
    /// Those that the next walk will be about.
    waiting: HashMap<Address, u32>,
}

impl MtuNews {
    /// The path to `remote` carries `mtu` bytes now.
    pub(crate) fn learn(&mut self, remote: Address, mtu: u32) {
        self.waiting.insert(remote, mtu);
    }

    /// Some connection may not know yet.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.walking.is_empty() || !self.waiting.is_empty()
    }
}

impl Local {
    /// The path to `remote` carries `said` bytes, by a message that was verified or as was found out. If that is news, all lanes and all connections
    /// to that peer are told.
    #[cold]
    pub(crate) fn learn_mtu(&mut self, remote: Address, said: u32) {
        if let Some(mtu) = self.paths.on_packet_too_big(&self.snapshot, remote, said, self.now) {
            let _ = self.mail.to_control.push(ToControl::PathMtu(remote, said));
            self.mtu_news.learn(remote, mtu);
        }
    }
}

/// Goes on with the walk.
#[cold]
pub(crate) fn walk(tables: &mut Tables, local: &mut Local) {
    let news = &mut local.mtu_news;
    if news.walking.is_empty() {
        std::mem::swap(&mut news.walking, &mut news.waiting);
        news.next = 0;
    }
    let end = tables.slots.end();
    let until = end.min(news.next.saturating_add(LOOKS_MAX));
    for index in news.next..until {
        tables.slots.prefetch(index + 4);
        if let Some(Slot { tcb: Tcb::Synchronized(connection), touched, .. }) = tables.slots.get_mut(index)
            && let Some(mtu) = news.walking.get(&connection.key().remote)
        {
            connection.on_path_mtu(*mtu);
            if !*touched {
                *touched = true;
                local.touched.add(index);
            }
        }
    }
    news.next = until;
    if until == end {
        news.walking.clear();
    }
}

#[cfg(test)]
mod tests;
