//! THE LOOP. Start reading here.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`
//!
//! [`turn`] is one poll of one lane: whatever has arrived goes in, the application has its say, whatever is due goes out.
//! It is the same function in the product's threads, in the simulator and in benchmarks; only time differs.

use crate::app::{App, Context, ListenerId, Soon};
use crate::bound;
use crate::counters::{Counters, Mib};
use crate::demux::{Stage, next_tick};
use crate::egress::{self, Outgoing, Sent, Written};
use crate::ingress::{self, Batch, Other, Vouched};
use crate::lane::{Lane, Local};
use crate::listing;
use crate::mail::{ToControl, ToLane};
use crate::moving::{self, Note};
use crate::mtu_news;
use crate::paths::PathPlace;
use crate::sharing::apart::Later;
use crate::sharing::{Sharing, Site};
use crate::slow_path::{self, Slow};
use crate::tables::{Handle, Kind, Tables, Tcb};
use arrayvec::ArrayVec;
use laneway_device::{BATCH_MAX, Medium, Rx, RxFrame, RxMeta, Tx};
use laneway_proto::ip::input;
use laneway_proto::ip::reassembly::Reassembled;
use laneway_proto::tcp::nagle::Segmentation;
use laneway_proto::tcp::output::{Held, Kind as PlanKind};
use laneway_proto::tcp::{CloseReason, Connection, Cx, Plan, State};
use laneway_proto::time::Instant;
use laneway_wire::checksum::Sum;
use laneway_wire::ethernet::Mac;
use std::borrow::Borrow;
use std::cell::Cell;
use std::hint::cold_path;

/// TIME_WAIT records reaped in one poll at the most, so that a wave of expiries cannot starve input.
const REAP_MAX: usize = 64;
/// Index entries moved to a larger table in one poll.
const MAINTAIN_MAX: usize = 64;
/// Connections told in one poll that there is memory again.
const FEED_MAX: usize = 64;
/// Timers looked at in one poll.
pub(crate) const TIMERS_MAX: usize = 256;
/// So many before its turn a slot is fetched whose timer has run out.
const TIMERS_AHEAD: usize = 8;
/// A poll longer than this is counted as `PollsSlow`.
pub(crate) const SLOW_US: u64 = 10_000;
/// What one connection may send in one poll: so many segments, four of a super-segment counting as one. It is a quarter of a
/// megabyte in super-segments, which together with what follows it stays in a core's cache.
const SEGMENTS_MAX: u32 = 48;

/// What a turn did, and when the next one is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// Frames taken in.
    pub frames: usize,
    /// Something was done, or could not be finished: turn again at once.
    pub busy: bool,
    /// Turn again at this time at the latest, even if no frame comes.
    pub deadline: Instant,
}

/// One poll of one lane. There is one copy of it for each kind of device and of sharing, whatever applications there are: it is most of what
/// the cache of instructions holds.
#[inline(never)]
pub fn turn<S: Sharing, R: Rx, T: Tx>(
    lane: &mut Lane<S>,
    now: Instant,
    rx: &mut R,
    tx: &mut T,
    app: &mut dyn App,
) -> Turn {
    // A poll that did something and after which the clock has moved far was too long: every connection waited for it.
    if lane.local.busy && now.since_us(lane.local.now) > SLOW_US {
        lane.local.counters.count(Mib::PollsSlow);
    }
    lane.local.now = now;
    let frames = rx.poll(BATCH_MAX);
    // The newest state of the world comes after the frames: none of them was sent before it was published.
    let commands = control_mail(lane, tx, app);
    if lane.local.moving.is_under_way() {
        lane.local.adopt();
    }
    if frames > 0 {
        lane.local.counters.add(Mib::IpInReceives, frames as u64);
        let rx = &*rx;
        batch(lane, frames, |i| (rx.frame(i), None), tx, app);
    }
    rx.release();
    let moving = lane.local.moving.is_under_way() && moving::go_on(lane, frames);
    let mailed = lane_mail(lane, tx, app);
    let timers = expire(lane, tx, app);
    if !lane.local.resumed.is_empty() {
        lane.resume(tx, app);
    }
    if !lane.local.starving.is_empty() {
        lane.feed(app);
    }
    {
        let mut tables = lane.shared.enter(Site::Verb);
        app.on_poll(&mut Context { tables: &mut tables, local: &mut lane.local });
    }
    let mtu_news = lane.local.mtu_news.is_under_way();
    if mtu_news {
        mtu_news::walk(&mut lane.shared.enter(Site::Verb), &mut lane.local);
    }
    lane.local.waits_for_neighbour = false;
    let unfinished = output(lane, tx, app);
    if !lane.local.udp.outgoing.is_empty() {
        slow_path::send_datagrams(&mut lane.local, tx);
    }
    while let Some(id) = lane.local.unbinding.pop() {
        lane.local.udp.unbind(id);
    }
    tx.flush();
    for ring in lane.local.mail.to_lanes.iter_mut().flatten() {
        ring.publish();
    }
    app.on_poll_end();
    let feeds = !lane.local.starving.is_empty() && lane.can_feed();
    let busy = frames > 0 || mailed || moving || timers || commands || unfinished || mtu_news || feeds || app.is_busy();
    lane.local.busy = busy;
    lane.local.counters.count(if busy { Mib::PollsBusy } else { Mib::PollsIdle });
    // A busy lane turns again at once, and need not ask when.
    let deadline = if busy { now } else { lane.deadline() };
    Turn { frames, busy, deadline }
}

/// A batch in four passes: fetch the place where the flow was found last; fetch the connection that was there, or else hash and fetch the
/// bucket; fetch what the bucket leads to; process. By the time a segment is looked at, everything that it needs is in the cache: also the
/// bucket of a flow that is found without it, if its place there is about to change. Of few flows there is nothing to fetch: they are there,
/// and the first pass finds them.
#[inline]
fn batch<'a, S: Sharing, T: Tx>(
    lane: &mut Lane<S>,
    n: usize,
    frame: impl Fn(usize) -> (RxFrame<'a>, Option<Note>),
    tx: &mut T,
    app: &mut dyn App,
) {
    let mut arriving = Batch::new();
    let far = lane.shared.peek().is_some_and(Tables::are_far);
    let all_known = read(lane, (n, far), frame, &mut arriving, tx, app);
    if far || !all_known {
        look_ahead(lane, far, &mut arriving, app);
    }
    let mut rest = arriving.as_slice();
    if S::UNSHARED {
        let mut tables = lane.shared.enter(Site::Input);
        let mut stage = Stage { tables: &mut tables, local: &mut lane.local, tx, app };
        while let Some((segment, run, others)) = ingress::run(rest) {
            stage.take_in::<S::Segmentation>(segment, run);
            rest = others;
        }
        return;
    }
    while let Some((segment, run, others)) = ingress::run(rest) {
        take_in(lane, segment, run, tx, app);
        rest = others;
    }
}

/// The first pass; true if it found all flows. By itself: what a frame says at which offset is held in more registers than the rest of the loop has to
/// spare.
#[inline(never)]
fn read<'a, S: Sharing, T: Tx>(
    lane: &mut Lane<S>,
    (n, far): (usize, bool),
    frame: impl Fn(usize) -> (RxFrame<'a>, Option<Note>),
    arriving: &mut Batch<'a>,
    tx: &mut T,
    app: &mut dyn App,
) -> bool {
    let ours = Mac(tx.capabilities().mac);
    let all_known = &Cell::new(true);
    for i in 0..n {
        let (frame, mailed) = frame(i);
        let (local, tables) = (&mut lane.local, lane.shared.peek());
        let recent = move |mix| {
            let hint = match tables {
                Some(tables) if far => {
                    tables.prefetch_recent(mix);
                    None
                }
                Some(tables) => tables.recent_near(mix),
                None => None,
            };
            if hint.is_none_or(|hint| hint.kind() != Kind::Connection) {
                all_known.set(false);
            }
            hint
        };
        let other = match mailed {
            Some(note) => mailed_packet(local, frame, note, recent, arriving),
            None => ingress::frame(local, frame, ours, recent, arriving),
        };
        if let Some(other) = &other {
            let mut tables = lane.shared.enter(Site::Slow);
            let mut stage = Stage { tables: &mut tables, local: &mut lane.local, tx: &mut *tx, app: &mut *app };
            if let Slow::Whole(datagram) = stage.slow(other) {
                drop(tables);
                whole(lane, &datagram, tx, app);
            }
        }
    }
    all_known.get()
}

/// The second pass and the third.
#[inline(never)]
fn look_ahead<S: Sharing>(lane: &Lane<S>, far: bool, arriving: &mut [ingress::Arriving<'_>], app: &mut dyn App) {
    let tables = lane.shared.peek();
    for segment in arriving.iter_mut() {
        if far {
            segment.hint = tables.and_then(|tables| tables.recent(segment.mix));
        }
        match segment.hint {
            None => {
                segment.hash = segment.key.hash(&lane.local.hash_key.get());
                if let Some(tables) = tables {
                    tables.prefetch_bucket(segment.hash);
                }
            }
            // It becomes a connection, in the same place of the index.
            Some(half) if half.kind() == Kind::HalfOpen => {
                if let Some(tables) = tables {
                    tables.prefetch_bucket_of_half_open(segment.mix, half);
                }
            }
            Some(_) => {}
        }
    }
    let Some(tables) = tables else { return };
    let mut soon = ArrayVec::<Soon, BATCH_MAX>::new();
    for segment in arriving {
        match segment.hint {
            None => segment.hint = tables.prefetch_entity(segment.hash),
            // It may end with this: its place in the index goes to a TIME_WAIT record, or is given up.
            Some(hint) if segment.is_last() && hint.kind() == Kind::Connection => {
                tables.prefetch_bucket_of(hint.index());
            }
            Some(hint) if far && segment.is_pushed() && hint.kind() == Kind::Connection => {
                let bytes = segment.text_len();
                soon.extend(tables.prefetch_sent(hint.index()).map(|token| Soon { token, bytes }));
            }
            Some(_) => {}
        }
    }
    if !soon.is_empty() {
        app.on_soon(&soon);
    }
}

/// A packet from another lane, with what that has noted of it.
#[inline]
fn mailed_packet<'a>(
    local: &mut Local,
    frame: RxFrame<'a>,
    note: Note,
    recent: impl Fn(u64) -> Option<Handle> + Copy,
    arriving: &mut Batch<'a>,
) -> Other<'a> {
    let before = arriving.len();
    let mut other = ingress::packet(local, (frame.bytes, frame.meta), note.group, recent, arriving);
    if let Some(other) = &mut other {
        (other.via, other.is_counted) = (note.via, true);
    }
    if let Some(segment) = arriving.get_mut(before) {
        segment.via = note.via;
        ingress::was_counted(local, segment);
        if let Some(least) = note.beyond {
            local.moving.note_beyond(segment.key, least);
        }
    }
    local.hear_of_cookies(note.cookies_s);
    other
}

/// One segment, with the run of those that continue it.
#[inline(always)]
fn take_in<S: Sharing, T: Tx>(
    lane: &mut Lane<S>,
    segment: &ingress::Arriving<'_>,
    run: &[ingress::Arriving<'_>],
    tx: &mut T,
    app: &mut dyn App,
) {
    let mut tables = lane.shared.input(segment);
    if !S::ACCEPT_APART {
        let mut stage = Stage { tables: &mut tables, local: &mut lane.local, tx, app };
        return stage.take_in::<S::Segmentation>(segment, run);
    }
    let mut later = Later::new(app);
    Stage { tables: &mut tables, local: &mut lane.local, tx, app: &mut later }.take_in::<S::Segmentation>(segment, run);
    let acceptable = later.acceptable;
    drop(tables);
    if let Some(listener) = acceptable {
        let mut tables = lane.shared.enter(Site::Accept);
        app.on_acceptable(&mut Context { tables: &mut tables, local: &mut lane.local }, listener);
    }
}

/// A datagram whose last fragment has come: its flow, now that it is known, may belong to another lane; `demux` sees to that.
#[cold]
fn whole<S: Sharing, T: Tx>(lane: &mut Lane<S>, datagram: &Reassembled, tx: &mut T, app: &mut dyn App) {
    let mut arriving = Batch::new();
    let Reassembled { packet, to_group } = datagram;
    let other = ingress::packet(&mut lane.local, (packet, RxMeta::default()), *to_group, |_| None, &mut arriving);
    for segment in &arriving {
        take_in(lane, segment, &[], tx, app);
    }
    if let Some(other) = other
        && other.packet.fragment.is_none()
    {
        let mut tables = lane.shared.enter(Site::Slow);
        Stage { tables: &mut tables, local: &mut lane.local, tx, app }.slow(&other);
    }
}

/// Frames that other lanes found in their queues and that are ours.
fn lane_mail<S: Sharing, T: Tx>(lane: &mut Lane<S>, tx: &mut T, app: &mut dyn App) -> bool {
    let mut any = false;
    for i in 0..lane.local.mail.from_lanes.len() {
        // The ring of a lane is behind those of the lanes before it, but for our own.
        let from = i + usize::from(i >= lane.local.id);
        if lane.local.mail.from_lanes[i].is_empty() || lane.local.moving.holds(from) {
            continue;
        }
        // The ring is taken out for the batch, because its frames are lent from it while the lane works.
        let mut ring = lane.local.mail.from_lanes.swap_remove(i);
        let n = ring.poll_far(BATCH_MAX);
        let frame = |i| {
            let (bytes, word) = ring.record(i);
            (RxFrame { bytes, meta: Vouched::meta(word) }, Some(Note::of(word)))
        };
        batch(lane, n, frame, tx, app);
        lane.local.moving.forget_beyond();
        lane.local.counters.add(Mib::SteerMailed, n as u64);
        ring.release(n);
        let rings = &mut lane.local.mail.from_lanes;
        rings.push(ring);
        let last = rings.len() - 1;
        rings.swap(i, last);
        any |= n > 0;
    }
    any
}

/// Commands of the control thread. Hardly any poll has one, and what carries them out has a large frame: it is not entered for nothing.
#[inline]
fn control_mail<S: Sharing, T: Tx>(lane: &mut Lane<S>, tx: &mut T, app: &dyn App) -> bool {
    let local = &lane.local;
    let waits = !local.mail.from_control.is_empty() || local.owes_answers || local.mail.keeps();
    waits && obey(lane, tx, app)
}

#[inline(never)]
fn obey<S: Sharing, T: Tx>(lane: &mut Lane<S>, tx: &mut T, app: &dyn App) -> bool {
    let mut any = lane.local.mail.keeps();
    lane.local.mail.tell_kept();
    while let Some(command) = lane.local.mail.from_control.pop() {
        any = true;
        let walks = matches!(command, ToLane::Unlisten(_) | ToLane::PathMtu(..));
        let mut tables = lane.shared.enter(if walks { Site::Walk } else { Site::Control });
        let local = &mut lane.local;
        match command {
            ToLane::Snapshot(mut snapshot) => {
                std::mem::swap(&mut local.snapshot, &mut *snapshot);
                local.paths.adopt(&local.snapshot);
                // If there is no room, it ends here.
                let _ = local.mail.to_control.push(ToControl::Replaced(snapshot));
                let neighbours = &local.snapshot.neighbours;
                let settled = local.waiting.settle(|hop| neighbours.get(hop).map(Option::is_some));
                for (next_hop, packets, reachable) in settled {
                    for packet in packets {
                        if reachable {
                            send_waited(local, tx, next_hop, &packet);
                        } else {
                            local.counters.discard(laneway_proto::discard::Discard::NeighbourUnreachable);
                        }
                    }
                }
            }
            ToLane::Reserve { id, binding, port, census } => {
                bound::reserve(&mut tables, local, id, binding, port, census);
            }
            ToLane::Release(id) => bound::release(&mut tables, local, id),
            ToLane::Listen { id, binding, port, backlog } => {
                let backlog = backlog.min(local.config.somaxconn);
                tables.listeners.add(id, binding, port, backlog, local.steering.lanes());
                local.mail.tell(ToControl::Listening(id));
            }
            ToLane::Unlisten(id) => {
                for orphan in tables.listeners.remove(id) {
                    Context { tables: &mut tables, local }.abort(orphan);
                }
                let stale: Vec<u32> =
                    tables.half_open.iter().filter(|(_, half)| half.listener == id.0).map(|(i, _)| i).collect();
                for index in stale {
                    tables.remove_half_open(index);
                }
            }
            ToLane::BindUdp { id, binding, port } => local.udp.bind(id, binding, port),
            ToLane::UnbindUdp(id) => local.unbinding.push(id),
            ToLane::Transmit(frame) => {
                if let Some(buf) = tx.reserve(frame.len()) {
                    buf.copy_from_slice(&frame);
                    tx.commit(frame.len(), Default::default());
                }
            }
            ToLane::PathMtu(remote, mtu) => {
                if local.paths.on_packet_too_big(&local.snapshot, remote, mtu, local.now).is_some() {
                    local.mtu_news.learn(remote, mtu);
                }
            }
            ToLane::UnverifiedMtu(of, remote, mtu) => {
                local.paths.on_unverified_too_big(&local.snapshot, of, (remote, mtu), local.now);
            }
            ToLane::Steer { table, is_abrupt } => local.on_table(table, is_abrupt),
            ToLane::Switched { bucket, capacity } => local.on_switched(bucket, capacity),
            ToLane::Cookies(until) => local.cookies_until = local.cookies_until.max(until),
            ToLane::ReportCounters => {
                let mut counters = local.counters.clone();
                counters.merge(&tables.counters);
                counters.add_met(local.met());
                local.mail.tell(ToControl::Counters(Box::new(counters), tables.bytes()));
            }
            ToLane::List(page) => local.pages.push_back(page),
            ToLane::Tap(tap) => local.taps.push(tap),
        }
    }
    // One page a poll, however many ask. What was said behind them does not wait for that: a socket is bound when its `bind` has returned.
    if let Some(mut page) = lane.local.pages.pop_front() {
        let (tables, local) = (lane.shared.enter(Site::Control), &mut lane.local);
        page.busy = local.busy;
        listing::fill(&mut page, &tables, app, local.id, local.now, local.config.tcp.msl_us);
        local.mail.tell(ToControl::Page(page));
        any = true;
    }
    if lane.local.bound.is_surveying() {
        bound::survey(&mut lane.shared.enter(Site::Control), &mut lane.local);
        any = true;
    }
    lane.local.owes_answers = lane.local.bound.is_surveying() || !lane.local.pages.is_empty();
    any
}

fn send_waited<T: Tx>(local: &mut Local, tx: &mut T, next_hop: laneway_wire::flow::Address, packet: &[u8]) {
    let dst = input::input(packet, /* header_checksum_verified= */ true).map_or(next_hop, |packet| packet.dst);
    let _ = egress::raw(local, tx, dst, packet);
}

/// Everything whose time has come.
fn expire<S: Sharing, T: Tx>(lane: &mut Lane<S>, tx: &mut T, app: &mut dyn App) -> bool {
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
    let reaped = lane.shared.reap(now, lane.local.config.tcp.msl_us, REAP_MAX);
    let mut guard = lane.shared.timers(now);
    let tables: &mut Tables = &mut guard;
    let local = &mut lane.local;
    tables.maintain(MAINTAIN_MAX);
    if now >= local.housekeeping_at {
        local.housekeeping_at = now.after_us(100_000);
        local.paths.on_timeout(&local.snapshot, now, &mut local.mtu_news);
        let given_up = local.waiting.on_timeout(now);
        local.counters.discard_all(laneway_proto::discard::Discard::NeighbourUnreachable, given_up);
        Stage { tables: &mut *tables, local: &mut *local, tx: &mut *tx, app: &mut *app }.give_up_fragments();
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

fn connection_timer(tables: &mut Tables, local: &mut Local, app: &mut dyn App, handle: Handle) {
    let index = handle.index();
    let id = tables.id(index);
    let Some(slot) = tables.slots.get_mut(index) else { return };
    // As a rule something was sent, or heard, since the entry was made: then nothing is due before another time.
    let deadline = slot.tcb.deadline();
    if deadline > local.now {
        return tables.timers.arm(handle, deadline);
    }
    let mut cx = Cx { now: local.now, config: &local.config.tcp, pool: &mut tables.pool };
    let deadline = match &mut slot.tcb {
        Tcb::Synchronized(connection) => {
            if connection.is_retransmission_due(cx.now) {
                tables.counters.count(Mib::TcpExtTCPTimeouts);
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

/// The end of the poll: every connection that something happened to says what is to be sent, now that the application has
/// had its turn. True if more can leave at once, or as soon as the device has room; what is left keeps its order.
fn output<S: Sharing, T: Tx>(lane: &mut Lane<S>, tx: &mut T, app: &mut dyn App) -> bool {
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
        match egress::syn_at(local, tx, handshake.key(), slot.path, header) {
            Sent::Full => return Settled::Full,
            Sent::Waiting => return Settled::Waiting,
            Sent::Yes | Sent::Nowhere => {}
        }
        handshake.commit(&Cx { now: local.now, config: &local.config.tcp, pool: &mut tables.pool });
        tables.counters.count(if handshake.retries() > 0 { Mib::TcpRetransSegs } else { Mib::TcpOutSegs });
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
    let mut segments = 0;
    // The plan stays where it was made: it is not small, and a copy would wait until it is written.
    while let Some(plan) = &connection.decide::<G>(now) {
        if let Some(stopped) = send((connection, slot.path), plan, &mut tables.counters, local, tx) {
            connection.pause();
            return stopped;
        }
        if !connection.has_more() {
            break;
        }
        segments += 1 + plan.segments / 4;
        if segments >= SEGMENTS_MAX {
            connection.pause();
            return Settled::Later;
        }
    }
    match connection.settle::<G>(&mut Cx { now, config: &local.config.tcp, pool: &mut tables.pool }) {
        Some(Held::Small) => tables.counters.count(Mib::TcpHeldSmall),
        Some(Held::Corked) => tables.counters.count(Mib::TcpHeldCorked),
        Some(Held::Deferred) => tables.counters.count(Mib::TcpHeldDeferred),
        Some(Held::Nothing | Held::Window | Held::Congestion) | None => {}
    }
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
    Settled::Done
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
    if reason == CloseReason::TimedOut {
        tables.counters.count(Mib::TcpExtTCPAbortOnTimeout);
    }
    tables.remove(index);
    if accepted {
        app.on_closed(&mut Context { tables, local }, id, token, reason);
    } else {
        let Tables { listeners, slots, .. } = tables;
        listeners.forget(ListenerId(listener as u16), |id| slots.is_of(id.index(), id.generation()));
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

impl<S: Sharing> Lane<S> {
    /// Kept bytes that the application has asked to see again.
    fn resume<T: Tx>(&mut self, tx: &mut T, app: &mut dyn App) {
        let resumed = std::mem::take(&mut self.local.resumed);
        for id in resumed {
            let mut tables = self.shared.enter(Site::Verb);
            Stage { tables: &mut tables, local: &mut self.local, tx: &mut *tx, app: &mut *app }.show_kept(id);
        }
    }

    /// Tells those that were refused memory that there is some again, as long as there is.
    fn feed(&mut self, app: &mut dyn App) {
        for _ in 0..self.local.starving.len().min(FEED_MAX) {
            let mut tables = self.shared.enter(Site::Verb);
            if !tables.pool.has_some() {
                return;
            }
            let Some(id) = self.local.starving.pop_front() else { return };
            if tables.connection(id).is_some_and(Connection::feed) {
                app.on_writable(&mut Context { tables: &mut tables, local: &mut self.local }, id);
            }
        }
    }

    /// Somebody who was refused memory can be told so in the next poll.
    fn can_feed(&mut self) -> bool {
        self.shared.enter(Site::Look).pool.has_some()
    }

    /// When something is due even if nothing arrives.
    fn deadline(&mut self) -> Instant {
        if !self.local.resumed.is_empty() {
            return self.local.now;
        }
        let neighbour = if self.local.waits_for_neighbour { self.local.now.after_us(1_000) } else { Instant::NEVER };
        let tables = self.shared.enter(Site::Look);
        let moving = self.local.moving.deadline(self.local.now, &tables, &self.local.steering);
        let waits = if tables.time_waits > 0 || !tables.tw4.is_empty() {
            self.local.now.after_us(10_000)
        } else {
            Instant::NEVER
        };
        let migrating = if tables.flows.backlog() > 0 { self.local.now } else { Instant::NEVER };
        let kept = [self.local.reassembly.poll_timeout(), self.local.waiting.poll_timeout()];
        let housekeeping =
            kept.into_iter().flatten().min().map_or(Instant::NEVER, |at| at.max(self.local.housekeeping_at));
        tables
            .timers
            .next()
            .unwrap_or(Instant::NEVER)
            .min(waits)
            .min(migrating)
            .min(neighbour)
            .min(housekeeping)
            .min(moving)
    }

    /// Ethernet or bare IP.
    pub fn medium(&self) -> Medium {
        self.local.medium
    }
}
