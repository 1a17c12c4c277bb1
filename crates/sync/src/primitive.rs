//! The loom seam: everything that a model checker must see goes through here, and no other file of this crate
//! branches on the build.
//!
//! Besides the types, the seam names the memory orders by their purpose ([`order`]). In a normal build they are
//! constants. In a model they can be weakened one at a time ([`Weakness`]), so that the models prove, on the very code
//! that ships, that each order is needed and that the model would notice its loss.

#[cfg(laneway_loom)]
pub(crate) use modelled::*;
#[cfg(not(laneway_loom))]
pub(crate) use real::*;

#[cfg(not(laneway_loom))]
mod real {
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
    pub(crate) use std::thread::{Thread, current as current_thread, yield_now};
    use std::time::Duration;

    /// Sleeps until unparked or `timeout` has passed (`None`: no limit); may return for no reason.
    pub(crate) fn park(timeout: Option<Duration>) {
        match timeout {
            Some(timeout) => std::thread::park_timeout(timeout),
            None => std::thread::park(),
        }
    }

    /// Between two looks at something that another thread will change: after 128 of them that thread is thought to have
    /// lost its core, and is given this one.
    #[inline]
    pub(crate) fn relax(looks: u32) {
        match looks % 128 {
            127 => std::thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }

    /// One's own index: nobody else ever writes it.
    #[inline(always)]
    pub(crate) fn own(index: &AtomicU64) -> u64 {
        index.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// `std`'s cell behind the closure interface that the model needs.
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        #[inline(always)]
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }

    /// What a model remembers about who touched which word of a [`Block`](crate::ring::block::Block). Nothing, here.
    pub(crate) struct Shadow;

    impl Shadow {
        #[inline(always)]
        pub(crate) fn new(_words: usize) -> Self {
            Self
        }

        #[inline(always)]
        pub(crate) fn note_read(&self, _offset: usize, _len: usize) {}

        #[inline(always)]
        pub(crate) fn note_write(&self, _offset: usize, _len: usize) {}
    }

    /// Memory orders by purpose.
    pub(crate) mod order {
        use std::sync::atomic::{Ordering, fence};

        /// Stores an index that says "what lies before it is yours": all earlier accesses come before it.
        #[inline(always)]
        pub(crate) const fn publish() -> Ordering {
            Ordering::Release
        }

        /// Loads such an index: all later accesses come after it.
        #[inline(always)]
        pub(crate) const fn observe() -> Ordering {
            Ordering::Acquire
        }

        /// Takes what others have handed over and hands on what is one's own, in one step.
        #[inline(always)]
        pub(crate) const fn exchange() -> Ordering {
            Ordering::AcqRel
        }

        /// After a relaxed look that showed that all others are done: their accesses come before what follows.
        #[inline(always)]
        pub(crate) fn observe_fence() {
            fence(Ordering::Acquire);
        }

        /// Between one's own store and the load of the other side's flag (Dekker's pattern).
        #[inline(always)]
        pub(crate) fn announce_fence() {
            fence(Ordering::SeqCst);
        }
    }
}

#[cfg(laneway_loom)]
#[cfg_attr(not(test), expect(dead_code, reason = "the explorer is for the models"))]
mod modelled {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
    pub(crate) use loom::thread::{Thread, current as current_thread, park as park_for_ever, yield_now};
    use std::time::Duration;

    /// A model has no clock: a timeout never fires, so a lost wake-up is a deadlock that loom reports.
    pub(crate) fn park(_timeout: Option<Duration>) {
        park_for_ever();
    }

    /// A model's threads must be told that nothing happens until another has run.
    pub(crate) fn relax(_looks: u32) {
        loom::thread::yield_now();
    }

    /// One's own index. Not as a load: loom remembers one access per atomic, and this one would hide the other side's from it.
    pub(crate) fn own(index: &AtomicU64) -> u64 {
        // SAFETY: only the caller's side writes it, which loom checks.
        unsafe { index.unsync_load() }
    }

    /// One tracked cell for every eight bytes of a block.
    pub(crate) struct Shadow(Vec<UnsafeCell<()>>);

    impl Shadow {
        pub(crate) fn new(words: usize) -> Self {
            Self((0..words).map(|_| UnsafeCell::new(())).collect())
        }

        pub(crate) fn note_read(&self, offset: usize, len: usize) {
            for cell in &self.0[offset / 8..(offset + len).div_ceil(8)] {
                cell.with(|_| ());
            }
        }

        pub(crate) fn note_write(&self, offset: usize, len: usize) {
            for cell in &self.0[offset / 8..(offset + len).div_ceil(8)] {
                cell.with_mut(|_| ());
            }
        }
    }

    /// The one thing that is made wrong while a known-broken variant runs.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Weakness {
        None,
        PublishRelaxed,
        ObserveRelaxed,
        NoAnnounceFence,
        ExchangeRelaxed,
    }

    thread_local! {
        // Per OS thread: loom runs a whole model on the thread that called it, and libtest gives each test its own.
        static WEAKNESS: std::cell::Cell<Weakness> = const { std::cell::Cell::new(Weakness::None) };
    }

    /// Runs `model` over all schedules with one order weakened; returns how many schedules were begun, and whether
    /// some schedule failed.
    pub(crate) fn explore(weakness: Weakness, model: impl Fn() + Sync + Send + 'static) -> (usize, bool) {
        use std::sync::atomic::{AtomicUsize, Ordering};
        // Counted outside the model: a model that ran once would pass having tried nothing.
        let begun = std::sync::Arc::new(AtomicUsize::new(0));
        let counter = begun.clone();
        WEAKNESS.set(weakness);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(3);
            builder.check(move || {
                counter.fetch_add(1, Ordering::Relaxed);
                model();
            });
        }));
        WEAKNESS.set(Weakness::None);
        if weakness == Weakness::None
            && let Err(panic) = outcome
        {
            std::panic::resume_unwind(panic);
        }
        (begun.load(Ordering::Relaxed), outcome.is_err())
    }

    /// Drops its value unless a panic is under way. After it has found a deadlock, loom refuses every further operation,
    /// so a model that is meant to fail must not run the drop of what it models.
    pub(crate) struct Unless<T>(Option<T>);

    impl<T> Unless<T> {
        pub(crate) fn panicking(value: T) -> Self {
            Self(Some(value))
        }
    }

    impl<T> std::ops::Deref for Unless<T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().expect("there until the drop")
        }
    }

    impl<T> std::ops::DerefMut for Unless<T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("there until the drop")
        }
    }

    impl<T> Drop for Unless<T> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                std::mem::forget(self.0.take());
            }
        }
    }

    pub(crate) mod order {
        use super::{WEAKNESS, Weakness};
        use loom::sync::atomic::{Ordering, fence};

        pub(crate) fn publish() -> Ordering {
            match WEAKNESS.get() {
                Weakness::PublishRelaxed => Ordering::Relaxed,
                _ => Ordering::Release,
            }
        }

        pub(crate) fn observe() -> Ordering {
            match WEAKNESS.get() {
                Weakness::ObserveRelaxed => Ordering::Relaxed,
                _ => Ordering::Acquire,
            }
        }

        pub(crate) fn exchange() -> Ordering {
            match WEAKNESS.get() {
                Weakness::ExchangeRelaxed => Ordering::Relaxed,
                _ => Ordering::AcqRel,
            }
        }

        pub(crate) fn observe_fence() {
            fence(Ordering::Acquire);
        }

        pub(crate) fn announce_fence() {
            if WEAKNESS.get() != Weakness::NoAnnounceFence {
                fence(Ordering::SeqCst);
            }
        }
    }
}
