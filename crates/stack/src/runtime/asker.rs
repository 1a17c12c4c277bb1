//! Owns the questions of those who only look at a running stack: counters, listings, packets. Answers come by mail from
//! the lanes through the control thread; whoever asks waits for a while, and nobody waits for the asker.

use super::control_thread::Command;
use super::shared::Shared;
use crate::clock::Clock;
use crate::control::{self, Bucket};
use crate::counters::Counters;
use crate::device::Medium;
use crate::error::Error;
use crate::listing::Page;
use crate::proto::time::Instant;
use crate::trace::{self, Filter, Reader};
use laneway_wire::flow::FlowKey;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// How long a lane may take to answer: one that a callback blocks for longer is said to be stuck.
const PATIENCE: Duration = Duration::from_secs(5);
/// Traces that may run at once.
const TRACES_MAX: usize = 4;

/// Asks a running stack. Clones ask the same one; none keeps it from ending.
#[derive(Clone)]
pub struct Asker {
    shared: Arc<Shared>,
    lanes: usize,
    traces: Arc<AtomicUsize>,
}

/// Why a question has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unanswered {
    /// The stack has ended, or is about to.
    Stopped,
    /// A lane has not answered in time: its application blocks it, or it is not given the processor.
    Late,
    /// Four traces run already.
    TooManyTraces,
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Unanswered::Stopped => "the stack is stopping",
            Unanswered::Late => {
                "a lane has not answered within 5 s: its application blocks it, or other programs keep it from its core"
            }
            Unanswered::TooManyTraces => "4 traces of this stack are running already: end one of them first",
        })
    }
}

impl std::error::Error for Unanswered {}

impl From<RecvTimeoutError> for Unanswered {
    fn from(error: RecvTimeoutError) -> Self {
        match error {
            RecvTimeoutError::Timeout => Unanswered::Late,
            RecvTimeoutError::Disconnected => Unanswered::Stopped,
        }
    }
}

impl Asker {
    pub(super) fn new(shared: Arc<Shared>, lanes: usize) -> Self {
        let traces = Arc::clone(&shared.traces);
        Asker { shared, lanes, traces }
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// What each lane has counted, and the bytes that its tables hold. No lane stops for it.
    pub fn counters_by_lane(&self) -> Result<Vec<(Counters, usize)>, Unanswered> {
        let (reply, answer) = sync_channel(1);
        self.shared.say(Command::Counters(reply));
        Ok(answer.recv_timeout(PATIENCE)?)
    }

    /// The sum of all lanes' counters, and the bytes that their tables hold.
    pub fn counters(&self) -> Result<(Counters, usize), Unanswered> {
        self.counters_by_lane().map(|lanes| control::sum(&lanes))
    }

    /// Has a lane fill a page of a listing. Ask with the same page again for the next, until its place is the end.
    pub fn page(&self, lane: usize, page: Box<Page>) -> Result<Box<Page>, Unanswered> {
        let (reply, answer) = sync_channel(1);
        self.shared.say(Command::Page { lane, page, reply });
        Ok(answer.recv_timeout(PATIENCE)?)
    }

    /// Every steering bucket, by number.
    pub fn buckets(&self) -> Result<Vec<Bucket>, Unanswered> {
        let (reply, answer) = sync_channel(1);
        self.shared.say(Command::Buckets(reply));
        Ok(answer.recv_timeout(PATIENCE)?)
    }

    /// Gives the flows of a steering bucket that begin from now on to a lane; see
    /// [`Control::move_bucket`](crate::control::Control::move_bucket).
    pub fn move_bucket(&self, bucket: usize, lane: usize) -> Result<Result<(), Error>, Unanswered> {
        let (reply, answer) = sync_channel(1);
        self.shared.say(Command::MoveBucket { bucket, lane, reply });
        Ok(answer.recv_timeout(PATIENCE)?)
    }

    /// The steering bucket of a flow.
    pub fn bucket_of(&self, flow: &FlowKey) -> usize {
        self.shared.steering.as_ref().map_or(0, |steering| steering.bucket(flow))
    }

    /// Begins to look at the packets of every lane. The trace ends when its value is dropped.
    pub fn trace(&self, filter: Filter, snaplen: u32) -> Result<Trace, Unanswered> {
        if self.traces.fetch_add(1, Ordering::AcqRel) >= TRACES_MAX {
            self.traces.fetch_sub(1, Ordering::AcqRel);
            return Err(Unanswered::TooManyTraces);
        }
        let (taps, readers) = (0..self.lanes).map(|_| trace::tap(filter, snaplen)).unzip();
        self.shared.say(Command::Taps(taps));
        Ok(Trace { readers, _running: Running(Arc::clone(&self.traces)) })
    }

    /// The stack's clock and the wall's, read one after the other: what turns times of the first into times of the second.
    pub fn wall_offset_us(&self) -> i64 {
        Clock::wall_us() as i64 - self.shared.clock.now().as_us() as i64
    }

    /// What the frames of a trace begin with.
    pub fn medium(&self) -> Medium {
        self.shared.medium
    }

    /// The stack's time.
    pub fn now(&self) -> Instant {
        self.shared.clock.now()
    }
}

/// A trace under way: one reader per lane.
pub struct Trace {
    /// The lanes' packets, by lane.
    pub readers: Vec<Reader>,
    /// Counts the trace as ended when it is dropped.
    _running: Running,
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
