//! Owns the simulator's own view of a frame: strict, and independent of what the hosts believe.

use laneway_device::Medium;
use laneway_proto::ip::output::{self, HeaderSpec};
use laneway_wire::checksum::{Sum, pseudo_header, verify_transport};
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::tcp::{Header, Segment};
use laneway_wire::{ipv4, ipv6, protocol};

/// A TCP segment as its sender sees it.
pub struct Seen<'a> {
    /// `local` is the sender.
    pub key: FlowKey,
    /// The segment.
    pub seg: Segment<'a>,
    /// Bytes of the IP packet.
    pub ip_len: usize,
    /// What its header says of marks (RFC 3168 section 5).
    pub ecn: u8,
}

/// What a frame is.
pub enum Frame<'a> {
    /// A whole TCP segment.
    Tcp(Seen<'a>),
    /// Something else that is well formed as far as anybody here looks.
    Other,
    /// No host may send this, and none may believe it.
    Bad(&'static str),
}

/// Reads a frame.
pub fn look(medium: Medium, frame: &[u8]) -> Frame<'_> {
    let mut packet = frame;
    if medium == Medium::Ethernet {
        let Some((header, rest)) = frame.split_at_checked(14) else { return Frame::Bad("runt") };
        match header[12..14] {
            [0x08, 0x00] | [0x86, 0xdd] => packet = rest,
            _ => return Frame::Other,
        }
    }
    let (src, dst, bytes, ip_len) = match packet.first().map(|b| b >> 4) {
        Some(4) => {
            let Ok(view) = ipv4::View::new(packet) else { return Frame::Bad("IPv4 header") };
            if view.is_fragment() || view.protocol() != protocol::TCP {
                return Frame::Other;
            }
            (view.src(), view.dst(), view.payload(), view.header_bytes().len() + view.payload().len())
        }
        Some(6) => {
            let Ok(view) = ipv6::View::new(packet) else { return Frame::Bad("IPv6 header") };
            if view.next_header() != protocol::TCP {
                return Frame::Other;
            }
            (view.src(), view.dst(), view.payload(), 40 + view.payload().len())
        }
        _ => return Frame::Bad("neither IPv4 nor IPv6"),
    };
    if !verify_transport(&src, &dst, protocol::TCP, bytes) {
        return Frame::Bad("TCP checksum");
    }
    match Segment::parse(bytes) {
        Ok(seg) => {
            let key = FlowKey { local: src, remote: dst, local_port: seg.src_port, remote_port: seg.dst_port };
            Frame::Tcp(Seen { key, seg, ip_len, ecn: ecn(medium, frame) })
        }
        Err(_) => Frame::Bad("TCP header"),
    }
}

/// What the IP header of a frame says of marks; 0 if it has none.
pub fn ecn(medium: Medium, frame: &[u8]) -> u8 {
    match frame.get(medium.header_len()..) {
        Some([0x40..=0x4f, class, ..]) => class & 3,
        Some([0x60..=0x6f, class, ..]) => class >> 4 & 3,
        _ => 0,
    }
}

/// Changes it; not of a frame whose IP header is damaged, or its checksum would say no more that it is.
pub fn set_ecn(medium: Medium, frame: &mut [u8], ecn: u8) {
    match frame.get_mut(medium.header_len()..) {
        Some(packet @ [0x45, _, ..]) if packet.len() >= 20 && Sum::of(&packet[..20]).is_valid() => {
            packet[1] = packet[1] & !3 | ecn;
            packet[10..12].fill(0);
            let sum = Sum::of(&packet[..20]).checksum();
            packet[10..12].copy_from_slice(&sum);
        }
        Some([0x60..=0x6f, class, ..]) => *class = *class & !0x30 | ecn << 4,
        _ => {}
    }
}

/// Makes a frame with a TCP segment. `link` is the link header.
pub fn tcp(link: &[u8], src: Address, dst: Address, header: &Header, payload: &[u8]) -> Vec<u8> {
    let spec = HeaderSpec::new(src, dst, protocol::TCP);
    let tcp_len = header.len() + payload.len();
    let mut frame = vec![0; link.len() + spec.len() + tcp_len];
    frame[..link.len()].copy_from_slice(link);
    let (ip, tcp) = frame[link.len()..].split_at_mut(spec.len());
    output::emit(&spec, ip, tcp_len);
    header.emit(tcp);
    tcp[header.len()..].copy_from_slice(payload);
    laneway_wire::tcp::fill_checksum(tcp, pseudo_header(&src, &dst, protocol::TCP, tcp_len as u32));
    frame
}

/// A segment in one line, as a person wants to read it.
pub fn describe(medium: Medium, frame: &[u8]) -> String {
    match look(medium, frame) {
        Frame::Tcp(Seen { key, seg, ecn, .. }) => {
            let mut text = format!(
                "{}:{} > {}:{} {:?} seq {} ack {} win {} len {}",
                key.local,
                key.local_port,
                key.remote,
                key.remote_port,
                seg.flags,
                seg.seq.raw(),
                seg.ack.raw(),
                seg.window.raw(),
                seg.payload.len()
            );
            if ecn != 0 {
                text += ["", " ect1", " ect0", " ce"][usize::from(ecn)];
            }
            if let Some(mss) = seg.options.mss {
                text += &format!(" mss {mss}");
            }
            if let Some(scale) = seg.options.window_scale {
                text += &format!(" wscale {}", scale.get());
            }
            if let Some(ts) = seg.options.timestamps {
                text += &format!(" ts {}/{}", ts.val, ts.echo);
            }
            for block in seg.options.sack.iter() {
                text += &format!(" sack {}..{}", block.start.raw(), block.end.raw());
            }
            text
        }
        Frame::Other => format!("other, {} bytes", frame.len()),
        Frame::Bad(why) => format!("bad ({why}), {} bytes", frame.len()),
    }
}
