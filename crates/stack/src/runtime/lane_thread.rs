//! Owns a lane's thread: when it turns, when it sleeps, and what another thread does that stands in for it meanwhile.

use super::aloud::Aloud;
use super::awake::Mark;
use super::shared::Shared;
use super::{bells, pin_to};
use crate::app::{App, Context};
use crate::clock::Clock;
use crate::counters::{Counters, Mib};
use crate::host::Seat;
use crate::lane::Local;
use crate::sharing::{Sharing, Site};
use crate::worker::{SLOW_US, Turn};
use laneway_device::pcap::Capture;
use laneway_device::{FloodGate, Rx, Tx};
use laneway_proto::time::Instant;
use laneway_sync::met;
use rustix::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts a lane as ended when it is dropped, however that comes about.
pub(super) struct Ending(pub(super) Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
        self.0.control_bell.ring();
    }
}

/// A lane, and what its turns need.
pub(super) struct LaneWork<S: Sharing, R, T, A> {
    pub(super) seat: Seat<S, R, T, A>,
    pub(super) id: usize,
    pub(super) clock: Clock,
    pub(super) shared: Arc<Shared>,
    pub(super) capture: Option<Capture>,
    pub(super) aloud: Aloud,
    /// When its thread, which sleeps, wakes by itself.
    pub(super) sleeps_until: Instant,
    /// It has panicked on a thread that stood in for its own, or its queue has come to an end.
    pub(super) failed: bool,
}

/// Where a lane's work lies. Nobody ever waits for this mutex: whose turn it is, the lane's bell says.
pub(super) struct Place<W>(pub(super) Mutex<Option<W>>);

impl<W> Place<W> {
    fn lock(&self) -> MutexGuard<'_, Option<W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lane's thread.
pub(super) struct LaneThread<S: Sharing, R, T, A> {
    pub(super) place: Arc<Place<LaneWork<S, R, T, A>>>,
    pub(super) id: usize,
    pub(super) clock: Clock,
    pub(super) shared: Arc<Shared>,
    /// What tells that a frame waits, and that one waits that can wait.
    pub(super) readiness: Option<OwnedFd>,
    pub(super) aside: Option<OwnedFd>,
    pub(super) spin_us: u64,
    pub(super) park_max_us: u64,
    pub(super) grace_us: u64,
    pub(super) ended: Ending,
}

impl<S: Sharing, R: Rx, T: Tx, A: App> LaneThread<S, R, T, A> {
    pub(super) fn run(self, core: Option<usize>) -> Option<Counters> {
        let pinned = core.is_some_and(pin_to);
        match core {
            Some(core) if !pinned => {
                tracing::warn!(lane = self.id, core, "the lane cannot be bound to its core, and may be moved about")
            }
            _ => tracing::debug!(lane = self.id, core, "the lane runs"),
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| self.turn_until_stopped()));
        if let Err(panic) = outcome {
            self.shared.panicked(&format!("lane {}", self.id), &*panic);
        }
        // The queue is closed before the lane counts as ended.
        let LaneThread { place, readiness, aside, ended, .. } = self;
        let work = place.lock().take();
        let counters = work.and_then(LaneWork::end);
        drop((readiness, aside));
        drop(ended);
        counters
    }

    fn turn_until_stopped(&self) {
        if self.readiness.is_none() {
            self.shared.bells.0[self.id].sleeps_alone();
        }
        let mut place = self.place.lock();
        let mut busy_at = self.clock.now();
        let mut mark = Mark::new();
        mark.wakes();
        let mut stopping = None;
        while let Some(work) = place.as_mut()
            && !work.failed
        {
            mark.turns();
            let now = self.clock.now();
            let turn = work.turn(now);
            if self.shared.stop.load(Ordering::Acquire) {
                let until = *stopping.get_or_insert_with(|| {
                    let Seat { lane, app, .. } = &mut work.seat;
                    let mut tables = lane.shared.enter(Site::Walk);
                    app.on_stop(&mut Context { tables: &mut tables, local: &mut lane.local });
                    now.after_us(self.grace_us)
                });
                if !turn.busy && work.connections() == 0 {
                    work.turn(now); // the last segments of the last connection
                    return;
                }
                if now >= until {
                    work.abort_all();
                    work.turn(now);
                    return;
                }
            }
            if turn.busy {
                busy_at = now;
            } else if now.since_us(busy_at) < self.spin_us {
                std::hint::spin_loop();
            } else {
                place = self.park(place, stopping, &mut mark);
                busy_at = self.clock.now();
            }
        }
    }

    /// Sleeps until somebody brings work, unless somebody already has.
    fn park<'a>(
        &'a self,
        mut place: WorkGuard<'a, S, R, T, A>,
        stopping: Option<Instant>,
        mark: &mut Mark,
    ) -> WorkGuard<'a, S, R, T, A> {
        let Some(work) = place.as_mut() else { return place };
        let bell = &self.shared.bells.0[self.id];
        bell.duty.announce();
        let now = self.clock.now();
        let turn = work.turn(now);
        let stop_is_news = stopping.is_none() && self.shared.stop.load(Ordering::Acquire);
        let mut until = work.due(&turn).min(now.after_us(self.park_max_us));
        if stopping.is_some() {
            until = until.min(now.after_us(1_000));
        }
        let gate = work.seat.queue.rx.floodgate().filter(|_| self.aside.is_some());
        let rests = gate.map_or(Duration::ZERO, |gate| gate.rests());
        if !rests.is_zero() {
            until = until.min(now.after_us(rests.as_micros() as u64 + 1));
        }
        let aside = self.aside.as_ref().filter(|_| rests.is_zero());
        let sleep_us = until.since_us(now);
        if turn.busy || stop_is_news || sleep_us == 0 {
            bell.duty.stay();
            return place;
        }
        work.sleeps_until = until;
        let stood_in = |work: &LaneWork<S, R, T, A>| work.seat.lane.local.counters.get(Mib::StandInUs);
        let before = stood_in(work);
        work.seat.lane.local.met_until_asleep = Some(met::here());
        let asleep = self.clock.now();
        drop(place); // for whoever stands in
        mark.sleeps();
        let waits_aside = bell.sleep([self.readiness.as_ref(), aside], Duration::from_micros(sleep_us));
        mark.wakes();
        let mut place = self.place.lock();
        if let Some(work) = place.as_mut() {
            if waits_aside && let Some(gate) = work.seat.queue.rx.floodgate() {
                gate.look_aside();
            }
            let worked = stood_in(work) - before;
            let slept = self.clock.now().since_us(asleep).saturating_sub(worked);
            let local = &mut work.seat.lane.local;
            local.met_until_asleep = None;
            local.counters.add(Mib::LaneSleepUs, slept);
        }
        place
    }
}

type WorkGuard<'a, S, R, T, A> = MutexGuard<'a, Option<LaneWork<S, R, T, A>>>;

impl<S: Sharing, R: Rx, T: Tx, A: App> LaneWork<S, R, T, A> {
    fn turn(&mut self, now: Instant) -> Turn {
        if let Some(capture) = &self.capture {
            capture.set_time(Clock::wall_us());
        }
        let local = &mut self.seat.lane.local;
        if local.now != Instant::ZERO {
            let took_us = now.since_us(local.now);
            local.counters.add(if local.busy { Mib::LaneBusyUs } else { Mib::LaneIdleUs }, took_us);
            if local.busy && took_us > SLOW_US {
                self.aloud.slow_poll(now, took_us);
            }
        }
        let turn = self.seat.turn(now);
        let aloud = self.aloud.is_due(now);
        if let Some(gate) = self.seat.queue.rx.floodgate() {
            tend(gate, &mut self.seat.lane.local, &self.clock, aloud);
        }
        if aloud {
            self.seat.lane.tables(|tables| self.aloud.look(now, &tables.counters));
            self.capture.iter().for_each(|capture| self.aloud.look_at_capture(capture));
        }
        // A queue that has come to an end lends nothing. The application may keep the lane busy all the same.
        if (aloud || !turn.busy)
            && !self.failed
            && let Some(why) = self.seat.queue.rx.failed()
        {
            self.failed = true;
            self.shared.fail(&format!("lane {}", self.id), why);
        }
        let mail = &self.seat.lane.local.mail;
        for (other, ring) in mail.to_lanes.iter().enumerate() {
            if ring.as_ref().is_some_and(|ring| !ring.is_drained()) {
                self.shared.bells.ring(other);
            }
        }
        if !mail.to_control.is_drained() {
            self.shared.control_bell.ring();
        }
        turn
    }

    /// When the next turn is due after one that found nothing to do.
    fn due(&self, turn: &Turn) -> Instant {
        turn.deadline.min(self.seat.app.poll_timeout())
    }

    /// Connections of this lane that are not over.
    fn connections(&mut self) -> usize {
        self.seat.lane.tables(|tables| tables.slots.len())
    }

    fn abort_all(&mut self) {
        let lane = &mut self.seat.lane;
        let mut tables = lane.shared.enter(Site::Walk);
        let left: Vec<u32> = tables.slots.iter().map(|(index, _)| index).collect();
        for index in left {
            let id = tables.id(index);
            Context { tables: &mut tables, local: &mut lane.local }.abort(id);
        }
    }

    /// What it has counted.
    fn end(mut self) -> Option<Counters> {
        let seat = &mut self.seat;
        let counters = catch_unwind(AssertUnwindSafe(|| {
            if let Some(gate) = seat.queue.rx.floodgate() {
                tend(gate, &mut seat.lane.local, &self.clock, true);
            }
            let mut counters = seat.lane.counters();
            counters.add_met(met::here());
            counters
        }));
        let _ = catch_unwind(AssertUnwindSafe(|| drop(self.seat)));
        counters.ok()
    }
}

/// What a lane and its device tell each other of floods; with `counts` also how much the device has done, which is a question to the kernel.
#[inline]
fn tend(gate: &mut dyn FloodGate, local: &mut Local, clock: &Clock, counts: bool) {
    for peer in local.paths.newcomers() {
        gate.vouch(peer.to_ip());
    }
    if let Some(mut how) = local.overrun.take() {
        // The device goes on from there. By the time of the poll's beginning it would be behind for as long as its answers hold, and who comes back to
        // a flow in TIME_WAIT would be given timestamps from before that began.
        how.now_us = clock.now().as_us();
        gate.overrun(&how);
    }
    if counts {
        local.counters.add(Mib::TcpExtSyncookiesSent, gate.answered());
    }
}

impl<S: Sharing, R: Rx + Send, T: Tx + Send, A: App + Send> bells::Work for Place<LaneWork<S, R, T, A>> {
    fn stand_in(&self) -> bool {
        // Free, as the bell has said.
        let Ok(mut place) = self.0.try_lock() else { return false };
        let Some(work) = place.as_mut() else { return false };
        let (began, met_before) = (work.clock.now(), met::here());
        let (mut now, mut done) = (began, false);
        for _ in 0..bells::TURNS_MAX {
            let turn = match catch_unwind(AssertUnwindSafe(|| work.turn(now))) {
                Ok(turn) => turn,
                Err(panic) => {
                    work.failed = true;
                    work.shared.panicked(&format!("lane {}", work.id), &*panic);
                    return false;
                }
            };
            if work.failed {
                return false;
            }
            now = work.clock.now();
            if !turn.busy {
                done = work.due(&turn) >= work.sleeps_until && !work.shared.stop.load(Ordering::Acquire);
                break;
            }
        }
        let counters = &mut work.seat.lane.local.counters;
        counters.count(Mib::StandIns);
        counters.add(Mib::StandInUs, now.since_us(began));
        counters.add_met(met::here().since(&met_before));
        done
    }
}
