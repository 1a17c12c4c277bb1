use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::testing::{checksum_is_right, make_partial, tcp, udp};

const A: ([u8; 4], u16) = ([192, 0, 2, 1], 1000);
const B: ([u8; 4], u16) = ([192, 0, 2, 2], 2000);

fn send(tx: &mut impl Tx, frame: &[u8], meta: TxMeta) -> bool {
    let Some(into) = tx.reserve(frame.len()) else {
        return false;
    };
    into.copy_from_slice(frame);
    tx.commit(frame.len(), meta);
    true
}

fn one(config: LinkConfig) -> (LinkQueue, LinkQueue) {
    let (mut a, mut b) = link(config);
    (a.remove(0), b.remove(0))
}

/// All that waits, with its meaning.
fn drain(rx: &mut impl Rx) -> Vec<(Vec<u8>, RxMeta)> {
    let mut all = Vec::new();
    loop {
        let count = rx.poll(64);
        if count == 0 {
            return all;
        }
        all.extend((0..count).map(|i| (rx.frame(i).bytes.to_vec(), rx.frame(i).meta)));
        rx.release();
    }
}

#[test]
fn frames_go_both_ways_and_are_seen_after_flush() {
    let (mut a, mut b) = one(LinkConfig::default());
    assert!(send(&mut a.tx, b"one", TxMeta::default()));
    assert!(send(&mut a.tx, b"two", TxMeta::default()));
    assert_eq!(b.rx.poll(64), 0, "not flushed yet");
    a.tx.flush();
    assert_eq!(b.rx.poll(1), 1);
    assert_eq!(b.rx.frame(0).bytes, b"one");
    // The answer is written while the question is still lent.
    assert!(send(&mut b.tx, b"answer", TxMeta::default()));
    b.rx.release();
    b.tx.flush();
    assert_eq!(b.rx.poll(64), 1);
    assert_eq!(b.rx.frame(0).bytes, b"two");
    assert_eq!(drain(&mut a.rx), [(b"answer".to_vec(), RxMeta::default())]);
}

#[test]
fn polling_again_gives_back_what_was_lent() {
    let (mut a, mut b) = one(LinkConfig::default());
    for byte in 0..3 {
        assert!(send(&mut a.tx, &[byte], TxMeta::default()));
    }
    a.tx.flush();
    for byte in 0..3 {
        assert_eq!(b.rx.poll(1), 1);
        assert_eq!(b.rx.frame(0).bytes, [byte]);
    }
    assert_eq!(b.rx.poll(1), 0);
    assert!(b.rx.is_empty());
}

#[test]
fn a_full_ring_says_so_and_recovers() {
    let (mut a, mut b) = one(LinkConfig { ring_bytes: 8192, ..LinkConfig::default() });
    let frame = [7; 1500];
    let mut sent = 0;
    while send(&mut a.tx, &frame, TxMeta::default()) {
        sent += 1;
    }
    assert!((3..=5).contains(&sent));
    a.tx.flush();
    assert_eq!(drain(&mut b.rx).len(), sent);
    assert!(send(&mut a.tx, &frame, TxMeta::default()));
}

#[test]
#[should_panic(expected = "a frame of 1501 bytes was reserved on a device that carries at most 1500")]
fn a_frame_beyond_the_mtu_is_the_callers_fault() {
    let (mut a, _b) = one(LinkConfig::default());
    a.tx.reserve(1501);
}

#[test]
#[should_panic(expected = "at least four of the largest frames")]
fn a_ring_too_small_for_its_frames_is_the_callers_fault() {
    one(LinkConfig { ring_bytes: 4096, ..LinkConfig::default() });
}

#[test]
fn the_last_frames_outlive_their_sender() {
    let (mut a, mut b) = one(LinkConfig::default());
    assert!(send(&mut a.tx, b"last words", TxMeta::default()));
    a.tx.flush();
    assert!(!b.rx.is_closed());
    drop(a);
    assert!(b.rx.is_closed() && b.tx.is_closed());
    assert_eq!(drain(&mut b.rx).len(), 1);
}

#[test]
fn a_partial_checksum_is_completed_unless_the_receiver_takes_it() {
    let whole = udp(A, B, b"hello");
    for rx_checksum in [false, true] {
        for medium in [Medium::Ip, Medium::Ethernet] {
            let config = LinkConfig { tx_checksum: true, rx_checksum, medium, ..LinkConfig::default() };
            let (mut a, mut b) = one(config);
            let mut frame = vec![0xee; medium.header_len()];
            frame.extend(&whole);
            let whole_frame = frame.clone();
            let partial = make_partial(&mut frame, medium);
            assert!(send(&mut a.tx, &frame, TxMeta { checksum_partial: Some(partial), ..TxMeta::default() }));
            a.tx.flush();
            let expected = if rx_checksum { (frame, RxChecksum::Verified) } else { (whole_frame, RxChecksum::Unknown) };
            assert_eq!(drain(&mut b.rx), [(expected.0, RxMeta { checksum: expected.1, gso_size: 0 })]);
        }
    }
}

fn super_packet(payload: usize) -> (Vec<u8>, TxMeta) {
    let payload: Vec<u8> = (0..payload).map(|i| i as u8).collect();
    let mut packet = tcp(A, B, 5, &payload);
    let partial = make_partial(&mut packet, Medium::Ip);
    (packet, TxMeta { checksum_partial: Some(partial), gso_size: 1000, header_len: 40 })
}

#[test]
fn a_super_packet_is_passed_whole_to_who_takes_it() {
    let (packet, meta) = super_packet(10_500);
    let (mut a, mut b) = one(LinkConfig::default().with_offloads());
    assert!(send(&mut a.tx, &packet, meta));
    a.tx.flush();
    assert_eq!(drain(&mut b.rx), [(packet, RxMeta { checksum: RxChecksum::Verified, gso_size: 1000 })]);
}

#[test]
fn a_super_packet_is_passed_whole_with_its_checksum_complete_to_who_verifies() {
    let (packet, meta) = super_packet(10_500);
    let (mut a, mut b) = one(LinkConfig { rx_checksum: false, ..LinkConfig::default().with_offloads() });
    assert!(send(&mut a.tx, &packet, meta));
    a.tx.flush();
    let frames = drain(&mut b.rx);
    assert_eq!(frames.len(), 1);
    let (frame, said) = &frames[0];
    assert!(checksum_is_right(frame));
    assert_eq!((&frame[40..], *said), (&packet[40..], RxMeta { checksum: RxChecksum::Unknown, gso_size: 1000 }));
}

#[test]
fn a_super_packet_is_cut_for_who_does_not_take_it() {
    // The second is no longer than a plain frame.
    for payload in [10_500, 1_400] {
        let (packet, meta) = super_packet(payload);
        let (mut a, mut b) = one(LinkConfig { rx_super: false, ..LinkConfig::default().with_offloads() });
        assert!(send(&mut a.tx, &packet, meta));
        assert!(send(&mut a.tx, b"after it", TxMeta::default()));
        a.tx.flush();
        let mut frames = drain(&mut b.rx);
        assert_eq!(frames.pop().unwrap().0, b"after it");
        assert_eq!(frames.len(), payload.div_ceil(1000));
        let mut joined = Vec::new();
        for (frame, meta) in &frames {
            assert!(checksum_is_right(frame));
            assert_eq!(*meta, RxMeta::default());
            assert_eq!(frame[24..28], (5 + joined.len() as u32).to_be_bytes());
            joined.extend_from_slice(&frame[40..]);
        }
        assert_eq!(joined, packet[40..]);
    }
}

#[test]
fn a_ring_that_fills_up_while_cutting_loses_segments_and_counts_them() {
    let config = LinkConfig { ring_bytes: 8192, rx_super: false, ..LinkConfig::default().with_offloads() };
    let (mut a, mut b) = one(config);
    let (packet, meta) = super_packet(20_000);
    assert!(send(&mut a.tx, &packet, meta));
    a.tx.flush();
    let frames = drain(&mut b.rx);
    assert_eq!(frames.len() as u64 + a.tx.dropped(), 20);
    assert!(frames.iter().all(|(frame, _)| checksum_is_right(frame)));
}

/// What no network carries, and cannot be cut, goes nowhere; what comes behind it does.
#[test]
fn what_is_too_long_and_cannot_be_cut_is_lost_and_counted() {
    let (mut a, mut b) = one(LinkConfig { rx_super: false, ..LinkConfig::default().with_offloads() });
    let mut packet = udp(A, B, &[7; 3_000]);
    let partial = make_partial(&mut packet, Medium::Ip);
    let uncut = TxMeta { checksum_partial: Some(partial), gso_size: 1_000, header_len: 28 };
    for (lost, meta) in [(1, uncut), (2, TxMeta::default())] {
        assert!(send(&mut a.tx, &packet, meta));
        assert!(send(&mut a.tx, b"after it", TxMeta::default()));
        a.tx.flush();
        assert_eq!(drain(&mut b.rx), [(b"after it".to_vec(), RxMeta::default())]);
        assert_eq!(a.tx.dropped(), lost);
    }
}

#[test]
fn an_end_without_ethernet_has_no_link_address() {
    for (medium, macs) in [(Medium::Ip, [[0; 6]; 2]), (Medium::Ethernet, LinkConfig::default().macs)] {
        let (a, b) = one(LinkConfig { medium, ..LinkConfig::default() });
        assert_eq!([a.tx.capabilities().mac, b.tx.capabilities().mac], macs);
    }
}

/// What waits, and who is gone, is asked of every sender.
#[test]
fn nothing_waits_where_no_sender_has_sent() {
    let (mut a, mut b) = link(LinkConfig { queues: 2, steer: [None, Some(Arc::new(|_| 0))], ..LinkConfig::default() });
    for (number, sender) in a.iter_mut().enumerate() {
        assert!(b[0].rx.is_empty());
        assert!(send(&mut sender.tx, b"x", TxMeta::default()));
        sender.tx.flush();
        assert!(!b[0].rx.is_empty(), "sender {number}");
        assert_eq!(drain(&mut b[0].rx).len(), 1);
    }
    a.pop();
    assert!(!b[0].rx.is_closed(), "one of the two is there");
    a.pop();
    assert!(b[0].rx.is_closed());
}

/// However small the batches: whose share of one is the largest has a smaller one of the next.
#[test]
fn every_sender_is_heard_in_the_end() {
    let (mut a, mut b) = link(LinkConfig { queues: 3, steer: [None, Some(Arc::new(|_| 0))], ..LinkConfig::default() });
    for (number, queue) in a.iter_mut().enumerate() {
        for _ in 0..100 {
            assert!(send(&mut queue.tx, &[number as u8], TxMeta::default()));
        }
        queue.tx.flush();
    }
    let mut heard = [0; 3];
    for _ in 0..30 {
        let count = b[0].rx.poll(1);
        (0..count).for_each(|i| heard[usize::from(b[0].rx.frame(i).bytes[0])] += 1);
    }
    assert_eq!(heard, [10; 3]);
}

/// Steers by the first byte.
fn by_first_byte() -> Option<Steer> {
    Some(Arc::new(|frame| usize::from(frame[0])))
}

#[test]
fn steering_chooses_the_queue_and_order_is_kept() {
    let config = LinkConfig {
        queues: 2,
        second_queues: Some(3),
        steer: [by_first_byte(), by_first_byte()],
        ..LinkConfig::default()
    };
    let (mut a, mut b) = link(config);
    assert_eq!((a.len(), b.len()), (2, 3));
    for number in 0..200u8 {
        let sender = usize::from(number % 2);
        // 7 is taken modulo the number of queues.
        assert!(send(
            &mut a[sender].tx,
            &[[0, 1, 2, 7][usize::from(number / 2 % 4)], number, number % 2],
            TxMeta::default()
        ));
    }
    a.iter_mut().for_each(|queue| queue.tx.flush());
    let mut total = 0;
    for (queue, end) in b.iter_mut().enumerate() {
        let mut last = [None; 2];
        for (frame, _) in drain(&mut end.rx) {
            assert_eq!(usize::from(frame[0]) % 3, queue);
            assert!(last[usize::from(frame[2])] < Some(frame[1]), "order is kept per sender");
            last[usize::from(frame[2])] = Some(frame[1]);
            total += 1;
        }
    }
    assert_eq!(total, 200);
    // And back.
    assert!(send(&mut b[2].tx, &[1], TxMeta::default()));
    b[2].tx.flush();
    assert_eq!(drain(&mut a[1].rx).len(), 1);
}

#[test]
fn a_steered_partial_checksum_is_completed_before_it_is_copied() {
    let config =
        LinkConfig { queues: 2, tx_checksum: true, steer: [None, Some(Arc::new(|_| 1))], ..LinkConfig::default() };
    let (mut a, mut b) = link(config);
    let whole = udp(A, B, b"hello");
    let mut frame = whole.clone();
    let partial = make_partial(&mut frame, Medium::Ip);
    assert!(send(&mut a[0].tx, &frame, TxMeta { checksum_partial: Some(partial), ..TxMeta::default() }));
    a[0].tx.flush();
    assert_eq!(drain(&mut b[1].rx)[0].0, whole);
}

#[test]
fn one_busy_sender_does_not_keep_the_others_out() {
    let (mut a, mut b) = link(LinkConfig { queues: 3, steer: [None, Some(Arc::new(|_| 0))], ..LinkConfig::default() });
    for (number, queue) in a.iter_mut().enumerate() {
        for _ in 0..100 {
            assert!(send(&mut queue.tx, &[number as u8], TxMeta::default()));
        }
        queue.tx.flush();
    }
    let count = b[0].rx.poll(64);
    assert_eq!(count, 64);
    for queue in 0..3 {
        let share = (0..count).filter(|i| usize::from(b[0].rx.frame(*i).bytes[0]) == queue).count();
        assert!((21..=22).contains(&share), "{queue} has {share}");
    }
    b[0].rx.release();
    assert_eq!(drain(&mut b[0].rx).len(), 300 - 64);
}

/// What its own core sent is at hand, and what the others sent on its way meanwhile.
#[test]
fn what_the_nearest_sender_sent_comes_first() {
    let (mut a, mut b) = link(LinkConfig { queues: 3, steer: [None, Some(Arc::new(|_| 1))], ..LinkConfig::default() });
    for round in 0..4u8 {
        for (number, queue) in a.iter_mut().enumerate() {
            assert!(send(&mut queue.tx, &[number as u8, round, 0], TxMeta::default()));
            assert!(send(&mut queue.tx, &[number as u8, round, 1], TxMeta::default()));
            queue.tx.flush();
        }
        let count = b[1].rx.poll(64);
        let order: Vec<u8> = (0..count).map(|i| b[1].rx.frame(i).bytes[0]).collect();
        assert_eq!(order, [1, 1, 2, 2, 0, 0]);
        // In any order, though nobody needs it.
        for (i, wanted) in [(5, [0, round, 1]), (0, [1, round, 0]), (3, [2, round, 1]), (2, [2, round, 0])] {
            assert_eq!(b[1].rx.frame(i).bytes, wanted);
        }
        b[1].rx.release();
    }
}

#[test]
#[should_panic = "frame 2 was asked for and 2 are lent"]
fn what_several_senders_did_not_send_is_not_read() {
    let (mut a, mut b) = link(LinkConfig { queues: 2, steer: [None, Some(Arc::new(|_| 0))], ..LinkConfig::default() });
    for queue in &mut a {
        assert!(send(&mut queue.tx, &[7], TxMeta::default()));
        queue.tx.flush();
    }
    assert_eq!(b[0].rx.poll(64), 2);
    b[0].rx.frame(2);
}

#[test]
fn without_steering_frames_stay_on_their_queue() {
    let (mut a, mut b) = link(LinkConfig { queues: 2, ..LinkConfig::default() });
    assert!(send(&mut a[1].tx, b"x", TxMeta::default()));
    a[1].tx.flush();
    assert_eq!(b[0].rx.poll(64), 0);
    assert_eq!(b[1].rx.poll(64), 1);
}

#[test]
fn nothing_is_lost_to_one_full_queue_among_many() {
    let config = LinkConfig { queues: 2, ring_bytes: 8192, steer: [None, by_first_byte()], ..LinkConfig::default() };
    let (mut a, mut b) = link(config);
    while send(&mut a[0].tx, &[0; 1000], TxMeta::default()) {}
    // The frame might have gone to the empty ring, but who can know.
    assert!(a[0].tx.reserve(1000).is_none());
    a[0].tx.flush();
    drain(&mut b[0].rx);
    assert!(send(&mut a[0].tx, &[1; 1000], TxMeta::default()));
    assert_eq!(a[0].tx.dropped(), 0);
}

#[test]
fn a_frame_whose_flow_is_said_goes_there_unseen_and_waits_for_that_ring_alone() {
    // A flow is a number here, and its frames begin with what that is modulo 4.
    let config = LinkConfig {
        queues: 2,
        ring_bytes: 8192,
        steer: [None, by_first_byte()],
        steer_flow: [None, Some(Arc::new(|flow| Some(flow.downcast_ref::<usize>()? % 4)))],
        ..LinkConfig::default()
    };
    let (mut a, mut b) = link(config);
    let mut send_for = |flow: usize, len: usize| {
        let Some(into) = a[0].tx.reserve_for(len, &flow) else { return false };
        into.fill((flow % 4) as u8);
        a[0].tx.commit(len, TxMeta::default());
        true
    };
    for flow in 0..8 {
        assert!(send_for(flow, 100));
    }
    while send_for(0, 1000) {}
    assert!(send_for(1, 1000), "the other ring has room, and it is known that this frame goes there");
    assert!(a[0].tx.reserve(1000).is_none(), "and of this one it is not");
    a[0].tx.flush();
    for (queue, end) in b.iter_mut().enumerate() {
        let frames = drain(&mut end.rx);
        assert!(frames.len() >= 4);
        assert!(frames.iter().all(|(frame, _)| usize::from(frame[0]) % 2 == queue));
    }
    // What was said of one frame is not taken for the next.
    a[0].tx.reserve_for(10, &1usize).expect("there is room");
    assert!(send(&mut a[0].tx, &[0; 10], TxMeta::default()));
    // And what is no flow to the link has it look at the frame.
    a[0].tx.reserve_for(10, &"a name").expect("there is room").fill(0);
    a[0].tx.commit(10, TxMeta::default());
    a[0].tx.flush();
    assert_eq!((drain(&mut b[0].rx).len(), drain(&mut b[1].rx).len()), (2, 0));
}

#[test]
fn the_interrupt_names_the_queue_once_per_flush() {
    let calls: Arc<[AtomicUsize; 2]> = Arc::default();
    let seen = calls.clone();
    let wake: Wake = Arc::new(move |queue| {
        seen[queue].fetch_add(1, Ordering::Relaxed);
    });
    let config =
        LinkConfig { queues: 2, wake: [None, Some(wake)], steer: [None, by_first_byte()], ..LinkConfig::default() };
    let (mut a, _b) = link(config);
    a[0].tx.flush();
    for _ in 0..5 {
        assert!(send(&mut a[0].tx, &[1], TxMeta::default()));
    }
    a[0].tx.flush();
    a[0].tx.flush();
    assert_eq!([calls[0].load(Ordering::Relaxed), calls[1].load(Ordering::Relaxed)], [0, 1]);
}

#[test]
fn two_threads_lose_nothing() {
    const FRAMES: u32 = 200_000;
    let (mut a, mut b) = one(LinkConfig { ring_bytes: 1 << 14, ..LinkConfig::default() });
    let sender = std::thread::spawn(move || {
        let mut next = 0u32;
        while next < FRAMES {
            let len = 4 + (next % 300) as usize;
            match a.tx.reserve(len) {
                Some(into) => {
                    into.fill(next as u8);
                    into[..4].copy_from_slice(&next.to_le_bytes());
                    a.tx.commit(len, TxMeta::default());
                    next += 1;
                    if next.is_multiple_of(7) {
                        a.tx.flush();
                    }
                }
                None => {
                    a.tx.flush();
                    std::thread::yield_now();
                }
            }
        }
        a.tx.flush();
    });
    let mut expected = 0u32;
    while expected < FRAMES {
        let count = b.rx.poll(64);
        for i in 0..count {
            let bytes = b.rx.frame(i).bytes;
            assert_eq!(bytes[..4], expected.to_le_bytes());
            assert_eq!(bytes.len(), 4 + (expected % 300) as usize);
            assert!(bytes[4..].iter().all(|byte| *byte == expected as u8));
            expected += 1;
        }
        b.rx.release();
        if count == 0 {
            std::thread::yield_now();
        }
    }
    sender.join().unwrap();
}

#[test]
fn a_boxed_queue_is_a_queue() {
    let (mut a, mut b) = link(LinkConfig::default());
    let (mut a, mut b) = (a.remove(0).boxed(), b.remove(0).boxed());
    assert!(send(&mut a.tx, b"x", TxMeta::default()));
    a.tx.flush();
    assert_eq!(drain(&mut b.rx).len(), 1);
    assert!(b.rx.readiness().is_none());
    assert_eq!(a.tx.capabilities().frame_max(), 1500);
}

/// A frame of no flow, where nothing looks at frames: it stays on its number, whatever flow was sent before.
#[test]
fn what_nothing_steers_does_not_follow_the_last_flow() {
    let steer_flow: SteerFlow = Arc::new(|flow| flow.downcast_ref::<usize>().copied());
    let (mut a, mut b) = link(LinkConfig { queues: 2, steer_flow: [None, Some(steer_flow)], ..LinkConfig::default() });
    a[0].tx.reserve_for(4, &1usize).expect("room").copy_from_slice(b"flow");
    a[0].tx.commit(4, TxMeta::default());
    assert!(send(&mut a[0].tx, b"none", TxMeta::default()));
    a[0].tx.flush();
    let came = b.iter_mut().map(|queue| drain(&mut queue.rx).into_iter().map(|(frame, _)| frame).collect::<Vec<_>>());
    assert_eq!(came.collect::<Vec<_>>(), [[b"none".to_vec()], [b"flow".to_vec()]]);
}
