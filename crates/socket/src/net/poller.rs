//! Owns waiting for many sockets at once.

use super::late::sleep_until;
use super::{TcpListener, TcpStream, UdpSocket};
use crate::error::Why;
use laneway_stack::runtime::awake;
use laneway_stack::threads::WATCHES_MAX;
use laneway_stack::threads::desk::Desk;
use laneway_stack::threads::fork::Birth;
use laneway_stack::threads::lookout::{Look, Lookout};
use laneway_stack::threads::poll::{self, PollList, PollQueue, Watch, Watched};
use laneway_stack::threads::words::{READ, WRITE};
use std::collections::{HashMap, VecDeque, hash_map::Entry};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What one wants to know of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interest {
    /// A read, or an accept, would not wait.
    pub readable: bool,
    /// A write would not wait: a third of the ring is free.
    pub writable: bool,
}

impl Interest {
    /// Reading.
    pub const READABLE: Interest = Interest { readable: true, writable: false };
    /// Writing.
    pub const WRITABLE: Interest = Interest { readable: false, writable: true };
    /// Both.
    pub const BOTH: Interest = Interest { readable: true, writable: true };

    fn bits(self) -> u32 {
        (u32::from(self.readable) * READ) | (u32::from(self.writable) * WRITE)
    }
}

/// How often one is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// By every `wait`, for as long as it is so; of more sockets than one `wait` tells of, in turn.
    #[default]
    Level,
    /// Once each time that something has happened: that bytes came, or that room came after a write, or a `wait`, had found too
    /// little of it. What is there at the beginning may be told of twice: by who adds the socket, and by the lane when it begins to watch.
    Edge,
    /// Once; then not again before [`Poller::modify`].
    Oneshot,
}

/// A socket that is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The name that it was given.
    pub key: usize,
    /// A read, or an accept, would not wait.
    pub readable: bool,
    /// A write would not wait.
    pub writable: bool,
}

/// Beside the interest, in one word.
const EDGE: u32 = 1 << 8;
const ONESHOT: u32 = 1 << 9;
/// It is on the list of those that were ready when they were last looked at.
const LISTED: u32 = 1 << 10;

/// The most events that one `wait` returns.
const EVENTS_MAX: usize = 1_024;
/// How often a thread [gives way](awake::give_way) before it sleeps, if nothing comes of it.
const WAYS_MAX: u32 = 3;
/// How long a task looks before others have their turn, in microseconds: what it would cost them to be woken.
#[cfg(feature = "tokio")]
const GLANCE_US: u64 = 20;

/// What a [`glance`](Poller::glance) came to.
#[cfg(feature = "tokio")]
pub(crate) enum Glance {
    /// There are events.
    Told,
    /// There may be in a moment.
    Goes,
    /// There are none: the descriptor tells.
    Waits,
}

mod sealed {
    use super::{Arc, Desk, poll};
    pub trait Watchable {
        fn source(&self) -> poll::Source;
        fn desk(&self) -> &Arc<Desk>;
    }
}

/// A socket that a [`Poller`] can wait for.
pub trait Source: sealed::Watchable {}

/// What is looked at to see whether a socket is ready, and how its lanes are reached.
#[cfg(feature = "tokio")]
pub(crate) fn source(socket: &impl Source) -> (poll::Source, Arc<Desk>) {
    (socket.source(), socket.desk().clone())
}

impl sealed::Watchable for TcpStream {
    fn source(&self) -> poll::Source {
        poll::Source::Conversation(self.talk().clone())
    }
    fn desk(&self) -> &Arc<Desk> {
        self.desk()
    }
}
impl Source for TcpStream {}

impl sealed::Watchable for TcpListener {
    fn source(&self) -> poll::Source {
        poll::Source::Acceptors(self.acceptors().clone())
    }
    fn desk(&self) -> &Arc<Desk> {
        self.desk()
    }
}
impl Source for TcpListener {}

impl sealed::Watchable for UdpSocket {
    fn source(&self) -> poll::Source {
        poll::Source::Datagrams((**self.ticket()).clone())
    }
    fn desk(&self) -> &Arc<Desk> {
        self.desk()
    }
}
impl Source for UdpSocket {}

/// Waits for many sockets at once.
///
/// ```
/// use laneway::{Device, Interest, Mode, Poller, Stack, TcpListener, TcpStream};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (here, there) = Device::memory_pair(1)?;
/// # let server = Stack::builder(here).address("10.0.0.1/24")?.start()?;
/// # let client = Stack::builder(there).address("10.0.0.2/24")?.start()?;
/// let listener = TcpListener::bind_on(&server, "10.0.0.1:80")?;
/// let poller = Poller::new()?;
/// poller.add(&listener, 7, Interest::READABLE, Mode::Level)?;
/// let stream = TcpStream::connect_on(&client, "10.0.0.1:80")?;
///
/// let mut events = Vec::new();
/// poller.wait(&mut events, None)?;
/// assert_eq!(events[0].key, 7);
/// listener.accept()?;
/// # drop(stream);
/// # Ok(())
/// # }
/// ```
///
/// It has a descriptor ([`AsFd`]) that can be waited for in the kernel's `epoll` or `poll`, beside files and the kernel's
/// sockets. It becomes readable when something happens **after a [`wait`](Self::wait) without time that found nothing**: only
/// then is it written. So: when the descriptor is readable, call `wait` with a timeout of zero until nothing comes.
///
/// A socket can be watched by several pollers, or under several names, 256 at the most: each of them is told.
pub struct Poller {
    born: Birth,
    list: PollList,
    place: Mutex<Place>,
    /// The [`Place`] is free.
    returned: Condvar,
    watched: Mutex<Watches>,
    notified: AtomicBool,
}

/// Where what the thread that waits for all takes with it lies meanwhile.
struct Place {
    /// Nothing while one has it.
    waiting: Option<Waiting>,
    /// Threads that wait for their turn: to wake nobody is a system call, too.
    others: usize,
}

/// The turn of a thread to wait for all that share a poller. It sleeps without a lock, so that the others can give up in their time.
struct Turn<'a> {
    poller: &'a Poller,
    waiting: Option<Waiting>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut place = lock(&self.poller.place);
        place.waiting = self.waiting.take();
        let others = place.others;
        drop(place);
        if others > 0 {
            self.poller.returned.notify_one();
        }
    }
}

struct Waiting {
    queue: PollQueue,
    /// Those that were ready when they were last looked at, and are to be told of again; each once. Longest ago first.
    level: VecDeque<Arc<Watch>>,
    /// Those that nobody has any more, to be forgotten.
    abandoned: Vec<Arc<Watch>>,
    lookout: Lookout,
}

/// What is watched, by its name.
#[derive(Default)]
struct Watches {
    by_key: HashMap<usize, Arc<Watch>>,
    /// The most of them that there were after it was last looked whether somebody still has each.
    looked: usize,
    /// How many were added since what is queued was last gone through.
    added: usize,
}

/// While there are fewer than so many it is not worth the look.
const FEW: usize = 64;

impl Watches {
    /// Adds one. Nobody is told of a socket that ended before its last handle was dropped, so those are found here: when there are twice as
    /// many as were found needed.
    fn add(&mut self, watch: &Arc<Watch>) -> bool {
        if self.by_key.len() >= FEW.max(2 * self.looked) {
            self.by_key.retain(|_, watch| !is_abandoned(watch));
            self.looked = self.by_key.len();
        }
        if self.by_key.get(&watch.key).is_some_and(|before| !is_abandoned(before)) {
            return false;
        }
        self.by_key.insert(watch.key, watch.clone());
        true
    }

    /// One was added and is queued. True: it is time to go through what is, of which there may be twice as many as are watched.
    fn queues(&mut self) -> bool {
        self.added += 1;
        let is_time = self.added >= FEW.max(2 * self.by_key.len());
        if is_time {
            self.added = 0;
        }
        is_time
    }

    /// Forgets one, unless its name is another's by now.
    fn forget(&mut self, watch: &Arc<Watch>) {
        if self.by_key.get(&watch.key).is_some_and(|found| Arc::ptr_eq(found, watch)) {
            self.by_key.remove(&watch.key);
        }
    }
}

/// Nobody has the socket any more. Then it is watched no longer, as a descriptor that was closed.
fn is_abandoned(watch: &Arc<Watch>) -> bool {
    let is = watch.source.is_abandoned();
    if is {
        watch.forget();
    }
    is
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Poller {
    /// A poller of nothing.
    pub fn new() -> io::Result<Poller> {
        let (list, queue) = poll::poll_list()?;
        Ok(Poller {
            born: Birth::here(),
            list,
            place: Mutex::new(Place { waiting: Some(Waiting::new(queue)), others: 0 }),
            returned: Condvar::new(),
            watched: Mutex::default(),
            notified: AtomicBool::new(false),
        })
    }

    /// A child has the descriptor and nobody who tells.
    fn check(&self) -> io::Result<()> {
        if self.born.is_here() { Ok(()) } else { Err(Why::Forked.into()) }
    }

    /// Watches a socket, under a name that no other of this poller has, until it is [deleted](Self::delete) or its last handle is dropped.
    /// `AlreadyExists`: another has this name.
    pub fn add(&self, source: &impl Source, key: usize, interest: Interest, mode: Mode) -> io::Result<()> {
        if !source.desk().is_here() {
            return Err(Why::Forked.into());
        }
        let watch = self.list.watch(source.desk(), source.source(), key, word(interest, mode));
        let watch = watch.ok_or_else(|| {
            io::Error::other(format!(
                "{WATCHES_MAX} watch this socket already: delete it under a name that nobody needs"
            ))
        })?;
        let mut watched = lock(&self.watched);
        if !watched.add(&watch) {
            watch.forget();
            let why = format!("a socket is watched under the name {key} already: delete it, or choose another name");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        let is_time = watched.queues();
        drop(watched);
        source.desk().watch(&watch);
        Watched::look(&watch);
        // Whoever waits takes what is queued himself.
        if is_time && let Some(waiting) = &mut lock(&self.place).waiting {
            waiting.tidy();
            self.forget_abandoned(waiting);
        }
        Ok(())
    }

    fn forget_abandoned(&self, waiting: &mut Waiting) {
        if !waiting.abandoned.is_empty() {
            let mut watched = lock(&self.watched);
            waiting.abandoned.drain(..).for_each(|watch| watched.forget(&watch));
        }
    }

    /// Changes what one wants to know; after [`Mode::Oneshot`] it is how one is told again. `NotFound`: under this name there is none.
    pub fn modify(&self, key: usize, interest: Interest, mode: Mode) -> io::Result<()> {
        self.check()?;
        let none = || not_found(format!("no socket is watched under the name {key}: add it first"));
        let watch = lock(&self.watched).by_key.get(&key).cloned().ok_or_else(none)?;
        // In one step: whether it is listed, and whether it is watched at all, changes on other threads meanwhile.
        if !watch.set_interest(|now| word(interest, mode) | now & LISTED) {
            return Err(none());
        }
        Watched::look(&watch);
        Ok(())
    }

    /// Watches a socket no longer. `NotFound`: under this name there is none, or another.
    pub fn delete(&self, source: &impl Source, key: usize) -> io::Result<()> {
        if !source.desk().is_here() {
            return Err(Why::Forked.into());
        }
        let watch = match lock(&self.watched).by_key.entry(key) {
            Entry::Occupied(found) if found.get().source.is(&source.source()) => found.remove(),
            _ => {
                return Err(not_found(format!(
                    "this socket is not watched under the name {key}: give the name that it was added under"
                )));
            }
        };
        watch.forget();
        source.desk().unwatch(&watch.source);
        Ok(())
    }

    /// As [`delete`](Self::delete), for a handle that is about to be dropped: of the last one there is nobody left to tell.
    #[cfg(feature = "tokio")]
    pub(crate) fn forget(&self, desk: &Desk, key: usize) {
        let Some(watch) = lock(&self.watched).by_key.remove(&key) else { return };
        if desk.is_here() {
            watch.forget();
            if !watch.source.is_last() {
                desk.unwatch(&watch.source);
            }
        }
    }

    /// Waits until a socket is ready, at most for `timeout` (`None`: for ever), and appends those that are to `events`, at
    /// most 1,024. Says how many. Of several threads that wait one does so for all; when it returns, the next takes its place.
    ///
    /// Before it sleeps it [looks](super::Builder::look) for a moment, if that has been worth it, and not after news of many at once.
    pub fn wait(&self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<usize> {
        self.check()?;
        let deadline = timeout.and_then(super::after);
        let Some(mut turn) = self.turn(deadline) else { return Ok(0) };
        let Some(waiting) = &mut turn.waiting else { return Ok(0) };
        waiting.queue.disarm();
        let time_us = timeout.map_or(u64::MAX, |timeout| timeout.as_micros() as u64);
        let mut looks = time_us > 0;
        // Who was told of many has more to hear soon. If a lane is awake on his core he gives way before he sleeps: woken after each turn of the
        // lane, he would be told of a few at a time, and keep the lane from bringing more.
        let mut ways = if looks && waiting.lookout.is_told_of_many() { WAYS_MAX } else { 0 };
        loop {
            let told = self.take(waiting, events);
            if told > 0 || self.notified.swap(false, AcqRel) {
                return Ok(told);
            }
            if ways > 0 && awake::give_way() {
                ways -= 1;
                continue;
            }
            if std::mem::take(&mut looks) && self.looks(waiting, &mut None, time_us) == Some(true) {
                continue;
            }
            if waiting.queue.arm() || self.notified.load(Acquire) {
                waiting.queue.disarm();
                continue;
            }
            if !sleep_until(deadline, |left| waiting.queue.sleep(left)) {
                return Ok(0); // and stays armed, for whoever waits for the descriptor
            }
            waiting.queue.disarm();
        }
    }

    /// Appends those that are ready; how many.
    fn take(&self, waiting: &mut Waiting, events: &mut Vec<Event>) -> usize {
        let before = events.len();
        waiting.collect(events);
        self.forget_abandoned(waiting);
        let told = events.len() - before;
        if told > 0 {
            waiting.lookout.told_of(told);
        }
        told
    }

    /// As [`wait`](Self::wait), for a task, which gives the others their turn in between: the same `look` until there is an answer.
    #[cfg(feature = "tokio")]
    pub(crate) fn glance(&self, events: &mut Vec<Event>, look: &mut Option<Look>) -> Glance {
        // Another thread that waits is told, and a child of none.
        let mut turn = self.check().ok().and_then(|()| self.turn(Some(Instant::now())));
        let Some(waiting) = turn.as_mut().and_then(|turn| turn.waiting.as_mut()) else { return Glance::Waits };
        waiting.queue.disarm();
        if self.take(waiting, events) > 0 {
            return Glance::Told;
        }
        if self.notified.swap(false, AcqRel) {
            return Glance::Goes;
        }
        match self.looks(waiting, look, GLANCE_US) {
            Some(true) if self.take(waiting, events) > 0 => Glance::Told,
            Some(false) if !waiting.queue.arm() && !self.notified.load(Acquire) => Glance::Waits,
            _ => Glance::Goes,
        }
    }

    /// Whether there is news, for who looks for a moment if that has been worth it: see [`Lookout::looks`].
    fn looks(&self, waiting: &Waiting, look: &mut Option<Look>, us: u64) -> Option<bool> {
        waiting.lookout.looks(look, us, || waiting.queue.has_some() || self.notified.load(Acquire))
    }

    /// The calling thread's turn to wait; `None` if `deadline` has come and another still has it.
    fn turn(&self, deadline: Option<Instant>) -> Option<Turn<'_>> {
        let mut place = lock(&self.place);
        loop {
            if let Some(waiting) = place.waiting.take() {
                return Some(Turn { poller: self, waiting: Some(waiting) });
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            place.others += 1;
            place = match left {
                None => self.returned.wait(place).unwrap_or_else(PoisonError::into_inner),
                Some(left) => self.returned.wait_timeout(place, left).unwrap_or_else(PoisonError::into_inner).0,
            };
            place.others -= 1;
        }
    }

    /// Has the current or the next [`wait`](Self::wait) return, whether or not a socket is ready.
    pub fn notify(&self) {
        // A child has the descriptor of its parent, who would not find out who has rung, and be told of it for ever.
        if self.born.is_here() {
            self.notified.store(true, Release);
            self.list.wake();
        }
    }
}

fn not_found(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, what)
}

fn word(interest: Interest, mode: Mode) -> u32 {
    interest.bits()
        | match mode {
            Mode::Level => 0,
            Mode::Edge => EDGE,
            Mode::Oneshot => ONESHOT,
        }
}

impl Waiting {
    fn new(queue: PollQueue) -> Self {
        Waiting { queue, level: VecDeque::new(), abandoned: Vec::new(), lookout: Lookout::default() }
    }

    /// What is queued stays so until somebody waits, and has its socket: of those that nobody wants to be told of any more there could be any number.
    fn tidy(&mut self) {
        let mut queued = Vec::new();
        // What is left of a round, and what has come since.
        for _ in 0..2 {
            self.queue.begin_round();
            queued.extend(std::iter::from_fn(|| self.queue.pop()));
        }
        for watch in queued.into_iter().filter(|watch| !watch.is_forgotten()) {
            if is_abandoned(&watch) {
                self.abandoned.push(watch);
            } else {
                Watched::look(&watch);
            }
        }
    }

    /// Takes in turn from those that are listed and from those that something has happened to, so that neither keep the others from being told,
    /// however many they are. Who is told and stays listed goes behind all others.
    fn collect(&mut self, events: &mut Vec<Event>) {
        let most = events.len() + EVENTS_MAX;
        let mut listed = self.level.len();
        self.queue.begin_round();
        let mut from_list = false;
        while events.len() < most {
            from_list = !from_list && listed > 0;
            let (watch, was_listed) = match if from_list { None } else { self.queue.pop() } {
                Some(watch) => (watch, false),
                None if listed > 0 => {
                    listed -= 1;
                    let Some(watch) = self.level.pop_front() else { break };
                    watch.interest.fetch_and(!LISTED, Relaxed);
                    (watch, true)
                }
                None => break,
            };
            let interest = watch.interest.load(Acquire);
            // Who is listed has its turn there, and who was given another mode since has it by the queue.
            let passes = if was_listed {
                interest & (EDGE | ONESHOT) != 0
            } else {
                is_level(interest) && interest & LISTED != 0
            };
            if passes || watch.is_forgotten() {
                continue;
            }
            if is_abandoned(&watch) {
                self.abandoned.push(watch);
                continue;
            }
            let ready = watch.source.look_for(interest & (READ | WRITE));
            if ready == 0 {
                continue;
            }
            self.lookout.came_from(&watch);
            events.push(Event { key: watch.key, readable: ready & READ != 0, writable: ready & WRITE != 0 });
            if interest & ONESHOT != 0 {
                // Unless another was asked for meanwhile: who asked for it is told again.
                let _ = watch.interest.compare_exchange(interest, interest & LISTED | ONESHOT, AcqRel, Relaxed);
            } else if is_level(interest) {
                watch.interest.fetch_or(LISTED, Relaxed);
                self.level.push_back(watch);
            }
        }
    }
}

fn is_level(interest: u32) -> bool {
    interest & (EDGE | ONESHOT) == 0
}

/// The lanes are told: what they keep has the descriptor.
impl Drop for Poller {
    fn drop(&mut self) {
        if self.born.is_here() {
            let watched = self.watched.get_mut().unwrap_or_else(PoisonError::into_inner);
            for watch in watched.by_key.values() {
                watch.forget();
                watch.unwatch();
            }
        }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.list.event()
    }
}

impl AsRawFd for Poller {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller").field("watched", &lock(&self.watched).by_key.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
