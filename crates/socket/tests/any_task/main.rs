//! Stories of tasks that nobody thought of, on tokio's sockets and on ours: chance, out of a seed, says what is called on the two ends of a connection
//! and on their halves, or on two UDP sockets, and what each call says, when it is polled once, must be the same.
//!
//! ```text
//! LANEWAY_SEEDS=4711..4712 cargo test -p laneway --all-features --test any_task
//! ```

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "any_story uses all of it")]
#[path = "../any_story/dice.rs"]
mod dice;

mod datagrams;
mod streams;

use dice::Dice;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{Interest, Ready};

/// Stories that are told at the same time: nearly all of them wait nearly always.
const TELLERS: usize = 32;
/// How long what is done takes, on a machine that has nothing else to do.
const QUICK: Duration = Duration::from_millis(2);
const ACTS_MAX: usize = 24;

/// What is done, and which of two does it.
#[derive(Debug)]
struct Story<A> {
    acts: Vec<(usize, A)>,
}

impl<A> Story<A> {
    fn from_seed(seed: u64, act: impl Fn(&mut Dice) -> A) -> Self {
        let mut dice = Dice::new(seed);
        let len = 2 + dice.below(ACTS_MAX);
        let acts = (0..len).map(|_| (dice.below(2), act(&mut dice))).collect();
        Story { acts }
    }
}

/// What a call said: compared word for word. Of readiness tokio may remember more than is still so, until a call finds nothing; so what only we
/// call ready is wrong, and what only tokio does is not.
#[derive(Clone, PartialEq, Debug)]
struct Line {
    said: String,
    is_pending: bool,
    ready: (bool, bool),
}

impl Line {
    /// The same, with who has done what.
    fn of(self, who: usize, act: &impl Debug) -> Self {
        Line { said: format!("{} {act:?}: {}", ["near", "far"][who], self.said), ..self }
    }

    /// Of what was said to be ready, without what was said to be closed.
    fn without_closed(self) -> Self {
        Line { said: if self.is_pending { self.said } else { "ready".to_owned() }, ..self }
    }
}

fn line<T: Debug>(done: Option<io::Result<T>>) -> Line {
    let is_pending = done.is_none();
    let said = match done {
        None => "pending".to_owned(),
        Some(Ok(value)) => format!("{value:?}"),
        Some(Err(error)) => format!("error: {:?}", error.kind()),
    };
    Line { said, is_pending, ready: (false, false) }
}

fn of_ready(done: Option<io::Result<Ready>>) -> Line {
    let Some(Ok(ready)) = done else { return line(done.map(|done| done.map(drop))) };
    let said = format!("closed to read {}, to write {}", ready.is_read_closed(), ready.is_write_closed());
    Line { said, is_pending: false, ready: (ready.is_readable(), ready.is_writable()) }
}

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|at| (at % 251) as u8).collect()
}

/// What was read, in few words.
fn heard(buf: &[u8], done: Option<io::Result<usize>>) -> Line {
    line(
        done.map(|done| {
            done.map(|n| (n, buf[..n].iter().fold(0u32, |sum, byte| sum.wrapping_mul(31) + u32::from(*byte))))
        }),
    )
}

fn once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

fn interest(reads: bool, writes: bool) -> Interest {
    match (reads, writes) {
        (true, false) => Interest::READABLE,
        (false, true) => Interest::WRITABLE,
        _ => Interest::READABLE | Interest::WRITABLE,
    }
}

/// What is different first, if anything is.
fn difference([kernels, ours]: &[Vec<Line>; 2]) -> Option<String> {
    let is_same = |kernel: &Line, ours: &Line| {
        let has_more = (ours.ready.0 && !kernel.ready.0) || (ours.ready.1 && !kernel.ready.1);
        let is_less = kernel.ready != (false, false) && ours.ready == (false, false) && ours.is_pending;
        is_less || kernel.said == ours.said && !has_more
    };
    let at = kernels.iter().zip(ours).take_while(|(kernel, ours)| is_same(kernel, ours)).count();
    if at == kernels.len() && at == ours.len() {
        return None;
    }
    let before: Vec<_> = ours[..at].iter().map(|line| line.said.as_str()).collect();
    Some(format!("both: {before:#?}\nkernel: {:?}\nours:   {:?}", kernels.get(at), ours.get(at)))
}

/// Tells each story until it is the same in both worlds.
fn tell_all<A: Debug>(
    act: impl Fn(&mut Dice) -> A + Sync,
    told: impl AsyncFn(&Story<A>, Duration) -> io::Result<[Vec<Line>; 2]> + Sync,
) {
    common::try_seeds(
        0..200,
        TELLERS,
        |seed| Story::from_seed(seed, &act),
        |story| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let differs = |moment| difference(&runtime.block_on(told(story, moment)).unwrap());
            // On a machine that is busy something may come late. Told with patience it is the same, or is different.
            let found =
                [QUICK, 10 * QUICK, 50 * QUICK].into_iter().map(differs).try_fold(String::new(), |_, found| found);
            assert_eq!(found, None);
        },
    );
}

#[test]
fn any_story_of_tasks_with_streams_is_the_same_in_both_worlds() {
    tell_all(streams::act, streams::told);
}

#[test]
fn any_story_of_tasks_with_datagrams_is_the_same_in_both_worlds() {
    tell_all(datagrams::act, datagrams::told);
}
