//! Owns the options of a connection that few programs set: by the names that they have in `socket2`.

use super::TcpStream;
use crate::error::Why;
use crate::net::options;
use laneway_stack::proto::tcp::congestion::Algorithm;
use laneway_stack::threads::words::{CORK, DELAYS_ACKS, Op};
use std::io;
use std::sync::atomic::Ordering::Relaxed;

impl TcpStream {
    /// `IP_TOS`, of its packets from now on if they are of IPv4: the DSCP in the upper six bits of a byte. The lower two are for ECN (RFC 3168), and are not taken.
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        let tos = options::dscp(tos as u8);
        self.ask(|| self.desk.note(self.talk(), Op::Tos { v4: true, tos }))?;
        self.talk().lane().asked.tos.store(tos, Relaxed);
        Ok(())
    }

    /// `IP_TOS`.
    pub fn tos_v4(&self) -> io::Result<u32> {
        self.check()?;
        Ok(self.talk().lane().asked.tos.load(Relaxed).into())
    }

    /// `IPV6_TCLASS`: the same, if they are of IPv6.
    ///
    /// # Errors
    /// `EINVAL` if it is more than 255, `ENOPROTOOPT` for a socket of IPv4.
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        self.check()?;
        let tos = options::dscp(options::checked_tclass(self.is_v6, tclass)?);
        self.ask(|| self.desk.note(self.talk(), Op::Tos { v4: false, tos }))?;
        self.talk().lane().asked.tclass.store(tos, Relaxed);
        Ok(())
    }

    /// `IPV6_TCLASS`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a socket of IPv4.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        self.check()?;
        if !self.is_v6 {
            return Err(Why::Unsupported.into());
        }
        Ok(self.talk().lane().asked.tclass.load(Relaxed).into())
    }

    /// `SO_SNDBUF`: so many bytes at the most wait to be taken by the connection, and so many to be sent and acknowledged; between 2,304 and `tcp_wmem`. Until this is set it is
    /// as much as the path has shown that it needs.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = laneway::Device::memory_pair(1)?;
    /// # let server = laneway::Stack::builder(here).address("10.0.0.1/24")?.start()?;
    /// # let client = laneway::Stack::builder(there).address("10.0.0.2/24")?.start()?;
    /// # let listener = laneway::TcpListener::bind_on(&server, "10.0.0.1:80")?;
    /// # let stream = laneway::TcpStream::connect_on(&client, "10.0.0.1:80")?;
    /// stream.set_send_buffer_size(16_384)?; // what is written is to leave soon, or not to be written
    /// assert_eq!(stream.send_buffer_size()?, 32_768);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_send_buffer_size(&self, size: usize) -> io::Result<()> {
        self.limit_sending(options::send_buffer(&self.desk, size))
    }

    pub(in crate::net) fn limit_sending(&self, bytes: u32) -> io::Result<()> {
        self.check()?;
        self.talk().lane().asked.send_buffer.store(bytes, Relaxed);
        self.bound_sending(|| Op::SendBuffer(bytes))
    }

    fn bound_sending(&self, op: impl Fn() -> Op) -> io::Result<()> {
        let talk = self.talk();
        let asked = &talk.lane().asked;
        // Before its lane hears of it, which wakes whoever waits for the room that there is now.
        let (size, lowat) = (asked.send_buffer.load(Relaxed), asked.notsent_lowat.load(Relaxed));
        talk.set_send_limit(options::may_wait(size, lowat));
        self.ask(|| self.desk.note(talk, op()))
    }

    /// `SO_SNDBUF`: twice what was set, as the kernel counts; and before that what a connection begins with.
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        self.check()?;
        Ok(options::size_of(self.talk().lane().asked.send_buffer.load(Relaxed), self.desk.usual().send_buffer))
    }

    /// `TCP_NOTSENT_LOWAT`: so many bytes at the most wait to be sent, however many are under way: what is written leaves soon, and the path is full all the same. (Half
    /// of them wait to be taken by the connection, 2,304 at the least; of the others two segments always may.) 0: as many as fit into the [buffer](Self::set_send_buffer_size).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = laneway::Device::memory_pair(1)?;
    /// # let server = laneway::Stack::builder(here).address("10.0.0.1/24")?.start()?;
    /// # let client = laneway::Stack::builder(there).address("10.0.0.2/24")?.start()?;
    /// # let listener = laneway::TcpListener::bind_on(&server, "10.0.0.1:80")?;
    /// # let stream = laneway::TcpStream::connect_on(&client, "10.0.0.1:80")?;
    /// stream.set_tcp_notsent_lowat(16_384)?; // what becomes urgent later is not to wait behind more than that
    /// assert_eq!(stream.tcp_notsent_lowat()?, 16_384);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_tcp_notsent_lowat(&self, lowat: u32) -> io::Result<()> {
        self.check()?;
        self.talk().lane().asked.notsent_lowat.store(lowat, Relaxed);
        self.bound_sending(|| Op::NotsentLowat(options::may_be_unsent(lowat)))
    }

    /// `TCP_NOTSENT_LOWAT`: 0 if it was not set.
    pub fn tcp_notsent_lowat(&self) -> io::Result<u32> {
        self.check()?;
        Ok(self.talk().lane().asked.notsent_lowat.load(Relaxed))
    }

    /// `SO_RCVBUF`: so many bytes at the most wait to be read, and so many with the connection, or on their way to it; between 1,152 and `tcp_rmem`. Until this is set
    /// it is as much as the path has shown that it needs. What the peer has been promised so far it may still send.
    pub fn set_recv_buffer_size(&self, size: usize) -> io::Result<()> {
        self.limit_receiving(options::receive_buffer(&self.desk, size))
    }

    pub(in crate::net) fn limit_receiving(&self, bytes: u32) -> io::Result<()> {
        self.ask(|| self.desk.note(self.talk(), Op::ReceiveBuffer(bytes)))?;
        self.talk().lane().asked.receive_buffer.store(bytes, Relaxed);
        Ok(())
    }

    /// `SO_RCVBUF`: twice what was set, as the kernel counts; and before that what a connection begins with.
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        self.check()?;
        Ok(options::size_of(self.talk().lane().asked.receive_buffer.load(Relaxed), self.desk.usual().receive_buffer))
    }

    /// `TCP_CORK`: full segments leave, and what is left of the bytes waits until the cork is out, for 200 ms at the most.
    pub fn set_tcp_cork(&self, cork: bool) -> io::Result<()> {
        self.set_state(CORK, cork, || Op::Cork(cork))
    }

    /// `TCP_CORK`.
    pub fn tcp_cork(&self) -> io::Result<bool> {
        self.check()?;
        Ok(self.talk().app().state.load(Relaxed) & CORK != 0)
    }

    /// `TCP_QUICKACK`: what has come is acknowledged now, and what comes at once, as when a connection begins; or not, from now on. Not for ever: once the program has
    /// answered, the next acknowledgement may wait for an answer again.
    pub fn set_tcp_quickack(&self, quickack: bool) -> io::Result<()> {
        self.ask(|| self.desk.note(self.talk(), Op::Quickack(quickack)))?;
        let state = &self.talk().app().state;
        match quickack {
            true => state.fetch_and(!DELAYS_ACKS, Relaxed),
            false => state.fetch_or(DELAYS_ACKS, Relaxed),
        };
        Ok(())
    }

    /// `TCP_QUICKACK`, as it was set last. (The kernel says how it is at the moment.)
    pub fn tcp_quickack(&self) -> io::Result<bool> {
        self.check()?;
        Ok(self.talk().app().state.load(Relaxed) & DELAYS_ACKS == 0)
    }

    /// `TCP_CONGESTION`: `cubic` (RFC 9438) or `reno` (RFC 5681), from now on. The window stays as it is.
    ///
    /// # Errors
    /// `ENOENT` if none has that name.
    pub fn set_tcp_congestion(&self, name: &[u8]) -> io::Result<()> {
        self.check()?;
        self.control_congestion(options::algorithm(name)?)
    }

    pub(in crate::net) fn control_congestion(&self, algorithm: Algorithm) -> io::Result<()> {
        self.ask(|| self.desk.note(self.talk(), Op::Congestion(algorithm)))?;
        let place = Algorithm::ALL.iter().position(|one| *one == algorithm).map_or(0, |place| place + 1);
        self.talk().lane().asked.congestion.store(place as u8, Relaxed);
        Ok(())
    }

    /// `TCP_CONGESTION`.
    pub fn tcp_congestion(&self) -> io::Result<Vec<u8>> {
        self.check()?;
        let place = usize::from(self.talk().lane().asked.congestion.load(Relaxed));
        let asked = place.checked_sub(1).and_then(|place| Algorithm::ALL.get(place));
        let algorithm = asked.copied().unwrap_or(self.desk.usual().congestion_control);
        Ok(algorithm.name().as_bytes().to_vec())
    }
}
