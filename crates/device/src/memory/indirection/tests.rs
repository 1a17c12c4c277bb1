//! A sender follows the table when the reader has read, and not before.

use super::*;
use crate::memory::{LinkConfig, LinkQueue, link};
use crate::{Rx, Tx, TxMeta};

/// Two queues at the first end; the second end sends frames whose first byte is their bucket.
fn two_queues(senders: usize) -> (Arc<Indirection>, Vec<LinkQueue>, Vec<LinkQueue>) {
    let table = Indirection::new(&[0; BUCKETS], senders);
    let steer: super::super::Steer = Arc::new(|frame: &[u8]| usize::from(frame[0]));
    let (first, second) = link(LinkConfig {
        queues: 2,
        second_queues: Some(senders),
        steer: [Some(steer), None],
        tables: [Some(table.clone()), None],
        ..LinkConfig::default()
    });
    (table, first, second)
}

fn send(tx: &mut impl Tx, bucket: u8, number: u8) {
    tx.reserve(2).expect("room").copy_from_slice(&[bucket, number]);
    tx.commit(2, TxMeta::default());
}

/// The numbers of the frames that wait, up to `max`.
fn read(rx: &mut impl Rx, max: usize) -> Vec<u8> {
    let n = rx.poll(max);
    let numbers = (0..n).map(|i| rx.frame(i).bytes[1]).collect();
    rx.release();
    numbers
}

fn only(bucket: usize, queue: u8) -> [u8; BUCKETS] {
    std::array::from_fn(|b| if b == bucket { queue } else { 0 })
}

#[test]
fn a_bucket_is_switched_when_its_last_frame_has_been_read() {
    let (table, mut ours, mut theirs) = two_queues(1);
    let tx = &mut theirs[0].tx;
    send(tx, 5, 1);
    send(tx, 6, 2);
    tx.flush();
    table.set(&only(5, 1));
    tx.flush();
    assert!(!table.has_switched(5) && table.has_switched(6));
    send(tx, 5, 3); // the first is still unread: this one follows it
    tx.flush();
    assert_eq!(read(&mut ours[1].rx, 64), []);
    assert_eq!(read(&mut ours[0].rx, 2), [1, 2]);
    tx.flush();
    assert!(!table.has_switched(5), "one of its frames is unread");
    send(tx, 6, 4); // of another bucket: it does not matter
    assert_eq!(read(&mut ours[0].rx, 64), [3]);
    tx.flush();
    assert!(table.has_switched(5), "all of its frames are read, though not all of the queue");
    assert_eq!(read(&mut ours[0].rx, 64), [4]);
    send(tx, 5, 5);
    tx.flush();
    assert_eq!((read(&mut ours[0].rx, 64), read(&mut ours[1].rx, 64)), (vec![], vec![5]));
}

#[test]
fn a_flow_that_always_has_a_frame_to_send_is_switched_between_two() {
    let (table, mut ours, mut theirs) = two_queues(1);
    let tx = &mut theirs[0].tx;
    send(tx, 5, 1);
    tx.flush();
    table.set(&only(5, 1));
    send(tx, 5, 2);
    tx.flush();
    assert_eq!(read(&mut ours[0].rx, 64), [1, 2]);
    // Nothing is on the way when it is sent, though something is again when it is flushed.
    send(tx, 5, 3);
    tx.flush();
    assert_eq!((read(&mut ours[0].rx, 64), read(&mut ours[1].rx, 64)), (vec![], vec![3]));
    assert!(table.has_switched(5));
}

#[test]
fn every_sender_has_to_follow_and_one_that_is_gone_has() {
    let (table, mut ours, mut theirs) = two_queues(3);
    send(&mut theirs[2].tx, 7, 1);
    theirs.iter_mut().for_each(|queue| queue.tx.flush());
    table.set(&only(7, 1));
    theirs.truncate(2); // what it has sent is still there to be read
    theirs[0].tx.flush();
    assert!(!table.has_switched(7), "the second sender has not looked yet");
    theirs[1].tx.flush();
    assert!(table.has_switched(7));
    assert_eq!(read(&mut ours[0].rx, 64), [1]);
}

#[test]
fn a_move_that_is_taken_back_is_none() {
    let (table, mut ours, mut theirs) = two_queues(1);
    let tx = &mut theirs[0].tx;
    send(tx, 9, 1);
    tx.flush();
    table.set(&only(9, 1));
    tx.flush();
    table.set(&[0; BUCKETS]);
    assert!(table.has_switched(9));
    assert_eq!(read(&mut ours[0].rx, 64), [1]);
    tx.flush();
    send(tx, 9, 2);
    tx.flush();
    assert_eq!((read(&mut ours[0].rx, 64), read(&mut ours[1].rx, 64)), (vec![2], vec![]));
}
