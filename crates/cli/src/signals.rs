//! Owns what the operator says to a running command: print counters (SIGUSR1), end (SIGINT, SIGTERM, and SIGHUP
//! when the terminal is gone).

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::sync::mpsc::Sender;

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

/// Passes signals on. A second request to end is not waited for: the process is gone at once.
pub fn listen(events: Sender<Event>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1])?;
    // Whoever has started us with `nohup` wants us to outlive the terminal.
    if !is_ignored(SIGHUP) {
        signals.add_signal(SIGHUP)?;
    }
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut ending = false;
        for signal in &mut signals {
            match signal {
                SIGUSR1 => drop(events.send(Event::Report)),
                // The kernel and the shell both say that a terminal is gone: that is no impatience.
                SIGHUP if ending => {}
                _ if ending => std::process::exit(1),
                _ => {
                    ending = true;
                    let _ = events.send(Event::End);
                }
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
