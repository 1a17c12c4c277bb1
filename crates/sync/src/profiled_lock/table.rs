//! Owns the nine columns: what they mean, and how they are printed.

use std::fmt;

/// What is known of one site. Microseconds are FreeBSD's unit, and are what [`Table`] prints; here they are nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The longest time that it was held.
    pub max_ns: u64,
    /// The longest time that it was waited for.
    pub wait_max_ns: u64,
    /// The time that it was held, in all.
    pub total_ns: u64,
    /// The time that it was waited for, in all.
    pub wait_total_ns: u64,
    /// How often it was taken.
    pub count: u64,
    /// How often somebody else came while it was held.
    pub cnt_hold: u64,
    /// How often it was held when it was wanted.
    pub cnt_lock: u64,
    /// `file:line (class)`.
    pub name: String,
    /// Why it is taken there.
    pub why: &'static str,
}

impl Row {
    /// Time held, by acquisition.
    pub fn avg_ns(&self) -> u64 {
        self.total_ns / self.count.max(1)
    }

    /// Time waited, by acquisition.
    pub fn wait_avg_ns(&self) -> u64 {
        self.wait_total_ns / self.count.max(1)
    }
}

/// Prints rows as `sysctl debug.lock.prof.stats` does, in microseconds; tenths of them where they are all there is.
pub struct Table<'a>(pub &'a [Row]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>8} {:>9} {:>11} {:>11} {:>11} {:>6} {:>8} {:>8} {:>8} name",
            "max", "wait_max", "total", "wait_total", "count", "avg", "wait_avg", "cnt_hold", "cnt_lock"
        )?;
        let us = |ns: u64| if ns < 10_000 { format!("{:.1}", ns as f64 / 1e3) } else { (ns / 1_000).to_string() };
        for row in self.0 {
            writeln!(
                f,
                "{:>8} {:>9} {:>11} {:>11} {:>11} {:>6} {:>8} {:>8} {:>8} {}",
                us(row.max_ns),
                us(row.wait_max_ns),
                us(row.total_ns),
                us(row.wait_total_ns),
                row.count,
                us(row.avg_ns()),
                us(row.wait_avg_ns()),
                row.cnt_hold,
                row.cnt_lock,
                row.name
            )?;
        }
        Ok(())
    }
}
