//! Owns what can go wrong with a benchmark, by whose fault it is.

use laneway_stack::counters::Counters;
use std::fmt;
use std::process::ExitCode;

/// Why there is no result.
#[derive(Debug)]
pub enum Failure {
    /// The command asks for something that makes no sense; the sentence says what would.
    Misuse(String),
    /// The machine did not let us.
    Machine(String),
    /// The work came to a halt: a bug.
    Stuck(String),
    /// There is a result, and it is worse than what was promised.
    Missed(String),
}

impl Failure {
    /// The work came to a halt; what was counted may say why.
    pub fn stuck(counters: &Counters) -> Self {
        Failure::Stuck(format!("no progress; counted so far: {:?}", counters.iter().collect::<Vec<_>>()))
    }

    /// 2 for what the caller can put right, 1 for what he cannot.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Misuse(_) => ExitCode::from(2),
            Failure::Machine(_) | Failure::Stuck(_) | Failure::Missed(_) => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Misuse(text) | Failure::Machine(text) | Failure::Stuck(text) | Failure::Missed(text) => {
                f.write_str(text)
            }
        }
    }
}

impl From<laneway_stack::error::Error> for Failure {
    fn from(error: laneway_stack::error::Error) -> Self {
        Failure::Misuse(error.to_string())
    }
}
