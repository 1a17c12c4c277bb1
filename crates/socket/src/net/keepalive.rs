//! Owns what a socket is told of keepalive, as `socket2` has it.

use crate::error::Why;
use laneway_stack::proto::tcp::KeepaliveTimes;
use std::io;
use std::time::Duration;

/// When a connection asks a peer that is silent whether it is there, and how long. With the names of `socket2::TcpKeepalive`: what is not said stays as it is, which is as the stack's
/// configuration has it until something else was said.
///
/// ```
/// use laneway::{TcpKeepalive, TcpStream};
/// use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (here, there) = laneway::Device::memory_pair(1)?;
/// # let server = laneway::Stack::builder(here).address("10.0.0.1/24")?.start()?;
/// # let client = laneway::Stack::builder(there).address("10.0.0.2/24")?.start()?;
/// # let listener = laneway::TcpListener::bind_on(&server, "10.0.0.1:80")?;
/// let stream = TcpStream::connect_on(&client, "10.0.0.1:80")?;
/// let minute = TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(10));
/// stream.set_tcp_keepalive(&minute.with_retries(3))?;
///
/// assert!(stream.keepalive()?);
/// assert_eq!(stream.tcp_keepalive_time()?, Duration::from_secs(60));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TcpKeepalive {
    time: Option<Duration>,
    interval: Option<Duration>,
    retries: Option<u32>,
}

impl TcpKeepalive {
    /// Nothing of it is said.
    pub const fn new() -> Self {
        TcpKeepalive { time: None, interval: None, retries: None }
    }

    /// `TCP_KEEPIDLE`: silence before the first probe, in whole seconds, 1 to 32,767.
    #[must_use]
    pub const fn with_time(self, time: Duration) -> Self {
        TcpKeepalive { time: Some(time), ..self }
    }

    /// `TCP_KEEPINTVL`: time between probes, in whole seconds, 1 to 32,767.
    #[must_use]
    pub const fn with_interval(self, interval: Duration) -> Self {
        TcpKeepalive { interval: Some(interval), ..self }
    }

    /// `TCP_KEEPCNT`: probes that nothing answers before the connection is given up, 1 to 127.
    #[must_use]
    pub const fn with_retries(self, retries: u32) -> Self {
        TcpKeepalive { retries: Some(retries), ..self }
    }

    /// This, and where it says nothing that.
    pub(super) fn or(&self, that: TcpKeepalive) -> TcpKeepalive {
        TcpKeepalive {
            time: self.time.or(that.time),
            interval: self.interval.or(that.interval),
            retries: self.retries.or(that.retries),
        }
    }

    /// As a lane takes it.
    pub(super) fn times(&self) -> io::Result<KeepaliveTimes> {
        let within = |says: Option<u64>, max: u64| match says {
            None => Ok(0),
            Some(says) if (1..=max).contains(&says) => Ok(says as u16),
            Some(_) => Err(io::Error::from(Why::Invalid)),
        };
        let seconds = |says: Option<Duration>| says.map(|says| says.as_secs());
        Ok(KeepaliveTimes {
            idle_s: within(seconds(self.time), KeepaliveTimes::IDLE_MAX_S.into())?,
            interval_s: within(seconds(self.interval), KeepaliveTimes::INTERVAL_MAX_S.into())?,
            probes: within(self.retries.map(u64::from), KeepaliveTimes::PROBES_MAX.into())? as u8,
        })
    }
}
