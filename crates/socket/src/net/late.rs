//! Owns what a wait is given whose time was over while nobody could run.
//!
//! A process that is stopped, frozen or paged out is stopped with its lanes. When it goes on, the clocks have, and what came meanwhile
//! lies in the device: a kernel's socket would have it. Who wakes clearly later than he asked to therefore waits a moment more, in
//! which the lane, that has woken with him, takes it in.

use std::time::{Duration, Instant};

/// A thread that had a core to run on is never so late.
const LATE: Duration = Duration::from_millis(5);
/// A lane that has a core has taken in by then what lies in its device.
const GRACE: Duration = Duration::from_millis(50);

/// Lets `sleep` sleep until something happens, for as long as is left until `until` at the most. False: nothing is left.
pub(super) fn sleep_until(until: Option<Instant>, sleep: impl Fn(Option<Duration>)) -> bool {
    let Some(until) = until else {
        sleep(None);
        return true;
    };
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    sleep(Some(left));
    let late = Instant::now().saturating_duration_since(until);
    if late >= LATE {
        sleep(Some(late.min(GRACE)));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::thread;

    /// How long each sleep was asked to be, of one that takes `each`, and what is said in the end.
    fn asked(until: Option<Duration>, each: Duration) -> (Vec<Option<Duration>>, bool) {
        let asked = RefCell::new(Vec::new());
        let slept = sleep_until(until.map(|until| Instant::now() + until), |left| {
            asked.borrow_mut().push(left);
            thread::sleep(each);
        });
        (asked.into_inner(), slept)
    }

    #[test]
    fn who_wakes_late_waits_a_moment_more_and_nobody_else() {
        let ms = Duration::from_millis;
        assert_eq!(asked(None, ms(1)), (vec![None], true));
        assert_eq!(asked(Some(ms(0)), ms(1)), (vec![], false));
        // In time, and woken early.
        assert_eq!(asked(Some(ms(60_000)), ms(1)).0.len(), 1);
        // Late, by more than it is given.
        let (asked, slept) = asked(Some(ms(10)), ms(100));
        assert!(slept && asked.len() == 2 && asked[0] <= Some(ms(10)), "{asked:?}");
        assert_eq!(asked[1], Some(GRACE));
    }
}
