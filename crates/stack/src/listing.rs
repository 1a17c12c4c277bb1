//! Owns what a lane tells of its connections to whoever lists them: page by page, each a bounded share of one poll.
//!
//! The asker brings the [`Page`], with room for its rows, and gets it back filled, with the place where the next one
//! begins; the lane allocates nothing and remembers nothing. Places are slots and queue positions, which stay what they
//! are while connections come and go. Shapes are walked in the order in which a connection grows through them (half-open,
//! synchronized, TIME_WAIT), so that one that exists for the whole listing is shown at least once, whatever happens to
//! it meanwhile; it may be shown twice, in two states. What is appended to a queue after the listing has reached it is
//! not shown, so a listing ends however fast connections are made.

use crate::app::{App, ListenerId};
use crate::ports::{Slice, Tallies};
use crate::tables::{Tables, Tcb};
use laneway_proto::tcp::{Info, State, TimeWait};
use laneway_proto::time::Instant;
use laneway_table::Fifo;
use laneway_wire::flow::{Address, FlowKey};

/// Rows that a page has room for.
pub const ROWS_MAX: usize = 256;
/// Slots that are looked at for one page, vacant and unwanted ones included.
const LOOKS_MAX: usize = 1_024;

/// A set of states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct States(u16);

impl States {
    /// None.
    pub const NONE: States = States(0);
    /// Every state.
    pub const ALL: States = States((1 << State::ALL.len()) - 1);

    /// With this one too.
    pub const fn with(self, state: State) -> Self {
        States(self.0 | 1 << state as u16)
    }

    /// Without this one.
    pub const fn without(self, state: State) -> Self {
        States(self.0 & !(1 << state as u16))
    }

    /// Those of both.
    pub const fn or(self, other: States) -> Self {
        States(self.0 | other.0)
    }

    /// Whether this one is in it.
    pub const fn has(self, state: State) -> bool {
        self.0 & 1 << state as u16 != 0
    }
}

/// One line of a listing.
#[derive(Clone, Debug)]
pub struct Row {
    /// The flow, seen from here; for a listener the remote half is unspecified.
    pub flow: FlowKey,
    /// The lane that owns it.
    pub lane: u16,
    /// The rest.
    pub what: What,
}

/// What a row is about.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // rows live in a page that is used again and again, never one by one
pub enum What {
    /// A listener, as this lane sees it.
    Listener {
        /// Its name, the same on every lane.
        id: ListenerId,
        /// Finished connections that wait to be accepted on this lane.
        queued: u32,
        /// How many may wait as `listen` asked for it, on all lanes together.
        backlog: u32,
    },
    /// A half-open entry: SYN-RECEIVED of a passive open.
    HalfOpen {
        /// SYN-ACKs sent again.
        retries: u8,
        /// Milliseconds until the next.
        due_ms: u32,
    },
    /// An active open under way.
    Handshaking {
        /// SYN-SENT, or SYN-RECEIVED of a simultaneous open.
        state: State,
        /// SYNs sent again.
        retries: u8,
        /// Milliseconds until the next.
        due_ms: u32,
    },
    /// A synchronized connection.
    Synchronized(Info),
    /// A TIME_WAIT record.
    TimeWait {
        /// Milliseconds until it goes.
        left_ms: u32,
    },
}

/// The parts of a listing, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Listeners,
    HalfOpen,
    Connections,
    TimeWaitV4,
    TimeWaitV6,
    /// In the place of all of the others, if destinations are asked for.
    Destinations,
    Done,
}

/// Where a listing goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    part: Part,
    next: u32,
    /// For queues: their end when the listing came to them.
    end: Option<u32>,
}

impl Place {
    /// The beginning: listeners, then everything else.
    pub const START: Place = Place { part: Part::Listeners, next: 0, end: None };

    /// Nothing follows.
    pub fn is_end(&self) -> bool {
        self.part == Part::Done
    }

    fn next_part(&mut self) {
        let part = match self.part {
            Part::Listeners => Part::HalfOpen,
            Part::HalfOpen => Part::Connections,
            Part::Connections => Part::TimeWaitV4,
            Part::TimeWaitV4 => Part::TimeWaitV6,
            Part::TimeWaitV6 | Part::Destinations | Part::Done => Part::Done,
        };
        *self = Place { part, next: 0, end: None };
    }
}

/// A piece of a listing: a question on the way to a lane, the answer on the way back.
pub struct Page {
    /// Tells answers apart.
    pub(crate) id: u64,
    /// The states that are asked for.
    pub states: States,
    /// Where this page begins; in the answer, where the next one does.
    pub place: Place,
    /// The rows.
    pub rows: Vec<Row>,
    /// If destinations are asked for and not connections: these, with what they use of the ports.
    pub ports: Vec<Slice>,
    /// In the answer about destinations: what choosing their ports has cost so far.
    pub tallies: Tallies,
    /// In the answer: the lane had work to do besides.
    pub busy: bool,
}

impl Page {
    /// The first page of a listing.
    pub fn new(states: States) -> Box<Self> {
        Box::new(Page {
            id: 0,
            states,
            place: Place::START,
            rows: Vec::with_capacity(ROWS_MAX),
            ports: Vec::new(),
            tallies: Tallies::default(),
            busy: false,
        })
    }

    /// The first page of a listing of destinations.
    pub fn of_ports() -> Box<Self> {
        let place = Place { part: Part::Destinations, ..Place::START };
        let (rows, ports) = (Vec::new(), Vec::with_capacity(ROWS_MAX));
        Box::new(Page { place, rows, ports, ..*Page::new(States::NONE) })
    }
}

/// Fills a page. `lane` is the asked lane's number, `app` its application.
pub(crate) fn fill(page: &mut Page, tables: &Tables, app: &dyn App, lane: usize, now: Instant, msl_us: u64) {
    page.rows.clear();
    page.ports.clear();
    let mut looks = LOOKS_MAX;
    while looks > 0 && page.rows.len().max(page.ports.len()) < ROWS_MAX && page.place.part != Part::Done {
        looks -= 1;
        let done = match page.place.part {
            Part::Listeners => !page.states.has(State::Listen) || listener(page, tables, app, lane),
            Part::HalfOpen => !page.states.has(State::SynReceived) || half_open(page, tables, lane, now),
            Part::Connections => connection(page, tables, lane, now),
            Part::TimeWaitV4 => !page.states.has(State::TimeWait) || time_wait(page, &tables.tw4, lane, now, msl_us),
            Part::TimeWaitV6 => !page.states.has(State::TimeWait) || time_wait(page, &tables.tw6, lane, now, msl_us),
            Part::Destinations => destination(page, tables),
            Part::Done => true,
        };
        if done {
            page.place.next_part();
        }
    }
}

/// Each of these looks at one slot, and says whether there are no more.
fn listener(page: &mut Page, tables: &Tables, app: &dyn App, lane: usize) -> bool {
    let Some((id, listener)) = tables.listeners.at_or_after(page.place.next as usize) else { return true };
    page.place.next = u32::from(id.0) + 1;
    let local = listener.binding.address;
    let remote = if local.is_v4() { Address::UNSPECIFIED_V4 } else { Address::UNSPECIFIED_V6 };
    let queued = listener.queued() + app.unclaimed(id);
    let what = What::Listener { id, queued: queued as u32, backlog: listener.backlog().try_into().unwrap_or(u32::MAX) };
    let flow = FlowKey { local, remote, local_port: listener.port, remote_port: 0 };
    page.rows.push(Row { flow, lane: lane as u16, what });
    false
}

fn half_open(page: &mut Page, tables: &Tables, lane: usize, now: Instant) -> bool {
    let at = page.place.next;
    if at >= tables.half_open.end() {
        return true;
    }
    page.place.next += 1;
    if let Some(half) = tables.half_open.get(at) {
        let due_ms = (half.retry_at_ms().wrapping_sub(now.as_ms() as u32) as i32).max(0) as u32;
        let what = What::HalfOpen { retries: half.retries(), due_ms };
        page.rows.push(Row { flow: *half.key(), lane: lane as u16, what });
    }
    false
}

fn connection(page: &mut Page, tables: &Tables, lane: usize, now: Instant) -> bool {
    let at = page.place.next;
    if at >= tables.slots.end() {
        return true;
    }
    page.place.next += 1;
    // A listing waits for memory at every step unless it asks for the next slots before it needs them.
    tables.slots.prefetch(at + 4);
    let Some(slot) = tables.slots.get(at) else { return false };
    // What only waits to be read has no flow any more: that is its record's, or free for the next connection.
    let Some(flow) = slot.flow() else { return false };
    let (state, what) = match &slot.tcb {
        Tcb::Synchronized(connection) => {
            let state = connection.state();
            if !page.states.has(state) {
                return false;
            }
            (state, What::Synchronized(connection.info(now)))
        }
        Tcb::Handshaking(handshake) => {
            let state = handshake.state();
            let due_ms = match handshake.deadline() {
                Instant::NEVER => 0,
                at => (at.since_us(now) / 1_000) as u32,
            };
            (state, What::Handshaking { state, retries: handshake.retries(), due_ms })
        }
    };
    if page.states.has(state) {
        page.rows.push(Row { flow: *flow, lane: lane as u16, what });
    }
    false
}

fn destination(page: &mut Page, tables: &Tables) -> bool {
    let at = page.place.next;
    if at >= tables.ports.slices_end() {
        page.tallies = tables.ports.tallies();
        return true;
    }
    page.place.next += 1;
    page.ports.extend(tables.ports.slice(at));
    false
}

fn time_wait<T: TimeWait>(page: &mut Page, queue: &Fifo<T>, lane: usize, now: Instant, msl_us: u64) -> bool {
    let Some((head, _)) = queue.front() else { return true };
    let place = &mut page.place;
    let end = match place.end {
        Some(end) => end,
        None => {
            *place = Place { next: head, end: Some(queue.end()), ..*place };
            queue.end()
        }
    };
    if (place.next.wrapping_sub(head) as i32) < 0 {
        place.next = head; // what was before it has been reaped meanwhile
    }
    let at = place.next;
    if end.wrapping_sub(at) as i32 <= 0 {
        return true;
    }
    place.next = at.wrapping_add(1);
    if let Some(record) = queue.get(at)
        && !record.is_dead()
    {
        let what = What::TimeWait { left_ms: record.left_ms(now, msl_us) };
        page.rows.push(Row { flow: record.key(), lane: lane as u16, what });
    }
    false
}

#[cfg(test)]
pub(crate) mod tests;
