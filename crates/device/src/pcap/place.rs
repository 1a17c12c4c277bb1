//! Owns where a capture goes: a file, of which whatever goes wrong with it says the name; or a pipe, whose reader is waited for, and not for ever.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// So long the reader of a pipe may take nothing, or be away before the first frame. Who writes is a lane, and all its connections wait with it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The file of a capture.
#[derive(Debug)]
pub(super) struct Place {
    file: File,
    path: PathBuf,
    patience: Duration,
}

impl Place {
    /// Replaces the file if it exists. Whoever asks for this names it, if it cannot be done.
    pub(super) fn create(path: &Path) -> io::Result<Place> {
        let is_pipe = fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
        let file = if is_pipe { open_pipe(path)? } else { File::create(path)? };
        Ok(Place { file, path: path.to_owned(), patience: PATIENCE })
    }

    /// What goes wrong later is told by somebody who knows of a capture only that there is one.
    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }

    /// Until there is room for something.
    fn wait(&mut self) -> io::Result<()> {
        let mut entry = libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one entry is announced, and one is there; its descriptor is open as long as we have the file.
        match unsafe { libc::poll(&raw mut entry, 1, self.patience.as_millis() as i32) } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // What is left of a buffer is tried once more with the last handle: then nobody is waited for.
                self.patience = Duration::ZERO;
                Err(io::Error::new(ErrorKind::TimedOut, format!("nobody has read from it for {PATIENCE:?}")))
            }
            _ => Ok(()),
        }
    }
}

/// Nothing that is written to it later waits, as nothing here waits without an end: who has to be stopped could not be.
fn open_pipe(path: &Path) -> io::Result<File> {
    let began = Instant::now();
    loop {
        match OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path) {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                if began.elapsed() > PATIENCE {
                    return Err(io::Error::new(ErrorKind::TimedOut, "nobody reads from this pipe"));
                }
                sleep(Duration::from_millis(20));
            }
            opened => return opened,
        }
    }
}

impl Write for Place {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait().map_err(|error| self.named(&error))?
                }
                done => return done.map_err(|error| self.named(&error)),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|error| self.named(&error))
    }
}
