//! Owns what the operator says to a running command: print counters (SIGUSR1), end (SIGINT, SIGTERM, and SIGHUP
//! when the terminal is gone). And what the kernel says, and need not end it: a file is as long as it may be (SIGXFSZ).

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Requests to end that follow one another faster are one request: `timeout` sends its signal to the program and at once to the
/// program's group, and so do `sudo` and a terminal together.
const ONE_REQUEST: Duration = Duration::from_millis(300);

/// Something that a running command has to hear.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Print the counters.
    Report,
    /// End in good order.
    End,
    /// The stack has failed.
    Failed(String),
}

/// What a request to end is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Request {
    /// The first.
    First,
    /// The first once more.
    Echo,
    /// Another: somebody will not wait.
    Impatient,
}

/// Tells requests to end from each other.
#[derive(Default)]
struct Requests {
    first: Option<Instant>,
}

impl Requests {
    fn on_signal(&mut self, signal: i32, now: Instant) -> Request {
        match self.first {
            None => {
                self.first = Some(now);
                Request::First
            }
            // The kernel and the shell both say that a terminal is gone: that is no impatience.
            Some(_) if signal == SIGHUP => Request::Echo,
            Some(first) if now.saturating_duration_since(first) < ONE_REQUEST => Request::Echo,
            Some(_) => Request::Impatient,
        }
    }
}

/// A file that may grow no further (`ulimit -f`) is an error for whoever writes it. By itself the kernel's signal ends the process, and with a
/// capture all connections of a server.
pub fn outlive_limits() -> std::io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Passes signals on. A second request to end, if it is not the first once more, is not waited for: the process is gone at once.
pub fn listen(events: Sender<Event>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1])?;
    // Whoever has started us with `nohup` wants us to outlive the terminal.
    if !is_ignored(SIGHUP) {
        signals.add_signal(SIGHUP)?;
    }
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut requests = Requests::default();
        for signal in &mut signals {
            if signal == SIGUSR1 {
                drop(events.send(Event::Report));
                continue;
            }
            match requests.on_signal(signal, Instant::now()) {
                Request::First => drop(events.send(Event::End)),
                Request::Echo => {}
                Request::Impatient => std::process::exit(1),
            }
        }
    })?;
    Ok(())
}

/// Whether it was ignored when the program began, by those who started it.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_comes_twice_at_once_is_one() {
        let began = Instant::now();
        let after = |ms| began + Duration::from_millis(ms);
        let mut requests = Requests::default();
        assert_eq!(requests.on_signal(SIGTERM, after(0)), Request::First);
        assert_eq!(requests.on_signal(SIGTERM, after(1)), Request::Echo);
        assert_eq!(requests.on_signal(SIGINT, after(299)), Request::Echo);
        assert_eq!(requests.on_signal(SIGHUP, after(1_000)), Request::Echo);
        assert_eq!(requests.on_signal(SIGINT, after(1_000)), Request::Impatient);
    }
}
