//! Owns where control sockets lie, and which one is meant.

use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Root's directory of control sockets.
const OF_ROOT: &str = "/run/laneway";

/// Where a stack's control socket shall be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlSocket {
    /// Under this name in the usual [`directory`], which is made if need be; `NAME.sock` there.
    Named(String),
    /// Exactly here; the directory must exist.
    At(PathBuf),
}

/// The directory of control sockets: `/run/laneway` for root, `$XDG_RUNTIME_DIR/laneway` for everybody else, and what
/// `LANEWAY_RUNTIME_DIR` says for whoever sets it. `None`: there is no place to look in.
pub fn directory() -> Option<PathBuf> {
    let from = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = from("LANEWAY_RUNTIME_DIR") {
        return Some(directory);
    }
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from(OF_ROOT));
    }
    from("XDG_RUNTIME_DIR").map(|directory| directory.join("laneway"))
}

impl ControlSocket {
    /// The path. The error is a sentence.
    pub fn path(&self) -> Result<PathBuf, String> {
        match self {
            ControlSocket::At(path) if path.as_os_str().is_empty() => {
                Err("a control socket needs a path: say where it shall be".into())
            }
            ControlSocket::At(path) => Ok(path.clone()),
            ControlSocket::Named(name) => {
                if name.is_empty() || name.starts_with('.') || name.contains('/') {
                    return Err(format!(
                        "'{name}' cannot be the name of a control socket: choose one without a slash that does not begin with a dot"
                    ));
                }
                let directory = directory().ok_or(
                    "there is no usual place for a control socket, because XDG_RUNTIME_DIR is not set: set it, or say where the socket shall be",
                )?;
                Ok(directory.join(format!("{name}.sock")))
            }
        }
    }
}

/// Why no stack can be asked. Each says in one sentence what is wrong and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FindError {
    /// None is running that we could ask.
    None(String),
    /// Several are, of these names.
    Several(Vec<String>),
    /// We may not look.
    Denied(PathBuf),
}

impl fmt::Display for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FindError::None(why) => f.write_str(why),
            FindError::Several(names) => {
                write!(
                    f,
                    "{} stacks are running: say which one you mean with --name: {}",
                    names.len(),
                    names.join(", ")
                )
            }
            FindError::Denied(path) => write!(
                f,
                "{} may not be looked at by this user: ask as the user whose stack it is, or as root",
                path.display()
            ),
        }
    }
}

impl std::error::Error for FindError {}

/// The socket of the stack that is meant: the one of this name, or the only one that answers.
///
/// ```no_run
/// use laneway::control::{Ask, Client, Hello, find};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let path = find(None)?; // or find(Some("lw0")): the name of its interface
/// let mut client = Client::connect(path)?;
/// for hello in client.ask::<Hello>(&Ask::Hello {})? {
///     println!("{:?}", hello?);
/// }
/// # Ok(())
/// # }
/// ```
pub fn find(name: Option<&str>) -> Result<PathBuf, FindError> {
    let directory = match name {
        Some(name) => return ControlSocket::Named(name.to_owned()).path().map_err(FindError::None),
        None => directory(),
    };
    let Some(directory) = directory else {
        return Err(FindError::None(
            "there is no usual place to look for a running stack, because XDG_RUNTIME_DIR is not set: say where its control socket is with --control PATH".into(),
        ));
    };
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Err(FindError::Denied(directory)),
        Err(_) => return Err(none(&directory)),
    };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
        .filter(|path| matches!(tenant(path), Tenant::Live))
        .collect();
    found.sort();
    match found.len() {
        0 => Err(none(&directory)),
        1 => Ok(found.remove(0)),
        _ => {
            let name = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Err(FindError::Several(found.iter().map(name).collect()))
        }
    }
}

fn none(directory: &Path) -> FindError {
    let is_root = rustix::process::geteuid().is_root();
    let also = match std::fs::symlink_metadata(OF_ROOT) {
        Ok(_) if directory != Path::new(OF_ROOT) => elsewhere(is_root),
        _ => "",
    };
    FindError::None(format!(
        "no stack is running that can be asked: none has a control socket in {}{also}; start one, for example with `laneway serve`",
        directory.display()
    ))
}

/// Where else than in the directory that was looked in a stack of root's may be.
fn elsewhere(is_root: bool) -> &'static str {
    match is_root {
        true => "; /run/laneway was not looked in, because LANEWAY_RUNTIME_DIR is set",
        false => "; root may have one running: ask as root",
    }
}

/// Who is behind a socket's path.
#[derive(Debug)]
pub(super) enum Tenant {
    /// Somebody listens there.
    Live,
    /// Nobody any more.
    Gone,
    /// It is a socket of another kind, and somebody's: no stack ever made it.
    Stranger,
    /// That cannot be found out.
    Unknown(io::Error),
}

/// Who is behind the socket at `path`.
pub(super) fn tenant(path: &Path) -> Tenant {
    of(connect(path).map(drop))
}

/// Connects to whoever listens at `path`. `WouldBlock`: so many wait to be let in that there is no room for more. Nobody waits for that here: a
/// process that was stopped lets in nobody, and the kernel would wait for ever.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    ioctl_fionbio(&socket, false)?;
    Ok(socket.into())
}

/// Only a refusal says that nobody is there: everything else is somebody's, and is left alone.
fn of(connected: io::Result<()>) -> Tenant {
    let Err(error) = connected else { return Tenant::Live };
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Tenant::Gone,
        // A queue that is full is one that somebody has.
        io::ErrorKind::WouldBlock => Tenant::Live,
        _ if Errno::from_io_error(&error) == Some(Errno::PROTOTYPE) => Tenant::Stranger,
        _ => Tenant::Unknown(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_sent_to_root() {
        assert!(elsewhere(/* is_root: */ false).contains("ask as root"));
        assert!(!elsewhere(/* is_root: */ true).contains("ask as root"));
    }

    #[test]
    fn only_who_is_refused_finds_nobody() {
        let of = |errno: Errno| super::of(Err(errno.into()));
        assert!(matches!(super::of(Ok(())), Tenant::Live));
        assert!(matches!((of(Errno::CONNREFUSED), of(Errno::NOENT)), (Tenant::Gone, Tenant::Gone)));
        assert!(matches!((of(Errno::AGAIN), of(Errno::PROTOTYPE)), (Tenant::Live, Tenant::Stranger)));
        assert!(matches!((of(Errno::ACCESS), of(Errno::MFILE)), (Tenant::Unknown(_), Tenant::Unknown(_))));
    }
}
