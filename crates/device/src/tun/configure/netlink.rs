//! Owns how one rtnetlink request is written, and how its answer is read.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::socket;

// From `linux/netlink.h`; libc's headers differ between targets.
pub(super) const NLM_F_REQUEST: u16 = 0x1;
pub(super) const NLM_F_ACK_CREATE_REPLACE: u16 = 0x4 | 0x400 | 0x100;
const NLM_F_DUMP: u16 = 0x100 | 0x200;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOL_NETLINK: libc::c_int = 270;
const NETLINK_GET_STRICT_CHK: libc::c_int = 12;

/// One rtnetlink request.
pub(super) struct Message(Vec<u8>);

/// `sizeof(struct nlmsghdr)`.
pub(super) const NLMSG_LEN: usize = 16;

impl Message {
    pub(super) fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend_from_slice(&0u32.to_ne_bytes()); // the length, known at the end
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&1u32.to_ne_bytes()); // sequence number: there is only one request per socket
        bytes.extend_from_slice(&0u32.to_ne_bytes());
        Message(bytes)
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.bytes(&(4 + value.len() as u16).to_ne_bytes());
        self.bytes(&kind.to_ne_bytes());
        self.bytes(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Sends a request that changes something, and waits until the kernel has done it.
    pub(super) fn send(self) -> io::Result<()> {
        self.ask().map(drop)
    }

    /// Sends the request; the kernel's answer (which it gives before `send` returns).
    pub(super) fn ask(self) -> io::Result<Vec<u8>> {
        let answer = receive(&self.transmit()?)?;
        let Some((kind, message)) = messages(&answer).next() else {
            return Err(io::Error::other("the kernel's answer on the netlink socket makes no sense"));
        };
        match refusal(kind, message) {
            Some(error) => Err(error),
            None => Ok(answer),
        }
    }

    /// Whether any of the things that the kernel lists is the one that is looked for, by its body and attributes.
    pub(super) fn any(mut self, mut is_it: impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        self.0[6..8].copy_from_slice(&flags.to_ne_bytes());
        let socket = self.transmit()?;
        let mut found = false;
        loop {
            let part = receive(&socket)?;
            // An empty part would never be followed by the last one.
            let mut ended = part.is_empty();
            for (kind, message) in messages(&part) {
                match refusal(kind, message) {
                    Some(error) => return Err(error),
                    None if kind == NLMSG_DONE => ended = true,
                    None => found |= is_it(&message[NLMSG_LEN..]),
                }
            }
            if ended {
                return Ok(found);
            }
        }
    }

    fn transmit(mut self) -> io::Result<OwnedFd> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
        let fd = socket.as_raw_fd();
        let on: libc::c_int = 1;
        // Has a list hold only what was asked for. A kernel that cannot lists everything, and we look again ourselves.
        // SAFETY: the option takes an int, whose address and size are passed; it lives through the call.
        unsafe {
            libc::setsockopt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, (&raw const on).cast(), size_of_val(&on) as u32)
        };
        // SAFETY: pointer and length are those of a live vector.
        let sent = unsafe { libc::send(fd, self.0.as_ptr().cast(), self.0.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
    }
}

fn receive(socket: &OwnedFd) -> io::Result<Vec<u8>> {
    // The kernel makes no part of a list longer than this.
    let mut answer = vec![0u8; 32 << 10];
    // SAFETY: pointer and length are those of a live vector.
    let got = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    answer.truncate(got as usize);
    Ok(answer)
}

/// The kinds and bytes of what came in one piece; headers are among the bytes.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
        let message = bytes.get(..len).filter(|message| message.len() >= NLMSG_LEN)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([message[4], message[5]]), message))
    })
}

/// The error that a message says, if it says one. The last of a list can say one too.
fn refusal(kind: u16, message: &[u8]) -> Option<io::Error> {
    if !matches!(kind, NLMSG_ERROR | NLMSG_DONE) {
        return None;
    }
    match i32::from_ne_bytes(*message.get(NLMSG_LEN..)?.first_chunk()?) {
        0 => None,
        errno => Some(io::Error::from_raw_os_error(-errno)),
    }
}

/// The value of an attribute among these.
pub(super) fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let [a, b, c, d] = *bytes.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let value = bytes.get(4..len)?;
        if u16::from_ne_bytes([c, d]) == wanted {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}
