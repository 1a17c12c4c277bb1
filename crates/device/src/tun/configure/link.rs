//! Owns the question what an interface is that has a name already. Anybody may ask it.

use std::io;
use std::time::Duration;

use super::netlink::{Message, NLM_F_REQUEST, NLMSG_LEN, attribute};

// From `linux/rtnetlink.h` and `linux/if_link.h`; libc's headers differ between targets.
const RTM_GETLINK: u16 = 18;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_CARRIER: u16 = 33;
const IFLA_INFO_KIND: u16 = 1;
/// `sizeof(struct ifinfomsg)`.
const IFINFOMSG_LEN: usize = 16;

/// An interface.
#[derive(Clone, Copy, Debug)]
pub(in crate::tun) struct Link {
    /// It is a TUN or a TAP.
    pub(in crate::tun) is_tun: bool,
    /// Of a TUN: some program has a queue of it, for the kernel takes the carrier away with the last one.
    pub(in crate::tun) is_held: bool,
    /// It is up, has a carrier, and the kernel sends on it.
    pub(in crate::tun) is_running: bool,
}

/// The interface of this name, if there is one. A program that has it is given a tenth of a second to let it go: one that was killed,
/// or a child that has all its parent's files until it becomes another program, does.
pub(in crate::tun) fn find_free(name: &str) -> io::Result<Option<Link>> {
    for _ in 0..20 {
        match find(name)? {
            Some(link) if link.is_tun && link.is_held => std::thread::sleep(Duration::from_millis(5)),
            found => return Ok(found),
        }
    }
    find(name)
}

/// The interface of this name, if there is one.
pub(in crate::tun) fn find(name: &str) -> io::Result<Option<Link>> {
    let mut message = Message::new(RTM_GETLINK, NLM_F_REQUEST);
    message.bytes(&[0; IFINFOMSG_LEN]);
    message.attribute(IFLA_IFNAME, &[name.as_bytes(), b"\0"].concat());
    let answer = match message.ask() {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        answer => answer?,
    };
    let flags = answer.get(NLMSG_LEN + 8..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    let attributes = answer.get(NLMSG_LEN + IFINFOMSG_LEN..).unwrap_or_default();
    let kind = attribute(attributes, IFLA_LINKINFO).and_then(|info| attribute(info, IFLA_INFO_KIND));
    Ok(Some(Link {
        is_tun: kind == Some(b"tun\0"),
        is_held: attribute(attributes, IFLA_CARRIER) == Some(&[1]),
        is_running: flags & libc::IFF_RUNNING as u32 != 0,
    }))
}
