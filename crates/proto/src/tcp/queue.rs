//! Owns what waits to be sent, or to be acknowledged: bytes of our own, and behind them those that the application keeps for us.
//!
//! `send` copies. Where the bytes lie already in memory that their writer leaves alone until he hears that it is free, copying
//! them once more buys nothing: then they stay there, and segments are cut straight from it, for the first time and again. A
//! connection whose application does so has a [`Keeper`]; all others have a [`Ring`] and pay a comparison.

use super::buffer::{BufferPool, Ring};

/// Where an application keeps what it has queued until it is acknowledged. The bytes do not change meanwhile.
pub trait Keeper: Send {
    /// What lies together from `offset` on, counted from the oldest byte that was not released. Never empty where a byte was
    /// queued.
    fn bytes(&self, offset: u32) -> &[u8];
    /// The oldest `n` are needed no more.
    fn release(&mut self, n: u32);
    /// True once, when something was released that had become room: whether that is enough for who waits is the application's to ask.
    fn takes_room(&mut self) -> bool;
}

/// Bytes in the order of the sequence space, from SND.UNA on.
pub(super) enum SendQueue {
    Own(Ring),
    Kept(Box<Kept>),
}

/// The oldest in `own`, the `kept` ones behind them with the keeper.
pub(super) struct Kept {
    own: Ring,
    kept: u32,
    keeper: Box<dyn Keeper>,
}

impl Default for SendQueue {
    #[inline]
    fn default() -> Self {
        SendQueue::Own(Ring::default())
    }
}

impl SendQueue {
    /// Bytes queued. Whoever owns the queue knows it, and need not look.
    #[cfg(test)]
    fn len(&self) -> u32 {
        match self {
            SendQueue::Own(own) => own.len(),
            SendQueue::Kept(kept) => kept.own.len() + kept.kept,
        }
    }

    /// Bytes of memory that are held for it, the keeper's with them.
    pub(super) fn lent(&self) -> usize {
        match self {
            SendQueue::Own(own) => own.lent(),
            SendQueue::Kept(kept) => kept.own.lent() + kept.kept as usize,
        }
    }

    /// Bytes of memory that are held for it and are no keeper's.
    pub(super) fn lent_by_pool(&self) -> usize {
        match self {
            SendQueue::Own(own) => own.lent(),
            SendQueue::Kept(kept) => kept.own.lent(),
        }
    }

    /// Where the oldest bytes lie, for whoever will look at them soon.
    #[inline]
    pub(super) fn memory(&self) -> &[u8] {
        match self {
            SendQueue::Own(own) => own.memory(),
            SendQueue::Kept(_) => &[],
        }
    }

    /// Copies as many of `bytes` as there is memory for; says how many.
    #[inline(always)]
    pub(super) fn push_some(&mut self, bytes: &[u8], pool: &mut BufferPool) -> usize {
        match self {
            SendQueue::Own(own) => own.push_some(bytes, 0, pool),
            SendQueue::Kept(kept) => kept.push_some(bytes, pool),
        }
    }

    /// What is queued by [`keep`](Self::keep) lies with `keeper`. While something is kept by another, nothing changes.
    pub(super) fn set_keeper(&mut self, keeper: Box<dyn Keeper>) {
        let own = match self {
            SendQueue::Own(own) => core::mem::take(own),
            SendQueue::Kept(kept) if kept.kept == 0 => core::mem::take(&mut kept.own),
            SendQueue::Kept(_) => return,
        };
        *self = SendQueue::Kept(Box::new(Kept { own, kept: 0, keeper }));
    }

    /// The next `n` bytes of the keeper's are queued. Says how many: none without a keeper.
    pub(super) fn keep(&mut self, n: u32) -> u32 {
        let SendQueue::Kept(kept) = self else { return 0 };
        kept.kept += n;
        n
    }

    /// Copies what is kept elsewhere, as far as there is memory, and gives it back to its keeper.
    pub(super) fn absorb(&mut self, pool: &mut BufferPool) {
        if let SendQueue::Kept(kept) = self {
            kept.absorb(pool);
        }
    }

    /// True once, when room came about at the keeper's.
    #[inline(always)]
    pub(super) fn takes_room(&mut self) -> bool {
        match self {
            SendQueue::Own(_) => false,
            SendQueue::Kept(kept) => kept.takes_room(),
        }
    }

    /// The oldest `n` bytes were acknowledged. Memory of our own stays, for what comes next.
    #[inline(always)]
    pub(super) fn drop_front(&mut self, n: u32) {
        match self {
            SendQueue::Own(own) => own.drop_front(n),
            SendQueue::Kept(kept) => kept.drop_front(n),
        }
    }

    /// Gives memory of our own back in which there is nothing.
    #[inline(always)]
    pub(super) fn give_back(&mut self, pool: &mut BufferPool) {
        let own = match self {
            SendQueue::Own(own) => own,
            SendQueue::Kept(kept) => &mut kept.own,
        };
        if own.is_empty() {
            own.release(pool);
        }
    }

    /// `len` bytes from `offset`, if they lie in no more than two places.
    #[inline(always)]
    pub(super) fn slices(&self, offset: u32, len: u32) -> Option<(&[u8], &[u8])> {
        match self {
            SendQueue::Own(own) => Some(own.slices(offset, len)),
            SendQueue::Kept(kept) => kept.slices(offset, len),
        }
    }

    /// `len` bytes from `offset`, if they lie in one place.
    #[inline(always)]
    pub(super) fn together(&self, offset: u32, len: u32) -> Option<&[u8]> {
        match self {
            SendQueue::Own(own) => own.together(offset, len),
            SendQueue::Kept(kept) => kept.together(offset, len),
        }
    }

    /// Copies the bytes from `offset` on, wherever they lie.
    pub(super) fn copy(&self, offset: u32, out: &mut [u8]) {
        let (mut at, mut done) = (offset, 0);
        while done < out.len() {
            let piece = match self {
                SendQueue::Own(own) => own.slices(at, own.len() - at).0,
                SendQueue::Kept(kept) => kept.piece(at),
            };
            assert!(!piece.is_empty(), "a segment was planned of bytes that nobody has");
            let n = piece.len().min(out.len() - done);
            out[done..done + n].copy_from_slice(&piece[..n]);
            done += n;
            at += n as u32;
        }
    }

    /// Forgets what is queued: the memory goes back, and the keeper goes.
    #[inline(always)]
    pub(super) fn clear(&mut self, pool: &mut BufferPool) {
        match self {
            SendQueue::Own(own) => own.release(pool),
            SendQueue::Kept(kept) => {
                kept.own.release(pool);
                *self = SendQueue::default();
            }
        }
    }
}

// Apart, so that those who have no keeper do not carry it along.
impl Kept {
    #[inline(never)]
    fn takes_room(&mut self) -> bool {
        self.keeper.takes_room()
    }

    #[inline(never)]
    fn push_some(&mut self, bytes: &[u8], pool: &mut BufferPool) -> usize {
        self.absorb(pool); // they come first
        if self.kept > 0 { 0 } else { self.own.push_some(bytes, 0, pool) }
    }

    #[inline(never)]
    fn absorb(&mut self, pool: &mut BufferPool) {
        while self.kept > 0 {
            let piece = self.keeper.bytes(0);
            let piece = &piece[..piece.len().min(self.kept as usize)];
            let n = self.own.push_some(piece, 0, pool) as u32;
            if n == 0 {
                break; // no memory: it stays where it is
            }
            self.keeper.release(n);
            self.kept -= n;
        }
    }

    #[inline(never)]
    fn drop_front(&mut self, n: u32) {
        let own = n.min(self.own.len());
        self.own.drop_front(own);
        let kept = (n - own).min(self.kept);
        if kept > 0 {
            self.keeper.release(kept);
            self.kept -= kept;
        }
    }

    /// What lies together from `offset` on.
    fn piece(&self, offset: u32) -> &[u8] {
        let own = self.own.len();
        if offset < own {
            return self.own.slices(offset, own - offset).0;
        }
        let kept = offset - own;
        let piece = self.keeper.bytes(kept);
        &piece[..piece.len().min((self.kept - kept) as usize)]
    }

    #[inline(never)]
    fn slices(&self, offset: u32, len: u32) -> Option<(&[u8], &[u8])> {
        if len == 0 {
            return Some((&[], &[]));
        }
        let first = self.piece(offset);
        let first = &first[..first.len().min(len as usize)];
        let rest = len - first.len() as u32;
        if rest == 0 {
            return Some((first, &[]));
        }
        let second = self.piece(offset + first.len() as u32);
        Some((first, second.get(..rest as usize)?))
    }

    #[inline(never)]
    fn together(&self, offset: u32, len: u32) -> Option<&[u8]> {
        match self.slices(offset, len) {
            Some((all, [])) => Some(all),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
