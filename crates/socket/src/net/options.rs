//! Owns what values of options mean: what the kernel takes, and what it says they are.

use crate::error::Why;
use laneway_stack::proto::tcp::congestion::Algorithm;
use laneway_stack::proto::tcp::told::{RECEIVE_BUFFER_MIN, SEND_BUFFER_MIN};
use laneway_stack::threads::desk::Desk;
use std::io;
use std::time::Duration;

/// `IP_TTL`, as the kernel takes it.
pub(super) fn checked_ttl(ttl: u32) -> io::Result<u8> {
    match u8::try_from(ttl) {
        Err(_) | Ok(0) => Err(Why::Invalid.into()),
        Ok(ttl) => Ok(ttl),
    }
}

/// `IP_TTL` of a socket: what was set, or else what the stack's configuration says.
pub(super) fn ttl_of(own: u8, desk: &Desk) -> u32 {
    match own {
        0 => desk.usual().ttl.into(),
        own => own.into(),
    }
}

/// `TCP_USER_TIMEOUT`, as the kernel takes it: to it it is an `int`, and below zero none.
pub(super) fn user_timeout_ms(timeout: Option<Duration>) -> io::Result<u32> {
    let ms = timeout.map_or(0, |timeout| timeout.as_millis().max(1));
    Ok(i32::try_from(ms).map_err(|_| Why::Invalid)?.unsigned_abs())
}

/// `IP_TOS` or `IPV6_TCLASS` of a stream: what is for ECN is not its socket's to say.
pub(super) fn dscp(tos: u8) -> u8 {
    tos & 0b1111_1100
}

/// `IPV6_TCLASS`, as the kernel takes it: to it it is an `int`, and -1 what it is by default.
pub(super) fn checked_tclass(is_v6: bool, tclass: u32) -> io::Result<u8> {
    match tclass {
        _ if !is_v6 => Err(Why::NoOption.into()),
        u32::MAX => Ok(0),
        _ => Ok(u8::try_from(tclass).map_err(|_| Why::Invalid)?),
    }
}

/// `SO_SNDBUF`, as bytes of text.
pub(super) fn send_buffer(desk: &Desk, size: usize) -> u32 {
    buffer(size, SEND_BUFFER_MIN, desk.usual().send_buffer.1)
}

/// `SO_RCVBUF`, the same.
pub(super) fn receive_buffer(desk: &Desk, size: usize) -> u32 {
    buffer(size, RECEIVE_BUFFER_MIN, desk.usual().receive_buffer.1)
}

/// So much of what is written waits to be taken by its connection: as much as fits into a buffer of that size, and half of what may be unsent. 0: nothing was said of one.
pub(super) fn may_wait(send_buffer: u32, notsent_lowat: u32) -> usize {
    let size = if send_buffer > 0 { send_buffer as usize } else { usize::MAX };
    if notsent_lowat > 0 { size.min((notsent_lowat / 2).max(SEND_BUFFER_MIN) as usize) } else { size }
}

/// The other half, with its connection.
pub(super) fn may_be_unsent(notsent_lowat: u32) -> u32 {
    notsent_lowat.div_ceil(2)
}

fn buffer(size: usize, least: u32, most: u32) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX).max(least).min(most)
}

/// What is said of a buffer of so many bytes of text: twice that, as the kernel counts them, and it is so, too, for they may wait in two places. Of one that
/// was told nothing what it begins with.
pub(super) fn size_of(asked: u32, (usual, _): (u32, u32)) -> usize {
    if asked == 0 { usual as usize } else { 2 * asked as usize }
}

/// `TCP_CONGESTION`, which may end with zeros.
pub(super) fn algorithm(name: &[u8]) -> io::Result<Algorithm> {
    if name.is_empty() {
        return Err(Why::Invalid.into());
    }
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let name = std::str::from_utf8(&name[..end]).ok();
    name.and_then(Algorithm::by_name).ok_or_else(|| Why::NoSuch.into())
}
