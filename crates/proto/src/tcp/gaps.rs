//! Owns the clock of gaps: how long something has been missing. What is not filled in time is lost, whatever the number of reports (RFC 8985
//! section 6, without the time at which each segment left).
//!
//! It looks at what is reported now and then only: what was missing when it last began, and still is, is overdue. So a gap has between one time and two.

use crate::time::Instant;
use laneway_wire::tcp::SeqNum;

/// The clock of one scoreboard.
#[derive(Clone, Copy, Debug, Default)]
pub struct GapClock {
    /// It alone says what is lost.
    pub decides: bool,
    /// When it last began, and the highest that was reported then.
    began: Option<(Instant, SeqNum)>,
    overdue: Option<SeqNum>,
}

impl GapClock {
    /// A clock that does not run.
    pub const fn new() -> Self {
        GapClock { decides: false, began: None, overdue: None }
    }

    /// Whether it runs.
    #[inline]
    pub fn runs(&self) -> bool {
        self.began.is_some()
    }

    /// What is missing below `highest` is missing from now on.
    #[inline]
    pub fn begin(&mut self, now: Instant, highest: Option<SeqNum>) {
        self.began = highest.map(|highest| (now, highest));
    }

    /// What is missing below this is lost.
    #[inline]
    pub fn overdue(&self) -> Option<SeqNum> {
        self.overdue
    }

    /// Time is over: what was missing when it began is lost, and it begins anew. The highest that was reported then.
    pub fn end(&mut self, now: Instant, highest: Option<SeqNum>) -> Option<SeqNum> {
        let then = self.began.map(|(_, then)| then).or(highest);
        self.presume_lost(then);
        self.begin(now, highest);
        then
    }

    /// Whether it runs for so long already, in microseconds.
    pub fn has_run(&self, us: u32, now: Instant) -> bool {
        self.began.is_some_and(|(at, _)| now.since_us(at) >= us.into())
    }

    /// [`end`](Self::end), if it [has run](Self::has_run) for so long; if it does not run, it begins.
    pub fn end_after(&mut self, us: u32, now: Instant, highest: Option<SeqNum>) -> Option<SeqNum> {
        if self.has_run(us, now) {
            return self.end(now, highest);
        }
        if !self.runs() {
            self.begin(now, highest);
        }
        None
    }

    /// What is missing below this is lost at once.
    pub fn presume_lost(&mut self, below: Option<SeqNum>) {
        self.overdue = match (self.overdue, below) {
            (Some(one), Some(other)) => Some(one.latest(other)),
            (one, other) => one.or(other),
        };
    }

    /// It was a mistake: nothing is overdue.
    pub fn forgive(&mut self) {
        self.overdue = None;
    }
}

#[cfg(test)]
mod tests;
