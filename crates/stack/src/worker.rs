//! THE LOOP. Start reading here.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`
//!
//! [`turn`] is one poll of one lane: whatever has arrived goes in, the application has its say, whatever is due goes out.
//! It is the same function in the product's threads, in the simulator and in benchmarks; only time differs.

mod expiry;
mod lent;
mod post;
mod settle;

pub(crate) use expiry::TIMERS_MAX;
pub(crate) use lent::Lent;
pub(crate) use settle::send;

use crate::app::{App, Context, Soon};
use crate::counters::Mib;
use crate::demux::Stage;
use crate::ingress::{self, Batch};
use crate::lane::Lane;
use crate::moving;
use crate::mtu_news;
use crate::sharing::apart::Later;
use crate::sharing::{Sharing, Site};
use crate::slow_path::{self, Slow};
use crate::strangers;
use crate::tables::{Kind, Tables};
use arrayvec::ArrayVec;
use laneway_device::{BATCH_MAX, Medium, Rx, RxMeta, Tx};
use laneway_proto::ethernet::Ours;
use laneway_proto::ip::reassembly::Reassembled;
use laneway_proto::tcp::Connection;
use laneway_proto::time::Instant;
use laneway_wire::ethernet::Mac;
use lent::{Admitted, ByDevice};

/// Connections told in one poll that there is memory again.
const FEED_MAX: usize = 64;
/// Frames of one poll at the most, while nearly all of them are turned away.
const POLLED_MAX: usize = 8 * BATCH_MAX;
/// A poll longer than this is counted as `PollsSlow`.
pub(crate) const SLOW_US: u64 = 10_000;

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
    let mut polled = rx.poll(BATCH_MAX);
    let mut frames = polled;
    lane.local.strangers.on_poll(frames, now);
    // The newest state of the world comes after the frames: none of them was sent before it was published.
    let commands = post::control_mail(lane, tx, app);
    if lane.local.moving.is_under_way() {
        lane.local.adopt();
    }
    let mut room = BATCH_MAX;
    loop {
        let asked_for = room;
        if polled > 0 {
            lane.local.counters.add(Mib::IpInReceives, polled as u64);
            room -= batch(lane, polled, ByDevice(&*rx), tx, app);
        }
        rx.release();
        // Where strangers are turned away, what comes behind them has a poll as full as any.
        if !lane.local.strangers.have_to_wait() || polled < asked_for || room < BATCH_MAX / 8 || frames >= POLLED_MAX {
            break;
        }
        polled = rx.poll(room);
        frames += polled;
    }
    let moving = lane.local.moving.is_under_way() && moving::go_on(lane, frames);
    let mailed = post::lane_mail(lane, tx, app);
    let timers = expiry::expire(lane, frames, tx, app);
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
    let unfinished = settle::output(lane, tx, app);
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
/// the first pass finds them, and whom it does not find is looked for in an index that is there, too.
///
/// Says how many were not turned away.
#[inline]
fn batch<'a, S: Sharing, T: Tx>(
    lane: &mut Lane<S>,
    n: usize,
    lent: impl Lent<'a>,
    tx: &mut T,
    app: &mut dyn App,
) -> usize {
    let mut arriving = Batch::new();
    let far = lane.shared.peek().is_none_or(Tables::are_far);
    let admitted = match lane.shared.peek() {
        Some(tables) if lane.local.strangers.have_to_wait() => {
            let admitted = strangers::admitted(&mut lane.local, tables, n, lent);
            read(lane, (admitted.len(), far), Admitted(lent, &admitted), &mut arriving, tx, app);
            admitted.len()
        }
        _ => {
            read(lane, (n, far), lent, &mut arriving, tx, app);
            n
        }
    };
    if far {
        look_ahead(lane, &mut arriving, app);
    }
    let mut rest = arriving.as_slice();
    if S::UNSHARED {
        let mut tables = lane.shared.enter(Site::Input);
        let mut stage = Stage { tables: &mut tables, local: &mut lane.local, tx, app };
        while let Some((segment, run, others)) = ingress::run(rest) {
            stage.take_in::<S::Segmentation>(segment, run);
            rest = others;
        }
        return admitted;
    }
    while let Some((segment, run, others)) = ingress::run(rest) {
        take_in(lane, segment, run, tx, app);
        rest = others;
    }
    admitted
}

/// The first pass. By itself: what a frame says at which offset is held in more registers than the rest of the loop has to
/// spare.
#[inline(never)]
fn read<'a, S: Sharing, T: Tx>(
    lane: &mut Lane<S>,
    (n, far): (usize, bool),
    lent: impl Lent<'a>,
    arriving: &mut Batch<'a>,
    tx: &mut T,
    app: &mut dyn App,
) {
    let ours = Ours::new(Mac(tx.capabilities().mac));
    for i in 0..n {
        let (frame, mailed) = lent.frame(i);
        let (local, tables) = (&mut lane.local, lane.shared.peek());
        let recent = move |mix| match tables {
            Some(tables) if far => {
                tables.prefetch_recent(mix);
                None
            }
            Some(tables) => tables.recent_near(mix),
            None => None,
        };
        let other = match mailed {
            Some(note) => post::mailed_packet(local, frame, note, recent, arriving),
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
}

/// The second pass and the third.
#[inline(never)]
fn look_ahead<S: Sharing>(lane: &Lane<S>, arriving: &mut [ingress::Arriving<'_>], app: &mut dyn App) {
    let tables = lane.shared.peek();
    for segment in arriving.iter_mut() {
        segment.hint = tables.and_then(|tables| tables.recent(segment.mix));
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
            Some(hint) if segment.is_pushed() && hint.kind() == Kind::Connection => {
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

impl<S: Sharing> Lane<S> {
    /// Kept bytes that the application has asked to see again.
    fn resume<T: Tx>(&mut self, tx: &mut T, app: &mut dyn App) {
        let resumed = std::mem::take(&mut self.local.resumed);
        for id in resumed {
            let mut tables = self.shared.enter(Site::Verb);
            Stage { tables: &mut tables, local: &mut self.local, tx: &mut *tx, app: &mut *app }.show_kept(id);
        }
    }

    /// Tells those that [wait for it](crate::lane::Local::starve) that there is room again, as long as there is memory.
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
        // Also for those that are dead, and only lie there yet.
        let waits = if !tables.tw4.is_empty() || !tables.tw6.is_empty() {
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
