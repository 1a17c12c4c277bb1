//! Owns what each thread has met: locks that somebody else held, and exchanges that somebody else's came before.
//!
//! ```
//! use laneway_sync::bucket_lock::Lock;
//! use laneway_sync::{met, site};
//! let lock = Lock::<u32>::new("count", 0);
//! let before = met::here();
//! *lock.lock(site!("add one")) += 1; // nobody else wants it
//! assert_eq!(met::here().since(&before), met::Met::default());
//! ```
//!
//! The numbers are the thread's own, so that counting makes no line be shared; and only a thread that waits or tries again
//! counts, so that whoever meets nobody pays nothing. Whoever wants another thread's numbers asks that thread.

use std::cell::Cell;

/// What a thread has met since it began.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Met {
    /// Locks of this crate that were held when the thread wanted them: the column `smtx` of Solaris' `mpstat`.
    pub contended: u64,
    /// Compare-exchanges of this crate that failed because another thread's came first, and were tried again.
    pub retries: u64,
}

impl Met {
    /// What has come since an earlier look of the same thread.
    #[must_use]
    pub fn since(&self, earlier: &Met) -> Met {
        Met { contended: self.contended - earlier.contended, retries: self.retries - earlier.retries }
    }
}

thread_local! {
    static HERE: Cell<Met> = const { Cell::new(Met { contended: 0, retries: 0 }) };
}

/// What the calling thread has met.
pub fn here() -> Met {
    HERE.get()
}

/// The calling thread wants a lock that is held.
#[cold]
pub(crate) fn contended() {
    HERE.with(|here| here.set(Met { contended: here.get().contended + 1, ..here.get() }));
}

/// The calling thread must try again.
#[cold]
pub(crate) fn retried() {
    HERE.with(|here| here.set(Met { retries: here.get().retries + 1, ..here.get() }));
}

#[cfg(all(test, not(laneway_loom)))]
mod tests;
