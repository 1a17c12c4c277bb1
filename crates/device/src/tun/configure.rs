//! What `ip(8)` would be called for: addresses, routes, MTU and state of an interface, by ioctl and rtnetlink.
//!
//! Acts in the network namespace of the calling thread. Settings that already hold are left alone, so that an unprivileged program can
//! use an interface that was made ready for it.

use std::ffi::CStr;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::{Prefix, TunConfig, TunError};

mod held;
pub(super) mod link;
mod netlink;

use netlink::{Message, NLM_F_ACK_CREATE_REPLACE, NLM_F_REQUEST, NLMSG_LEN};

/// The least MTU with which the kernel has IPv6 on an interface (RFC 8200 section 5).
const MTU_MIN_V6: usize = 1_280;

/// The kernel is told of new links once a second, where they are many; mostly it takes a millisecond.
const READY: Duration = Duration::from_millis(1_500);

/// Everything that `config` asks for, in the order in which the kernel wants it. What stands in the way of IPv6 is said otherwise of an interface that
/// `is_new`: that is gone, with its settings, when this fails.
pub(super) fn set_up(name: &str, config: &TunConfig, is_new: bool) -> Result<(), TunError> {
    let failed = |what: String| move |error| TunError::Configure { name: name.into(), what, error };
    let is = mtu(name).map_err(failed("the MTU".into()))?;
    let wanted = config.mtu.unwrap_or(is);
    // Before it is set: with it the kernel would take away what IPv6 addresses the interface has.
    if wanted < MTU_MIN_V6
        && let Some(prefix) = config.addresses.iter().find(|prefix| prefix.address.is_ipv6())
    {
        return Err(TunError::Config(format!(
            "the interface {name} cannot have the address {}/{} with an MTU of {wanted}: below {MTU_MIN_V6} bytes the kernel has no IPv6 there, so choose a larger one, or leave IPv6 out",
            prefix.address, prefix.len
        )));
    }
    if wanted != is {
        set_mtu(name, wanted).map_err(failed(format!("the MTU ({wanted})")))?;
    }
    // Whoever has made it longer has a reason.
    if let Some(frames) = config.queue_len
        && super::queue_len(name).map_or(true, |is| is < frames as usize)
    {
        match set_queue_len(name, frames) {
            Err(error) if error.raw_os_error() != Some(libc::EPERM) => {
                return Err(failed(format!("the queue length ({frames})"))(error));
            }
            _ => {}
        }
    }
    let index = index(name).map_err(failed("the state".into()))?;
    for prefix in &config.addresses {
        let failed = failed(format!("the address {}/{}", prefix.address, prefix.len));
        unless(held::address(index, prefix), || add_address(index, prefix)).map_err(|error| {
            // Who lacks the privilege is told EPERM.
            if error.raw_os_error() == Some(libc::EACCES) && prefix.address.is_ipv6() && is_switched_off_v6(name) {
                without_v6(name, prefix, is_new)
            } else {
                failed(error)
            }
        })?;
    }
    if config.up && !is_up(name).map_err(failed("the state".into()))? {
        set_up_flag(name).map_err(failed("the state (up)".into()))?;
    }
    if config.up {
        wait_until_running(name);
        config.addresses.iter().for_each(|prefix| wait_until_local(prefix.address));
    }
    for prefix in &config.routes {
        let failed = failed(format!("the route to {}/{}", prefix.address, prefix.len));
        unless(held::route(index, prefix), || add_route(index, prefix)).map_err(failed)?;
    }
    Ok(())
}

/// Why an interface without IPv6 has no such address.
fn without_v6(name: &str, prefix: &Prefix, is_new: bool) -> TunError {
    // `sysctl` takes a dot for what separates names, and a slash for a dot.
    let which = if is_new { "default".into() } else { name.replace('.', "/") };
    let in_a_container = if is_new { ", in a container pass that in (`--sysctl`)" } else { "" };
    TunError::Config(format!(
        "the interface {name} cannot have the address {}/{}: IPv6 is switched off there, so switch it on with `sysctl -w net.ipv6.conf.{which}.disable_ipv6=0`{in_a_container}, or leave IPv6 out",
        prefix.address, prefix.len
    ))
}

/// Asks for what does not hold yet: the kernel wants the privilege even of who asks for what is so already. Whether it holds is no
/// reason to fail, if that cannot be learned.
fn unless(held: io::Result<bool>, set: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    if held.unwrap_or(false) { Ok(()) } else { set() }
}

/// An `ifreq` that holds this name and else zeroes. `name` must be shorter than 16 bytes; the rest is cut off.
pub(super) fn ifreq(name: &str) -> libc::ifreq {
    // SAFETY: `ifreq` is plain old data, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (into, byte) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
        *into = byte as libc::c_char;
    }
    request
}

/// The name that the kernel left in a request.
pub(super) fn name_of(request: &libc::ifreq) -> String {
    let bytes: Vec<u8> = request.ifr_name.iter().map(|c| *c as u8).chain([0]).collect();
    CStr::from_bytes_until_nul(&bytes).map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned())
}

/// An ioctl whose argument points to an `ifreq`, which the kernel reads and writes.
pub(super) fn ioctl_ifreq(fd: BorrowedFd<'_>, request: libc::Ioctl, ifreq: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every request that this is called with takes a pointer to a whole `ifreq`, which lives through the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut *ifreq) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Asks about an interface through any socket.
fn ask(name: &str, request: libc::Ioctl, fill: impl FnOnce(&mut libc::ifreq)) -> io::Result<libc::ifreq> {
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut ifreq = ifreq(name);
    fill(&mut ifreq);
    ioctl_ifreq(socket.as_fd(), request, &mut ifreq)?;
    Ok(ifreq)
}

/// The interface's MTU, in bytes.
pub fn mtu(name: &str) -> io::Result<usize> {
    let answer = ask(name, libc::SIOCGIFMTU as libc::Ioctl, |_| ())?;
    // SAFETY: SIOCGIFMTU fills in this member.
    Ok(unsafe { answer.ifr_ifru.ifru_mtu } as usize)
}

/// Sets the interface's MTU, in bytes.
pub fn set_mtu(name: &str, mtu: usize) -> io::Result<()> {
    let mtu = i32::try_from(mtu).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    ask(name, libc::SIOCSIFMTU as libc::Ioctl, |ifreq| ifreq.ifr_ifru.ifru_mtu = mtu).map(drop)
}

/// Sets how many frames may wait in each queue of the interface.
pub fn set_queue_len(name: &str, frames: u32) -> io::Result<()> {
    let frames = i32::try_from(frames).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    ask(name, libc::SIOCSIFTXQLEN as libc::Ioctl, |ifreq| {
        // `ifr_qlen` is this member by another name: both are an int at the start of the union.
        ifreq.ifr_ifru.ifru_ifindex = frames
    })
    .map(drop)
}

/// The interface's number.
pub fn index(name: &str) -> io::Result<u32> {
    let answer = ask(name, libc::SIOCGIFINDEX as libc::Ioctl, |_| ())?;
    // SAFETY: SIOCGIFINDEX fills in this member.
    Ok(unsafe { answer.ifr_ifru.ifru_ifindex } as u32)
}

/// The kernel's link address on the interface.
pub fn mac(name: &str) -> io::Result<[u8; 6]> {
    let answer = ask(name, libc::SIOCGIFHWADDR as libc::Ioctl, |_| ())?;
    // SAFETY: SIOCGIFHWADDR fills in this member.
    let address = unsafe { answer.ifr_ifru.ifru_hwaddr };
    Ok(std::array::from_fn(|i| address.sa_data[i] as u8))
}

fn flags(name: &str) -> io::Result<i16> {
    let answer = ask(name, libc::SIOCGIFFLAGS as libc::Ioctl, |_| ())?;
    // SAFETY: SIOCGIFFLAGS fills in this member.
    Ok(unsafe { answer.ifr_ifru.ifru_flags })
}

/// Whether the interface is up.
pub fn is_up(name: &str) -> io::Result<bool> {
    Ok(flags(name)? & libc::IFF_UP as i16 != 0)
}

/// Brings the interface up.
pub fn set_up_flag(name: &str) -> io::Result<()> {
    let flags = flags(name)? | libc::IFF_UP as i16;
    ask(name, libc::SIOCSIFFLAGS as libc::Ioctl, |ifreq| ifreq.ifr_ifru.ifru_flags = flags).map(drop)
}

/// Whether the kernel has no IPv6 on the interface because somebody wants it so.
fn is_switched_off_v6(name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6")).is_ok_and(|is| is.trim() != "0")
}

/// Has the interface keep its IPv6 addresses while it is down, as the kernel has every interface keep those of IPv4.
pub(super) fn keep_addresses(name: &str) -> io::Result<()> {
    std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/keep_addr_on_down"), "1")
}

/// Has the kernel hand over what it sends there at once. A TUN refuses nothing: what does not fit into its queues it drops, so that nothing ever waits in a
/// queue before those. The kernel has one of these for each queue that there could be, 50 MiB where each may hold 8,192 packets.
pub(super) fn without_queues_before(name: &str) -> io::Result<()> {
    let (unspecified, padding, handle, info) = ([0], [0; 3], [0; 4], [0; 4]);
    let mut message = Message::new(RTM_NEWQDISC, NLM_F_REQUEST | NLM_F_ACK_CREATE_REPLACE);
    message.bytes(&[&unspecified[..], &padding, &index(name)?.to_ne_bytes(), &handle].concat());
    message.bytes(&[TC_H_ROOT.to_ne_bytes(), info].concat());
    message.attribute(TCA_KIND, b"noqueue\0");
    message.send()
}

// From `linux/rtnetlink.h`, `linux/pkt_sched.h` and `linux/if_addr.h`; libc's headers differ between targets.
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWQDISC: u16 = 36;
const TCA_KIND: u16 = 1;
const TC_H_ROOT: u32 = u32::MAX;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 0x02;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;

/// Gives the interface an address. No duplicate address detection: on such a link there is nobody to ask, and it takes a second.
pub fn add_address(index: u32, prefix: &Prefix) -> io::Result<()> {
    let octets = octets(prefix.address);
    let mut message = Message::new(RTM_NEWADDR, NLM_F_REQUEST | NLM_F_ACK_CREATE_REPLACE);
    message.bytes(&[family(prefix.address), prefix.len, IFA_F_NODAD, RT_SCOPE_UNIVERSE]);
    message.bytes(&index.to_ne_bytes());
    message.attribute(IFA_LOCAL, &octets);
    message.attribute(IFA_ADDRESS, &octets);
    message.send()
}

/// Whether the kernel takes packets to this address for its own.
fn is_local(address: IpAddr) -> io::Result<bool> {
    let octets = octets(address);
    let mut message = Message::new(RTM_GETROUTE, NLM_F_REQUEST);
    message.bytes(&[family(address), 8 * octets.len() as u8, 0, 0]);
    message.bytes(&[0; 8]);
    message.attribute(RTA_DST, &octets);
    let answer = message.ask()?;
    // `rtm_type` of the `rtmsg` that follows the header.
    Ok(answer.get(NLMSG_LEN + 7) == Some(&RTN_LOCAL))
}

/// Waits until the kernel takes packets to this address, but no longer than [`READY`].
///
/// It finishes setting up an IPv6 address in the background, and drops what comes in before as wrongly addressed.
fn wait_until_local(address: IpAddr) {
    wait_until(|| is_local(address).unwrap_or(false));
}

/// Waits until the kernel sends on the interface, but no longer than [`READY`].
///
/// Where nobody had a queue, it finds out in the background that there is one now, and drops what it is to send before.
fn wait_until_running(name: &str) {
    wait_until(|| matches!(link::find(name), Ok(Some(link)) if link.is_running));
}

fn wait_until(holds: impl Fn() -> bool) {
    let until = Instant::now() + READY;
    while !holds() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Has the kernel find a network directly behind the interface.
pub fn add_route(index: u32, prefix: &Prefix) -> io::Result<()> {
    let scope = if prefix.address.is_ipv4() { RT_SCOPE_LINK } else { RT_SCOPE_UNIVERSE };
    let mut message = Message::new(RTM_NEWROUTE, NLM_F_REQUEST | NLM_F_ACK_CREATE_REPLACE);
    let (source_len, type_of_service) = (0, 0);
    message.bytes(&[family(prefix.address), prefix.len, source_len, type_of_service]);
    message.bytes(&[RT_TABLE_MAIN, RTPROT_STATIC, scope, RTN_UNICAST]);
    message.bytes(&0u32.to_ne_bytes());
    message.attribute(RTA_DST, &octets(prefix.address));
    message.attribute(RTA_OIF, &index.to_ne_bytes());
    message.send()
}

fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
