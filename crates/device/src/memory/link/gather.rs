//! Owns what is received from several rings: which of them is read first, and how much of a batch is whose.

use super::QUEUES_MAX;
use laneway_sync::RecordConsumer;
use std::cell::Cell;

/// What several sending queues sent to one receiving queue.
pub(super) struct Gather {
    /// By sending queue.
    pub(super) rings: Box<[RecordConsumer]>,
    /// How many frames each ring lent.
    lent: [u8; QUEUES_MAX],
    /// Whose sender is most likely on this core: what it sent is at hand, and read while that of the others is on its way.
    nearest: usize,
    /// Who has the largest share of the next batch.
    first: usize,
    /// The ring that is read now, and which of the lent frames is its first.
    reading: Cell<(usize, usize)>,
}

impl Gather {
    pub(super) fn new(rings: Vec<RecordConsumer>, queue: usize) -> Self {
        let nearest = queue % rings.len();
        Gather { lent: [0; QUEUES_MAX], rings: rings.into(), nearest, first: 0, reading: Cell::new((nearest, 0)) }
    }

    pub(super) fn poll(&mut self, max: usize) -> usize {
        let mut count = 0;
        for (i, ring) in self.rings.iter().enumerate() {
            if i != self.nearest {
                ring.prefetch_news();
            }
        }
        let mut ring = self.first;
        for still in (1..=self.rings.len()).rev() {
            // A fair share first, so that one busy sender does not fill the batch; what is left over goes to whoever comes later.
            let share = (max - count).div_ceil(still);
            let got =
                if ring == self.nearest { self.rings[ring].poll(share) } else { self.rings[ring].poll_far(share) };
            self.lent[ring] = got as u8;
            count += got;
            ring = self.behind(ring);
        }
        self.first = self.behind(self.first);
        self.reading.set((self.nearest, 0));
        count
    }

    /// The ring behind this one, and behind the last the first.
    #[inline]
    fn behind(&self, ring: usize) -> usize {
        if ring + 1 < self.rings.len() { ring + 1 } else { 0 }
    }

    #[inline(always)]
    pub(super) fn record(&self, i: usize) -> (&[u8], u64) {
        let (ring, first) = self.reading.get();
        let at = i.wrapping_sub(first);
        if at < usize::from(self.lent[ring]) {
            return self.rings[ring].record(at);
        }
        self.record_of_another(i)
    }

    /// A frame of a ring that is not read now: the next one's first, unless somebody does not read in turn.
    #[inline(never)]
    fn record_of_another(&self, i: usize) -> (&[u8], u64) {
        let (mut ring, mut first) = self.reading.get();
        if i < first {
            (ring, first) = (self.nearest, 0);
        }
        loop {
            let lent = usize::from(self.lent[ring]);
            if i - first < lent {
                self.reading.set((ring, first));
                return self.rings[ring].record(i - first);
            }
            (ring, first) = (self.behind(ring), first + lent);
            assert!(ring != self.nearest, "frame {i} was asked for and {first} are lent");
        }
    }

    pub(super) fn release(&mut self) {
        for (ring, lent) in self.rings.iter_mut().zip(&mut self.lent) {
            ring.release(usize::from(std::mem::take(lent)));
        }
    }
}
