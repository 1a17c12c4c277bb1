use super::*;
use proptest::prelude::*;

proptest! {
    /// The ring is a queue of bytes, whatever the order of pushes, early arrivals and reads.
    #[test]
    fn a_ring_is_a_queue(steps in proptest::collection::vec((0u8..4, 1usize..3000), 1..60)) {
        let mut pool = BufferPool::new(64 << 20);
        let mut ring = Ring::default();
        let mut model = std::collections::VecDeque::new();
        let mut next = 0u8;
        for (kind, n) in steps {
            let bytes: Vec<u8> = (0..n).map(|_| { next = next.wrapping_add(7); next }).collect();
            match kind {
                0 => { prop_assert!(ring.push(&bytes, 0, &mut pool)); model.extend(bytes); }
                1 => {
                    // The second half first, then the first half: what reassembly does.
                    let (a, b) = bytes.split_at(n / 2);
                    prop_assert!(ring.put(a.len() as u32, b, 0, &mut pool));
                    if n % 2 == 0 {
                        ring.straighten(); // what waits moves along
                    }
                    prop_assert!(ring.push(a, (a.len() + b.len()) as u32, &mut pool));
                    ring.extend(b.len() as u32);
                    model.extend(bytes.iter());
                }
                2 => {
                    let wrapped = ring.front().len() < model.len();
                    prop_assert_eq!(ring.straighten(), wrapped);
                    prop_assert!(ring.front().iter().eq(&model));
                }
                _ => {
                    let n = n.min(model.len());
                    let (a, b) = ring.slices(0, n as u32);
                    let got: Vec<u8> = [a, b].concat();
                    let want: Vec<u8> = model.drain(..n).collect();
                    prop_assert_eq!(got, want);
                    ring.consume(n as u32, false, &mut pool);
                }
            }
            prop_assert_eq!(ring.len() as usize, model.len());
        }
        ring.release(&mut pool);
        prop_assert_eq!(pool.lent(), 0);
    }
}

#[test]
fn a_pool_refuses_beyond_its_quota() {
    let mut pool = BufferPool::new(1024);
    let mut a = Ring::default();
    let mut b = Ring::default();
    assert!(a.push(&[1; 512], 0, &mut pool));
    assert!(b.push(&[2; 512], 0, &mut pool));
    assert!(!a.push(&[3; 1], 0, &mut pool), "a larger ring would exceed the quota");
    assert_eq!(a.len(), 512, "a refused push changes nothing");
    assert!(!pool.has_some());
    assert_eq!(a.push_some(&[3; 1], 0, &mut pool), 0);
    b.release(&mut pool);
    assert_eq!(pool.lent(), 512);
    assert!(pool.has_some());
}

#[test]
fn as_much_is_taken_as_there_is_memory_for() {
    let mut pool = BufferPool::new(2_048 + 512);
    let mut a = Ring::default();
    assert_eq!(a.push_some(&[1; 5_000], 0, &mut pool), 2_048, "8 KiB were wanted, 2 KiB are there");
    let mut b = Ring::default();
    assert_eq!(b.push_some(&[2; 100], 0, &mut pool), 100);
    assert_eq!(b.push_some(&[3; 5_000], 0, &mut pool), 412, "what its ring has room for");
    assert_eq!(b.push_some(&[4; 1], 0, &mut pool), 0);
    assert_eq!((a.len(), b.len(), pool.lent()), (2_048, 512, 2_560));
    assert!(b.front()[..100].iter().all(|byte| *byte == 2) && b.front()[100..].iter().all(|byte| *byte == 3));
}

/// Two lanes make their rings by turns, as it happens when their load grows.
#[test]
fn rings_of_two_pools_share_no_line() {
    let mut pools = [BufferPool::new(1 << 20), BufferPool::new(1 << 20)];
    let rings: Vec<[Ring; 2]> = (0..100)
        .map(|_| {
            pools.each_mut().map(|pool| {
                let mut ring = Ring::default();
                assert!(ring.push(&[1; 512], 0, pool));
                ring
            })
        })
        .collect();
    let lines = |ring: &Ring| {
        let bytes = ring.front().as_ptr_range();
        bytes.start.addr() / 64..=(bytes.end.addr() - 1) / 64
    };
    let [ours, theirs] =
        [0, 1].map(|of| rings.iter().flat_map(|rings| lines(&rings[of])).collect::<std::collections::HashSet<_>>());
    assert!(ours.is_disjoint(&theirs));
}

/// Peers that say one byte each far beyond a gap: what that takes leaves half of the memory to others.
#[test]
fn early_bytes_take_no_more_than_half() {
    let mut pool = BufferPool::new(1 << 20);
    let mut rings: Vec<Ring> = Vec::new();
    loop {
        let mut ring = Ring::default();
        if !ring.put(20_000, &[1], 0, &mut pool) {
            break;
        }
        rings.push(ring);
    }
    assert_eq!(pool.lent(), 1 << 19, "{} rings of 32 KiB", rings.len());
    let mut honest = Ring::default();
    assert!(honest.push(&[1; 1_000], 0, &mut pool));
    assert!(honest.put(10, &[2], 0, &mut pool), "what its ring has room for costs nothing");
    assert!(!honest.put(5_000, &[2], 0, &mut pool));
}

#[test]
fn what_is_lent_and_what_is_kept_are_together_no_more_than_the_quota() {
    let quota = 1 << 20;
    let mut pool = BufferPool::new(quota);
    for bytes in [512, 2_048, 512, 8_192, 500_000, 512] {
        let mut rings = Vec::new();
        loop {
            let mut ring = Ring::default();
            if !ring.push(&vec![0; bytes], 0, &mut pool) {
                break;
            }
            assert!(pool.lent() + pool.kept() <= quota, "lent {}, kept {}", pool.lent(), pool.kept());
            rings.push(ring);
        }
        assert!(!rings.is_empty(), "there is room for rings of {bytes} bytes");
        rings.iter_mut().for_each(|ring| ring.release(&mut pool));
        assert!(pool.lent() + pool.kept() <= quota);
    }
}
