//! Owns the end of a poll: what each connection that something happened to has to send, and what becomes of it then.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → [tcp::output] → ip::output → egress → device::tx`

use crate::app::{App, Context, ListenerId};
use crate::counters::{Counters, Mib};
use crate::demux::Stage;
use crate::egress::{self, Outgoing, Sent, Written};
use crate::lane::{Lane, Local};
use crate::paths::PathPlace;
use crate::sharing::{Sharing, Site};
use crate::tables::{Handle, Kind, Tables, Tcb};
use laneway_device::Tx;
use laneway_proto::ip::output::Marks;
use laneway_proto::tcp::nagle::Segmentation;
use laneway_proto::tcp::output::{Held, Kind as PlanKind};
use laneway_proto::tcp::{CloseReason, Connection, Cx, Plan, State};
use laneway_proto::time::Instant;
use laneway_wire::checksum::Sum;
use laneway_wire::tcp::Flags;
use std::borrow::Borrow;
use std::hint::cold_path;

/// What one connection may send in one poll: so many segments, four of a super-segment counting as one. It is a quarter of a
/// megabyte in super-segments, which together with what follows it stays in a core's cache.
const SEGMENTS_MAX: u32 = 48;

/// The end of the poll: every connection that something happened to says what is to be sent, now that the application has
/// had its turn. True if more can leave at once, or as soon as the device has room; what is left keeps its order.
pub(super) fn output<S: Sharing, T: Tx>(lane: &mut Lane<S>, tx: &mut T, app: &mut dyn App) -> bool {
    while let Some(&index) = lane.local.unsent.front() {
        let mut tables = lane.shared.enter(Site::Output);
        if !(Stage { tables: &mut tables, local: &mut lane.local, tx: &mut *tx, app: &mut *app }.try_syn_ack(index)) {
            return true;
        }
        lane.local.unsent.pop_front();
    }
    let all = settle_all(lane, tx, app);
    lane.local.touched.rest();
    !all
}

/// True if none has more to say, but to a neighbour that it waits for.
#[inline(always)]
fn settle_all<S: Sharing, T: Tx>(lane: &mut Lane<S>, tx: &mut T, app: &mut dyn App) -> bool {
    // Those that had their share of this poll, or wait for a neighbour, go on in the next.
    let (mut later, mut all) = (0, true);
    // The list may grow while it is walked: an application that is told of an end may begin something new.
    while let Some(index) = lane.local.touched.take_before(later) {
        let mut tables = lane.shared.output(index);
        match settle::<S::Segmentation, T>(&mut tables, &mut lane.local, tx, app, index) {
            Settled::Done => {}
            stopped @ (Settled::Later | Settled::Waiting) => {
                lane.local.touched.add(index);
                later += 1;
                all &= stopped == Settled::Waiting;
            }
            Settled::Full => {
                lane.local.touched.untake();
                return false;
            }
        }
    }
    all
}

/// How far a connection came in this poll.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It has nothing more to say.
    Done,
    /// It has more, and others have their turn first.
    Later,
    /// It has more, and waits for a neighbour.
    Waiting,
    /// The device takes no more from anyone.
    Full,
}

/// Sends what one connection has to send, and sees to its end.
#[inline(always)]
fn settle<G: Segmentation, T: Tx>(
    tables: &mut Tables,
    local: &mut Local,
    tx: &mut T,
    app: &mut dyn App,
    index: u32,
) -> Settled {
    let Some(slot) = tables.slots.get_mut(index) else { return Settled::Done };
    let Tcb::Synchronized(connection) = &mut slot.tcb else { return settle_handshake(tables, local, tx, index) };
    let Some(plan) = connection.decide_usual::<G>() else { return settle_any::<G, T>(tables, local, tx, app, index) };
    // Where requests and responses take turns this is all that there is.
    if let Some(stopped) = send((connection, slot.path), plan, &mut tables.counters, local, tx) {
        connection.pause();
        return stopped;
    }
    connection.settle_usual(&mut tables.pool);
    slot.touched = false;
    let deadline = connection.deadline();
    tables.timers.arm(Handle::new(Kind::Connection, index), deadline);
    Settled::Done
}

/// The same of an active open under way: its SYN goes out, or its SYN-ACK if both ends have opened at once.
#[inline(never)]
fn settle_handshake<T: Tx>(tables: &mut Tables, local: &mut Local, tx: &mut T, index: u32) -> Settled {
    let Some(slot) = tables.slots.get_mut(index) else { return Settled::Done };
    let Tcb::Handshaking(handshake) = &mut slot.tcb else { return Settled::Done };
    let cx = Cx { now: local.now, config: &local.config.tcp, pool: &mut tables.pool };
    if let Some(header) = handshake.decide(&cx) {
        match egress::marked_syn_at(local, tx, (handshake.key(), slot.path), header, handshake.marks) {
            Sent::Full => return Settled::Full,
            Sent::Waiting => return Settled::Waiting,
            Sent::Yes | Sent::Nowhere => {}
        }
        handshake.commit(&Cx { now: local.now, config: &local.config.tcp, pool: &mut tables.pool });
        tables.counters.count(if handshake.is_repeated() { Mib::TcpRetransSegs } else { Mib::TcpOutSegs });
    }
    slot.touched = false;
    let deadline = handshake.deadline();
    tables.timers.arm(Handle::new(Kind::Connection, index), deadline);
    Settled::Done
}

/// The same of a connection, whatever it has to send.
#[inline(never)]
fn settle_any<G: Segmentation, T: Tx>(
    tables: &mut Tables,
    local: &mut Local,
    tx: &mut T,
    app: &mut dyn App,
    index: u32,
) -> Settled {
    let now = local.now;
    let Some(slot) = tables.slots.get_mut(index) else { return Settled::Done };
    let Tcb::Synchronized(connection) = &mut slot.tcb else { return Settled::Done };
    if connection.is_finished() {
        // It has nothing to send, and nothing more to wait for.
        end(tables, local, app, index);
        return Settled::Done;
    }
    let (_, sent_to, _) = connection.sequence();
    let stopped = match connection.decide_usual_ack() {
        Some(plan) => send((connection, slot.path), plan, &mut tables.counters, local, tx),
        None => send_all::<G, T>((connection, slot.path), &mut tables.counters, local, tx),
    };
    if let Some(stopped) = stopped {
        connection.pause();
        return stopped;
    }
    match connection.settle::<G>(&mut Cx { now, config: &local.config.tcp, pool: &mut tables.pool }) {
        Some(Held::Small) => tables.counters.count(Mib::TcpHeldSmall),
        Some(Held::Corked) => tables.counters.count(Mib::TcpHeldCorked),
        Some(Held::Deferred) => tables.counters.count(Mib::TcpHeldDeferred),
        Some(Held::Nothing | Held::Window | Held::Congestion) | None => {}
    }
    // Where nothing was sent there is no more room than when the application was refused it, if that was for want of memory.
    let sends_off = connection.sequence().1 != sent_to && connection.sends_off();
    slot.touched = false;
    match connection.state() {
        State::Closed if connection.is_finished() => end(tables, local, app, index),
        State::Closed if connection.only_waits_to_be_read() => tables.free_flow(index),
        // The record could not hold what is unread: the connection stays for that.
        State::TimeWait if connection.buffered() > 0 => tables.retire_unread(index, now, &local.config),
        State::TimeWait if slot.accepted => {
            let token = connection.token;
            let id = tables.id(index);
            tables.retire(index, now, local.config.tcp_max_tw_buckets);
            app.on_closed(&mut Context { tables, local }, id, token, CloseReason::Normal);
        }
        _ => {
            let deadline = connection.deadline();
            tables.timers.arm(Handle::new(Kind::Connection, index), deadline);
        }
    }
    if sends_off {
        local.starve(tables, tables.id(index));
    }
    Settled::Done
}

/// All that a connection has to say, as far as one may in a poll. If that was not all: how far it came.
#[inline(always)]
fn send_all<G: Segmentation, T: Tx>(
    (connection, path): (&mut Connection, PathPlace),
    counters: &mut Counters,
    local: &mut Local,
    tx: &mut T,
) -> Option<Settled> {
    let mut segments = 0;
    // The plan stays where it was made: it is not small, and a copy would wait until it is written.
    while let Some(plan) = &connection.decide::<G>(local.now) {
        let stopped = send((connection, path), plan, counters, local, tx);
        if stopped.is_some() || !connection.has_more() {
            return stopped;
        }
        segments += 1 + plan.segments / 4;
        if segments >= SEGMENTS_MAX {
            return Some(Settled::Later);
        }
    }
    None
}

/// A connection that is finished goes, and the application is told.
#[inline(never)]
fn end(tables: &mut Tables, local: &mut Local, app: &mut dyn App, index: u32) {
    let id = tables.id(index);
    let Some(slot) = tables.slots.get_mut(index) else { return };
    let Tcb::Synchronized(connection) = &slot.tcb else { return };
    let (reason, was_cut_off) = (connection.reason(), connection.was_cut_off());
    let (token, listener, accepted) = (connection.token, connection.listener, slot.accepted);
    if was_cut_off {
        tables.counters.count(Mib::TcpEstabResets);
    }
    match reason {
        CloseReason::TimedOut => tables.counters.count(Mib::TcpExtTCPAbortOnTimeout),
        CloseReason::OutOfMemory => tables.counters.count(Mib::TcpExtTCPAbortOnMemory),
        _ => {}
    }
    tables.remove(index);
    if accepted {
        app.on_closed(&mut Context { tables, local }, id, token, reason);
    } else {
        let Tables { listeners, slots, .. } = tables;
        listeners.forget(ListenerId(listener), |id| slots.is_of(id.index(), id.generation()));
    }
}

/// A segment of a connection, as planned.
#[derive(Clone)]
struct Planned<'a, P> {
    connection: &'a Connection,
    plan: P,
    now: Instant,
}

impl<P: Borrow<Plan> + Clone> Written for Planned<'_, P> {
    #[inline(always)]
    fn write(self, buf: &mut [u8], offloaded: bool) -> Sum {
        self.connection.build(self.plan.borrow(), self.now, offloaded, buf)
    }

    #[inline(always)]
    fn is_answered(&self) -> bool {
        self.connection.is_answered(self.now)
    }

    #[inline(always)]
    fn may_be_marked(&self) -> bool {
        self.connection.may_be_marked()
    }

    fn marks(&self) -> Marks {
        self.connection.marks_of(self.plan.borrow())
    }

    fn notes(&self) -> Flags {
        self.connection.notes_of(self.plan.borrow())
    }
}

/// Sends what the plan says, and remembers it. If not all of it left: how far the connection came. The plan itself, of one who has it in
/// registers, and lent, of one who has laid it down.
#[inline(always)]
pub(crate) fn send<T: Tx>(
    (connection, path): (&mut Connection, PathPlace),
    planned: impl Borrow<Plan> + Clone,
    counters: &mut Counters,
    local: &mut Local,
    tx: &mut T,
) -> Option<Settled> {
    let plan = planned.borrow();
    let now = local.now;
    if plan.is_super() {
        return send_super((connection, path), plan, counters, local, tx);
    }
    let (key, header_len) = (connection.key(), plan.header_len.into());
    let out = Outgoing { key, path, header_len, payload_len: plan.len as usize };
    let stopped = match egress::segment(local, tx, out, Planned { connection, plan: planned.clone(), now }) {
        Sent::Yes | Sent::Nowhere => {
            commit(connection, plan, counters, now);
            return None;
        }
        Sent::Full => Settled::Full,
        Sent::Waiting => Settled::Waiting,
    };
    cold_path();
    Some(stopped)
}

#[inline(never)]
fn send_super<T: Tx>(
    (connection, path): (&mut Connection, PathPlace),
    plan: &Plan,
    counters: &mut Counters,
    local: &mut Local,
    tx: &mut T,
) -> Option<Settled> {
    let (sent, len) = egress::super_segment(local, tx, (&*connection, path), plan);
    let shortened;
    let left = if len == plan.len {
        plan
    } else {
        shortened = plan.shortened(len);
        &shortened
    };
    if len > 0 {
        commit(connection, left, counters, local.now);
        counters.count(Mib::TcpSuperSegs);
        counters.add(Mib::TcpSuperSegsPieces, left.segments.into());
    }
    match sent {
        Sent::Full => Some(Settled::Full),
        Sent::Waiting => Some(Settled::Waiting),
        Sent::Yes | Sent::Nowhere => None,
    }
}

#[inline(always)]
fn commit(connection: &mut Connection, plan: &Plan, counters: &mut Counters, now: Instant) {
    let carries_ack = connection.commit(plan, now);
    let segments = u64::from(plan.segments);
    // What leaves again is not counted as sent, as RFC 4022 has it and the kernel.
    if plan.kind != PlanKind::Again {
        counters.add(Mib::TcpOutSegs, segments);
    }
    match plan.kind {
        PlanKind::New if carries_ack => counters.count(Mib::TcpAcksPiggybacked),
        PlanKind::Ack => counters.count(Mib::TcpAcksPure),
        PlanKind::Again => {
            cold_path();
            counters.add(Mib::TcpRetransSegs, segments);
        }
        PlanKind::Reset => {
            cold_path();
            counters.count(Mib::TcpOutRsts);
        }
        PlanKind::New | PlanKind::Probe => {}
    }
}
