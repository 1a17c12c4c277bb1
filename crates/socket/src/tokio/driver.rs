//! Owns what ties sockets to a runtime: the task that learns which are ready, and each socket's place with it.

#[cfg(test)]
mod tests;

use super::waiters::{Side, Waits};
use crate::net::{self, Event, Glance, Inquiry, Interest, Mode, Poller, Source, TcpInfo};
use ::tokio::io::unix::AsyncFd;
use ::tokio::io::{self as tokio_io, Ready};
use ::tokio::runtime::{Handle, Id};
use ::tokio::task::coop::poll_proceed;
use ::tokio::task::yield_now;
use laneway_stack::threads::desk::Desk;
use laneway_stack::threads::poll::{self, ended};
use laneway_stack::threads::words::{READ, WRITE};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the sockets of one runtime, of whichever stack, share with the task that wakes them.
struct Shared {
    poller: Arc<Poller>,
    waits: Mutex<HashMap<usize, Arc<Mutex<Waits>>>>,
    next_key: AtomicUsize,
    /// Tasks that have asked a lane, each under a number of its own.
    asking: Mutex<HashMap<usize, (Arc<Inquiry>, Waker)>>,
    /// The task has ended, and its runtime with it.
    over: AtomicBool,
}

/// With the last socket the task's work ends.
impl Drop for Shared {
    fn drop(&mut self) {
        self.poller.notify();
    }
}

impl Shared {
    /// Wakes whoever waits for what has happened.
    fn wake(&self, event: &Event) {
        let Some(waits) = lock(&self.waits).get(&event.key).cloned() else { return };
        for (ready, side) in [(event.readable, Side::Reader), (event.writable, Side::Writer)] {
            if ready {
                let woken = lock(&waits).tell(side);
                woken.for_each(Waker::wake);
            }
        }
    }

    /// Wakes those whose lanes have answered.
    fn wake_answered(&self) {
        let answered: Vec<_> = lock(&self.asking).extract_if(|_, (inquiry, _)| inquiry.answer().is_some()).collect();
        answered.into_iter().for_each(|(_, (_, waker))| waker.wake());
    }
}

struct Descriptor(Arc<Poller>);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A runtime's task.
struct Driver {
    runtime: Id,
    shared: Weak<Shared>,
}

/// Tells the sockets when the task ends, however it does: a runtime that is dropped drops its tasks.
struct Task(Weak<Shared>);

impl Drop for Task {
    fn drop(&mut self) {
        let Some(shared) = self.0.upgrade() else { return };
        shared.over.store(true, Release);
        let all: Vec<_> = lock(&shared.waits).values().cloned().collect();
        let asking = mem::take(&mut *lock(&shared.asking));
        asking.into_values().for_each(|(_, waker)| waker.wake());
        for waits in all {
            for side in [Side::Reader, Side::Writer] {
                let woken = lock(&waits).tell(side);
                woken.for_each(Waker::wake);
            }
        }
    }
}

/// Those of all runtimes that have sockets. No socket needs its stack for this, which would not end while one of them is there.
static DRIVERS: Mutex<Vec<Driver>> = Mutex::new(Vec::new());

/// The driver of this runtime, begun if this is the first socket. Those of runtimes that are gone are forgotten.
fn driver() -> io::Result<Arc<Shared>> {
    let runtime = Handle::try_current().map_err(io::Error::other)?;
    let mut drivers = lock(&DRIVERS);
    drivers.retain(|driver| driver.shared.upgrade().is_some_and(|shared| !shared.over.load(Acquire)));
    if let Some(shared) = drivers.iter().find(|d| d.runtime == runtime.id()).and_then(|d| d.shared.upgrade()) {
        return Ok(shared);
    }
    let poller = Arc::new(Poller::new()?);
    // Its successor is unsafe, because a type could close the descriptor early; ours keeps the poller that owns it.
    #[allow(deprecated)]
    let descriptor = AsyncFd::with_interest(Descriptor(poller.clone()), tokio_io::Interest::READABLE)?;
    let shared = Arc::new(Shared {
        poller: poller.clone(),
        waits: Mutex::default(),
        next_key: AtomicUsize::new(0),
        asking: Mutex::default(),
        over: AtomicBool::new(false),
    });
    drivers.push(Driver { runtime: runtime.id(), shared: Arc::downgrade(&shared) });
    let task = Task(Arc::downgrade(&shared));
    runtime.spawn(async move {
        let (mut events, mut look) = (Vec::new(), None);
        loop {
            let glance = poller.glance(&mut events, &mut look);
            match task.0.upgrade() {
                Some(shared) => {
                    events.drain(..).for_each(|event| shared.wake(&event));
                    // A lane that has answered has notified the poller.
                    if matches!(glance, Glance::Goes) {
                        shared.wake_answered();
                    }
                }
                None => return,
            }
            if !matches!(glance, Glance::Goes) {
                look = None;
            }
            if !matches!(glance, Glance::Waits) {
                // Those who were woken, and all others, have their turn, however long that is.
                yield_now().await;
                continue;
            }
            match descriptor.readable().await {
                Ok(mut ready) => ready.clear_ready(),
                Err(_) => return,
            }
        }
    });
    Ok(shared)
}

/// One socket's place with its runtime's driver.
pub(super) struct Registration {
    shared: Arc<Shared>,
    waits: Arc<Mutex<Waits>>,
    key: usize,
    source: poll::Source,
    desk: Arc<Desk>,
}

net::outlives_panics! { Registration }

impl Registration {
    /// A place with the driver of the runtime that this is called in.
    pub(super) fn new(source: &impl Source) -> io::Result<Self> {
        let shared = driver()?;
        let key = shared.next_key.fetch_add(1, Relaxed);
        let waits = Arc::new(Mutex::new(Waits::default()));
        lock(&shared.waits).insert(key, waits.clone());
        let (looked_at, desk) = net::source(source);
        let registration = Registration { shared, waits, key, source: looked_at, desk };
        registration.shared.poller.add(source, key, Interest::BOTH, Mode::Edge)?;
        Ok(registration)
    }

    /// Gives the place up, of a socket that stays: what its lane keeps has the runtime's descriptor.
    pub(super) fn leave(self, source: &impl Source) {
        let _ = self.shared.poller.delete(source, self.key); // in a child there is no lane to tell
    }

    /// Does `act`; if it would wait, has the task woken when it would not. Of the tasks that call this for one side, the last is.
    pub(super) fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        side: Side,
        act: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        self.attempt(cx, |waits, waker| waits.of(side).set_polled(waker), act)
    }

    /// Does `act` as soon as it does not have to wait. Any number of tasks may be in this for one side.
    pub(super) async fn wait<T>(&self, side: Side, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut place = Place { waits: &self.waits, side, number: None };
        poll_fn(|cx| self.attempt(cx, |waits, waker| place.join(waits, waker), &mut act)).await
    }

    /// Waits until the socket is ready for what is of `interest`; says for which part of it.
    pub(super) async fn ready(&self, interest: tokio_io::Interest) -> io::Result<Ready> {
        let sides = [(interest.is_readable(), Side::Reader), (interest.is_writable(), Side::Writer)];
        let mut places = sides.map(|(wanted, side)| wanted.then(|| Place { waits: &self.waits, side, number: None }));
        let wanted = places.iter().flatten().fold(0, |bits, place| bits | place.side.bit());
        if wanted == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "nobody tells of anything but READABLE and WRITABLE",
            ));
        }
        poll_fn(|cx| {
            let join = |waits: &mut Waits, waker: &Waker| {
                places.each_mut().map(|place| place.as_mut().and_then(|place| place.join(waits, waker)))
            };
            self.attempt(cx, join, || self.look_for(wanted))
        })
        .await
    }

    /// What the lane of `stream` knows about it.
    pub(super) async fn info(&self, stream: &net::TcpStream) -> io::Result<TcpInfo> {
        let inquiry = stream.inquire(Some(self.shared.poller.clone()))?;
        let asks = Asks { shared: &self.shared, number: self.shared.next_key.fetch_add(1, Relaxed) };
        poll_fn(|cx| {
            if let Some(answer) = inquiry.answer() {
                return Poll::Ready(answer);
            }
            let replaced = lock(&self.shared.asking).insert(asks.number, (inquiry.clone(), cx.waker().clone()));
            drop(replaced);
            match inquiry.answer() {
                // It has come before the waker was in its place, and was told to nobody.
                Some(answer) => Poll::Ready(answer),
                None if self.shared.over.load(Acquire) => Poll::Ready(Err(is_over())),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Whether one side is ready; if it is not, has the task woken when it is. Of the tasks that ask, the last is.
    pub(super) fn poll_ready(&self, cx: &mut Context<'_>, side: Side) -> Poll<io::Result<()>> {
        self.poll(cx, side, || self.look_for(side.bit()).map(drop))
    }

    /// For which of `wanted` the socket is ready; `WouldBlock`: for none, and the poller will tell.
    fn look_for(&self, wanted: u32) -> io::Result<Ready> {
        let mut bits = self.source.look_for(wanted);
        let ended = match &self.source {
            poll::Source::Conversation(talk) => ended(talk),
            _ => 0,
        };
        if bits & !ended & WRITE != 0 && lock(&self.waits).lacks_memory {
            bits &= !WRITE;
        }
        // Whoever has said all himself is not told that he cannot say more before the peer has said all, too (`EPOLLHUP`).
        let closed = if ended & READ == 0 { 0 } else { ended };
        if bits == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let said = [
            (bits & READ, Ready::READABLE),
            (bits & WRITE, Ready::WRITABLE),
            (bits & closed & READ, Ready::READ_CLOSED),
            (bits & closed & WRITE, Ready::WRITE_CLOSED),
        ];
        Ok(said.into_iter().filter(|(bit, _)| *bit != 0).fold(Ready::EMPTY, |all, (_, ready)| all | ready))
    }

    /// Does `act`, which writes, and if it comes to nothing says that it wants room, and then asks for memory: if there was room, others hold all
    /// blocks. From then on the socket is not ready to be written to, whatever its room, until the poller tells that it is.
    pub(super) fn try_write<T>(&self, ask: impl FnOnce(), mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let is_late = |done: &io::Result<T>| matches!(done, Err(e) if e.kind() == io::ErrorKind::WouldBlock);
        let mut done = act();
        if is_late(&done) {
            lock(&self.waits).lacks_memory = true;
            // What was told before this was noted is told to nobody.
            done = act();
            if is_late(&done) {
                ask();
            } else {
                lock(&self.waits).lacks_memory = false;
            }
        }
        done
    }

    fn attempt<T, R>(
        &self,
        cx: &mut Context<'_>,
        remember: impl FnOnce(&mut Waits, &Waker) -> R,
        mut act: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        // A task whose socket always has more for it lets others have their turn from time to time.
        let budget = ready!(poll_proceed(cx));
        let mut done = not_yet(act());
        if done.is_pending() {
            let replaced = remember(&mut lock(&self.waits), cx.waker());
            drop(replaced);
            // What has happened before the waker was in its place has been told to nobody.
            done = not_yet(act());
        }
        if done.is_pending() && self.shared.over.load(Acquire) {
            done = Poll::Ready(Err(is_over()));
        }
        if done.is_ready() {
            budget.made_progress();
        }
        done
    }
}

fn is_over() -> io::Error {
    io::Error::other("the runtime in which this socket was made has ended")
}

/// What an attempt that does not wait has come to.
fn not_yet<T>(done: io::Result<T>) -> Poll<io::Result<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        done => Poll::Ready(done),
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.shared.waits).remove(&self.key);
        self.shared.poller.forget(&self.desk, self.key);
    }
}

/// A future's place among those that have asked.
struct Asks<'a> {
    shared: &'a Shared,
    number: usize,
}

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        let forgotten = lock(&self.shared.asking).remove(&self.number);
        drop(forgotten); // and not while the lock is held
    }
}

/// A future's place among those that wait.
struct Place<'a> {
    waits: &'a Mutex<Waits>,
    side: Side,
    number: Option<u64>,
}

impl Place<'_> {
    #[must_use = "dropped without the lock"]
    fn join(&mut self, waits: &mut Waits, waker: &Waker) -> Option<Waker> {
        waits.of(self.side).join(&mut self.number, waker)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let forgotten = lock(self.waits).of(self.side).leave(number);
            drop(forgotten);
        }
    }
}
