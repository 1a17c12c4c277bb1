//! Owns the words of a story: what can be called on whom.

use crate::world::{Duration, Family, Shutdown};
use laneway::{Interest, Mode};
use std::fmt;

/// What is told in both worlds.
#[derive(Clone)]
pub struct Story {
    pub family: Family,
    /// Ours has so many.
    pub lanes: usize,
    /// Small writes may wait for an ACK, and so what settles takes longer than one is put off.
    pub nagle: bool,
    /// Several calls of one end are not told apart by the other.
    pub hasty: bool,
    /// Sockets wait a little, until they are told not to.
    pub waits: bool,
    pub calls: Vec<Call>,
}

/// One call, or what belongs together.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    Listen,
    /// All handles of the listener are dropped.
    Unlisten,
    ListenerReady,
    Accept,
    /// Connects the first end of a pair, unless it has one.
    Connect(usize),
    /// The same, and does not wait.
    Begin(usize),
    /// The same, to where nobody listens.
    BeginRefused(usize),
    ConnectRefused,
    WatchListener(Mode),
    /// For all that are watched.
    Wait,
    Tcp(Who, Act),
    Udp(usize, UdpAct),
}

/// A handle of one end of a pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Who {
    pub pair: usize,
    /// 0 has connected, 1 was accepted.
    pub end: usize,
    /// 1: the clone.
    pub handle: usize,
}

impl fmt::Debug for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", ["a", "b"][self.end], self.pair, ["", "'"][self.handle])
    }
}

/// What is done with a stream.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Write(usize),
    WritePieces(usize, usize),
    Read(usize),
    ReadPieces(usize, usize),
    /// By a thread that waits for what comes.
    ReadLater(usize),
    Peek(usize),
    Shutdown(Shutdown),
    Drop,
    Clone,
    Nodelay(bool),
    Nonblocking(bool),
    Linger(Option<Duration>),
    Keepalive(bool),
    UserTimeout(u32),
    ReadTimeout(Option<Duration>),
    Ttl(u32),
    TakeError,
    Peer,
    Local,
    Ready,
    Watch(Interest, Mode),
    Unwatch,
}

/// What is done with a UDP socket.
#[derive(Clone, Copy, Debug)]
pub enum UdpAct {
    Send(usize),
    SendTo(usize, Whom),
    Connect(Whom),
    Recv(usize),
    RecvFrom(usize),
    /// By a thread that waits for what comes.
    RecvLater(usize),
    Peek(usize),
    PeekFrom(usize),
    Broadcast(bool),
    Nonblocking(bool),
    ReadTimeout(Option<Duration>),
    Clone,
    Drop,
    TakeError,
    Peer,
    Local,
    Ready,
    Watch(Interest, Mode),
    Unwatch,
}

/// To whom a datagram goes.
#[derive(Clone, Copy, Debug)]
pub enum Whom {
    /// One of the two sockets of the other host.
    Socket(usize),
    /// Nobody is there.
    Closed,
    PortZero,
    Everybody,
    WrongFamily,
}

impl fmt::Debug for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Story { family, lanes, nagle, hasty, waits, calls } = self;
        writeln!(f, "over {family:?}, lanes: {lanes}, nagle: {nagle}, hasty: {hasty}, waits: {waits}")?;
        calls.iter().try_for_each(|call| writeln!(f, "    {call:?}"))
    }
}
