use super::*;
use std::collections::HashSet;

#[test]
fn full_and_empty_are_said() {
    let (mut offers, takers) = handout(2);
    assert!(takers.is_empty());
    offers.offer(Arc::new(0), [10]).unwrap();
    assert!(offers.has_room(1) && !offers.has_room(2));
    offers.offer(Arc::new(1), [11]).unwrap();
    assert_eq!(*offers.offer(Arc::new(2), [12]).unwrap_err(), 2);
    assert!(takers.is_empty() && offers.published() == 0, "nothing was published");
    offers.publish();
    assert_eq!(offers.published(), 2);
    assert_eq!(takers.take(), Some((Arc::new(0), [10])));
    assert_eq!(offers.published(), 1);
    assert!(offers.has_room(1));
    offers.offer(Arc::new(3), [13]).unwrap();
    assert_eq!(offers.take_back(), Some((Arc::new(1), [11])));
    assert_eq!(takers.take(), Some((Arc::new(3), [13])), "taking back publishes");
    assert!(takers.take().is_none());
}

#[test]
fn what_nobody_takes_is_dropped_once() {
    let value = Arc::new(());
    let (mut offers, takers) = handout(4);
    offers.offer(value.clone(), []).unwrap();
    offers.publish();
    offers.offer(value.clone(), []).unwrap();
    assert_eq!(Arc::strong_count(&value), 3);
    drop(offers);
    drop(takers);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn many_takers_share_without_loss_or_doubles() {
    const N: usize = if cfg!(miri) { 60 } else { 30_000 };
    let (mut offers, takers) = handout::<Arc<usize>, 1>(16);
    let left = Arc::new(std::sync::atomic::AtomicUsize::new(N));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (takers, left) = (takers.clone(), left.clone());
            std::thread::spawn(move || {
                let mut mine = Vec::new();
                while left.load(Relaxed) > 0 {
                    match takers.take() {
                        Some((value, [note])) => {
                            left.fetch_sub(1, Relaxed);
                            assert_eq!(note, *value as u64 + 7, "the note of another");
                            mine.push(*value);
                        }
                        None => std::thread::yield_now(),
                    }
                }
                assert!(mine.is_sorted(), "each taker sees the order of the offers");
                mine
            })
        })
        .collect();
    for i in 0..N {
        let mut value = Arc::new(i);
        while let Err(back) = offers.offer(value, [i as u64 + 7]) {
            value = back;
            offers.publish();
            std::thread::yield_now();
        }
        if i % 3 == 0 {
            offers.publish();
        }
    }
    offers.publish();
    let all: Vec<usize> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert_eq!(all.len(), N);
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), N);
}
