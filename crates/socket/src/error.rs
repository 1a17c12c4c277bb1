//! Owns what a caller is told: the table from what a lane, or a socket, finds to the error that the kernel would give.

use laneway_stack::Error;
use laneway_stack::threads::reach::Unreachable;
use laneway_stack::threads::words::Fault;
use rustix::io::Errno;
use std::io;

/// The errors of sockets, by what has happened: the table is in the documentation of the crate, where users find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    Fault(Fault),
    WouldBlock,
    BrokenPipe,
    NotConnected,
    NoPeer,
    TooLong,
    Stopped,
    Forked,
    Invalid,
    Family,
    Broadcast,
    Unsupported,
    NoOption,
    NoSuch,
}

impl From<Why> for io::Error {
    fn from(why: Why) -> io::Error {
        let errno = match why {
            Why::Fault(Fault::Refused) => Errno::CONNREFUSED,
            Why::Fault(Fault::Reset) => Errno::CONNRESET,
            Why::Fault(Fault::BrokenPipe) | Why::BrokenPipe => Errno::PIPE,
            Why::Fault(Fault::TimedOut) => Errno::TIMEDOUT,
            Why::Fault(Fault::NetworkUnreachable) => Errno::NETUNREACH,
            Why::Fault(Fault::HostUnreachable) => Errno::HOSTUNREACH,
            Why::Fault(Fault::Prohibited) => Errno::ACCESS,
            Why::Fault(Fault::AddressNotAvailable) => Errno::ADDRNOTAVAIL,
            Why::Fault(Fault::AddressInUse) => Errno::ADDRINUSE,
            Why::Fault(Fault::Invalid) | Why::Invalid => Errno::INVAL,
            Why::Fault(Fault::Stopped) | Why::Stopped => Errno::NETDOWN,
            Why::WouldBlock => Errno::AGAIN,
            Why::NotConnected => Errno::NOTCONN,
            Why::NoPeer => Errno::DESTADDRREQ,
            Why::TooLong => Errno::MSGSIZE,
            Why::Forked => Errno::BADF,
            Why::Family => Errno::AFNOSUPPORT,
            Why::Broadcast => Errno::ACCESS,
            Why::Unsupported => Errno::OPNOTSUPP,
            Why::NoOption => Errno::NOPROTOOPT,
            Why::NoSuch => Errno::NOENT,
        };
        errno.into()
    }
}

impl From<Fault> for Why {
    fn from(fault: Fault) -> Why {
        Why::Fault(fault)
    }
}

impl From<Unreachable> for Why {
    fn from(why: Unreachable) -> Why {
        match why {
            Unreachable::NoRoute => Why::Fault(Fault::NetworkUnreachable),
            Unreachable::Broadcast => Why::Broadcast,
            Unreachable::Multicast => Why::Unsupported,
        }
    }
}

/// What the control plane refuses.
pub(crate) fn refused(error: Error) -> io::Error {
    error.errno().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn kinds_are_the_kernels() {
        for (why, kind) in [
            (Why::Fault(Fault::Refused), ErrorKind::ConnectionRefused),
            (Why::Fault(Fault::Reset), ErrorKind::ConnectionReset),
            (Why::BrokenPipe, ErrorKind::BrokenPipe),
            (Why::Fault(Fault::TimedOut), ErrorKind::TimedOut),
            (Why::Fault(Fault::NetworkUnreachable), ErrorKind::NetworkUnreachable),
            (Why::Fault(Fault::HostUnreachable), ErrorKind::HostUnreachable),
            (Why::Fault(Fault::Prohibited), ErrorKind::PermissionDenied),
            (Why::WouldBlock, ErrorKind::WouldBlock),
            (Why::NotConnected, ErrorKind::NotConnected),
            (Why::Stopped, ErrorKind::NetworkDown),
            (Why::Invalid, ErrorKind::InvalidInput),
            (Why::Broadcast, ErrorKind::PermissionDenied),
            (Why::Unsupported, ErrorKind::Unsupported),
        ] {
            assert_eq!(io::Error::from(why).kind(), kind, "{why:?}");
        }
        assert_eq!(io::Error::from(Why::Forked).raw_os_error(), Some(9));
    }

    #[test]
    fn a_refusal_is_the_same_on_a_lane_and_on_a_socket() {
        let (at, ip) = ("10.0.0.1:80".parse().expect("an address"), "10.0.0.1".parse().expect("an address"));
        for (error, kind) in [
            (Error::AddressInUse(at), ErrorKind::AddrInUse),
            (Error::AddressNotAvailable(ip), ErrorKind::AddrNotAvailable),
            (Error::NetworkUnreachable(ip), ErrorKind::NetworkUnreachable),
            (Error::LaneExhausted(at), ErrorKind::AddrNotAvailable),
            (Error::PortsExhausted(at), ErrorKind::AddrNotAvailable),
            (Error::FlowInUse(at, at), ErrorKind::AddrNotAvailable),
            (Error::OtherLane(1), ErrorKind::AddrNotAvailable),
            (Error::Invalid(String::new()), ErrorKind::InvalidInput),
            (Error::Closed, ErrorKind::NetworkDown),
        ] {
            let on_lane = io::Error::from(error.errno()).kind();
            assert_eq!((on_lane, refused(error.clone()).kind()), (kind, kind), "{error:?}");
        }
    }
}
