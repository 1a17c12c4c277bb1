//! Owns when a command that goes on looks at a stack again: at whole intervals, as long as it keeps up with them.

use std::time::{Duration, Instant};

/// So long a connection to a stack may be silent and still be taken for open: the stack waits 60 s for a question.
const SILENT_MAX: Duration = Duration::from_secs(30);

/// When to look.
pub struct Pace {
    interval: Duration,
    due: Instant,
    looked: Instant,
}

impl Pace {
    /// The first look was now; one follows each interval.
    pub fn new(interval: Duration, now: Instant) -> Self {
        Pace { interval, due: now, looked: now }
    }

    /// How long to wait for the next look. Who comes too late for it, stopped with Ctrl-Z or kept waiting by the stack, makes up for
    /// none: the lines of that time, all at once, would be about microseconds.
    pub fn wait(&mut self, now: Instant) -> Duration {
        self.due += self.interval;
        if self.due <= now {
            self.due = now + self.interval;
        }
        self.due - now
    }

    /// A look is made now. Whether that needs a new connection, as nobody keeps one open that was silent for long.
    pub fn look(&mut self, now: Instant) -> bool {
        let silent = now - self.looked;
        self.looked = now;
        silent > SILENT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn who_keeps_up_looks_at_whole_intervals() {
        let began = Instant::now();
        let mut pace = Pace::new(S, began);
        for second in 0..5 {
            let late = Duration::from_millis(10 * second);
            assert_eq!(pace.wait(began + S * second as u32 + late), S - late);
        }
    }

    #[test]
    fn who_was_stopped_makes_up_for_nothing() {
        let began = Instant::now();
        let mut pace = Pace::new(S, began);
        assert_eq!(pace.wait(began), S);
        assert_eq!(pace.wait(began + 3_600 * S), S, "it was stopped for an hour");
        assert_eq!(pace.wait(began + 3_601 * S), S, "and goes on as before");
    }

    #[test]
    fn who_was_stopped_for_long_connects_anew() {
        let began = Instant::now();
        let mut pace = Pace::new(S, began);
        let mut look = |at: Duration| pace.look(began + at);
        assert_eq!([look(S), look(2 * S), look(60 * S), look(61 * S)], [false, false, true, false]);
    }
}
