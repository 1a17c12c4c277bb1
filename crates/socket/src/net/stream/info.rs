//! Owns how a thread, or a task, learns what a lane knows about its connection.

use super::TcpStream;
use crate::error::Why;
use crate::net::Poller;
use laneway_stack::proto::tcp::Info;
use laneway_stack::threads::words::{CONNECTED, Event, GONE};
use std::io;
use std::sync::atomic::Ordering::Acquire;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// What was asked, and what has come of it. Without a lock, which the lane would wait for.
pub(crate) struct Inquiry {
    /// `None`: there is nothing to tell.
    answer: OnceLock<Option<Info>>,
    /// Who waits for it: a thread, …
    has_come: Event,
    /// … or a task, whose runtime waits for this one. The lane calls no waker: it would be lost with one that panics, and the stack with it.
    poller: Option<Arc<Poller>>,
}

/// The lane's side: what it does not tell by the time that it lets go of this it never will.
struct Teller(Arc<Inquiry>);

impl Teller {
    fn tell(self, info: Info) {
        self.0.comes(Some(info)); // and the drop finds it there
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.0.comes(None);
    }
}

impl Inquiry {
    fn comes(&self, answer: Option<Info>) {
        if self.answer.set(answer).is_ok() {
            self.has_come.wake();
            self.poller.iter().for_each(|poller| poller.notify());
        }
    }

    /// What has come of it, if something has.
    #[cfg(feature = "tokio")]
    pub(crate) fn answer(&self) -> Option<io::Result<Info>> {
        self.answer.get().map(|answer| answer.ok_or_else(|| Why::NotConnected.into()))
    }

    /// Waits for it, for as long as there may be somebody who answers.
    fn wait(&self, may_come: impl Fn() -> bool) -> Option<Info> {
        const LOOK: Duration = Duration::from_millis(100);
        loop {
            let seen = self.has_come.now();
            match self.answer.get() {
                Some(answer) => return *answer,
                None if !may_come() => return None,
                None => self.has_come.sleep(seen, Some(LOOK)),
            }
        }
    }
}

impl TcpStream {
    /// `TCP_INFO`: what its lane knows about the connection now, as `laneway ss` shows it. It takes as long as a turn of the lane.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = laneway::Device::memory_pair(1)?;
    /// # let server = laneway::Stack::builder(here).address("10.0.0.1/24")?.start()?;
    /// # let client = laneway::Stack::builder(there).address("10.0.0.2/24")?.start()?;
    /// # let listener = laneway::TcpListener::bind_on(&server, "10.0.0.1:80")?;
    /// let stream = laneway::TcpStream::connect_on(&client, "10.0.0.1:80")?;
    /// let info = stream.info()?;
    /// println!("{} bytes may be under way, a round trip takes {:?} us", info.cwnd, info.srtt_us);
    /// assert_eq!(info.congestion, "cubic");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ENOTCONN` if it is not connected yet, or over.
    pub fn info(&self) -> io::Result<Info> {
        self.info_while(|| true)
    }

    /// The same, and `ENOTCONN` if the lane has not answered by then.
    pub(super) fn info_until(&self, until: Instant) -> io::Result<Info> {
        self.info_while(|| Instant::now() < until)
    }

    fn info_while(&self, waits: impl Fn() -> bool) -> io::Result<Info> {
        let inquiry = self.inquire(None)?;
        let is_there = || self.talk().lane().status.load(Acquire) & GONE == 0 && !self.desk.is_stopped();
        inquiry.wait(|| waits() && is_there()).ok_or_else(|| Why::NotConnected.into())
    }

    /// Asks. `poller` is [notified](Poller::notify) when the answer has come.
    pub(crate) fn inquire(&self, poller: Option<Arc<Poller>>) -> io::Result<Arc<Inquiry>> {
        self.check()?;
        loop {
            if self.talk().lane().status.load(Acquire) & (CONNECTED | GONE) != CONNECTED {
                return Err(Why::NotConnected.into());
            }
            let (answer, has_come) = (OnceLock::new(), Event::default());
            let inquiry = Arc::new(Inquiry { answer, has_come, poller: poller.clone() });
            let teller = Teller(inquiry.clone());
            if self.desk.inquire(self.talk(), Box::new(|info| teller.tell(info))) {
                return Ok(inquiry);
            }
            std::thread::sleep(Duration::from_millis(1)); // the lane takes what it was asked with its next turns
        }
    }
}
