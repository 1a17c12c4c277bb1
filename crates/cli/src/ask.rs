//! Owns which running stack a command asks, and how it fails when there is none.

use crate::failure::Failure;
use crate::plain::Plain;
use laneway::control::{self, Ask, AskError, Client, FindError, Hello};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::PathBuf;

/// Which running stack.
#[derive(clap::Args, Clone, Debug)]
pub struct Which {
    /// The stack of this name: that of its TUN interface [default: the only one that is running]
    #[arg(long, value_name = "NAME", conflicts_with = "control")]
    pub name: Option<String>,
    /// The stack whose control socket is here.
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

impl Which {
    /// Where its control socket is.
    pub fn path(&self) -> Result<PathBuf, Failure> {
        match &self.control {
            Some(path) => Ok(path.clone()),
            None => Ok(control::find(self.name.as_deref())?),
        }
    }

    /// Connects to it.
    pub fn connect(&self) -> Result<Client, Failure> {
        Ok(Client::connect(self.path()?)?)
    }
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Self {
        Failure::Misuse(error.to_string())
    }
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        match error {
            AskError::NoStack(_) | AskError::Denied(_) => Failure::Misuse(error.to_string()),
            AskError::Stuck(_) | AskError::Refused(_) | AskError::Broken(_) => Failure::Failed(error.to_string()),
        }
    }
}

/// Who answers.
pub fn hello(client: &mut Client) -> Result<Hello, Failure> {
    let rows = client.ask::<Hello>(&Ask::Hello {})?.collect::<Result<Vec<_>, _>>()?;
    rows.into_iter().next().ok_or_else(|| Failure::Failed("the stack does not say who it is".into()))
}

/// Standard output, written in large pieces, and [`Plain`]. Somebody who reads no more (`| head`) is no failure: then this ends the
/// program, quietly.
pub struct Out {
    to: io::BufWriter<io::Stdout>,
    text: String,
}

impl Out {
    /// Begins.
    pub fn new() -> Self {
        Out { to: io::BufWriter::with_capacity(1 << 16, io::stdout()), text: String::new() }
    }

    /// Writes a line.
    pub fn line(&mut self, line: impl std::fmt::Display) -> Result<(), Failure> {
        self.all(format_args!("{line}\n"))
    }

    /// Writes what it is given.
    pub fn all(&mut self, what: std::fmt::Arguments<'_>) -> Result<(), Failure> {
        self.text.clear();
        // A string takes anything; what does not give itself as text is left out.
        let _ = Plain(&mut self.text).write_fmt(what);
        self.to.write_all(self.text.as_bytes()).or_else(gone)
    }

    /// Hands everything over.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.to.flush().or_else(gone)
    }
}

/// What comes of output that could not be written.
pub fn gone(error: io::Error) -> Result<(), Failure> {
    if error.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    Err(Failure::Failed(format!("the output cannot be written: {error}")))
}
