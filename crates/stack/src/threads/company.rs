//! Owns whether a thread whose calls do not wait has many others to serve.
//!
//! Who was told of many sockets at once has the lane do for all of them together what it would do for each by itself, and on another core if
//! there is one. Who was told of few has soon nothing to do but to wait; and to wake a lane for a short message costs it more than to do what the lane would.

use std::cell::Cell;

/// So many sockets at once are many.
pub const MANY: usize = 64;

thread_local! {
    /// Of how many sockets it was told when it was last told of any.
    static TOLD: Cell<usize> = const { Cell::new(0) };
}

/// The calling thread is told of so many sockets that something has happened to.
#[inline]
pub fn told_of(sockets: usize) {
    TOLD.set(sockets);
}

/// The calling thread was last told of many at once.
#[inline]
pub(super) fn is_many() -> bool {
    TOLD.get() >= MANY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_thread_is_told_is_nothing_to_another() {
        told_of(MANY);
        assert!(is_many());
        assert!(!std::thread::spawn(is_many).join().expect("it only looks"));
        told_of(MANY - 1);
        assert!(!is_many());
    }
}
