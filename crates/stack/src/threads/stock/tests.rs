use super::*;
use crate::threads::words::{AppWords, CONNECTED, Fault, GONE, LaneWords, Talk, is_over};
use laneway_sync::ring::bytes::{BlockPool, Notes, pipe};
use laneway_wire::flow::Address;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const BEGIN: Instant = Instant::from_us(1_000_000);

fn made(pool: &Arc<BlockPool>) -> (Talk, TalkEnd) {
    pipe(pool, 65_536, Notes::default(), AppWords::default(), LaneWords::new(0))
}

fn flow(remote_port: u16) -> FlowKey {
    let [local, remote] = [1, 2].map(|host| Address::from_v4([10, 0, 0, host]));
    FlowKey { local, remote, local_port: 80, remote_port }
}

/// With so many that have ended.
fn stock(pool: &Arc<BlockPool>, ended: usize) -> Stock {
    let mut stock = Stock::default();
    for _ in 0..ended {
        stock.give(made(pool).1);
    }
    (0..10).for_each(|_| stock.settle(BEGIN));
    stock
}

#[test]
fn one_that_ended_is_handed_out_again_as_new() {
    let pool = Arc::new(BlockPool::new(1 << 20));
    let mut stock = Stock::default();
    assert!(stock.take(flow(1)).is_none());
    let (talk, mut end) = made(&pool);
    let at: *const _ = end.pipe();
    end.fill(b"read");
    assert_eq!(talk.recv(&mut [0; 8]), 4);
    talk.lane().fail(Fault::Reset);
    is_over(&talk, GONE);
    drop(talk);
    stock.give(end);
    assert!(stock.take(flow(1)).is_none(), "nobody has looked at it");
    stock.settle(BEGIN);
    let end = stock.take(flow(7)).expect("it is as new");
    let words = end.pipe().lane();
    assert_eq!((words.flow(), words.status.load(Relaxed)), (Some(&flow(7)), CONNECTED));
    assert!(!words.has_error() && end.pipe().flags().get(!0 >> 2) == 0);
    assert!(std::ptr::eq(at, end.pipe()) && end.holds(), "the same, with its block");
}

#[test]
fn one_that_somebody_holds_is_his() {
    let pool = Arc::new(BlockPool::new(1 << 20));
    let mut stock = Stock::default();
    let (talk, mut end) = made(&pool);
    end.fill(b"to be read later");
    stock.give(end);
    (0..20).for_each(|_| stock.settle(BEGIN));
    assert!(stock.take(flow(1)).is_none() && stock.ended.is_empty());
    assert_eq!(talk.recv(&mut [0; 64]), 16, "what was said is there");
    drop(talk);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn one_with_notes_or_bytes_is_not_for_others() {
    let pool = Arc::new(BlockPool::new(1 << 20));
    let mut stock = Stock::default();
    let (talk, end) = made(&pool);
    talk.said().push((0, crate::threads::words::Op::Nodelay(true)));
    drop(talk);
    stock.give(end);
    let (talk, mut end) = made(&pool);
    end.fill(b"unread");
    drop(talk);
    stock.give(end);
    stock.settle(BEGIN);
    assert!(stock.take(flow(1)).is_none() && stock.ended.is_empty());
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn it_is_bounded() {
    let pool = Arc::new(BlockPool::new(1 << 20));
    let stock = stock(&pool, 3 * STOCK_MAX);
    assert_eq!((stock.free.len(), stock.ended.len()), (STOCK_MAX, 0));
}

#[test]
fn what_is_not_needed_goes_back() {
    let pool = Arc::new(BlockPool::new(1 << 20));
    let mut idle = stock(&pool, 200);
    let mut now = BEGIN;
    for _ in 0..10 {
        assert!(idle.free.is_empty() || idle.due() <= now.after_us(PERIOD_US));
        now = now.after_us(PERIOD_US);
        idle.shrink(now);
    }
    assert_eq!((idle.free.len(), idle.due()), (0, Instant::NEVER), "after a second without work");
    // Of ten, three are in use at a time.
    let mut busy = stock(&pool, 10);
    for period in 0..20 {
        for _ in 0..50 {
            let taken: Vec<_> = (0..3).map(|_| busy.take(flow(period)).expect("there are three")).collect();
            taken.into_iter().for_each(|end| busy.give(end));
            busy.settle(now);
        }
        now = now.after_us(PERIOD_US);
        busy.shrink(now);
    }
    assert_eq!(busy.free.len(), 3);
}
