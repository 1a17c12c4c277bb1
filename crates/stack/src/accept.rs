//! Owns listeners on a lane and their queues of finished connections.
//!
//! Each lane has a queue of its own per listener; on-lane acceptors never take from another lane. Only a
//! [`ConnId`] of a connection that is fully set up can be put in: `push` is called in one place, after insertion.

use crate::app::{ConnId, ListenerId};
use crate::binding::Binding;
use laneway_proto::ip::output::Marks;
use laneway_wire::flow::Address;
use std::collections::VecDeque;

const NONE: u16 = u16::MAX;

/// One listener, as one lane sees it.
pub struct Listener {
    /// What it is bound to, and with which options.
    pub binding: Binding,
    /// The port.
    pub port: u16,
    backlog: usize,
    /// How many may wait in the queue of this lane.
    places: usize,
    queue: VecDeque<ConnId>,
    /// How many of them have ended: a peer may end all that wait, so none is looked for among them.
    ended: usize,
    /// Of the packets to whoever calls it.
    marks: Marks,
    /// The next listener on the same port.
    next: u16,
}

impl Listener {
    /// Finished connections that wait on this lane.
    pub fn queued(&self) -> usize {
        self.queue.len().saturating_sub(self.ended)
    }

    /// How many may wait as `listen` asked for it, on all lanes together.
    pub fn backlog(&self) -> usize {
        self.backlog
    }
}

/// The listeners of one lane: found by port with one index, whatever their number.
pub struct Listeners {
    by_port: Box<[u16]>,
    all: Vec<Option<Listener>>,
}

impl Default for Listeners {
    fn default() -> Self {
        Listeners { by_port: vec![NONE; 65_536].into_boxed_slice(), all: Vec::new() }
    }
}

impl Listeners {
    /// Adds a listener under the id that the control thread chose. Of a backlog `b` over `lanes` lanes each lane holds
    /// ⌈b/lanes⌉ + 16, so that uneven hashing does not refuse what `listen` promised.
    pub fn add(&mut self, id: ListenerId, binding: Binding, port: u16, backlog: usize, lanes: usize) {
        let at = usize::from(id.0);
        if self.all.len() <= at {
            self.all.resize_with(at + 1, || None);
        }
        let next = std::mem::replace(&mut self.by_port[usize::from(port)], id.0);
        let places = backlog.div_ceil(lanes).saturating_add(16);
        let (queue, marks) = (VecDeque::new(), Marks::NONE);
        self.all[at] = Some(Listener { binding, port, backlog, places, queue, ended: 0, marks, next });
    }

    /// So many connections may wait with the application, which takes them at once and hands them out: fewer may wait in the queue.
    /// Called once for a listener.
    pub(crate) fn hands_out(&mut self, id: ListenerId, places: usize) {
        if let Some(Some(listener)) = self.all.get_mut(usize::from(id.0)) {
            listener.places = listener.places.saturating_sub(places).max(1);
        }
    }

    /// Changes the marks of the packets to whoever calls it.
    pub(crate) fn mark(&mut self, id: ListenerId, change: impl FnOnce(&mut Marks)) {
        if let Some(Some(listener)) = self.all.get_mut(usize::from(id.0)) {
            change(&mut listener.marks);
        }
    }

    /// Those marks.
    #[inline]
    pub(crate) fn marks(&self, id: ListenerId) -> Marks {
        self.all.get(usize::from(id.0)).and_then(Option::as_ref).map_or(Marks::NONE, |l| l.marks)
    }

    /// Removes a listener; the answer is the connections that nobody will accept, to be reset. Some of them may have ended.
    pub fn remove(&mut self, id: ListenerId) -> VecDeque<ConnId> {
        let Some(gone) = self.all.get_mut(usize::from(id.0)).and_then(Option::take) else { return VecDeque::new() };
        let mut link = self.by_port[usize::from(gone.port)];
        if link == id.0 {
            self.by_port[usize::from(gone.port)] = gone.next;
        } else {
            while let Some(Some(listener)) = self.all.get_mut(usize::from(link)) {
                if listener.next == id.0 {
                    listener.next = gone.next;
                    break;
                }
                link = listener.next;
            }
        }
        gone.queue
    }

    /// The listener for a SYN: one bound to the exact address before one bound to any of its family, before one bound to any of
    /// both. Of those that share an address (`SO_REUSEPORT`), the hash of the flow chooses.
    #[inline]
    pub fn find(&self, address: &Address, port: u16, hash: u64) -> Option<ListenerId> {
        let link = self.by_port[usize::from(port)];
        if let Some(Some(only)) = self.all.get(usize::from(link))
            && only.next == NONE
        {
            // Nearly always.
            return (only.binding.rank(address) > 0).then_some(ListenerId(link));
        }
        self.best(link, address, port, hash)
    }

    /// Of several at a port, from `link` on: the one that means the address best.
    #[inline(never)]
    fn best(&self, mut link: u16, address: &Address, port: u16, hash: u64) -> Option<ListenerId> {
        let (mut best, mut rank, mut members) = (None, 0, 0u64);
        while let Some(Some(listener)) = self.all.get(usize::from(link)) {
            let this = listener.binding.rank(address);
            if this > rank {
                (best, rank, members) = (Some(ListenerId(link)), this, 1);
            } else if this > 0 && this == rank {
                members += 1;
            }
            link = listener.next;
        }
        if members > 1 { self.member(address, port, rank, hash % members) } else { best }
    }

    /// One of several that mean an address equally well.
    #[cold]
    fn member(&self, address: &Address, port: u16, rank: u8, mut which: u64) -> Option<ListenerId> {
        let mut link = self.by_port[usize::from(port)];
        while let Some(Some(listener)) = self.all.get(usize::from(link)) {
            if listener.binding.rank(address) == rank {
                if which == 0 {
                    return Some(ListenerId(link));
                }
                which -= 1;
            }
            link = listener.next;
        }
        None
    }

    /// The options that connections of a listener keep.
    #[inline]
    pub(crate) fn reuse(&self, id: ListenerId) -> u8 {
        self.all.get(usize::from(id.0)).and_then(Option::as_ref).map_or(0, |l| l.binding.options.bits())
    }

    /// The first listener whose name is this number or a later one.
    pub fn at_or_after(&self, id: usize) -> Option<(ListenerId, &Listener)> {
        let rest = self.all.iter().enumerate().skip(id);
        rest.filter_map(|(at, listener)| Some((ListenerId(at as u16), listener.as_ref()?))).next()
    }

    /// Still there?
    #[inline]
    pub fn contains(&self, id: ListenerId) -> bool {
        self.all.get(usize::from(id.0)).is_some_and(Option::is_some)
    }

    /// The options that one more finished connection of a listener keeps, if there is room for it.
    #[inline]
    pub(crate) fn room(&self, id: ListenerId) -> Option<u8> {
        let listener = self.all.get(usize::from(id.0))?.as_ref()?;
        (listener.queued() < listener.places).then(|| listener.binding.options.bits())
    }

    /// Room for one more finished connection.
    #[inline]
    pub fn has_room(&self, id: ListenerId) -> bool {
        self.all.get(usize::from(id.0)).and_then(Option::as_ref).is_some_and(|l| l.queued() < l.places)
    }

    /// Queues a finished connection, and says how its packets are to be marked. The caller has asked `has_room`.
    #[inline]
    pub fn push(&mut self, id: ListenerId, connection: ConnId) -> Marks {
        let Some(Some(listener)) = self.all.get_mut(usize::from(id.0)) else { return Marks::NONE };
        listener.queue.push_back(connection);
        listener.marks
    }

    /// Takes the oldest finished connection. If that has ended, it is to be said (`passed_over`).
    #[inline]
    pub fn pop(&mut self, id: ListenerId) -> Option<ConnId> {
        self.all.get_mut(usize::from(id.0))?.as_mut()?.queue.pop_front()
    }

    /// The one just taken had ended before.
    #[cold]
    pub(crate) fn passed_over(&mut self, id: ListenerId) {
        if let Some(Some(listener)) = self.all.get_mut(usize::from(id.0)) {
            listener.ended = listener.ended.saturating_sub(1);
        }
    }

    /// A connection has ended before anyone accepted it, and `lives` does not know it any more. Its place in the queue is another's; it itself
    /// leaves it when half of them have ended.
    pub(crate) fn forget(&mut self, id: ListenerId, lives: impl Fn(ConnId) -> bool) {
        let Some(Some(listener)) = self.all.get_mut(usize::from(id.0)) else { return };
        listener.ended += 1;
        if 2 * listener.ended > listener.queue.len() {
            listener.queue.retain(|waiting| lives(*waiting));
            listener.ended = 0;
        }
    }
}

#[cfg(test)]
mod tests;
