//! Owns the name of a place in the source that takes a lock, and why it does.

use super::record::Record;
use std::sync::OnceLock;

/// A place that takes locks. Made by [`site!`](crate::site), one static for each.
pub struct Site {
    why: &'static str,
    file: &'static str,
    line: u32,
    record: OnceLock<&'static Record>,
}

impl Site {
    /// See [`site!`](crate::site).
    #[doc(hidden)]
    pub const fn new(why: &'static str, file: &'static str, line: u32) -> Self {
        Site { why, file, line, record: OnceLock::new() }
    }

    /// Why the lock is taken here, in the words of the source.
    pub fn why(&self) -> &'static str {
        self.why
    }

    /// File and line.
    pub fn place(&self) -> (&'static str, u32) {
        (self.file, self.line)
    }

    /// What is counted for this place: the first lock that it takes gives the class.
    pub(super) fn record(&'static self, class: &'static str) -> &'static Record {
        self.record.get_or_init(|| Record::register(self, class))
    }
}

/// The place where it stands, with the reason for taking a lock there: `lock(site!("accept: move to backlog"))`.
#[macro_export]
macro_rules! site {
    ($why:literal) => {{
        static SITE: $crate::profiled_lock::Site = $crate::profiled_lock::Site::new($why, file!(), line!());
        &SITE
    }};
}
