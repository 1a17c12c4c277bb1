//! Owns why a stack does not start.

use super::Error;
use crate::control::OpenError;
use laneway_stack::device::tun::TunError;
use std::path::PathBuf;

/// Why a stack does not start. Each says in one sentence what is wrong and what to do, under [`Debug`](std::fmt::Debug) too: a `main`
/// that returns it prints that.
pub enum StartError {
    /// The settings do not fit together.
    Misuse(String),
    /// The stack refuses an address or a listener.
    Refused(Error),
    /// The TUN interface cannot be had.
    Tun(TunError),
    /// The capture file cannot be written.
    Capture(PathBuf, std::io::Error),
    /// The control socket cannot be opened.
    Control(OpenError),
    /// The system gives no thread or descriptor.
    System(std::io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Misuse(what) => f.write_str(what),
            StartError::Refused(error) => error.fmt(f),
            StartError::Tun(error) => error.fmt(f),
            StartError::Capture(path, error) => {
                write!(f, "the capture file {} cannot be written: {error}; choose another place", path.display())
            }
            StartError::Control(error) => error.fmt(f),
            StartError::System(error) => {
                write!(f, "the system refuses a thread or descriptor: {error}; look at `ulimit -u` and `ulimit -n`")
            }
        }
    }
}

impl std::fmt::Debug for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for StartError {}

impl From<Error> for StartError {
    fn from(error: Error) -> Self {
        StartError::Refused(error)
    }
}

impl From<std::io::Error> for StartError {
    fn from(error: std::io::Error) -> Self {
        StartError::System(error)
    }
}

impl From<TunError> for StartError {
    fn from(error: TunError) -> Self {
        StartError::Tun(error)
    }
}
