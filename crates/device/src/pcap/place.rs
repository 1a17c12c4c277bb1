//! Owns where a capture goes: a file, of which whatever goes wrong with it says the name.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file of a capture.
#[derive(Debug)]
pub(super) struct Place {
    file: File,
    path: PathBuf,
}

impl Place {
    /// Replaces the file if it exists. Whoever asks for this names it, if it cannot be done.
    pub(super) fn create(path: &Path) -> io::Result<Place> {
        Ok(Place { file: File::create(path)?, path: path.to_owned() })
    }

    /// What goes wrong later is told by somebody who knows of a capture only that there is one.
    fn named(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }
}

impl Write for Place {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| self.named(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|error| self.named(error))
    }
}
