//! Owns how a stack is known again: by its process and by when it began. In a container every server is process 1.

use laneway::control::Hello;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One stack, from its start to its end.
#[derive(Serialize, Deserialize, Default, Debug)]
#[serde(default)]
pub struct Life {
    /// Its process.
    pub pid: u32,
    /// The machine's boot; the clock begins with it.
    boot: String,
    /// When the stack began, in milliseconds of the clock that nobody sets.
    began_ms: u64,
}

/// The answer says how old the stack is and takes its time to come, so two answers place its beginning differently.
const TOLERANCE_MS: u64 = 2_000;

impl Life {
    /// That of the stack which has just said this.
    pub fn of(hello: &Hello) -> Life {
        // It does not go on while the machine sleeps, and neither does the stack's age.
        let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let began_ms = (now.as_millis() as u64).saturating_sub(hello.uptime_ms);
        Life { pid: hello.pid, boot: boot.trim().to_owned(), began_ms }
    }

    /// Whether both are the same.
    pub fn is(&self, other: &Life) -> bool {
        self.pid == other.pid && self.boot == other.boot && self.began_ms.abs_diff(other.began_ms) <= TOLERANCE_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_life_is_told_from_the_next() {
        let life = |pid, boot: &str, began_ms| Life { pid, boot: boot.into(), began_ms };
        let one = life(1, "a", 60_000);
        assert!(one.is(&life(1, "a", 60_400)) && one.is(&life(1, "a", 59_600)));
        for other in [life(2, "a", 60_000), life(1, "b", 60_000), life(1, "a", 63_000), Life::default()] {
            assert!(!one.is(&other) && !other.is(&one), "{other:?}");
        }
    }
}
