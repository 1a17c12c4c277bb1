//! `t0`: one lock across everything, as FreeBSD's `INP_WLOCK` is.
//!
//! `tcp_usr_send` holds the connection's lock while it copies the text in, decides what to send, builds the packets and
//! gives them to the driver; the thread that receives wants the same lock for each batch of acknowledgements, and then
//! sends under it whatever they have made room for.

use super::Variant;
use super::sender::Stack;
use super::sink::Answers;
use laneway_proto::time::Instant;
use laneway_stack::worker::Turn;
use laneway_sync::bucket_lock::Lock;
use laneway_sync::site;
use std::sync::atomic::{AtomicU64, Ordering};

/// The connection and its lock.
pub struct T0 {
    /// A bare lock, as `t1` has: one that remembers would be held for longer.
    stack: Lock<(Stack, bool)>,
    /// How often the lock went to the other thread: each time, its line and the connection's go from core to core.
    handovers: AtomicU64,
}

impl T0 {
    /// Around a stack.
    pub fn new(stack: Stack) -> T0 {
        T0 { stack: Lock::new("connection", (stack, false)), handovers: AtomicU64::new(0) }
    }

    fn hand_over(&self, last: &mut bool, is_sender: bool) {
        if *last != is_sender {
            *last = is_sender;
            self.handovers.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Variant for T0 {
    fn send(&self, bytes: usize, now: &dyn Fn() -> Instant) -> (usize, u64) {
        let began = std::time::Instant::now();
        let mut guard = self.stack.lock(site!("send: copy, output, device"));
        let waited = began.elapsed().as_nanos() as u64;
        let (stack, last) = &mut *guard;
        self.hand_over(last, /* is_sender= */ true);
        (stack.send(bytes, now()), waited)
    }

    fn input(&self, answers: &mut Answers, now: &dyn Fn() -> Instant) -> Option<Turn> {
        let mut guard = self.stack.lock(site!("input: acknowledgements, output, device"));
        let (stack, last) = &mut *guard;
        self.hand_over(last, /* is_sender= */ false);
        Some(stack.input(answers, now()))
    }

    fn handovers(&self) -> u64 {
        self.handovers.load(Ordering::Relaxed)
    }
}
