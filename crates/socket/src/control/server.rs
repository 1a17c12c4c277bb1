//! Owns the socket itself, and who may talk: a thread that accepts, and one for each client.
//!
//! Neither a lane nor the control thread ever waits for a client, because only the client's own thread does. What a client
//! can cost is bounded: so many at a time, so long a question, so much time to ask it and to take the answer.

use super::answer::{self, Cut};
use super::place::{ControlSocket, Tenant, tenant};
use super::protocol::{Ask, Last, QUESTION_MAX};
use laneway_stack::runtime::Asker;
use laneway_stack::threads::fork::Birth;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, fs};

/// Clients at a time.
pub(super) const CLIENTS_MAX: usize = 16;
/// How long a client may take to ask its first question, and to take what it is given …
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// … and how long it may think between two questions.
const IDLE: Duration = Duration::from_secs(60);

/// How long it is waited for another stack that is making its socket in the same place, which takes a moment.
const TURN: Duration = Duration::from_secs(2);

/// What a stack says of itself.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) device: String,
    pub(crate) sharing: &'static str,
    pub(crate) began: Instant,
}

/// Why there is no control socket. Each says in one sentence what is wrong and what to do.
#[derive(Debug)]
pub enum OpenError {
    /// A stack answers there already.
    Live(PathBuf),
    /// Another stack is about to make one there, and does not come to an end with it.
    Starting(PathBuf),
    /// There is something that is no socket.
    Occupied(PathBuf),
    /// There is a socket of another kind, which somebody has open.
    Stranger(PathBuf),
    /// The directory is not ours alone.
    Unsafe(PathBuf),
    /// There is something else where the directory would be.
    NoDirectory(PathBuf),
    /// There is no such place, or the name cannot be.
    Nowhere(String),
    /// The system refuses.
    System(PathBuf, io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Live(path) => {
                write!(
                    f,
                    "another stack answers at the control socket {}: end it, or choose another place",
                    path.display()
                )
            }
            OpenError::Starting(path) => write!(
                f,
                "another stack has been starting at the control socket {} for {} s: end it, or choose another place",
                path.display(),
                TURN.as_secs()
            ),
            OpenError::Occupied(path) => write!(
                f,
                "{} is there already and is no socket: remove it, or choose another place for the control socket",
                path.display()
            ),
            OpenError::Stranger(path) => write!(
                f,
                "the socket {} is another program's and of another kind: end that program, or choose another place for the control socket",
                path.display()
            ),
            OpenError::Unsafe(path) => write!(
                f,
                "the directory {} belongs to another user or can be written by others: make it yours alone with `chmod 700`, or choose another place for the control socket",
                path.display()
            ),
            OpenError::NoDirectory(path) => write!(
                f,
                "{} is there already and is no directory: remove it, or choose another place for the control socket",
                path.display()
            ),
            OpenError::Nowhere(what) => f.write_str(what),
            OpenError::System(path, error) => {
                write!(f, "the control socket {} cannot be made: {error}; choose another place", path.display())
            }
        }
    }
}

impl std::error::Error for OpenError {}

/// A control socket at which nobody is answered yet: the place is ours before there is a stack. Dropping it removes the file.
pub(crate) struct Claimed {
    path: PathBuf,
    /// Device and inode of the file, so that another stack's is not removed: as long as we listen, nobody else's has them.
    identity: Option<(u64, u64)>,
    listener: UnixListener,
    /// A child has the listener, too, and the place is not its own.
    born: Birth,
}

impl Claimed {
    pub(crate) fn at(place: &ControlSocket) -> Result<Self, OpenError> {
        let path = place.path().map_err(OpenError::Nowhere)?;
        if let (ControlSocket::Named(_), Some(directory)) = (place, path.parent()) {
            private_directory(directory)?;
        }
        let listener = bind(&path)?;
        let identity = fs::symlink_metadata(&path).ok().map(|file| (file.dev(), file.ino()));
        Ok(Claimed { path, identity, listener, born: Birth::here() })
    }

    fn leave(&self) {
        if !self.born.is_here() {
            return;
        }
        let now = fs::symlink_metadata(&self.path).ok().map(|file| (file.dev(), file.ino()));
        if now.is_some() && now == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The control socket of a running stack. Dropping it cuts every client off and removes the file.
pub(crate) struct ControlServer {
    place: Claimed,
    /// Closing it wakes the thread up for its end.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    pub(crate) fn open(place: Claimed, asker: Asker, about: About) -> Result<Self, OpenError> {
        let failed = |error| OpenError::System(place.path.clone(), error);
        place.listener.set_nonblocking(true).map_err(failed)?;
        let listener = place.listener.try_clone().map_err(failed)?;
        let (wake, woken) = UnixStream::pair().map_err(failed)?;
        let crowd = Crowd { asker, about: Arc::new(about), clients: Vec::new() };
        let thread = thread::Builder::new().name("control-socket".into());
        let thread = thread.spawn(move || crowd.welcome(&listener, &woken)).map_err(failed)?;
        tracing::info!(path = %place.path.display(), "the control socket is open");
        Ok(ControlServer { place, wake: Some(wake), thread: Some(thread) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.place.path
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.place.leave(); // first: whoever comes while clients are cut off finds no stack
        drop(self.wake.take());
        match self.thread.take() {
            Some(thread) if self.place.born.is_here() => _ = thread.join(),
            others => std::mem::forget(others), // and waiting for it would be for ever
        }
    }
}

/// Makes the directory, or checks that nobody else can put things into it.
fn private_directory(directory: &Path) -> Result<(), OpenError> {
    let failed = |error| OpenError::System(directory.to_owned(), error);
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    let found = fs::symlink_metadata(directory).map_err(failed)?;
    if !found.is_dir() {
        return Err(OpenError::NoDirectory(directory.to_owned()));
    }
    let ours = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
    if ours { Ok(()) } else { Err(OpenError::Unsafe(directory.to_owned())) }
}

/// A listening socket at `path` that only its owner can connect to, in the place of one that nobody listens to any more.
fn bind(path: &Path) -> Result<UnixListener, OpenError> {
    // To look who is there and to take the place is not one step: of two stacks that did both at once, each would find nobody.
    let _turn = Turn::take(path)?;
    match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => return Err(OpenError::Occupied(path.to_owned())),
        Ok(_) => match tenant(path) {
            Tenant::Gone => {}
            Tenant::Live => return Err(OpenError::Live(path.to_owned())),
            Tenant::Stranger => return Err(OpenError::Stranger(path.to_owned())),
            Tenant::Unknown(error) => return Err(OpenError::System(path.to_owned(), error)),
        },
        Err(_) => {}
    }
    // Made under another name and moved into place when its mode is right: nobody can connect in between, and a stale
    // file is replaced in one step.
    let making = beside(path, ".new");
    let failed = |error| OpenError::System(path.to_owned(), error);
    match fs::symlink_metadata(&making) {
        Ok(file) if !file.file_type().is_socket() => return Err(OpenError::Occupied(making)),
        Ok(_) => fs::remove_file(&making).map_err(failed)?, // of one who has died at this point
        Err(_) => {}
    }
    let listener = UnixListener::bind(&making).map_err(failed)?;
    let moved =
        fs::set_permissions(&making, fs::Permissions::from_mode(0o600)).and_then(|()| fs::rename(&making, path));
    moved.map_err(|error| {
        let _ = fs::remove_file(&making);
        failed(error)
    })?;
    Ok(listener)
}

/// The same path with something behind it.
fn beside(path: &Path, what: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(what);
    PathBuf::from(beside)
}

/// Whose turn it is to make a socket at a path: a lock on a file beside it, which goes with its holder, and is no lock any more if
/// that dies.
struct Turn {
    path: PathBuf,
    _held: fs::File,
}

impl Turn {
    fn take(place: &Path) -> Result<Self, OpenError> {
        let path = beside(place, ".lock");
        let failed = |error| OpenError::System(place.to_owned(), error);
        // Where others can write too, it may be a link of theirs, or a pipe that nobody reads.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let began = Instant::now();
        loop {
            let mut file = fs::OpenOptions::new();
            let file = file.write(true).create(true).mode(0o600).custom_flags(flags).open(&path).map_err(failed)?;
            let found = file.metadata().map_err(failed)?;
            if !found.is_file() || found.len() > 0 {
                return Err(OpenError::Occupied(path)); // ours are empty, and what is no stack's is left alone
            }
            match file.try_lock() {
                // Whoever had it before may have removed it since we opened it, and what others find there now is another.
                Ok(()) if is_at(&found, &path) => return Ok(Turn { path, _held: file }),
                Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
                _ if began.elapsed() >= TURN => return Err(OpenError::Starting(place.to_owned())),
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Before the lock is given back: whoever has it next has another file.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether this is the file that has this name.
fn is_at(file: &fs::Metadata, path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (file.dev(), file.ino()))
}

/// Everybody who is being answered.
struct Crowd {
    asker: Asker,
    about: Arc<About>,
    clients: Vec<(UnixStream, JoinHandle<()>)>,
}

impl Crowd {
    fn welcome(mut self, listener: &UnixListener, woken: &UnixStream) {
        loop {
            let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
            let _ = poll(&mut fds, None); // interrupted: the next call finds out
            if !fds[1].revents().is_empty() {
                break;
            }
            self.clients.retain(|(_, thread)| !thread.is_finished());
            match listener.accept() {
                Ok((stream, _)) => self.admit(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Out of descriptors, most likely: whoever waits goes on waiting.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
        for (stream, _) in &self.clients {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        for (_, thread) in self.clients {
            let _ = thread.join();
        }
    }

    fn admit(&mut self, stream: UnixStream) {
        let refuse = |stream: UnixStream, why: String| {
            // One short line into an empty buffer: it is there or the client is not.
            let _ = stream.set_nonblocking(true);
            let _ = answer::last(&stream, &Last::error(why));
        };
        let peer = rustix::net::sockopt::socket_peercred(&stream).map(|peer| peer.uid);
        if !peer.is_ok_and(|uid| uid.is_root() || uid == rustix::process::geteuid()) {
            return refuse(stream, "only the owner of this stack and root may ask it".into());
        }
        if self.clients.len() >= CLIENTS_MAX {
            return refuse(stream, format!("{CLIENTS_MAX} clients are being answered already: try again"));
        }
        let Ok(held) = stream.try_clone() else { return };
        let (asker, about) = (self.asker.clone(), Arc::clone(&self.about));
        let client = thread::Builder::new().name("control-client".into());
        // Without a thread the client finds the connection closed.
        if let Ok(thread) = client.spawn(move || serve(&stream, &asker, &about)) {
            self.clients.push((held, thread));
        }
    }
}

/// Answers one client until it goes, or has to.
fn serve(stream: &UnixStream, asker: &Asker, about: &About) {
    let mut waiting = Vec::new();
    let mut patience = PATIENCE;
    loop {
        let outcome = match question(stream, &mut waiting, patience) {
            Ok(Some(line)) => match Ask::parse(&line) {
                Ok(ask) => answer::answer(stream, asker, about, &ask),
                Err(why) => Err(Cut::Said(why)),
            },
            Ok(None) => break,
            Err(cut) => Err(cut),
        };
        match outcome {
            Ok(()) => patience = IDLE,
            Err(Cut::Said(why)) => {
                let _ = answer::last(stream, &Last::error(why));
                break;
            }
            Err(Cut::Gone) => break,
        }
    }
    // The stack holds another descriptor of it until it accepts the next client.
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

/// Reads one line, of which the beginning may be waiting already. `None`: the client has gone.
fn question(mut stream: &UnixStream, waiting: &mut Vec<u8>, patience: Duration) -> Result<Option<Vec<u8>>, Cut> {
    let until = Instant::now() + patience;
    loop {
        if let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
            let rest = waiting.split_off(end + 1);
            waiting.pop();
            return Ok(Some(std::mem::replace(waiting, rest)));
        }
        if waiting.len() >= QUESTION_MAX {
            return Err(Cut::Said(format!("a question has at most {QUESTION_MAX} bytes")));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Cut::Said(format!("no question came within {} s", patience.as_secs())));
        }
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1)))).map_err(|_| Cut::Gone)?;
        let mut some = [0; 1_024];
        let room = (QUESTION_MAX - waiting.len()).min(some.len());
        match stream.read(&mut some[..room]) {
            Ok(0) if waiting.is_empty() => return Ok(None),
            Ok(0) => return Err(Cut::Said("the question ends without a newline".into())),
            Ok(n) => waiting.extend_from_slice(&some[..n]),
            Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(Cut::Gone),
        }
    }
}

pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::sync::Barrier;

    #[test]
    fn a_directory_is_ours_alone_or_is_refused() {
        let place = std::env::temp_dir().join(format!("laneway-private-{}", std::process::id()));
        fs::create_dir(&place).expect("a directory");
        let made = place.join("made");
        assert!(private_directory(&made).is_ok(), "it is made where there is none");
        let mode = |path: &Path| fs::metadata(path).map(|found| found.mode() & 0o777).expect("it is there");
        assert_eq!(mode(&made), 0o700);
        for (bits, is_safe) in [(0o755, true), (0o700, true), (0o720, false), (0o702, false), (0o777, false)] {
            fs::set_permissions(&made, fs::Permissions::from_mode(bits)).expect("it is ours");
            match private_directory(&made) {
                Ok(()) => assert!(is_safe, "{bits:o}"),
                Err(why) => assert!(!is_safe && matches!(why, OpenError::Unsafe(_)), "{bits:o}: {why}"),
            }
        }
        fs::write(place.join("file"), "").expect("a file");
        symlink(&made, place.join("link")).expect("a link");
        for other in ["file", "link"] {
            let refused = private_directory(&place.join(other));
            assert!(matches!(refused, Err(OpenError::NoDirectory(_))), "{other}");
        }
        fs::remove_dir_all(&place).expect("it is ours");
    }

    /// Beside what a dead stack has left, and where there is nothing: one gets the place and keeps it, the others hear that it has.
    #[test]
    fn of_many_that_begin_at_once_one_gets_the_place() {
        const MANY: usize = 8;
        let place = std::env::temp_dir().join(format!("laneway-at-once-{}", std::process::id()));
        fs::create_dir(&place).expect("a directory");
        let path = place.join("x.sock");
        for round in 0..200 {
            // The one before is dead now, and its file lies there; every other time it does not.
            if round % 2 == 0 {
                let _ = fs::remove_file(&path);
            }
            let begin = Barrier::new(MANY);
            let outcomes: Vec<_> = thread::scope(|scope| {
                let start = || {
                    begin.wait();
                    bind(&path)
                };
                let all: Vec<_> = (0..MANY).map(|_| scope.spawn(start)).collect();
                all.into_iter().map(|one| one.join().expect("it ends")).collect()
            });
            let won: Vec<_> = outcomes.iter().flatten().collect();
            assert_eq!(won.len(), 1, "round {round}: {outcomes:?}");
            let lost = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
            lost.for_each(|why| assert!(matches!(why, OpenError::Live(_)), "round {round}: {why}"));
            UnixStream::connect(&path).expect("somebody listens");
            won[0].accept().expect("it is the one who was told so");
            let left = fs::read_dir(&place).expect("a directory").map(|entry| entry.expect("an entry").file_name());
            assert_eq!(left.collect::<Vec<_>>(), ["x.sock"], "round {round}");
        }
        fs::remove_dir_all(&place).expect("it is ours");
    }

    /// One that was killed in the middle leaves two files, and is in nobody's way; one that stands still is.
    #[test]
    fn who_dies_in_its_turn_is_in_nobodys_way() {
        let place = std::env::temp_dir().join(format!("laneway-in-turn-{}", std::process::id()));
        fs::create_dir(&place).expect("a directory");
        let path = place.join("x.sock");
        fs::write(beside(&path, ".lock"), "").expect("a file");
        drop(UnixListener::bind(beside(&path, ".new")).expect("a socket"));
        let turn = Turn::take(&path).expect("nobody has it");
        let stuck = bind(&path).expect_err("it is somebody's turn");
        assert!(matches!(stuck, OpenError::Starting(_)), "{stuck}");
        drop(turn);
        let _listener = bind(&path).expect("nobody has it");
        let left = fs::read_dir(&place).expect("a directory").map(|entry| entry.expect("an entry").file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["x.sock"]);
        fs::remove_dir_all(&place).expect("it is ours");
    }
}
