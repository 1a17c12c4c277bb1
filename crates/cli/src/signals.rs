//! Owns what the operator says to a running command: print counters (SIGUSR1), end (SIGINT, SIGTERM).

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
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
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut ending = false;
        for signal in &mut signals {
            match signal {
                SIGUSR1 => drop(events.send(Event::Report)),
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
