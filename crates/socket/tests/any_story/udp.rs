//! Owns four UDP sockets, two of the host that listens and two of the one that connects, and what is done with them.

use crate::call::{UdpAct, Whom};
use crate::sockets::{Teller, Udp};
use crate::stage::{Origin, Stage, WAIT, read, said, taken};
use crate::world::*;

/// Nobody is sent more than he has room for, however the room is counted.
const UNREAD_MAX: usize = 140_000;

/// One of the four. It is made when it is first spoken of.
pub struct Socket<S> {
    handle: Option<S>,
    /// How one reaches it, from when it was made on.
    at: Option<SocketAddr>,
    /// It has found nothing more to read when it was sent no more than this.
    unread: usize,
    /// Calls wait.
    waits: bool,
    /// A connect to all hosts of a network was refused, and no other was made since.
    astray: bool,
}

impl<S> Default for Socket<S> {
    fn default() -> Self {
        Socket { handle: None, at: None, unread: 0, waits: false, astray: false }
    }
}

/// Whose they are: the first two are the server's, and the last is bound to any address.
const ANY: usize = 3;
const fn is_server(socket: usize) -> bool {
    socket < 2
}

impl<W: Teller> Stage<'_, W> {
    pub fn udp_act(&mut self, number: usize, act: UdpAct) {
        self.settle();
        if self.udp_at(number).is_none() || self.sockets[number].handle.is_none() {
            return; // it was, and is no more
        }
        let receives = matches!(
            act,
            UdpAct::Recv(_) | UdpAct::RecvFrom(_) | UdpAct::RecvLater(_) | UdpAct::Peek(_) | UdpAct::PeekFrom(_)
        );
        if receives && self.waits(Origin::Udp(number)) {
            return; // who of them has what comes?
        }
        if let UdpAct::RecvLater(n) = act {
            let Socket { handle, waits, .. } = &self.sockets[number];
            let clone = handle.as_ref().expect("it is there").try_clone().unwrap();
            return self.recv_later(Origin::Udp(number), clone, *waits, n);
        }
        match act {
            UdpAct::Watch(..) | UdpAct::Unwatch => return self.watch_udp(number, act),
            UdpAct::Drop => self.drop_watched_udp(number),
            _ => {}
        }
        let to = match act {
            UdpAct::SendTo(_, whom) | UdpAct::Connect(whom) => self.find(number, whom),
            _ => None,
        };
        if let Some(said) = self.do_udp(number, act, to) {
            self.say(&said);
        }
    }

    fn watch_udp(&mut self, number: usize, act: UdpAct) {
        let origin = Origin::Udp(number);
        let socket = self.sockets[number].handle.as_ref().expect("it is there");
        let said = match act {
            UdpAct::Watch(interest, mode) => self.polled.watch(origin, (0, socket), interest, mode),
            _ if self.polled.is_watched_by(origin, 0) => self.polled.unwatch(origin, socket),
            _ => return,
        };
        self.has_done(origin);
        self.say(&said);
    }

    /// As [`drop_watched`](Self::drop_watched): a thread that waits has another handle.
    fn drop_watched_udp(&mut self, number: usize) {
        let origin = Origin::Udp(number);
        let socket = self.sockets[number].handle.as_ref().expect("it is there");
        if self.polled.is_watched_by(origin, 0) && self.waits(origin) {
            self.polled.unwatch(origin, socket);
        }
        self.polled.has_gone(origin);
    }

    /// Where a socket is, which is made if it never was.
    fn udp_at(&mut self, number: usize) -> Option<SocketAddr> {
        if self.sockets[number].at.is_none() {
            let socket = match number {
                ANY => self.world.udp_any(),
                number if is_server(number) => self.world.udp_server(),
                _ => self.world.udp_client(),
            };
            socket.set_nonblocking(!self.story.waits).unwrap();
            socket.set_read_timeout(Some(WAIT)).unwrap();
            let mut at = socket.local_addr().unwrap();
            if number == ANY {
                at.set_ip(self.source());
            }
            self.sockets[number] =
                Socket { handle: Some(socket), at: Some(at), unread: 0, waits: self.story.waits, astray: false };
        }
        self.sockets[number].at
    }

    /// What a socket that is bound to any address sends from.
    fn source(&self) -> IpAddr {
        let socket = self.world.udp_any();
        socket.connect(self.world.closed()).unwrap();
        socket.local_addr().unwrap().ip()
    }

    fn find(&mut self, number: usize, whom: Whom) -> Option<SocketAddr> {
        let closed = self.world.closed();
        let theirs = if is_server(number) { self.world.client() } else { self.world.server() };
        Some(match whom {
            Whom::Socket(one) => return self.udp_at(if is_server(number) { 2 + one } else { one }),
            Whom::Closed => (theirs, closed.port()).into(),
            // All ports of one address; the kernel's client has two.
            Whom::PortZero if is_server(number) => return None,
            Whom::PortZero => (theirs, 0).into(),
            Whom::Everybody => (self.world.everybody(), closed.port()).into(),
            Whom::WrongFamily => "[::1]:9".parse().unwrap(),
        })
    }

    fn whose(&self, at: SocketAddr) -> Option<usize> {
        self.sockets.iter().position(|socket| socket.at == Some(at))
    }

    /// There is room for `n` bytes more, whoever they are for.
    fn has_room(&mut self, n: usize) -> bool {
        let fits = |socket: &Socket<W::Udp>| socket.unread + 2 * n + 2_000 <= UNREAD_MAX;
        let all = self.sockets.iter().all(fits);
        if all {
            self.sockets.iter_mut().for_each(|socket| socket.unread += 2 * n + 2_000);
        }
        all
    }

    fn do_udp(&mut self, number: usize, act: UdpAct, to: Option<SocketAddr>) -> Option<String> {
        if let UdpAct::Send(n) | UdpAct::SendTo(n, _) = act
            && !self.has_room(n)
        {
            return None;
        }
        // After a connect that was refused with EACCES the kernel (6.18) names the old peer, and its second `send` and those after it go to where
        // that connect was to lead. Ours go to the peer.
        if matches!(act, UdpAct::Send(_)) && self.sockets[number].astray {
            return None;
        }
        let sent = |n: usize| -> Vec<u8> { (0..n).map(|at| ((at + n) % 251) as u8).collect() };
        let socket = self.sockets[number].handle.as_ref()?;
        let from = |buf: &[u8], result: io::Result<(usize, SocketAddr)>| match result {
            Ok((n, from)) => format!("{} of {:?}", read(buf, Ok(n)), self.whose(from)),
            Err(error) => read(buf, Err(error)),
        };
        let (said, is_heard) = match act {
            UdpAct::Send(n) => (said(socket.send(&sent(n))), true),
            UdpAct::SendTo(n, _) => (said(socket.send_to(&sent(n), to?)), true),
            UdpAct::Connect(_) => {
                let result = socket.connect(to?);
                self.sockets[number].astray = match &result {
                    Ok(()) => false,
                    Err(error) => self.sockets[number].astray || error.kind() == io::ErrorKind::PermissionDenied,
                };
                (said(result), true)
            }
            UdpAct::Recv(n) | UdpAct::Peek(n) => {
                let mut buf = vec![0; n];
                let result = if matches!(act, UdpAct::Recv(_)) { socket.recv(&mut buf) } else { socket.peek(&mut buf) };
                (read(&buf, result), false)
            }
            UdpAct::RecvLater(_) => unreachable!("a thread does it"),
            UdpAct::Watch(..) | UdpAct::Unwatch => unreachable!("the poller does it"),
            UdpAct::RecvFrom(n) => {
                let mut buf = vec![0; n];
                let result = socket.recv_from(&mut buf);
                (from(&buf, result), false)
            }
            UdpAct::PeekFrom(n) => {
                let mut buf = vec![0; n];
                let result = socket.peek_from(&mut buf);
                (from(&buf, result), false)
            }
            UdpAct::Broadcast(on) => (said(socket.set_broadcast(on).and_then(|()| socket.broadcast())), false),
            UdpAct::Nonblocking(on) => {
                let result = socket.set_nonblocking(on);
                self.sockets[number].waits = !on;
                (said(result), false)
            }
            UdpAct::ReadTimeout(timeout) => {
                let result = socket.set_read_timeout(timeout).and_then(|()| socket.read_timeout());
                socket.set_read_timeout(Some(WAIT)).unwrap();
                (said(result), false)
            }
            UdpAct::Clone => (said(socket.try_clone().map(drop)), false),
            UdpAct::Drop => {
                self.sockets[number].handle = None;
                (String::new(), true)
            }
            UdpAct::TakeError => (taken(socket.take_error()), false),
            UdpAct::Peer => {
                let named = socket.peer_addr().map(|at| (self.whose(at), at.port() == self.world.closed().port()));
                (said(named), false)
            }
            UdpAct::Local => {
                let named = socket.local_addr().map(|at| (at.ip().is_unspecified(), self.whose(at)));
                (said(named), false)
            }
            UdpAct::Ready => (format!("{:?}", socket.ready()), false),
        };
        if is_heard {
            self.has_done(Origin::Udp(number));
        }
        Some(said)
    }
}
