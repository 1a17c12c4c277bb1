//! Owns the bytes of a stream that stay in their conversation's ring until the peer has acknowledged them.

use super::words::{AppWords, LaneWords, Op};
use laneway_proto::tcp::Keeper;
use laneway_sync::ring::bytes::{KeptEnd, Notes};

/// A conversation in which so much waits at once is a stream: from then on its bytes are sent out of the ring. What is shorter is
/// copied, and the ring is free again at once: it is in the cache, and its writer begins at the front of his block again.
pub(super) const STREAM: usize = 65_536;

/// Room comes back in pieces of at least so much, or of a third of what there is, or all at once: a writer who does not wait would else be given a byte for each byte
/// with which a closed window is probed.
const STEP: usize = 8_192;

/// The reading half of a stream's conversation, in the hands of its connection.
pub(super) struct Kept {
    end: KeptEnd<Notes<Op>, AppWords, LaneWords>,
    /// Needed no more, and not given back yet.
    spent: usize,
    /// How much had been given back when it was last asked for room.
    asked_at: u64,
}

impl Kept {
    pub(super) fn new(end: KeptEnd<Notes<Op>, AppWords, LaneWords>) -> Self {
        let asked_at = end.taken();
        Kept { end, spent: 0, asked_at }
    }
}

impl Keeper for Kept {
    #[inline]
    fn bytes(&self, offset: u32) -> &[u8] {
        self.end.bytes(offset + self.spent as u32)
    }

    #[inline]
    fn release(&mut self, n: u32) {
        self.spent += n as usize;
        let pipe = self.end.pipe();
        if self.spent >= STEP.min(pipe.send_limit() / 3) || pipe.unsent() == self.spent {
            self.end.release(std::mem::take(&mut self.spent));
        }
    }

    fn takes_room(&mut self) -> bool {
        let taken = self.end.taken();
        taken != std::mem::replace(&mut self.asked_at, taken)
    }
}

/// The connection is over, and will not send what is left.
impl Drop for Kept {
    fn drop(&mut self) {
        let left = self.end.pipe().unsent();
        self.end.release(left);
    }
}
