use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Bytes in pieces.
struct Pieces {
    bytes: Vec<u8>,
    piece: usize,
    released: Arc<Mutex<usize>>,
}

fn seen(released: &Mutex<usize>) -> usize {
    *released.lock().expect("nobody panicked")
}

impl Keeper for Pieces {
    fn bytes(&self, offset: u32) -> &[u8] {
        let at = seen(&self.released) + offset as usize;
        let end = (at / self.piece + 1) * self.piece;
        &self.bytes[at..end.min(self.bytes.len())]
    }
    fn release(&mut self, n: u32) {
        *self.released.lock().expect("nobody panicked") += n as usize;
    }
    fn takes_room(&mut self) -> bool {
        false
    }
}

proptest! {
    /// A queue of bytes, wherever they lie: copied in, kept by another, or fetched from there.
    #[test]
    fn is_a_queue(
        piece in 1usize..4_000,
        quota in prop_oneof![Just(0usize), Just(4_096), Just(1 << 20)],
        steps in prop::collection::vec((0u8..5, 0usize..9_000, 0usize..9_000), 1..80),
    ) {
        let mut pool = BufferPool::new(quota);
        let released = Arc::new(Mutex::new(0));
        let bytes: Vec<u8> = (0..1_000_000usize).map(|i| (i ^ i >> 8) as u8).collect();
        let mut queue = SendQueue::default();
        let mut model = VecDeque::new();
        let mut kept = 0;
        prop_assert_eq!(queue.keep(5), 0, "nobody keeps it");
        for (i, (kind, n, m)) in steps.into_iter().enumerate() {
            if i == 3 {
                queue.set_keeper(Box::new(Pieces { bytes: bytes.clone(), piece, released: released.clone() }));
            }
            match kind {
                0 => {
                    let own: Vec<u8> = (0..n).map(|i| !(i as u8)).collect();
                    let taken = queue.push_some(&own, &mut pool);
                    prop_assert!(taken == n || quota < 1 << 20);
                    model.extend(&own[..taken]);
                }
                1 => {
                    let taken = queue.keep(n as u32) as usize;
                    prop_assert!(taken == n || i < 3);
                    model.extend(&bytes[kept..kept + taken]);
                    kept += taken;
                }
                2 => queue.absorb(&mut pool),
                3 => {
                    let n = n.min(model.len());
                    model.drain(..n);
                    queue.drop_front(n as u32);
                }
                _ if model.is_empty() => prop_assert_eq!(queue.slices(0, 0), Some((&[][..], &[][..]))),
                _ => {
                    let from = n % model.len();
                    let len = m % (model.len() - from + 1);
                    let want: Vec<u8> = model.range(from..from + len).copied().collect();
                    let mut found = vec![0; len];
                    queue.copy(from as u32, &mut found);
                    prop_assert_eq!(&found, &want);
                    if let Some((a, b)) = queue.slices(from as u32, len as u32) {
                        prop_assert_eq!([a, b].concat(), want);
                    }
                }
            }
            prop_assert_eq!(queue.len() as usize, model.len());
            prop_assert!(seen(&released) <= kept, "nothing is given back that was not queued");
        }
        queue.drop_front(u32::MAX);
        queue.give_back(&mut pool);
        prop_assert_eq!(pool.lent(), 0);
        prop_assert_eq!(queue.len(), 0);
        prop_assert_eq!(seen(&released), kept, "what was acknowledged was given back");
        queue.clear(&mut pool);
        prop_assert_eq!((queue.lent(), pool.lent()), (0, 0));
    }
}

#[test]
fn costs_no_more_than_a_ring() {
    assert_eq!(size_of::<SendQueue>(), size_of::<Ring>());
}

/// What waits to be acknowledged lies where it was said to lie, and what is written after that is lent the same memory.
#[test]
fn the_memory_of_what_is_acknowledged_is_lent_to_the_answer() {
    let mut pool = BufferPool::new(1 << 20);
    let mut queue = SendQueue::default();
    assert!(queue.memory().is_empty());
    assert_eq!(queue.push_some(b"request", &mut pool), 7);
    assert!(queue.memory().starts_with(b"request"));
    queue.drop_front(3);
    assert!(queue.memory().starts_with(b"uest"), "the oldest");
    let at = queue.memory().as_ptr().addr() - 3;
    queue.drop_front(4);
    queue.give_back(&mut pool);
    assert!(queue.memory().is_empty());
    assert_eq!(queue.push_some(b"answer", &mut pool), 6);
    assert_eq!(queue.memory().as_ptr().addr(), at);
}
