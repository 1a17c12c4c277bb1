//! Owns what all threads of a stack know of each other: who has failed, and that the others end then.

use super::control_thread::Command;
use super::{Bells, Tell};
use crate::clock::Clock;
use crate::steering::Steering;
use laneway_device::Medium;
use laneway_sync::doorbell::Doorbell;
use laneway_sync::fork::Birth;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// What all threads of a stack know of each other.
pub(super) struct Shared {
    pub(super) born: Birth,
    pub(super) bells: Bells,
    /// `None` once nobody takes them any more.
    pub(super) commands: Mutex<Option<VecDeque<Command>>>,
    pub(super) control_bell: Doorbell,
    /// Lanes shall end.
    pub(super) stop: AtomicBool,
    /// Lanes that have not ended.
    pub(super) running: AtomicUsize,
    pub(super) failure: Mutex<Option<String>>,
    pub(super) on_failure: Option<Tell>,
    /// The thread that calls `on_failure`.
    pub(super) telling: Mutex<Option<JoinHandle<()>>>,
    pub(super) clock: Clock,
    pub(super) medium: Medium,
    /// Which flow is in which bucket; who owns that, the control plane knows.
    pub(super) steering: Option<Steering>,
    /// Traces that are running.
    pub(super) traces: Arc<AtomicUsize>,
}

impl Shared {
    pub(super) fn lock_commands(&self) -> MutexGuard<'_, Option<VecDeque<Command>>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the control thread. If it has ended, the command is dropped, and whoever waits for an answer learns it by that.
    pub(super) fn say(&self, command: Command) {
        if !self.born.is_here() {
            return; // a child has no control thread, and nobody has ended it there
        }
        if let Some(commands) = &mut *self.lock_commands() {
            commands.push_back(command);
        }
        self.control_bell.ring();
    }

    pub(super) fn begin_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.bells.ring_all();
        self.control_bell.ring();
    }

    pub(super) fn panicked(&self, who: &str, panic: &(dyn std::any::Any + Send)) {
        let what = panic.downcast_ref::<&str>().copied();
        let what = what.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        self.fail(who, what.unwrap_or("no message"));
    }

    pub(super) fn fail(&self, who: &str, what: &str) {
        let sentence = format!("{who} failed, and the stack stops: {what}");
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let first = failure.is_none();
        failure.get_or_insert_with(|| sentence.clone());
        drop(failure);
        if first {
            tracing::error!("{sentence}");
        }
        self.begin_stop();
        if first && let Some(tell) = &self.on_failure {
            self.tell(Arc::clone(tell), sentence);
        }
    }

    /// On a thread that nobody but [`Runtime::stop`] waits for: whoever is told may ask the lanes, and wait for them to end.
    fn tell(&self, tell: Tell, sentence: String) {
        let here = (Arc::clone(&tell), sentence.clone());
        let told = move |(tell, sentence): (Tell, String)| _ = catch_unwind(AssertUnwindSafe(|| tell(&sentence)));
        match thread::Builder::new().name("failure".into()).spawn(move || told((tell, sentence))) {
            Ok(telling) => *self.telling.lock().unwrap_or_else(PoisonError::into_inner) = Some(telling),
            Err(_) => told(here),
        }
    }

    /// Waits until it has been told, unless the caller is who is told.
    pub(super) fn await_told(&self) {
        let telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(telling) = telling.filter(|telling| telling.thread().id() != thread::current().id()) {
            let _ = telling.join();
        }
    }
}
