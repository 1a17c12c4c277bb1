//! Owns why a TUN or TAP interface cannot be had, in sentences that say what would help.

use super::QUEUES_MAX;
use std::{fmt, io};

/// Why a TUN device could not be had. Each says in one sentence what is wrong and what to do.
#[derive(Debug)]
pub enum TunError {
    /// `/dev/net/tun` cannot be opened.
    Node(io::Error),
    /// The configuration makes no sense.
    Config(String),
    /// The interface cannot be created or attached to.
    Attach {
        /// The name asked for.
        name: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// There is an interface of this name, and it is neither a TUN nor a TAP.
    Foreign(String),
    /// There is an interface of this name, and it was not made for this user.
    Denied(String),
    /// The interface is there, but one setting of it was refused.
    Configure {
        /// The interface.
        name: String,
        /// What was to be set, for a sentence.
        what: String,
        /// What the kernel said.
        error: io::Error,
    },
}

impl fmt::Display for TunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TunError::Node(error) => match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => f.write_str(
                    "this machine has no /dev/net/tun: load the module with `modprobe tun`, or in a container pass the device in (`--device /dev/net/tun`)",
                ),
                Some(libc::EACCES | libc::EPERM) => f.write_str("/dev/net/tun may not be opened by this user: run as root, or allow it with `chmod 666 /dev/net/tun`"),
                Some(libc::EMFILE | libc::ENFILE) => write!(
                    f,
                    "/dev/net/tun cannot be opened: {error}; each queue needs two descriptors: allow more with `ulimit -n`, or ask for fewer"
                ),
                _ => write!(f, "/dev/net/tun cannot be opened: {error}"),
            },
            TunError::Config(what) => f.write_str(what),
            TunError::Foreign(name) => write!(f, "the interface {name} is no TUN interface: choose another name"),
            TunError::Denied(name) => write!(
                f,
                "the interface {name} was not made for this user: run as the one for whom it was, or as root, or choose another name"
            ),
            TunError::Attach { name, error } => match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => {
                    let name = name.replace("%d", "0"); // one that the kernel might have chosen
                    write!(
                        f,
                        "the interface {name} may not be created without the capability CAP_NET_ADMIN: run as root, or have root make it once for you with `ip tuntap add dev {name} mode tun multi_queue user $USER`"
                    )
                }
                Some(libc::EBUSY) => write!(f, "the interface {name} is in use by another program: stop that one, or choose another name"),
                Some(libc::EINVAL) => write!(
                    f,
                    "the interface {name} exists with other properties (TUN or TAP, one queue or many): ask for one lane if it has one queue, delete it with `ip link del {name}`, or choose another name"
                ),
                Some(libc::E2BIG) => write!(f, "the interface {name} has no free queue left (at most {QUEUES_MAX}): ask for fewer"),
                _ => write!(f, "the interface {name} cannot be opened: {error}"),
            },
            TunError::Configure { name, what, error } => match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => {
                    write!(f, "{what} of the interface {name} may not be set without the capability CAP_NET_ADMIN: run as root, or have root set it before")
                }
                _ => write!(f, "{what} of the interface {name} cannot be set: {error}"),
            },
        }
    }
}

impl std::error::Error for TunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TunError::Node(error) | TunError::Attach { error, .. } | TunError::Configure { error, .. } => Some(error),
            TunError::Config(_) | TunError::Foreign(_) | TunError::Denied(_) => None,
        }
    }
}
