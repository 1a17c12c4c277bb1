//! Owns how a command fails: a sentence for a person, and a code for a script.

use crate::plain::Plain;
use laneway::on_lane::StartError;
use std::fmt::{self, Write as _};
use std::io::Write as _;

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub enum Failure {
    /// It cannot be done as asked: misuse, a missing privilege, a name that is taken. Exit code 2.
    Misuse(String),
    /// It was begun and went wrong. Exit code 1.
    Failed(String),
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Misuse(_) => 2,
            Failure::Failed(_) => 1,
        }
    }
}

/// Says this on stderr, in one piece though others speak. Where nobody reads, it is not said, and that is no reason to fall.
pub fn say(what: fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_all(format!("{what}\n").as_bytes());
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Misuse(what) | Failure::Failed(what) => Plain(f).write_str(what),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::System(_) => Failure::Failed(error.to_string()),
            _ => Failure::Misuse(error.to_string()),
        }
    }
}

impl From<laneway::on_lane::Error> for Failure {
    fn from(error: laneway::on_lane::Error) -> Self {
        Failure::Misuse(error.to_string())
    }
}
