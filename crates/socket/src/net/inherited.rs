//! Owns what connections have from the socket that they came from.

use super::{TcpKeepalive, TcpStream};
use laneway_stack::proto::tcp::congestion::Algorithm;
use std::io;
use std::time::Duration;

/// What was set on a socket before it had a peer, or a queue. As of one on which nothing was set, each value says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Inherited {
    pub(super) nodelay: bool,
    pub(super) keepalive: bool,
    pub(super) keepalive_times: Option<TcpKeepalive>,
    pub(super) user_timeout: Option<Duration>,
    pub(super) linger: Option<Duration>,
    pub(super) tos: u8,
    pub(super) tclass: u8,
    /// Of text, in bytes; so is the other.
    pub(super) send_buffer: u32,
    pub(super) receive_buffer: u32,
    pub(super) notsent_lowat: u32,
    pub(super) congestion: Option<Algorithm>,
}

impl Inherited {
    pub(super) fn give(&self, stream: &TcpStream) -> io::Result<()> {
        if *self == Inherited::default() {
            return Ok(());
        }
        let Inherited { nodelay, keepalive, keepalive_times, user_timeout, linger, .. } = *self;
        let Inherited { tos, tclass, send_buffer, receive_buffer, notsent_lowat, congestion, .. } = *self;
        if nodelay {
            stream.set_nodelay(true)?;
        }
        if let Some(times) = keepalive_times {
            stream.set_tcp_keepalive(&times)?;
            stream.set_keepalive(keepalive)?;
        } else if keepalive {
            stream.set_keepalive(true)?;
        }
        if user_timeout.is_some() {
            stream.set_tcp_user_timeout(user_timeout)?;
        }
        if linger.is_some() {
            stream.set_linger(linger)?;
        }
        if tos != 0 {
            stream.set_tos_v4(tos.into())?;
        }
        if tclass != 0 {
            stream.set_tclass_v6(tclass.into())?;
        }
        if send_buffer != 0 {
            stream.limit_sending(send_buffer)?;
        }
        if receive_buffer != 0 {
            stream.limit_receiving(receive_buffer)?;
        }
        if notsent_lowat != 0 {
            stream.set_tcp_notsent_lowat(notsent_lowat)?;
        }
        if let Some(algorithm) = congestion {
            stream.control_congestion(algorithm)?;
        }
        Ok(())
    }
}
