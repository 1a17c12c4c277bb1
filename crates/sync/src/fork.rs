//! Whether this process is a copy of one that had the thing: a child has the memory and none of the threads. And what of the
//! memory it has not: see [`Secret`].

use crate::pages::{InAChild, Pages};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static GENERATION: AtomicU32 = AtomicU32::new(0);
static WATCH: Once = Once::new();

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> i32;
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

extern "C" fn in_the_child() {
    GENERATION.fetch_add(1, Relaxed);
}

/// Which process it was made in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Birth(u32);

impl Birth {
    /// This process.
    pub fn here() -> Self {
        WATCH.call_once(|| {
            // SAFETY: the handler touches nothing but an atomic, as a handler in a child of a program with threads must. If the
            // system has no memory for it, a child is not recognised.
            let _ = unsafe { pthread_atfork(None, None, Some(in_the_child)) };
        });
        Birth(GENERATION.load(Relaxed))
    }

    /// Still this process, and not a child of it. One load of a word that does not change.
    #[inline]
    pub fn is_here(self) -> bool {
        self.0 == GENERATION.load(Relaxed)
    }
}

/// Words of which a child of this process, and a dump of it, finds only zeroes.
///
/// ```
/// use laneway_sync::fork::{Secret, in_a_child};
/// let key = Secret::new([1, 2]);
/// assert_eq!(key.words(), &[1, 2]);
/// assert_eq!(in_a_child(|| (key.words() == &[0, 0]).into())?, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Secret<const N: usize>(Place<N>);

enum Place<const N: usize> {
    Apart(Pages),
    /// Where pages cannot be had.
    Heap(Box<[u64; N]>),
}

impl<const N: usize> Secret<N> {
    /// Keeps these words. They take a page.
    pub fn new(words: [u64; N]) -> Self {
        match Pages::zeroed(size_of::<[u64; N]>(), InAChild::Zeroes) {
            Some(pages) => {
                // SAFETY: the pages are as long as this, aligned to more, and nobody else has them.
                unsafe { pages.at().cast::<[u64; N]>().write(words) };
                Secret(Place::Apart(pages))
            }
            None => Secret(Place::Heap(Box::new(words))),
        }
    }

    /// The words; in a child, zeroes.
    #[inline]
    pub fn words(&self) -> &[u64; N] {
        match &self.0 {
            // SAFETY: written in `new` and never again; any bytes are words, also those that a child finds.
            Place::Apart(pages) => unsafe { pages.at().cast::<[u64; N]>().as_ref() },
            Place::Heap(words) => words,
        }
    }
}

impl<const N: usize> Clone for Secret<N> {
    fn clone(&self) -> Self {
        Self::new(*self.words())
    }
}

impl<const N: usize> std::fmt::Debug for Secret<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Runs `act` in a child and answers what it answered: for tests of what a child may do. In a program with threads it must
/// take no lock that another thread may hold at this moment.
///
/// # Errors
/// The system's, if it makes no child; `Other`, if the child ends in another way than by its answer.
pub fn in_a_child(act: impl FnOnce() -> u8) -> std::io::Result<u8> {
    // SAFETY: the child runs `act` and leaves, without running what the parent has registered for its exit.
    let child = unsafe { fork() };
    if child == 0 {
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).unwrap_or(u8::MAX);
        // SAFETY: no requirement.
        unsafe { _exit(answer.into()) }
    }
    let mut status = 0;
    // SAFETY: the pointer is to a variable of ours.
    if child < 0 || unsafe { waitpid(child, &mut status, 0) } != child {
        return Err(std::io::Error::last_os_error());
    }
    let ended = status & 0x7f == 0; // by an exit, not by a signal
    ended.then_some((status >> 8) as u8).ok_or_else(|| std::io::Error::other("the child was killed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_birth_is_here_until_a_child_is_born() {
        let birth = Birth::here();
        assert!(birth.is_here() && birth == Birth::here());
        in_the_child(); // as the system would call it, there
        assert!(!birth.is_here() && Birth::here().is_here());
    }

    #[test]
    #[cfg(not(miri))]
    fn a_child_learns_no_secret() {
        let secret = Secret::new([0x5eed, u64::MAX, 1]);
        let copy = secret.clone();
        let learns = |secret: &Secret<3>| in_a_child(|| u8::from(secret.words() != &[0; 3])).unwrap();
        assert_eq!((learns(&secret), learns(&copy)), (0, 0));
        drop(secret);
        assert_eq!(copy.words(), &[0x5eed, u64::MAX, 1]);
    }

    #[test]
    #[cfg(not(miri))]
    fn a_child_answers() {
        assert_eq!(in_a_child(|| 7).unwrap(), 7);
    }
}
