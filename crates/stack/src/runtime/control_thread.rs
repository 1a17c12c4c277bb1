//! Owns the control plane's thread: what it is asked for, and who waits for its answers.

use super::shared::Shared;
use crate::app::{ListenerId, UdpId};
use crate::binding::BindOptions;
use crate::clock::Clock;
use crate::control::{BindId, Bucket, Control, Tables};
use crate::counters::Counters;
use crate::error::Error;
use crate::listing::Page;
use crate::steering::Source;
use crate::trace::Tap;
use laneway_device::tun::TunCounters;
use laneway_proto::ip::output::Marks;
use laneway_proto::ip::route::RouteTable;
use laneway_proto::time::Instant;
use laneway_sync::doorbell::Sleeper;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// Pages of listings that may be under way at once.
const PAGES_MAX: usize = 64;

/// While a stack stops, its control thread looks this often whether the lanes have ended.
const STOP_CHECK: Duration = Duration::from_millis(10);

/// Where the number and the address of what was bound go.
pub(super) type Reply = SyncSender<Result<(u16, SocketAddr), Error>>;

/// What the control thread is asked for.
pub(super) enum Command {
    Bind {
        at: SocketAddr,
        options: BindOptions,
        then_listen: Option<usize>,
        reply: Reply,
    },
    ListenOn {
        bound: BindId,
        backlog: usize,
        marks: Marks,
        reply: Reply,
    },
    Unbind(BindId),
    Mark(ListenerId, Marks, SyncSender<()>),
    BindUdp {
        at: SocketAddr,
        options: BindOptions,
        reply: SyncSender<Result<(UdpId, SocketAddr), Error>>,
    },
    UnbindUdp(UdpId),
    ReplaceRoutes(Box<RouteTable>, SyncSender<Result<(), Error>>),
    Tables(SyncSender<Tables>),
    MoveBucket {
        bucket: usize,
        lane: usize,
        reply: SyncSender<Result<(), Error>>,
    },
    Buckets(SyncSender<Vec<Bucket>>),
    Source(Box<dyn Source>),
    Counters(SyncSender<Vec<(Counters, usize)>>),
    Page {
        lane: usize,
        page: Box<Page>,
        reply: SyncSender<Box<Page>>,
    },
    #[expect(clippy::vec_box, reason = "the box itself travels on: nothing is moved or allocated on a lane")]
    Taps(Vec<Box<Tap>>),
    Stop,
}

/// The control plane and what its thread needs.
pub(super) struct ControlThread {
    pub(super) control: Control,
    pub(super) clock: Clock,
    pub(super) shared: Arc<Shared>,
    pub(super) sleeper: Sleeper,
    /// Who waits for lanes to agree, or to listen.
    pub(super) binding: Vec<(u16, Reply)>,
    /// Who waits for counters.
    pub(super) counting: Vec<SyncSender<Vec<(Counters, usize)>>>,
    /// Who has asked for them since those were asked for: lanes that have answered are asked again.
    pub(super) counting_next: Vec<SyncSender<Vec<(Counters, usize)>>>,
    /// Who waits for a page of a listing, by the page's number.
    pub(super) paging: Vec<(u64, SyncSender<Box<Page>>)>,
    pub(super) pages: u64,
    /// What the queues of a TUN interface count themselves, by lane.
    pub(super) tun: Vec<Arc<TunCounters>>,
}

impl ControlThread {
    /// Until the stack has stopped. The answer is what it and the device have counted themselves.
    pub(super) fn run(mut self) -> Counters {
        let shared = Arc::clone(&self.shared);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.turn_until_stopped())) {
            shared.panicked("the control thread", &*panic);
        }
        *shared.lock_commands() = None;
        let mut counters = self.control.own_counters().clone();
        self.tun.iter().for_each(|queue| counters.add_tun(queue));
        counters
    }

    fn turn_until_stopped(&mut self) {
        let mut closes = false;
        loop {
            // Nobody has told it to stop where a lane has failed.
            if !closes && self.shared.stop.load(Ordering::Acquire) {
                closes = true;
                self.control.unlisten_all();
            }
            let commands = self.shared.lock_commands().replace(VecDeque::new());
            for command in commands.into_iter().flatten() {
                self.on_command(command);
            }
            let now = self.clock.now();
            let until = self.control.turn(now);
            self.answer();
            for lane in self.control.undelivered() {
                self.shared.bells.ring(lane);
            }
            let stopping = self.shared.stop.load(Ordering::Acquire);
            if stopping && self.shared.running.load(Ordering::Acquire) == 0 {
                return;
            }
            let timeout = (until != Instant::NEVER).then(|| Duration::from_micros(until.since_us(self.clock.now())));
            let timeout = if stopping { Some(timeout.unwrap_or(STOP_CHECK).min(STOP_CHECK)) } else { timeout };
            let (control, shared) = (&self.control, &self.shared);
            let stop_is_news = || !stopping && shared.stop.load(Ordering::Acquire);
            self.sleeper.park(timeout, || {
                control.has_mail() || shared.lock_commands().as_ref().is_some_and(|c| !c.is_empty()) || stop_is_news()
            });
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Bind { reply, .. } | Command::ListenOn { reply, .. }
                if self.shared.stop.load(Ordering::Acquire) =>
            {
                drop(reply.send(Err(Error::Closed)))
            }
            Command::Bind { at, options, then_listen, reply } => {
                let begun = match then_listen {
                    Some(backlog) => self.control.listen_with(at, backlog, options).map(|id| id.0),
                    None => self.control.bind(at, options).map(|id| id.0),
                };
                self.wait_for(begun, reply);
            }
            Command::ListenOn { bound, backlog, marks, reply } => {
                let begun = self.control.listen_on(bound, backlog, marks).map(|id| id.0);
                self.wait_for(begun, reply);
            }
            Command::Unbind(id) => {
                if self.control.is_listening(ListenerId(id.0))
                    && let Some(Ok(at)) = self.control.outcome(id.0)
                {
                    tracing::info!(%at, id = id.0, "listens no more");
                }
                self.control.unbind(id);
            }
            Command::Mark(id, marks, reply) => {
                self.control.mark(id, marks);
                let _ = reply.send(());
            }
            Command::BindUdp { at, options, reply } => drop(reply.send(self.control.bind_udp_with(at, options))),
            Command::UnbindUdp(id) => self.control.unbind_udp(id),
            Command::ReplaceRoutes(routes, reply) => drop(reply.send(self.control.replace_routes(*routes))),
            Command::MoveBucket { bucket, lane, reply } => {
                let outcome = self.control.move_bucket(bucket, lane);
                if outcome.is_ok() {
                    tracing::info!(bucket, lane, "new flows of this steering bucket go to this lane");
                }
                let _ = reply.send(outcome);
            }
            Command::Buckets(reply) => drop(reply.send(self.control.buckets())),
            Command::Source(source) => self.control.set_source(source),
            Command::Tables(reply) => drop(reply.send(self.control.tables())),
            Command::Counters(reply) => self.counting_next.push(reply),
            Command::Page { lane, mut page, reply } => {
                self.pages += 1;
                page.id = self.pages;
                if self.paging.len() >= PAGES_MAX {
                    self.paging.remove(0); // a page that never came back, or too many at once: the oldest is told so
                }
                self.paging.push((page.id, reply));
                self.control.ask_page(lane, page);
            }
            Command::Taps(taps) => {
                taps.into_iter().enumerate().for_each(|(lane, tap)| self.control.tap(lane, tap));
            }
            Command::Stop => {
                tracing::info!("the stack is to stop: every listener is closed");
                self.control.unlisten_all();
                self.shared.begin_stop();
            }
        }
    }

    fn wait_for(&mut self, begun: Result<u16, Error>, reply: Reply) {
        match begun {
            Ok(id) => self.binding.push((id, reply)),
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    /// Gives answers that have become possible, or impossible.
    fn answer(&mut self) {
        for page in self.control.take_pages() {
            if let Some(at) = self.paging.iter().position(|(id, _)| *id == page.id) {
                let _ = self.paging.swap_remove(at).1.send(page);
            }
        }
        let control = &mut self.control;
        let stopping = self.shared.stop.load(Ordering::Acquire);
        self.binding.retain(|(id, reply)| {
            if let Some(outcome) = control.outcome(*id) {
                match &outcome {
                    Ok(at) if control.is_listening(ListenerId(*id)) => tracing::info!(%at, id, "listens"),
                    Ok(at) => tracing::debug!(%at, id, "is bound"),
                    Err(why) => tracing::info!(%why, "cannot be bound"),
                }
                let _ = reply.send(outcome.map(|at| (*id, at)));
                return false;
            }
            if stopping {
                let _ = reply.send(Err(Error::Closed));
            }
            !stopping
        });
        if stopping {
            self.paging.clear();
        }
        if !self.counting.is_empty()
            && let Some(mut counters) = control.counters_by_lane()
        {
            counters.iter_mut().zip(&self.tun).for_each(|((lane, _), queue)| lane.add_tun(queue));
            for reply in self.counting.drain(..) {
                let _ = reply.send(counters.clone());
            }
        }
        if stopping {
            self.counting.clear();
            self.counting_next.clear();
        } else if self.counting.is_empty() && !self.counting_next.is_empty() {
            std::mem::swap(&mut self.counting, &mut self.counting_next);
            self.control.request_counters();
        }
    }
}
