//! The loom seam: everything that a model checker must see goes through here, and no other file of this crate
//! branches on the build.
//!
//! Besides the types, the seam names the memory orders by their purpose ([`order`]). In a normal build they are
//! constants. In a model they can be weakened ([`Weakness`]), all of a purpose together or the one at one place, so that models show,
//! on the very code that ships, that they would notice the loss. They do not show of each order by itself that it is needed: where it
//! is known not to be, the code says so. And loom runs each thread in the order of its program: a load that a weak machine finishes after a
//! later store is never seen late.

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

    /// Frees what nobody looks at any more.
    #[inline]
    pub(crate) fn free<T: ?Sized>(old: Box<T>) {
        drop(old);
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

    /// Ends a value and keeps its memory: a model that is meant to fail looks at it afterwards, and must find there what loom needs to
    /// say so.
    pub(crate) fn free<T: ?Sized>(old: Box<T>) {
        // SAFETY: it comes from a box, which does not drop it any more.
        unsafe { std::ptr::drop_in_place(Box::into_raw(old)) };
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
        /// The order that stands at one place, and no other.
        At(Place),
    }

    /// Where an order is asked for.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) struct Place {
        file: &'static str,
        line: usize,
        column: usize,
    }

    impl Weakness {
        /// The first order within `statement`, which stands once in `text`, the text of the file whose path ends with `file`.
        pub(crate) fn at(file: &'static str, text: &str, statement: &str) -> Self {
            let mut found = text.match_indices(statement);
            let (Some((begin, _)), None) = (found.next(), found.next()) else {
                panic!("{statement:?} does not stand once in {file}");
            };
            let order = begin + statement.find("order::").expect("an order");
            let line_begin = text[..order].rfind('\n').map_or(0, |end| end + 1);
            Weakness::At(Place {
                file,
                line: text[..line_begin].lines().count() + 1,
                column: text[line_begin..order].chars().count() + 1,
            })
        }

        /// It is this order that is weak.
        #[track_caller]
        fn is_here(kind: Weakness) -> bool {
            let caller = std::panic::Location::caller();
            let is_weak = match WEAKNESS.get() {
                Weakness::At(Place { file, line, column }) => {
                    caller.file().ends_with(file)
                        && (line, column) == (caller.line() as usize, caller.column() as usize)
                }
                weakness => weakness == kind,
            };
            WAS_WEAK.set(WAS_WEAK.get() || is_weak);
            is_weak
        }
    }

    thread_local! {
        // Per OS thread: loom runs a whole model on the thread that called it, and libtest gives each test its own.
        static WEAKNESS: std::cell::Cell<Weakness> = const { std::cell::Cell::new(Weakness::None) };
        static WAS_WEAK: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    /// Runs `model` over all schedules; returns how many were begun.
    pub(crate) fn explore(model: impl Fn() + Sync + Send + 'static) -> usize {
        use std::sync::atomic::{AtomicUsize, Ordering};
        // Counted outside the model: a model that ran once would pass having tried nothing.
        let begun = std::sync::Arc::new(AtomicUsize::new(0));
        let counter = begun.clone();
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            model();
        });
        begun.load(Ordering::Relaxed)
    }

    /// What loom says of a look at something that another may be writing.
    pub(crate) const RACE: &str = "Causality violation: Concurrent";

    /// Demands that some schedule of `model`, with one order weakened, fails, and that it fails as `expected`: a model that
    /// fails by its own clumsiness shows nothing.
    #[track_caller]
    pub(crate) fn caught(weakness: Weakness, expected: &str, model: impl Fn() + Sync + Send + 'static) {
        WEAKNESS.set(weakness);
        WAS_WEAK.set(false);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explore(model)));
        WEAKNESS.set(Weakness::None);
        assert!(weakness == Weakness::None || WAS_WEAK.get(), "{weakness:?} is nowhere in this model");
        let panic = match outcome {
            Ok(schedules) => panic!("{weakness:?} is caught by none of {schedules} schedules"),
            Err(panic) => panic,
        };
        let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        let said = said.unwrap_or("something that is no text");
        assert!(said.contains(expected), "{weakness:?} is caught by {said:?} and not by {expected:?}");
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
        use super::Weakness;
        use loom::sync::atomic::{Ordering, fence};

        #[track_caller]
        pub(crate) fn publish() -> Ordering {
            if Weakness::is_here(Weakness::PublishRelaxed) { Ordering::Relaxed } else { Ordering::Release }
        }

        #[track_caller]
        pub(crate) fn observe() -> Ordering {
            if Weakness::is_here(Weakness::ObserveRelaxed) { Ordering::Relaxed } else { Ordering::Acquire }
        }

        #[track_caller]
        pub(crate) fn exchange() -> Ordering {
            if Weakness::is_here(Weakness::ExchangeRelaxed) { Ordering::Relaxed } else { Ordering::AcqRel }
        }

        pub(crate) fn observe_fence() {
            fence(Ordering::Acquire);
        }

        #[track_caller]
        pub(crate) fn announce_fence() {
            if !Weakness::is_here(Weakness::NoAnnounceFence) {
                fence(Ordering::SeqCst);
            }
        }
    }
}
