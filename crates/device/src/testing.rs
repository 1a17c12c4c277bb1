//! What tests share: a network namespace of one's own, small packets, waiting for a device.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use laneway_wire::checksum::{Sum, pseudo_header};
use laneway_wire::flow::Address;

use crate::{Medium, PartialChecksum, Rx, RxMeta};

/// Runs `test` on a thread of its own, in a network namespace of its own that is gone afterwards.
///
/// Needs CAP_SYS_ADMIN. Without it the test says that it skips, unless the environment has `CI`: there, it fails.
pub(crate) fn in_own_network(name: &str, test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        // SAFETY: no memory is passed; only this thread changes its namespace.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        test();
        Ok(())
    });
    match thread.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            assert!(std::env::var_os("CI").is_none(), "{name} must run in CI, but has no network namespace: {error}");
            eprintln!("SKIPPED {name}: a network namespace of its own needs root ({error})");
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Takes every capability from this thread but these, one bit for each. It remains root by name, which opens no door without them.
pub(crate) fn keep_only(capabilities: u64) {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header { version: VERSION_3, pid: 0 };
    let (low, high) = (capabilities as u32, (capabilities >> 32) as u32);
    // Effective, permitted, inheritable; once for the low word and once for the high one.
    let sets = [low, low, 0, high, high, 0];
    // SAFETY: version 3 reads a header and six words; both live through the call, which concerns this thread alone.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Polls until `until` is content with a frame, for at most two seconds.
pub(crate) fn receive_until(rx: &mut impl Rx, mut until: impl FnMut(&[u8], RxMeta) -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline {
        let count = rx.poll(64);
        let found = (0..count).any(|i| {
            let frame = rx.frame(i);
            until(frame.bytes, frame.meta)
        });
        rx.release();
        if found {
            return true;
        }
        if count == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    false
}

/// A transport packet in an IPv4 header.
pub(crate) fn ipv4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len()) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet.extend(src.octets());
    packet.extend(dst.octets());
    let checksum = Sum::of(&packet).checksum();
    packet[10..12].copy_from_slice(&checksum);
    packet.extend(payload);
    packet
}

/// A transport packet in an IPv6 header.
pub(crate) fn ipv6(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
    packet[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    packet.extend(src.octets());
    packet.extend(dst.octets());
    packet.extend(payload);
    packet
}

/// A UDP packet with its checksum.
pub(crate) fn udp(
    src: (impl Into<std::net::IpAddr>, u16),
    dst: (impl Into<std::net::IpAddr>, u16),
    payload: &[u8],
) -> Vec<u8> {
    transport(src, dst, 17, 6, &mut |src_port, dst_port| {
        let mut datagram = [src_port.to_be_bytes(), dst_port.to_be_bytes()].concat();
        datagram.extend((8 + payload.len() as u16).to_be_bytes());
        datagram.extend([0, 0]);
        datagram.extend(payload);
        datagram
    })
}

/// A TCP segment (ACK|PSH) with its checksum and no options.
pub(crate) fn tcp(
    src: (impl Into<std::net::IpAddr>, u16),
    dst: (impl Into<std::net::IpAddr>, u16),
    seq: u32,
    payload: &[u8],
) -> Vec<u8> {
    transport(src, dst, 6, 16, &mut |src_port, dst_port| {
        let mut segment = [src_port.to_be_bytes(), dst_port.to_be_bytes()].concat();
        segment.extend(seq.to_be_bytes());
        segment.extend([0, 0, 0, 1, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend(payload);
        segment
    })
}

fn transport(
    src: (impl Into<std::net::IpAddr>, u16),
    dst: (impl Into<std::net::IpAddr>, u16),
    protocol: u8,
    field: usize,
    build: &mut dyn FnMut(u16, u16) -> Vec<u8>,
) -> Vec<u8> {
    let (from, to) = (src.0.into(), dst.0.into());
    let mut segment = build(src.1, dst.1);
    let pseudo = pseudo_header(&Address::from(from), &Address::from(to), protocol, segment.len() as u32);
    let sum = (pseudo + Sum::of(&segment)).checksum();
    segment[field..field + 2].copy_from_slice(&sum);
    match (from, to) {
        (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) => ipv4(from, to, protocol, &segment),
        (std::net::IpAddr::V6(from), std::net::IpAddr::V6(to)) => ipv6(from, to, protocol, &segment),
        _ => panic!("one family, please"),
    }
}

/// Puts the state into a packet's transport checksum that a sender with offload leaves: the pseudo-header's sum alone.
pub(crate) fn make_partial(frame: &mut [u8], medium: Medium) -> PartialChecksum {
    let link = medium.header_len();
    let (header, protocol, addresses) = match frame[link] >> 4 {
        4 => (20, frame[link + 9], 12..20),
        _ => (40, frame[link + 6], 8..40),
    };
    let offset = if protocol == 6 { 16 } else { 6 };
    let start = link + header;
    let len = frame.len() - start;
    let address = |bytes: &[u8]| match bytes.len() {
        4 => Address::from_v4(bytes.try_into().unwrap()),
        _ => Address::from_v6(bytes.try_into().unwrap()),
    };
    let both = &frame[link + addresses.start..link + addresses.end];
    let (src, dst) = both.split_at(both.len() / 2);
    let sum = pseudo_header(&address(src), &address(dst), protocol, len as u32).checksum();
    // The field holds the folded sum itself; `checksum` gives its complement.
    frame[start + offset..start + offset + 2].copy_from_slice(&[!sum[0], !sum[1]]);
    PartialChecksum { start: start as u16, offset: offset as u16 }
}

/// Whether a packet's transport checksum is right.
pub(crate) fn checksum_is_right(packet: &[u8]) -> bool {
    let (header, protocol) = match packet[0] >> 4 {
        4 => (20, packet[9]),
        _ => (40, packet[6]),
    };
    let (src, dst) = if header == 20 {
        (Address::from_v4(packet[12..16].try_into().unwrap()), Address::from_v4(packet[16..20].try_into().unwrap()))
    } else {
        (Address::from_v6(packet[8..24].try_into().unwrap()), Address::from_v6(packet[24..40].try_into().unwrap()))
    };
    laneway_wire::checksum::verify_transport(&src, &dst, protocol, &packet[header..])
}
