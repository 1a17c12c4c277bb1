//! Owns what wakes lanes, and who works in their stead while they sleep.
//!
//! # Standing in
//! To wake a lane for a short message costs more than the message: a system call, often an interrupt to another core, a switch of
//! threads; and its answer the same once more. So a lane that sleeps leaves its work where others can reach it
//! ([`Duty`]), and a thread of the application that would have to wake it may take a few turns in its stead
//! ([`Bells::attend`]), as the kernel's TCP runs in its callers. Nobody waits for anybody: who finds the lane awake, or another thread at
//! it, has been heard and goes; a lane that wakes by itself meanwhile is given its work back after the turn. What is
//! more than [a few turns](TURNS_MAX), or is due earlier than the lane would wake, is left to the lane.
//!
//! What such a turn sends over a memory link wakes a lane at the other end. That one's turns the same thread takes too, after the
//! first one's and not within them.

use arrayvec::ArrayVec;
use laneway_sync::duty::{Duty, Left, Relief};
use laneway_sync::wake::look_fence;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;
use std::time::Duration;

use laneway_device::memory::Wake;

/// Turns that a thread takes in a lane's stead before it gives up and wakes it. One for what it brought, one for what came of
/// that, and one that finds nothing are the rule.
pub(super) const TURNS_MAX: usize = 8;
/// How often a thread begins again because more was brought while it was at it.
const AGAIN_MAX: usize = 4;
/// Lanes that a thread looks after on one occasion.
const VISITS_MAX: usize = 8;

/// How long a lane sleeps on whose time has come while another works in its stead: what a timer may be late by anyway.
const DOZE: Duration = Duration::from_millis(1);

/// What a lane works on, to a thread that stands in for it.
pub(super) trait Work: Send + Sync {
    /// Takes turns until there is nothing to do. False: there is, and it is the lane's.
    fn stand_in(&self) -> bool;
}

/// What wakes one lane.
pub(super) struct Bell {
    pub(super) duty: Duty,
    /// What the lane sleeps on, if it waits for another descriptor too.
    event: OwnedFd,
    /// Its thread, if it waits for nothing else.
    thread: OnceLock<Thread>,
    /// What it works on, if others may.
    work: OnceLock<Weak<dyn Work>>,
    /// The other descriptor has gone bad, of which `poll(2)` would tell at once and for ever.
    deaf: AtomicBool,
}

impl Bell {
    fn new() -> io::Result<Self> {
        Ok(Bell {
            duty: Duty::new(),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            thread: OnceLock::new(),
            work: OnceLock::new(),
            deaf: AtomicBool::new(false),
        })
    }

    fn ring(&self) {
        if self.duty.ring() {
            self.wake();
        }
    }

    fn wake(&self) {
        match self.thread.get() {
            Some(thread) => thread.unpark(),
            // It cannot be full: it is read after every sleep that it ended.
            None => _ = rustix::io::write(&self.event, &1u64.to_ne_bytes()),
        }
    }

    /// The calling thread is the lane's, and will wait for nothing else.
    pub(super) fn sleeps_alone(&self) {
        let _ = self.thread.set(std::thread::current());
    }

    /// Others may do its work.
    pub(super) fn lend(&self, work: Weak<dyn Work>) {
        let _ = self.work.set(work);
    }

    /// Sleeps until somebody rings, one of `fds` is readable, or `timeout` has passed; then takes the duty back, and says whether the second
    /// is readable. The caller has [announced](Duty::announce), and has found nothing since.
    pub(super) fn sleep(&self, fds: [Option<&OwnedFd>; 2], timeout: Duration) -> bool {
        let mut readable = [false; 2];
        if self.duty.sleep() {
            readable = self.wait(fds, Some(timeout));
            // Whoever works in its stead sees to what is due by now. To call him back would end what he waits for, and have two threads want one core.
            while readable == [false; 2] && self.duty.is_relieved() {
                readable = self.wait(fds, Some(DOZE));
            }
            while !self.duty.resume() {
                self.wait([None; 2], None);
            }
        }
        readable[1]
    }

    /// May end for no reason. Says which of `fds` are readable.
    fn wait(&self, fds: [Option<&OwnedFd>; 2], timeout: Option<Duration>) -> [bool; 2] {
        if self.thread.get().is_some() {
            timeout.map_or_else(std::thread::park, std::thread::park_timeout);
            return [false; 2];
        }
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().min(1 << 40) as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let hears = !self.deaf.load(Relaxed);
        let poll_for = |fd| PollFd::new(fd, PollFlags::IN);
        let mut polled: ArrayVec<PollFd<'_>, 3> = ArrayVec::new();
        polled.push(poll_for(&self.event));
        polled.extend(fds.into_iter().flatten().filter(|_| hears).map(poll_for));
        // A signal: the next turn finds nothing.
        let _ = poll(&mut polled, timeout.as_ref());
        if polled[1..].iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)) {
            self.deaf.store(true, Relaxed);
        }
        if !polled[0].revents().is_empty() {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        let mut told = polled[1..].iter().map(|fd| !fd.revents().is_empty());
        fds.map(|fd| fd.is_some() && told.next().unwrap_or(false))
    }

    /// Works until there is nothing to do, and then on for as long as it `stays`; or until there is too much to do, which is the
    /// lane's: then the answer is false. The caller has relieved the lane.
    fn stand_in(&self, mut stays: impl FnMut() -> bool) -> bool {
        let work = self.work.get().and_then(Weak::upgrade);
        let mut again = 0;
        while again < AGAIN_MAX && work.as_ref().is_some_and(|work| work.stand_in()) {
            if stays() {
                std::hint::spin_loop();
                continue;
            }
            match self.duty.leave() {
                Left::Asleep => return true,
                Left::Again => again += 1,
                Left::Owed => {
                    self.wake();
                    return true;
                }
            }
        }
        self.duty.hand_over();
        self.wake();
        false
    }

    /// As [`stand_in`](Self::stand_in), and looks after the lanes that this wakes.
    fn stand_in_for(&self, stays: impl FnMut() -> bool) -> bool {
        let Some(ends) = Round::begin() else {
            self.duty.hand_over();
            self.wake();
            return false;
        };
        let done = self.stand_in(stays);
        Round::visit();
        drop(ends);
        done
    }
}

/// A bell for each lane of a stack. Clones are the same bells.
#[derive(Clone)]
pub struct Bells(pub(super) Arc<[Bell]>);

/// A thread that stands in for lanes.
struct Round {
    is_under_way: Cell<bool>,
    /// Lanes that its work has woken, to be looked after next.
    next: RefCell<VecDeque<(Bells, usize)>>,
}

thread_local! {
    static ROUND: Round = const { Round { is_under_way: Cell::new(false), next: RefCell::new(VecDeque::new()) } };
}

impl Round {
    /// `None`: the thread is about to end, and can remember nothing.
    fn begin() -> Option<Ends> {
        ROUND.try_with(|round| round.is_under_way.set(true)).ok().map(|()| Ends)
    }

    fn is_under_way() -> bool {
        ROUND.try_with(|round| round.is_under_way.get()).unwrap_or(false)
    }

    fn next() -> Option<(Bells, usize)> {
        ROUND.try_with(|round| round.next.borrow_mut().pop_front()).ok().flatten()
    }

    /// Looks after the lanes that were woken on the way.
    fn visit() {
        for _ in 1..VISITS_MAX {
            let Some((bells, lane)) = Round::next() else { break };
            if bells.0[lane].duty.relieve() == Relief::Taken {
                bells.0[lane].stand_in(|| false);
            }
        }
    }
}

/// Ends a round, however it ends: whoever was still to be looked after is woken.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = ROUND.try_with(|round| round.is_under_way.set(false));
        while let Some((bells, lane)) = Round::next() {
            bells.ring(lane);
        }
    }
}

impl Bells {
    /// Bells for `lanes` lanes.
    pub fn new(lanes: usize) -> io::Result<Self> {
        let bells: io::Result<Vec<Bell>> = (0..lanes).map(|_| Bell::new()).collect();
        Ok(Bells(bells?.into()))
    }

    /// Wakes a lane if it sleeps. Publish the work first.
    #[inline]
    pub fn ring(&self, lane: usize) {
        let Some(bell) = self.0.get(lane) else { return };
        if Round::is_under_way() && bell.work.get().is_some() {
            look_fence();
            if bell.duty.is_asleep() {
                let _ = ROUND.try_with(|round| round.next.borrow_mut().push_back((self.clone(), lane)));
                return;
            }
        }
        bell.ring();
    }

    /// As [`ring`](Self::ring), by a thread that has time to do the work if the lane sleeps, and whose lane lets others do it.
    pub fn attend(&self, lane: usize) {
        let Some(bell) = self.0.get(lane) else { return };
        if bell.work.get().is_none() || Round::is_under_way() {
            return self.ring(lane);
        }
        if bell.duty.relieve() == Relief::Taken {
            bell.stand_in_for(|| false);
        }
    }

    /// Does a lane's work while it sleeps, until `enough`: for a thread that waits for what comes of it. False: the lane is awake, or
    /// another is at it, or nobody may.
    pub fn mind(&self, lane: usize, mut enough: impl FnMut() -> bool) -> bool {
        let Some(bell) = self.0.get(lane) else { return false };
        if !bell.duty.is_asleep() || bell.work.get().is_none() || Round::is_under_way() {
            return false;
        }
        let mut stays = || {
            Round::visit();
            !enough()
        };
        bell.duty.relieve() == Relief::Taken && bell.stand_in_for(&mut stays)
    }

    /// Its own thread has the lane, and it does not sleep.
    pub fn is_awake(&self, lane: usize) -> bool {
        self.0.get(lane).is_some_and(|bell| bell.duty.is_owners())
    }

    /// What stands on the line of a lane's bell: 1 while it sleeps.
    pub(crate) fn line(&self, lane: usize) -> u64 {
        self.0.get(lane).map_or(0, |bell| u64::from(!bell.duty.is_owners()))
    }

    /// Wakes every lane that sleeps.
    pub fn ring_all(&self) {
        self.0.iter().for_each(Bell::ring);
    }

    /// The interrupt of a memory link whose queues are these lanes'.
    pub fn interrupt(&self) -> Wake {
        let bells = self.clone();
        Arc::new(move |queue| bells.ring(queue))
    }
}
