//! Owns how a thread, or a task, learns what a lane knows about its connection.

use super::TcpStream;
use crate::error::Why;
use laneway_stack::proto::tcp::Info;
use laneway_stack::threads::words::{CONNECTED, GONE};
use std::io;
use std::mem::replace;
use std::sync::atomic::Ordering::Acquire;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// What was asked, and what has come of it.
#[derive(Default)]
pub(crate) struct Inquiry {
    answer: Mutex<Answer>,
    has_come: Condvar,
}

#[derive(Default)]
enum Answer {
    #[default]
    Awaited,
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "only tasks wait so"))]
    AwaitedBy(Waker),
    Is(Info),
    None,
}

/// The lane's side: what it does not tell by the time that it lets go of this it never will.
struct Teller(Arc<Inquiry>);

impl Teller {
    fn tell(self, info: Info) {
        self.0.comes(Answer::Is(info)); // and the drop finds it there
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.0.comes(Answer::None);
    }
}

impl Inquiry {
    fn answer(&self) -> MutexGuard<'_, Answer> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn comes(&self, what: Answer) {
        let mut answer = self.answer();
        if matches!(*answer, Answer::Is(_) | Answer::None) {
            return;
        }
        let before = replace(&mut *answer, what);
        drop(answer);
        self.has_come.notify_all();
        if let Answer::AwaitedBy(task) = before {
            task.wake();
        }
    }

    /// Waits for it, for as long as there may be somebody who answers.
    fn wait(&self, may_come: impl Fn() -> bool) -> Option<Info> {
        const LOOK: Duration = Duration::from_millis(100);
        let mut answer = self.answer();
        loop {
            match *answer {
                Answer::Is(info) => return Some(info),
                Answer::None => return None,
                _ if !may_come() => return None,
                _ => answer = self.has_come.wait_timeout(answer, LOOK).unwrap_or_else(PoisonError::into_inner).0,
            }
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<Info>> {
        let mut answer = self.answer();
        match *answer {
            Answer::Is(info) => Poll::Ready(Ok(info)),
            Answer::None => Poll::Ready(Err(Why::NotConnected.into())),
            Answer::Awaited | Answer::AwaitedBy(_) => {
                *answer = Answer::AwaitedBy(cx.waker().clone());
                Poll::Pending
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
        let inquiry = self.inquire()?;
        let is_there = || self.talk().lane().status.load(Acquire) & GONE == 0 && !self.desk.is_stopped();
        inquiry.wait(|| waits() && is_there()).ok_or_else(|| Why::NotConnected.into())
    }

    pub(crate) fn inquire(&self) -> io::Result<Arc<Inquiry>> {
        self.check()?;
        loop {
            if self.talk().lane().status.load(Acquire) & (CONNECTED | GONE) != CONNECTED {
                return Err(Why::NotConnected.into());
            }
            let inquiry = Arc::<Inquiry>::default();
            let teller = Teller(inquiry.clone());
            if self.desk.inquire(self.talk(), Box::new(|info| teller.tell(info))) {
                return Ok(inquiry);
            }
            std::thread::sleep(Duration::from_millis(1)); // the lane takes what it was asked with its next turns
        }
    }
}
