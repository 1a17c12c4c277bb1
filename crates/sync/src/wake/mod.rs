//! The list of what a consumer must look at, and the flags by which either side says that it waits.
//!
//! # How it is used
//!
//! ```
//! use laneway_sync::wake::{Flags, Job, wake_list};
//! let (list, mut woken) = wake_list::<Job<u32>>();
//! let job = std::sync::Arc::new(Job::new(7));
//! assert!(list.push(&job)); // the list was empty: the consumer may sleep, ring its bell
//! assert!(!list.push(&job)); // it is on the list already, nothing is written to the list
//! let found = woken.pop().expect("it was pushed");
//! assert_eq!(**found, 7); // only now read what its producer has published
//! assert!(woken.pop().is_none());
//!
//! const SPACE: u32 = 1;
//! let flags = Flags::default();
//! flags.want(SPACE); // "I wait for space" …
//! // … then look once more, and only then sleep. The other side, after it has made space:
//! laneway_sync::wake::look_fence();
//! assert_eq!(flags.take(SPACE), SPACE); // it is on me to wake
//! ```
//!
//! # Why not the obvious thing
//!
//! A consumer with ten thousand producers cannot look at each of them in every round. A queue with room for all of them
//! costs as much when idle as when busy, and a producer that finds it full would have to wait. Here each producer brings
//! the link with it, in a line that it owns anyway; it can be on the list once, so the list cannot overflow; and while it
//! is on it, further work costs the producer one read-modify-write on its own line and the consumer nothing.
//!
//! # Theory
//!
//! SCHEDULED says "this is on the list, or the consumer is about to look at it". Producer: publish work, then set
//! SCHEDULED; whoever set it pushes. Consumer: take the item, **clear SCHEDULED, then read the work**. Both touch the flag
//! by read-modify-writes, which form one order: either the producer's comes after the consumer's clearing, and then it
//! pushes again; or it comes before, and then the clearing reads from it and the work is visible.
//!
//! A consumer may keep an item for some rounds without clearing SCHEDULED, and look at its work in each of them: producers
//! that speak all the time then touch nothing but their own line, neither the list nor the bell. It must clear, **and look
//! once more**, before it stops looking.
//!
//! The list is a stack that is taken whole and turned round, so its order is that of arrival, and there is no pop that could
//! meet a node twice.
//!
//! The other flags say "I wait for space", "I wait for bytes". They are Dekker's pattern, as in
//! [`doorbell`](crate::doorbell): want, fence, look again, sleep; make, fence, look at the flag. The side that wakes
//! pays one fence for all that it did in a round, by [`look_fence`].
//!
//! # The bad interleavings
//!
//! ```text
//!   producer                             consumer
//!                                        takes the item, reads its work: none
//!   publishes; sees SCHEDULED, leaves
//!                                        clears SCHEDULED        ← work that nobody looks at: clear first, then read
//!
//!   publishes; sets SCHEDULED, pushes    takes it, clears SCHEDULED
//!   publishes; sets SCHEDULED, pushes    reads the link …        ← of the second push: read the link before clearing
//!
//!   sees no space                        makes space, sees no flag
//!   sets the flag, sleeps                                        ← look again after setting it
//!
//!                                        is gone, with all that was on the list
//!   pushes an item that has the list                             ← they hold each other for ever: close the list
//! ```
//!
//! # Memory ordering
//!
//! * SCHEDULED: set and cleared AcqRel. The setter that finds it set releases its work to the clearer.
//! * The head of the list: pushed Release after the link is written, taken Acquire.
//! * `want` is Relaxed, the fence after it orders it before the second look; `take` reads Relaxed after the caller's fence,
//!   and clears AcqRel, so that of two who wake only one does.

#[cfg(all(test, laneway_loom))]
mod loom;
#[cfg(all(test, not(laneway_loom)))]
mod tests;

use crate::padded::Padded;
use crate::pointer::Pointer;
use crate::primitive::{Arc, AtomicPtr, AtomicU32, order};
use std::fmt;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The bit that the list keeps for itself.
const SCHEDULED: u32 = 1 << 31;

/// What one party says to the other in bits: that it is on the list, and whatever the caller gives the lower 30 a meaning.
#[derive(Default)]
pub struct Flags(AtomicU32);

impl Flags {
    /// Says that the caller waits for something. It must now look once more for it, and only then sleep.
    #[inline]
    pub fn want(&self, bits: u32) {
        debug_assert_eq!(bits & SCHEDULED, 0);
        self.0.fetch_or(bits, Relaxed);
        order::announce_fence();
    }

    /// Which of these bits are set; they are cleared, and what they ask for is on the caller. It has made its work visible
    /// and called [`look_fence`] since.
    #[inline]
    pub fn take(&self, bits: u32) -> u32 {
        if self.0.load(Relaxed) & bits == 0 {
            return 0;
        }
        self.0.fetch_and(!bits, order::exchange()) & bits
    }

    /// Which of these bits are set now.
    #[inline]
    pub fn get(&self, bits: u32) -> u32 {
        self.0.load(Relaxed) & bits
    }

    /// As [`get`](Self::get), and what was done before they were set is visible.
    #[inline]
    pub fn seen(&self, bits: u32) -> u32 {
        self.0.load(order::observe()) & bits
    }

    /// Sets bits; what was done before is visible to whoever sees them.
    #[inline]
    pub fn set(&self, bits: u32) {
        self.0.fetch_or(bits, order::exchange());
    }

    /// Clears bits, without a look whether they are set, and says what was there.
    #[inline]
    pub(crate) fn unset(&self, bits: u32) -> u32 {
        self.0.fetch_and(!bits, order::exchange())
    }

    /// As if nobody had ever said anything but `bits`.
    pub(crate) fn reset(&self, bits: u32) {
        self.0.store(bits, Relaxed);
    }

    /// All of it, for counting how often its line travels.
    pub(crate) fn word(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Sets SCHEDULED, and `bits` with it. True for whoever set it.
    #[inline]
    fn schedule(&self, bits: u32) -> bool {
        self.0.fetch_or(SCHEDULED | bits, order::exchange()) & SCHEDULED == 0
    }

    #[inline]
    fn clear(&self) {
        self.0.fetch_and(!SCHEDULED, order::exchange());
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({:#x})", self.0.load(Relaxed))
    }
}

/// Between having published work, however much of it, and looking at the flags of those that it is for.
#[inline]
pub fn look_fence() {
    order::announce_fence();
}

mod sealed {
    use super::{AtomicPtr, Flags};
    use crate::pointer::Pointer;

    /// Can be on a wake list. For types of this crate only: the list relies on the same answers every time, and on the link
    /// being nobody else's.
    pub trait Linked: Sized + Send + Sync {
        /// What keeps it alive while it is on a list.
        type Held: Pointer<Target = Self>;
        fn flags(&self) -> &Flags;
        fn link(&self) -> &AtomicPtr<Self>;
    }
}
pub(crate) use sealed::Linked;

/// A value that can be on a wake list.
pub struct Job<T> {
    flags: Flags,
    next: AtomicPtr<Job<T>>,
    value: T,
}

impl<T> Job<T> {
    /// Not on any list.
    pub fn new(value: T) -> Self {
        Job { flags: Flags::default(), next: AtomicPtr::new(ptr::null_mut()), value }
    }

    /// Its flags.
    pub fn flags(&self) -> &Flags {
        &self.flags
    }
}

impl<T> Deref for Job<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Send + Sync> Linked for Job<T> {
    type Held = Arc<Self>;
    #[inline]
    fn flags(&self) -> &Flags {
        &self.flags
    }
    #[inline]
    fn link(&self) -> &AtomicPtr<Self> {
        &self.next
    }
}

struct Head<T: Linked>(Padded<AtomicPtr<T>>);

/// What stands in the head of a list from which nobody takes any more.
fn closed<T>() -> *mut T {
    ptr::dangling_mut()
}

impl<T: Linked> Head<T> {
    /// Everything, oldest first.
    fn take_all(&self) -> *mut T {
        if self.0.load(Relaxed).is_null() { ptr::null_mut() } else { self.swap(ptr::null_mut()) }
    }

    /// Everything, oldest first; from now on whoever pushes keeps what he has.
    fn close(&self) -> *mut T {
        self.swap(closed())
    }

    fn swap(&self, new: *mut T) -> *mut T {
        let mut newest = self.0.swap(new, order::exchange());
        let mut oldest = ptr::null_mut();
        while !newest.is_null() {
            // SAFETY: on the list, which holds it, so it is alive; and SCHEDULED is set, so nobody else writes its link.
            let link = unsafe { (*newest).link() };
            // By an exchange: its line comes over once, to be written, and not first to be read.
            let older = link.swap(oldest, Relaxed);
            oldest = newest;
            newest = older;
        }
        oldest
    }
}

fn free<T: Linked>(mut chain: *mut T) {
    while !chain.is_null() {
        // SAFETY: in the chain, so it came from `into_bare`, once, and is given back once.
        let item = unsafe { T::Held::from_bare(chain) };
        chain = item.link().load(Relaxed);
        item.flags().clear();
    }
}

/// The side that pushes; any number of clones, on any threads.
pub struct WakeList<T: Linked>(Arc<Head<T>>);

/// The side that takes: one.
pub struct Woken<T: Linked> {
    head: Arc<Head<T>>,
    /// Taken off the list and not yet handed out; oldest first, all SCHEDULED.
    chain: *mut T,
}

// SAFETY: the chain is owned by this value alone; its items may be dropped or looked at on the thread that it moves to.
unsafe impl<T: Linked> Send for Woken<T> {}

/// An empty list.
pub fn wake_list<T: Linked>() -> (WakeList<T>, Woken<T>) {
    let head = Arc::new(Head(Padded(AtomicPtr::new(ptr::null_mut()))));
    (WakeList(head.clone()), Woken { head, chain: ptr::null_mut() })
}

impl<T: Linked> Clone for WakeList<T> {
    fn clone(&self) -> Self {
        WakeList(self.0.clone())
    }
}

impl<T: Linked> WakeList<T> {
    /// What stands on the line of the list's head, for counting how often it travels, while nobody else uses the list.
    pub fn line(&self) -> u64 {
        self.0.0.load(Relaxed).addr() as u64
    }

    /// Has the consumer look at `item`. Publish the work first. `true`: the list was empty, so the consumer may be asleep,
    /// and the caller rings its bell. If the consumer is gone, nothing happens.
    #[inline]
    pub fn push(&self, item: &T::Held) -> bool {
        item.flags().schedule(0) && self.append(item.clone())
    }

    /// As [`push`](Self::push), by a holder who gives up his item with it and says `bits`, all in one step: what he held, the list
    /// holds.
    #[inline]
    pub fn push_last(&self, item: T::Held, bits: u32) -> bool {
        item.flags().schedule(bits) && self.append(item)
    }

    #[inline]
    fn append(&self, held: T::Held) -> bool {
        let new = held.into_bare();
        // SAFETY: held by the list from here on; whoever takes it off the list does so after the exchange below.
        let item = unsafe { &*new };
        let mut head = ptr::null_mut(); // it is empty, as a rule; the exchange says what it is otherwise
        loop {
            item.link().store(head, Relaxed);
            match self.0.0.compare_exchange_weak(head, new, order::publish(), Relaxed) {
                Ok(_) => return head.is_null(),
                Err(now) if now == closed() => break,
                Err(now) => head = now,
            }
        }
        item.flags().clear();
        // SAFETY: from `into_bare` above, and it has not got onto the list.
        drop(unsafe { T::Held::from_bare(new) });
        false
    }
}

impl<T: Linked> Woken<T> {
    /// The oldest item. From now on it can be pushed again, so read what its producer has published after this.
    #[inline]
    pub fn pop(&mut self) -> Option<T::Held> {
        let item = self.next()?;
        item.flags().clear();
        Some(item)
    }

    /// As [`pop`](Self::pop), and the item counts as scheduled until it is [released](release): its producers
    /// publish, and neither push nor ring. The consumer looks at it in every round meanwhile.
    #[inline]
    pub fn pop_and_keep(&mut self) -> Option<T::Held> {
        self.next()
    }

    /// Nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.chain.is_null() && self.head.0.load(Acquire).is_null()
    }

    /// Begins a round: what is on the list now, or what is left of the round before, if any is.
    #[inline]
    pub fn begin_round(&mut self) {
        if self.chain.is_null() {
            self.chain = self.head.take_all();
        }
    }

    /// As [`pop`](Self::pop), of this round: nothing comes twice in it, and it ends, however often producers push.
    #[inline]
    pub fn pop_of_round(&mut self) -> Option<T::Held> {
        if self.chain.is_null() { None } else { self.pop() }
    }

    #[inline]
    fn next(&mut self) -> Option<T::Held> {
        self.begin_round();
        if self.chain.is_null() {
            return None;
        }
        // SAFETY: in the chain, so it came from `into_bare`, once; it leaves the chain in the next line.
        let item = unsafe { T::Held::from_bare(self.chain) };
        self.chain = item.link().load(Relaxed); // before SCHEDULED is cleared: then the link is the producer's again
        Some(item)
    }
}

/// Ends what [`Woken::pop_and_keep`] began: from now on it can be pushed again. Look at it once more **after** this, for what
/// was published before.
#[inline]
pub fn release<T: Linked>(item: &T) {
    item.flags().clear();
}

/// Nobody will take what is on the list, so nothing may stay on it: an item often has the list, to push itself, and the two would hold
/// each other for ever.
impl<T: Linked> Drop for Woken<T> {
    fn drop(&mut self) {
        free(self.chain);
        free(self.head.close());
    }
}

impl<T: Linked> fmt::Debug for WakeList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WakeList")
    }
}

impl<T: Linked> fmt::Debug for Woken<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Woken")
    }
}

/// Values in the order in which they were pushed, by anyone, to be taken all at once. One word while it is empty.
///
/// For rare things: each push allocates.
pub struct PushList<T>(AtomicPtr<Pushed<T>>);

struct Pushed<T> {
    next: *mut Pushed<T>,
    value: T,
}

// SAFETY: a value belongs to the list until it is taken, whole, by one caller.
unsafe impl<T: Send> Send for PushList<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for PushList<T> {}

impl<T> Default for PushList<T> {
    fn default() -> Self {
        PushList(AtomicPtr::new(ptr::null_mut()))
    }
}

impl<T> PushList<T> {
    /// Appends. `true`: it was empty.
    pub fn push(&self, value: T) -> bool {
        let new = Box::into_raw(Box::new(Pushed { next: ptr::null_mut(), value }));
        let mut head = ptr::null_mut();
        loop {
            // SAFETY: ours until the exchange below succeeds.
            unsafe { (*new).next = head };
            match self.0.compare_exchange_weak(head, new, order::publish(), Relaxed) {
                Ok(_) => return head.is_null(),
                Err(now) => head = now,
            }
        }
    }

    /// Takes everything, oldest first. What a pusher had published before its push is visible now.
    #[inline]
    pub fn take_all(&self) -> Vec<T> {
        if self.0.load(Relaxed).is_null() {
            return Vec::new();
        }
        let mut node = self.0.swap(ptr::null_mut(), order::exchange());
        let mut all = Vec::new();
        while !node.is_null() {
            // SAFETY: off the list, so ours alone; it came from `Box::into_raw`.
            let pushed = unsafe { Box::from_raw(node) };
            node = pushed.next;
            all.push(pushed.value);
        }
        all.reverse();
        all
    }

    /// Nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.load(Acquire).is_null()
    }
}

impl<T> Drop for PushList<T> {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}

impl<T> fmt::Debug for PushList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PushList")
    }
}
