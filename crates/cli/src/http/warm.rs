//! Owns the thread that waits for disks where large files are read, so that no lane does: it reads what is not in memory, and
//! the lane that asked reads it again from there. Opening files, and reading small ones whole, is not done here, and a
//! file system that cannot tell what is in memory is waited for.

use laneway::on_lane::{ConnId, Waker};
use rustix::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// One answer that is being read from a file, which others may be read from too.
pub struct Reading(pub Arc<OwnedFd>);

/// A piece of a file that is wanted in memory.
struct Piece {
    /// Gone with the connection, and then nothing is read for it any more, nor the file kept open.
    reading: Weak<Reading>,
    offset: u64,
    len: usize,
}

/// And by whom.
struct Job {
    piece: Piece,
    lane: usize,
    connection: ConnId,
}

impl Piece {
    /// Reads it; false: nobody wants it any more.
    fn read(&self, scratch: &mut [u8]) -> bool {
        let Some(reading) = self.reading.upgrade() else { return false };
        // Only the reading counts. An error meets the lane too, and there somebody knows what to do.
        let len = self.len.min(scratch.len());
        let _ = rustix::io::pread(&*reading.0, &mut scratch[..len], self.offset);
        true
    }
}

/// Asks for pieces of files, and learns which have come.
#[derive(Clone)]
pub struct Warmer {
    jobs: Sender<Job>,
    shared: Arc<Shared>,
}

struct Shared {
    /// Connections that can go on, by lane.
    ready: Vec<Mutex<Vec<ConnId>>>,
    /// Known once the stack runs; before that, nobody asks.
    waker: OnceLock<Waker>,
}

impl Warmer {
    /// For so many lanes.
    pub fn start(lanes: usize) -> std::io::Result<Warmer> {
        let (jobs, work) = channel::<Job>();
        let ready = (0..lanes).map(|_| Mutex::default()).collect();
        let shared = Arc::new(Shared { ready, waker: OnceLock::new() });
        let done = Arc::clone(&shared);
        std::thread::Builder::new().name("disk".into()).spawn(move || {
            let mut scratch = vec![0; 1 << 20];
            for job in work {
                if !job.piece.read(&mut scratch) {
                    continue;
                }
                done.ready[job.lane].lock().unwrap_or_else(PoisonError::into_inner).push(job.connection);
                if let Some(waker) = done.waker.get() {
                    waker.wake(job.lane);
                }
            }
        })?;
        Ok(Warmer { jobs, shared })
    }

    /// The stack runs: its lanes can be woken.
    pub fn attach(&self, waker: Waker) {
        let _ = self.shared.waker.set(waker);
    }

    /// Wants a piece of a file in memory. False: nobody reads any more.
    pub fn want(&self, reading: &Arc<Reading>, offset: u64, len: usize, lane: usize, connection: ConnId) -> bool {
        let piece = Piece { reading: Arc::downgrade(reading), offset, len };
        self.jobs.send(Job { piece, lane, connection }).is_ok()
    }

    /// Connections of this lane that can go on.
    pub fn ready(&self, lane: usize) -> Vec<ConnId> {
        match self.shared.ready[lane].try_lock() {
            Ok(mut ready) => std::mem::take(&mut *ready),
            // It is being added to: whoever adds rings afterwards.
            Err(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_for_a_connection_that_has_gone() {
        let file = Arc::new(OwnedFd::from(std::fs::File::open("/dev/zero").expect("it is there")));
        let reading = Arc::new(Reading(Arc::clone(&file)));
        let piece = Piece { reading: Arc::downgrade(&reading), offset: 0, len: 8 };
        assert!(piece.read(&mut [1; 8]));
        drop(reading);
        assert!(!piece.read(&mut [1; 8]));
        assert_eq!(Arc::strong_count(&file), 1, "what is queued keeps nothing open");
    }
}
