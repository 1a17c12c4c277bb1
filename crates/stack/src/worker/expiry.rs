//! Owns what happens because its time has come: timers of connections and of half-open entries, and the records of TIME_WAIT.

use crate::app::{App, Context};
use crate::counters::Mib;
use crate::demux::{Stage, next_tick};
use crate::lane::{Lane, Local};
use crate::sharing::{Sharing, Site};
use crate::tables::{Handle, Kind, Tables, Tcb};
use laneway_device::{BATCH_MAX, Tx};
use laneway_proto::tcp::Cx;

/// TIME_WAIT records reaped in one poll at the most, so that a wave of expiries cannot starve input.
const REAP_MAX: usize = 64;
/// Index entries moved to a larger table in one poll.
const MAINTAIN_MAX: usize = 64;
/// Timers looked at in one poll.
pub(crate) const TIMERS_MAX: usize = 256;
/// So many before its turn a slot is fetched whose timer has run out.
const TIMERS_AHEAD: usize = 8;

/// A lane that has looked at no timer for so long has slept, or could not run: it was stopped with its process.
const STOPPED_MS: u64 = 100;
/// Polls in which such a lane takes in what has come meanwhile, before it looks at what was due meanwhile.
const FIRST_MAX: u8 = 32;

/// Everything whose time has come. In the poll so many `frames` were taken in.
pub(super) fn expire<S: Sharing, T: Tx>(lane: &mut Lane<S>, frames: usize, tx: &mut T, app: &mut dyn App) -> bool {
    let now = lane.local.now;
    // Records and timers have ticks of a millisecond: one that was dealt with to its end has nothing more.
    let tick = now.as_ms();
    if lane.local.expired_to == tick {
        let mut tables = lane.shared.enter(Site::Look);
        if tables.timers.is_done(tick) {
            tables.maintain(MAINTAIN_MAX);
            return false;
        }
    }
    if lane.local.takes_in_first(frames, tick) {
        return true;
    }
    let reaped = lane.shared.reap(now, lane.local.config.tcp.msl_us, REAP_MAX);
    let mut guard = lane.shared.timers(now);
    let tables: &mut Tables = &mut guard;
    let local = &mut lane.local;
    tables.maintain(MAINTAIN_MAX);
    local.paths.former.on_tick(tables.slots.end(), |index| Some(tables.slots.get(index)?.key().remote));
    if now >= local.housekeeping_at {
        local.housekeeping_at = now.after_us(100_000);
        local.paths.on_timeout(&local.snapshot, now, &mut local.mtu_news);
        let given_up = local.waiting.on_timeout(now);
        let mut stage = Stage { tables: &mut *tables, local: &mut *local, tx: &mut *tx, app: &mut *app };
        given_up.iter().for_each(|packet| stage.nobody_answers(packet));
        stage.give_up_fragments();
    }
    let mut due = std::mem::take(&mut local.due);
    let more = tables.timers.expire(now, TIMERS_MAX, &mut due);
    let any = !due.is_empty();
    for i in 0..due.len() {
        // Where there are many each has left the caches long ago.
        due.get(i + TIMERS_AHEAD).into_iter().for_each(|later| tables.prefetch_handle(*later));
        let handle = due[i];
        match handle.kind() {
            Kind::Connection => connection_timer(tables, local, app, handle),
            Kind::HalfOpen => half_open_timer(&mut Stage { tables, local, tx, app }, handle),
            Kind::TimeWaitV4 | Kind::TimeWaitV6 => {}
        }
    }
    due.clear();
    local.due = due;
    let unfinished = more || reaped == REAP_MAX;
    local.expired_to = if unfinished { 0 } else { tick };
    any || unfinished
}

impl Local {
    /// What was waited for may lie in the device: no acknowledgement is late that has come before anyone could look.
    fn takes_in_first(&mut self, frames: usize, tick: u64) -> bool {
        let was_stopped = self.expired_to != 0 && tick.saturating_sub(self.expired_to) > STOPPED_MS;
        let first = was_stopped && frames >= BATCH_MAX && self.taken_in_first < FIRST_MAX;
        self.taken_in_first = if first { self.taken_in_first + 1 } else { 0 };
        first
    }
}

fn connection_timer(tables: &mut Tables, local: &mut Local, app: &mut dyn App, handle: Handle) {
    let index = handle.index();
    let id = tables.id(index);
    let Some(slot) = tables.slots.get_mut(index) else { return };
    // As a rule something was sent, or heard, since the entry was made: then nothing is due before another time.
    let deadline = slot.tcb.deadline();
    if deadline > local.now {
        return tables.timers.arm(handle, deadline);
    }
    let mut found = None;
    let mut cx = Cx { now: local.now, config: &local.config.tcp, pool: &mut tables.pool };
    let deadline = match &mut slot.tcb {
        Tcb::Synchronized(connection) => {
            if connection.is_retransmission_due(cx.now) {
                tables.counters.count(Mib::TcpExtTCPTimeouts);
                found = connection.suspect_path(&cx).map(|mtu| (connection.key().remote, mtu));
            } else if connection.is_loss_probe_due(cx.now) {
                tables.counters.count(Mib::TcpExtTCPLossProbes);
            }
            connection.on_timeout(&mut cx);
            connection.deadline()
        }
        Tcb::Handshaking(handshake) => {
            if let Some(reason) = handshake.on_timeout(&cx) {
                let token = handshake.token;
                tables.remove(index);
                tables.counters.count(Mib::TcpAttemptFails);
                // As in the kernel, the timer that gives up has fired, too.
                tables.counters.count(Mib::TcpExtTCPTimeouts);
                tables.counters.count(Mib::TcpExtTCPAbortOnTimeout);
                return app.on_closed(&mut Context { tables, local }, id, token, reason);
            }
            if handshake.has_retry_due() {
                tables.counters.count(Mib::ConnectRetries);
                tables.counters.count(Mib::TcpExtTCPTimeouts);
            }
            handshake.deadline()
        }
    };
    if !slot.touched {
        slot.touched = true;
        local.touched.add(index);
    }
    tables.timers.arm(handle, deadline);
    if let Some((remote, mtu)) = found {
        tables.counters.count(Mib::TcpExtTCPMTUPFail);
        local.learn_mtu(remote, mtu);
    }
}

fn half_open_timer<T: Tx>(stage: &mut Stage<'_, T>, handle: Handle) {
    let index = handle.index();
    let now = stage.local.now;
    let cx = Cx { now, config: &stage.local.config.tcp, pool: &mut stage.tables.pool };
    let Some(half) = stage.tables.half_open.get_mut(index) else { return };
    if laneway_proto::tcp::listen::is_due(half.retry_at_ms(), now) {
        stage.tables.counters.count(Mib::TcpExtTCPTimeouts);
        if !half.on_timeout(&cx) {
            return stage.tables.remove_half_open(index);
        }
        let at = half.retry_at_ms();
        stage.tables.timers.arm_tick(handle, next_tick(now, at));
        stage.send_syn_ack(index);
    } else {
        let at = half.retry_at_ms();
        stage.tables.timers.arm_tick(handle, next_tick(now, at));
    }
}
