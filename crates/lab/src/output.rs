//! Owns what is said to whoever has asked: results on stdout, remarks on stderr. Somebody who reads no more (`| head`) is no failure.

use crate::bench::failure::Failure;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

/// Results.
pub fn show(text: Arguments<'_>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Machine(format!("the output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// A remark. Where nobody reads it, it is not made.
pub fn remark(text: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "laneway-lab: {text}");
}
