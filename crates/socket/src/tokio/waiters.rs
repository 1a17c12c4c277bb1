//! Owns the wakers of the tasks that wait for one socket.

use laneway_stack::threads::words::{READ, WRITE};
use std::mem;
use std::task::Waker;

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Bytes, a datagram, a connection.
    Reader,
    /// Room, or that a connection is established.
    Writer,
}

impl Side {
    /// As a poller names it.
    pub(super) fn bit(self) -> u32 {
        match self {
            Side::Reader => READ,
            Side::Writer => WRITE,
        }
    }
}

/// The tasks that wait for one socket.
#[derive(Default)]
pub(super) struct Waits {
    readers: Waiters,
    writers: Waiters,
    /// There was room to write to, and no memory; nothing was told since.
    pub(super) lacks_memory: bool,
}

impl Waits {
    pub(super) fn of(&mut self, side: Side) -> &mut Waiters {
        match side {
            Side::Reader => &mut self.readers,
            Side::Writer => &mut self.writers,
        }
    }

    /// Something has happened to one side: who is to be woken.
    pub(super) fn tell(&mut self, side: Side) -> impl Iterator<Item = Waker> + use<> {
        if side == Side::Writer {
            self.lacks_memory = false;
        }
        self.of(side).take()
    }
}

/// The tasks that wait for one side of a socket.
///
/// A waker may be the last that holds a task, and the task may wait here, too: so what is replaced or forgotten is given back, to be dropped
/// when the lock is free again.
#[derive(Default)]
pub(super) struct Waiters {
    /// The one that asked last through a `poll_…` method: of those the last alone is woken, as tokio's own sockets have it.
    polled: Option<Waker>,
    /// Those that wait in a future of their own, by its number.
    futures: Vec<(u64, Waker)>,
    next_number: u64,
}

impl Waiters {
    /// Remembers who asked through a `poll_…` method.
    #[must_use = "dropped without the lock"]
    pub(super) fn set_polled(&mut self, waker: &Waker) -> Option<Waker> {
        self.polled.replace(waker.clone())
    }

    /// Remembers who waits in a future. `number` is the future's, given at its first wait, and it must [leave](Self::leave) with it.
    #[must_use = "dropped without the lock"]
    pub(super) fn join(&mut self, number: &mut Option<u64>, waker: &Waker) -> Option<Waker> {
        let number = *number.get_or_insert_with(|| {
            self.next_number += 1;
            self.next_number
        });
        match self.futures.iter_mut().find(|(other, _)| *other == number) {
            Some((_, place)) => Some(mem::replace(place, waker.clone())),
            None => {
                self.futures.push((number, waker.clone()));
                None
            }
        }
    }

    /// Forgets a future that has ended or was dropped.
    #[must_use = "dropped without the lock"]
    pub(super) fn leave(&mut self, number: u64) -> Option<Waker> {
        let at = self.futures.iter().position(|(other, _)| *other == number)?;
        Some(self.futures.swap_remove(at).1)
    }

    /// Everybody, to be woken: who finds that another was faster joins again.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Waker> + use<> {
        let futures = mem::take(&mut self.futures);
        self.polled.take().into_iter().chain(futures.into_iter().map(|(_, waker)| waker))
    }
}

#[cfg(test)]
mod tests {
    use super::Waiters;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn task() -> (Arc<Woken>, Waker) {
        let woken = Arc::new(Woken::default());
        (woken.clone(), woken.into())
    }

    #[test]
    fn all_futures_and_the_last_poll_are_woken_once() {
        let mut waiters = Waiters::default();
        let tasks: Vec<_> = (0..4).map(|_| task()).collect();
        let (mut one, mut other) = (None, None);
        let is = |given_back: Option<Waker>, i: usize| given_back.is_some_and(|waker| waker.will_wake(&tasks[i].1));
        assert!(waiters.set_polled(&tasks[0].1).is_none());
        assert!(is(waiters.set_polled(&tasks[1].1), 0));
        assert!(waiters.join(&mut one, &tasks[2].1).is_none());
        assert!(waiters.join(&mut other, &tasks[3].1).is_none());
        assert!(is(waiters.join(&mut one, &tasks[2].1), 2));
        waiters.take().for_each(Waker::wake);
        waiters.take().for_each(Waker::wake);
        let woken: Vec<u32> = tasks.iter().map(|task| task.0.0.load(Relaxed)).collect();
        assert_eq!(woken, [0, 1, 1, 1]);
    }

    #[test]
    fn who_has_left_is_not_kept() {
        let mut waiters = Waiters::default();
        let (woken, waker) = task();
        for _ in 0..1_000 {
            let mut number = None;
            assert!(waiters.join(&mut number, &waker).is_none());
            assert!(waiters.leave(number.expect("it has joined")).is_some());
        }
        assert_eq!(waiters.take().count(), 0);
        assert_eq!(woken.0.load(Relaxed), 0);
    }
}
