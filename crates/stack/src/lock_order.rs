//! Owns the order in which the historic variants of [`sharing`](crate::sharing) take their locks. The product takes none.
//!
//! ```text
//! INFO  <  PCB  <  TIME_WAIT  <  LIST
//! ```
//!
//! Whoever holds one of these may take only those to the right of it, and never a second of the same class: so no two threads
//! can each hold what the other waits for. FreeBSD's order is the same (`ipi_lock`, inpcb locks, `ipi_list`), and ends with the locks
//! of the hash, which are none of their own here. Where its variants of one class are several locks, ours are too, and none is held beside another.
//!
//! | class | what it stands for | here |
//! |---|---|---|
//! | INFO | `ipi_lock` of TCP: lists, hashes, counters, and the right to change a connection's state | one lock for readers and writers |
//! | PCB | `INP_WLOCK`; a listener's socket lock; the locks of the hash | one for each lane: its connections, its accept queues, its part of the hash, their timers |
//! | TIME_WAIT | `tw_lock` | from `timewait` on: what is known of all records |
//! | LIST | `ipi_list_lock` | from `decomposed` on: allocation, freeing, and the counters that all share |
//!
//! In debug builds each thread remembers what it holds, and a wrong order is a panic that names both locks.

/// A class of locks, in the order in which they may be taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// The one lock.
    Info,
    /// A shard of connections.
    Pcb,
    /// All TIME_WAIT records.
    TimeWait,
    /// The list of all connections.
    List,
}

/// That a lock of a class is held, or about to be. To be dropped after the lock's guard.
#[must_use = "what is dropped at once is not held"]
pub struct Held(#[cfg(debug_assertions)] Class, std::marker::PhantomData<*const ()>);

/// Notes that the calling thread takes a lock.
///
/// # Panics
/// In debug builds, if it holds one that must not be held then.
#[inline(always)]
pub fn taking(class: Class) -> Held {
    #[cfg(debug_assertions)]
    checker::take(class);
    let _ = class;
    Held(
        #[cfg(debug_assertions)]
        class,
        std::marker::PhantomData,
    )
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        checker::release(self.0);
    }
}

#[cfg(debug_assertions)]
mod checker {
    use super::Class;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<Class>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn take(class: Class) {
        // A thread that is ending has no list any more, and takes nothing in turn with others.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(last) = held.iter().max().filter(|last| **last >= class) {
                let last = *last;
                drop(held);
                panic!("lock order: {class:?} is wanted by a thread that holds {last:?}");
            }
            held.push(class);
        });
    }

    pub(super) fn release(class: Class) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|one| *one == class) {
                held.remove(at);
            }
        });
    }
}

#[cfg(test)]
mod tests;
