//! Owns telling one thread about many sockets: a list of those that something happened to, and a descriptor.

#[cfg(test)]
mod tests;

use super::WATCHES_MAX;
use super::accept::Acceptors;
use super::datagram::Datagrams;
use super::desk::Desk;
use super::words::{CONNECTED, Conversation, ENDED, GONE, READ, ROOM, SHUT_READ, SHUT_WRITE, Talk, WRITE};
use laneway_sync::doorbell::ParkFlag;
use laneway_sync::prefetch::prefetch_bytes_to_write;
use laneway_sync::wake::{Job, WakeList, Woken, wake_list};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::*};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What is watched.
pub enum Source {
    /// A connection.
    Conversation(Talk),
    /// A listener.
    Acceptors(Arc<Acceptors>),
    /// A UDP socket.
    Datagrams(Arc<Datagrams>),
}

impl Source {
    /// Which of [`READ`] and [`WRITE`] would not have to wait.
    pub fn ready(&self) -> u32 {
        match self {
            Source::Conversation(talk) => readiness(talk),
            Source::Acceptors(acceptors) => {
                if acceptors.is_ready() {
                    READ
                } else {
                    0
                }
            }
            Source::Datagrams(socket) => socket.ready(),
        }
    }

    /// Over which lane the last of its news came.
    pub(super) fn lane(&self) -> usize {
        match self {
            Source::Conversation(talk) => talk.lane().lane.load(Relaxed).into(),
            Source::Acceptors(acceptors) => acceptors.takes.came_over.get(),
            Source::Datagrams(socket) => socket.came_over.get(),
        }
    }

    fn watches(&self) -> &AtomicU16 {
        match self {
            Source::Conversation(talk) => &talk.app().watches,
            Source::Acceptors(acceptors) => &acceptors.watches,
            Source::Datagrams(socket) => &socket.watches,
        }
    }

    /// Its stack has ended. A connection is not over by that alone: its lane says when.
    pub(super) fn end(&self) {
        match self {
            Source::Conversation(_) => {}
            Source::Acceptors(acceptors) => acceptors.end(),
            Source::Datagrams(socket) => socket.end(),
        }
    }

    /// Whether both are handles of one socket.
    pub fn is(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Conversation(one), Source::Conversation(other)) => std::ptr::eq(&**one, &**other),
            (Source::Acceptors(one), Source::Acceptors(other)) => Arc::ptr_eq(one, other),
            (Source::Datagrams(one), Source::Datagrams(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Its last handle was dropped: there is nobody who could use it.
    pub fn is_abandoned(&self) -> bool {
        match self {
            Source::Conversation(talk) => talk.app().handles.load(Relaxed) == 0,
            Source::Acceptors(acceptors) => acceptors.abandoned.load(Relaxed),
            Source::Datagrams(socket) => socket.abandoned.load(Relaxed),
        }
    }

    /// Its user has no other handle of it. Of a listener and a datagram socket nobody counts them: false.
    pub fn is_last(&self) -> bool {
        matches!(self, Source::Conversation(talk) if talk.app().handles.load(Relaxed) == 1)
    }

    /// Which of `wanted` would not have to wait. Of room to send that is wanted and not there, the lane tells when there is
    /// enough.
    pub fn look_for(&self, wanted: u32) -> u32 {
        let ready = self.ready() & wanted;
        if wanted & !ready & WRITE == 0 {
            return ready;
        }
        match self {
            Source::Conversation(talk) => talk.flags().want(ROOM),
            Source::Datagrams(socket) => socket.want(ROOM),
            Source::Acceptors(_) => return ready,
        }
        self.ready() & wanted
    }
}

/// Which of [`READ`] and [`WRITE`] would not have to wait on a connection.
pub fn readiness(talk: &Conversation) -> u32 {
    let mut ready = ended(talk);
    if talk.readable() > 0 {
        ready |= READ;
    }
    if talk.lane().status.load(Acquire) & CONNECTED != 0 && talk.writable() >= talk.send_limit() / 3 {
        ready |= WRITE;
    }
    ready
}

/// Which direction of a connection has ended: [`READ`]: what is not there yet will not come; [`WRITE`]: nothing can be sent.
pub fn ended(talk: &Conversation) -> u32 {
    let status = talk.lane().status.load(Acquire);
    let shut = talk.app().state.load(Relaxed);
    let over = status & GONE != 0 || talk.lane().has_error();
    let mut ended = 0;
    if over || status & ENDED != 0 || shut & SHUT_READ != 0 {
        ended |= READ;
    }
    if over || shut & SHUT_WRITE != 0 {
        ended |= WRITE;
    }
    ended
}

/// Of [`Watched::interest`]: nobody wants to know any more, and nobody ever will. The bits above [`WRITE`] and below this are its
/// user's.
const FORGOTTEN: u32 = 1 << 31;

/// A socket that is watched, for the list of those that something happened to.
pub type Watch = Job<Watched>;

/// What is known of a socket that is watched.
pub struct Watched {
    /// The socket.
    pub source: Source,
    /// The user's name for it.
    pub key: usize,
    /// What the user wants to know: [`READ`], [`WRITE`]; 0 for nothing at the moment.
    pub interest: AtomicU32,
    pub(super) desk: Weak<Desk>,
    list: WakeList<Watch>,
    bell: Arc<PollBell>,
}

impl Watched {
    /// Something happened to it that may be one of `bits` (0: nothing).
    pub(super) fn tell(this: &Arc<Watch>, bits: u32) {
        if this.interest.load(Relaxed) & bits != 0 {
            Self::look(this);
        }
    }

    /// Asks for it, to be put on its list.
    #[inline]
    pub(super) fn prefetch(this: &Arc<Watch>) {
        // It is counted before where it begins.
        let counts = 2 * size_of::<usize>();
        prefetch_bytes_to_write(Arc::as_ptr(this).cast::<u8>().wrapping_sub(counts), counts + size_of::<Watch>());
    }

    /// Nobody wants to know any more. The lane keeps it until it is told so ([`Desk::unwatch`](super::desk::Desk::unwatch)), or until
    /// another watches the same socket.
    pub fn forget(&self) {
        if self.interest.swap(FORGOTTEN, AcqRel) & FORGOTTEN == 0 {
            self.source.watches().fetch_sub(1, Relaxed);
        }
    }

    /// Has the lanes drop it, once it was [forgotten](Self::forget), unless its stack is gone and they with it.
    pub fn unwatch(&self) {
        if let Some(desk) = self.desk.upgrade().filter(|desk| desk.is_here()) {
            desk.unwatch(&self.source);
        }
    }

    /// Whether it was forgotten.
    pub fn is_forgotten(&self) -> bool {
        self.interest.load(Acquire) & FORGOTTEN != 0
    }

    /// Puts `change` of the user's word in its place, unless it was forgotten: then false.
    pub fn set_interest(&self, change: impl Fn(u32) -> u32) -> bool {
        let change = |now| (now & FORGOTTEN == 0).then(|| change(now));
        self.interest.fetch_update(AcqRel, Acquire, change).is_ok()
    }

    /// Has the poller look at it.
    pub fn look(this: &Arc<Watch>) {
        if this.list.push(this) {
            this.bell.ring();
        }
    }
}

struct PollBell {
    flag: ParkFlag,
    event: OwnedFd,
}

impl PollBell {
    fn ring(&self) {
        if self.flag.take() {
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

/// The side that tells about many sockets.
pub struct PollList {
    list: WakeList<Watch>,
    bell: Arc<PollBell>,
}

/// The side that waits: one.
pub struct PollQueue {
    woken: Woken<Watch>,
    bell: Arc<PollBell>,
    armed: bool,
    /// Rings of those who took the flag that were not yet found in the descriptor. Between the two steps of a ring lies a system call, and
    /// what it is about may have been found before.
    owed: u64,
}

/// A list and the queue that empties it.
pub fn poll_list() -> io::Result<(PollList, PollQueue)> {
    let (list, woken) = wake_list();
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let bell = Arc::new(PollBell { flag: ParkFlag::new(), event });
    Ok((PollList { list, bell: bell.clone() }, PollQueue { woken, bell, armed: false, owed: 0 }))
}

impl PollList {
    /// A socket of this stack to be watched, until it is [forgotten](Watched::forget). `None`: there are [`WATCHES_MAX`] already that do.
    pub fn watch(&self, desk: &Arc<Desk>, source: Source, key: usize, interest: u32) -> Option<Arc<Watch>> {
        let one_more = |n| (n < WATCHES_MAX).then_some(n + 1);
        source.watches().fetch_update(Relaxed, Relaxed, one_more).ok()?;
        let (list, bell, desk) = (self.list.clone(), self.bell.clone(), Arc::downgrade(desk));
        Some(Arc::new(Job::new(Watched { source, key, interest: AtomicU32::new(interest), desk, list, bell })))
    }

    /// The descriptor that becomes readable.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.bell.event.as_fd()
    }

    /// Wakes whoever waits.
    pub fn wake(&self) {
        self.bell.ring();
    }
}

impl PollQueue {
    /// Begins a round of those that something may have happened to.
    pub fn begin_round(&mut self) {
        self.woken.begin_round();
    }

    /// The next of this round. Look at its readiness after this. No socket comes twice: what happens to it from now on is for the round after.
    pub fn pop(&mut self) -> Option<Arc<Watch>> {
        self.woken.pop_of_round()
    }

    /// There is one for the next round.
    pub fn has_some(&self) -> bool {
        !self.woken.is_empty()
    }

    /// Makes the descriptor tell from now on. True: there is something already.
    pub fn arm(&mut self) -> bool {
        self.bell.flag.announce();
        self.armed = true;
        self.has_some()
    }

    /// Waits, armed, until the descriptor tells, for as long as `left` at the most.
    pub fn sleep(&self, left: Option<Duration>) {
        let left = left
            .map(|left| Timespec { tv_sec: left.as_secs().min(1 << 40) as i64, tv_nsec: left.subsec_nanos().into() });
        let _ = poll(&mut [PollFd::new(&self.bell.event, PollFlags::IN)], left.as_ref());
    }

    /// Takes the arming back. True: somebody had rung.
    pub fn disarm(&mut self) -> bool {
        let rung = std::mem::take(&mut self.armed) && self.bell.flag.retract();
        self.owed += u64::from(rung);
        // A ring that is still on its way is looked for again by the next who comes here: the descriptor would tell of it for ever.
        let mut rings = [0; 8];
        if self.owed > 0 && rustix::io::read(&self.bell.event, &mut rings).is_ok() {
            self.owed = self.owed.saturating_sub(u64::from_ne_bytes(rings));
        }
        rung
    }
}
