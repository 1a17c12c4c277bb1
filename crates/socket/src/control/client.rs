//! Owns the asking side.

use super::place;
use super::protocol::{Ask, Last};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::marker::PhantomData;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The longest line of an answer, in bytes: more is nonsense.
const LINE_MAX: u64 = 1 << 20;
/// How long an answer may take to go on.
const PATIENCE: Duration = Duration::from_secs(15);
/// How soon whoever found no room tries again.
const AGAIN: Duration = Duration::from_millis(10);

/// Why there is no answer. Each says in one sentence what is wrong and what to do.
#[derive(Debug)]
pub enum AskError {
    /// Nobody listens at this socket.
    NoStack(PathBuf),
    /// It belongs to somebody else.
    Denied(PathBuf),
    /// Somebody listens there, and lets in nobody.
    Stuck(PathBuf),
    /// The stack refuses, in its words.
    Refused(String),
    /// The answer broke off, or cannot be understood.
    Broken(String),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::NoStack(path) => write!(
                f,
                "no stack answers at {}: start one, or say where its control socket is with --control PATH",
                path.display()
            ),
            AskError::Denied(path) => write!(
                f,
                "the control socket {} may not be used by this user: ask as the user whose stack it is, or as root",
                path.display()
            ),
            AskError::Stuck(path) => write!(
                f,
                "the stack at {} has let nobody in for {} s, and as many wait as can: its process is stopped or hangs, so continue or end it",
                path.display(),
                PATIENCE.as_secs()
            ),
            AskError::Refused(why) => write!(f, "the stack refuses: {why}"),
            AskError::Broken(why) => write!(f, "the stack's answer broke off: {why}"),
        }
    }
}

impl std::error::Error for AskError {}

impl From<io::Error> for AskError {
    fn from(error: io::Error) -> Self {
        AskError::Broken(match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!(
                    "nothing came for {} s: its process is stopped or hangs, so continue or end it",
                    PATIENCE.as_secs()
                )
            }
            _ => error.to_string(),
        })
    }
}

/// No stack can be at a path with which this comes of connecting: there is nothing, nobody listens, or no socket of a stack's has such a
/// name. Of one that is too long the standard library says so before it asks the kernel.
fn is_nobodys(error: &io::Error) -> bool {
    let errnos = [Errno::NOENT, Errno::CONNREFUSED, Errno::NOTDIR, Errno::LOOP, Errno::NAMETOOLONG, Errno::PROTOTYPE];
    error.kind() == io::ErrorKind::InvalidInput
        || Errno::from_io_error(error).is_some_and(|errno| errnos.contains(&errno))
}

/// Connects, as soon as there is room to wait in. `WouldBlock`: there has been none for a while.
fn knock(path: &Path) -> io::Result<UnixStream> {
    let began = Instant::now();
    loop {
        match place::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && began.elapsed() < PATIENCE => sleep(AGAIN),
            done => return done,
        }
    }
}

/// A connection to a running stack's control socket.
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, AskError> {
        let path = path.as_ref();
        let stream = knock(path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => AskError::Stuck(path.to_owned()),
            io::ErrorKind::PermissionDenied => AskError::Denied(path.to_owned()),
            _ if is_nobodys(&error) => AskError::NoStack(path.to_owned()),
            _ => AskError::Broken(format!("{} cannot be connected to: {error}", path.display())),
        })?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { stream: BufReader::with_capacity(1 << 16, stream) })
    }

    /// Asks, and gives the rows of the answer one by one. Take them all before the next question.
    pub fn ask<R: DeserializeOwned>(&mut self, ask: &Ask) -> Result<Answers<'_, R>, AskError> {
        self.say(ask)?;
        Ok(Answers { client: self, line: Vec::new(), done: false, row: PhantomData })
    }

    /// Asks for packets: what follows is pcapng.
    pub fn trace(mut self, ask: &Ask) -> Result<Packets, AskError> {
        self.say(ask)?;
        let mut line = Vec::new();
        self.line(&mut line)?;
        let last: Last = serde_json::from_slice(&line).map_err(|error| AskError::Broken(error.to_string()))?;
        match last {
            Last { error: Some(why), .. } => Err(AskError::Refused(why)),
            Last { pcapng: Some(true), .. } => {
                self.stream.get_ref().set_read_timeout(None)?;
                Ok(Packets { stream: self.stream })
            }
            _ => Err(AskError::Broken("it does not begin as it should".into())),
        }
    }

    fn say(&mut self, ask: &Ask) -> Result<(), AskError> {
        // A stack that refuses everything closes before it reads; its reason is still there to be read.
        match self.stream.get_mut().write_all(ask.line().as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn line(&mut self, line: &mut Vec<u8>) -> Result<(), AskError> {
        line.clear();
        let n = self.stream.by_ref().take(LINE_MAX).read_until(b'\n', line)?;
        // Spaces only say that it was still being made.
        line.drain(..line.iter().take_while(|byte| **byte == b' ').count());
        if n == 0 || line.last() != Some(&b'\n') {
            return Err(AskError::Broken("the stack has ended, or was asked for more than it has patience for".into()));
        }
        Ok(())
    }
}

/// The rows of an answer.
pub struct Answers<'a, R> {
    client: &'a mut Client,
    line: Vec<u8>,
    done: bool,
    row: PhantomData<R>,
}

impl<R: DeserializeOwned> Iterator for Answers<'_, R> {
    type Item = Result<R, AskError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let row = self.client.line(&mut self.line).and_then(|()| {
            let broken = |error: serde_json::Error| AskError::Broken(error.to_string());
            if Last::is(&self.line) {
                let last: Last = serde_json::from_slice(&self.line).map_err(broken)?;
                return match last.error {
                    Some(why) => Err(AskError::Refused(why)),
                    None => Ok(None),
                };
            }
            serde_json::from_slice(&self.line).map(Some).map_err(broken)
        });
        match row {
            Ok(Some(row)) => Some(Ok(row)),
            Ok(None) => {
                self.done = true;
                None
            }
            Err(error) => {
                self.done = true;
                Some(Err(error))
            }
        }
    }
}

/// Packets of a running stack, as pcapng.
#[derive(Debug)]
pub struct Packets {
    stream: BufReader<UnixStream>,
}

impl Packets {
    /// Asks the stack to finish: what it has seen so far still comes, then the end. Can be called from another thread on a
    /// [`handle`](Self::handle).
    pub fn finish(&self) -> io::Result<()> {
        self.stream.get_ref().shutdown(Shutdown::Write)
    }

    /// Another handle of the same connection, for whoever will end it: shut its sending side down.
    pub fn handle(&self) -> io::Result<UnixStream> {
        self.stream.get_ref().try_clone()
    }
}

impl Read for Packets {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}
