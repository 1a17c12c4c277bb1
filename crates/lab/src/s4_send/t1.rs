//! `t1`: an owner and a backlog, as Linux's `lock_sock` and `release_sock` have it.
//!
//! Whoever works on the connection owns it. A receiving thread that finds it owned does not wait: it leaves what it has in
//! the backlog and goes; the owner, before he lets go, takes the backlog in, batch by batch, and sends once after each
//! ("tcp: defer regular ACK while processing socket backlog", 2023). A sender that finds it owned has to wait.

use super::Variant;
use super::sender::Stack;
use super::sink::Answers;
use laneway_proto::time::Instant;
use laneway_stack::worker::Turn;
use laneway_sync::Padded;
use laneway_sync::bucket_lock::Lock;
use laneway_sync::site;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Batches of the backlog that an owner takes in before he lets go all the same (a bound on how long one thread works
/// for another).
const DRAIN_MAX: usize = 16;

/// The connection, who owns it, and what waits for the owner.
pub struct T1 {
    owner: Lock<(Stack, bool)>,
    /// Held for as long as it takes to move a few pointers.
    backlog: Padded<Lock<Answers>>,
    /// Packets in the backlog.
    waiting: Padded<AtomicU64>,
    handovers: AtomicU64,
}

impl T1 {
    /// Around a stack.
    pub fn new(stack: Stack) -> T1 {
        T1 {
            owner: Lock::new("owner", (stack, false)),
            backlog: Padded(Lock::new("backlog", Answers::default())),
            waiting: Padded(AtomicU64::new(0)),
            handovers: AtomicU64::new(0),
        }
    }

    /// Takes the backlog in. Only the owner calls this.
    fn drain(&self, stack: &mut Stack, now: &dyn Fn() -> Instant) {
        let mut batch = Answers::default();
        for _ in 0..DRAIN_MAX {
            if self.waiting.load(Ordering::Acquire) == 0 {
                return;
            }
            batch.take_from(&mut self.backlog.lock(site!("owner: take the backlog")));
            self.waiting.fetch_sub(batch.len() as u64, Ordering::AcqRel);
            stack.input(&mut batch, now());
        }
    }

    fn hand_over(&self, last: &mut bool, is_sender: bool) {
        if *last != is_sender {
            *last = is_sender;
            self.handovers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What was left in the backlog just when the owner let go must not wait for the next one.
    fn settle(&self, is_sender: bool, now: &dyn Fn() -> Instant) {
        // Dekker's pattern: one lets go and looks at the backlog, the other fills the backlog and tries to own.
        fence(Ordering::SeqCst);
        while self.waiting.load(Ordering::Acquire) > 0 {
            let Some(mut guard) = self.owner.try_lock(site!("release: look again")) else { return };
            let (stack, last) = &mut *guard;
            self.hand_over(last, is_sender);
            self.drain(stack, now);
        }
    }
}

impl Variant for T1 {
    fn send(&self, bytes: usize, now: &dyn Fn() -> Instant) -> (usize, u64) {
        let began = std::time::Instant::now();
        let mut guard = self.owner.lock(site!("send: own the connection"));
        let waited = began.elapsed().as_nanos() as u64;
        let (stack, last) = &mut *guard;
        self.hand_over(last, /* is_sender= */ true);
        let taken = stack.send(bytes, now());
        self.drain(stack, now);
        drop(guard);
        self.settle(/* is_sender= */ true, now);
        (taken, waited)
    }

    fn input(&self, answers: &mut Answers, now: &dyn Fn() -> Instant) -> Option<Turn> {
        let Some(mut guard) = self.owner.try_lock(site!("input: own the connection")) else {
            let count = answers.len() as u64;
            let mut backlog = self.backlog.lock(site!("input: leave it in the backlog"));
            backlog.take_from(answers);
            self.waiting.fetch_add(count, Ordering::AcqRel);
            drop(backlog);
            self.settle(/* is_sender= */ false, now);
            return None;
        };
        let (stack, last) = &mut *guard;
        self.hand_over(last, /* is_sender= */ false);
        let turn = stack.input(answers, now());
        self.drain(stack, now);
        drop(guard);
        self.settle(/* is_sender= */ false, now);
        Some(turn)
    }

    fn handovers(&self) -> u64 {
        self.handovers.load(Ordering::Relaxed)
    }
}
