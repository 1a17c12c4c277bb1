//! Owns the hardware that a simulated host's device may have: it cuts the super-packets that the host sends, and merges
//! segments that arrive together into one.

use laneway_device::memory::offload;
use laneway_device::{Medium, PartialChecksum, RxChecksum, RxFrame, TxMeta};
use laneway_wire::flow::Address;
use laneway_wire::{checksum, ipv4, ipv6, protocol};

/// The most that a super-packet holds.
const SUPER_MAX: usize = 65_535;
const CHECKSUM: usize = 16;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Turns a frame that a host sent into those that go on the wire.
pub fn cut(medium: Medium, frame: &RxFrame<'_>, wire: &mut Vec<Vec<u8>>) {
    if frame.meta.gso_size == 0 && frame.meta.checksum != RxChecksum::Verified {
        return wire.push(frame.bytes.to_vec());
    }
    // The receiver of the link vouches for checksums that nobody has computed: they are here.
    let checksum_partial = place(medium, frame.bytes).map(|p| PartialChecksum { start: p.tcp as u16, offset: 16 });
    let work = TxMeta { checksum_partial, gso_size: frame.meta.gso_size, header_len: 0 };
    offload::finish(medium, frame.bytes, &work, |len, write| {
        let mut piece = vec![0; len];
        write(&mut piece);
        wire.push(piece);
    });
}

/// Whether a host leaves the cutting of a segment with CWR to its device, of which not each knows that the flag belongs to the first piece only.
pub fn cuts_cwr(medium: Medium, frame: &RxFrame<'_>) -> bool {
    let flags = place(medium, frame.bytes).map_or(0, |at| frame.bytes[at.tcp + 13]);
    frame.meta.gso_size != 0 && flags & CWR != 0
}

/// Where the parts of a frame with TCP lie.
#[derive(Clone, Copy)]
struct Place {
    ip: usize,
    tcp: usize,
    text: usize,
    v4: bool,
}

fn place(medium: Medium, frame: &[u8]) -> Option<Place> {
    let ip = medium.header_len();
    let first = *frame.get(ip)?;
    let v4 = first >> 4 == 4;
    let (len, protocol) = if v4 { (20, *frame.get(ip + 9)?) } else { (40, *frame.get(ip + 6)?) };
    let plain = first == 0x45 || first >> 4 == 6;
    let tcp = ip + len;
    let text = tcp + usize::from(frame.get(tcp + 12)? >> 4) * 4;
    (plain && protocol == protocol::TCP && text <= frame.len() && text >= tcp + 20).then_some(Place {
        ip,
        tcp,
        text,
        v4,
    })
}

fn addresses(frame: &[u8], at: Place) -> Option<(Address, Address)> {
    let packet = &frame[at.ip..];
    if at.v4 {
        let view = ipv4::View::new(packet).ok()?;
        (!view.is_fragment() && view.header_bytes().len() + view.payload().len() == packet.len())
            .then(|| (view.src(), view.dst()))
    } else {
        let view = ipv6::View::new(packet).ok()?;
        (ipv6::HEADER_LEN + view.payload().len() == packet.len()).then(|| (view.src(), view.dst()))
    }
}

/// A frame that arrived, with those that it was merged with.
pub struct Merged {
    medium: Medium,
    frames: Vec<Vec<u8>>,
    len: usize,
}

impl Merged {
    /// One frame.
    pub fn new(medium: Medium, frame: Vec<u8>) -> Self {
        Merged { medium, len: frame.len(), frames: vec![frame] }
    }

    /// The first frame.
    pub fn first(&self) -> &[u8] {
        &self.frames[0]
    }

    /// As they came.
    pub fn frames(&self) -> impl DoubleEndedIterator<Item = Vec<u8>> + use<> {
        self.frames.clone().into_iter()
    }

    /// Merges another frame, if it continues what is there as a piece of the same super-segment would; else gives it back.
    pub fn push(&mut self, next: Vec<u8>) -> Result<(), Vec<u8>> {
        match self.room_for(&next) {
            Some(text) if self.len + text <= SUPER_MAX => {
                self.len += text;
                self.frames.push(next);
                Ok(())
            }
            _ => Err(next),
        }
    }

    /// Bytes of text of a frame that may be merged.
    fn room_for(&self, next: &[u8]) -> Option<usize> {
        let last = self.frames.last()?;
        let (a, b) = (place(self.medium, last)?, place(self.medium, next)?);
        let size = self.frames[0].len() - a.text;
        let (text_a, text_b) = (last.len() - a.text, next.len() - b.text);
        // A shorter one ends it, and a longer one cannot belong to it.
        if a.text != b.text || a.tcp != b.tcp || text_a != size || text_b == 0 || text_b > size || size == 0 {
            return None;
        }
        for (frame, at) in [(&last[..], a), (next, b)] {
            // Hardware verifies before it merges.
            let (src, dst) = addresses(frame, at)?;
            if !checksum::verify_transport(&src, &dst, protocol::TCP, &frame[at.tcp..]) {
                return None;
            }
        }
        let (x, y) = (&last[..a.text], &next[..b.text]);
        let tcp = a.tcp;
        let seq = |h: &[u8]| u32::from_be_bytes([h[tcp + 4], h[tcp + 5], h[tcp + 6], h[tcp + 7]]);
        let addresses_at = if a.v4 { a.ip + 12..a.ip + 20 } else { a.ip + 8..a.ip + 40 };
        // With the traffic class (IPv6 has a nibble of it in the first byte): what was marked is not lost among what was not.
        let alike = x[a.ip..a.ip + 2] == y[a.ip..a.ip + 2]
            && x[addresses_at.clone()] == y[addresses_at]
            && x[tcp..tcp + 4] == y[tcp..tcp + 4]
            && x[tcp + 8..tcp + 13] == y[tcp + 8..tcp + 13]
            && x[tcp + 14..tcp + 16] == y[tcp + 14..tcp + 16]
            && x[tcp + 20..] == y[tcp + 20..]
            && seq(x).wrapping_add(text_a as u32) == seq(y)
            && x[tcp + 13] == ACK
            && y[tcp + 13] & !PSH == ACK;
        alike.then_some(text_b)
    }

    /// The super-packet of all of them, its checksum partial; `None` if there is only one frame.
    pub fn super_packet(&self) -> Option<(Vec<u8>, TxMeta)> {
        if self.frames.len() < 2 {
            return None;
        }
        let at = place(self.medium, self.first())?;
        let mut bytes = self.first().to_vec();
        let gso_size = (bytes.len() - at.text) as u16;
        for frame in &self.frames[1..] {
            bytes.extend_from_slice(&frame[at.text..]);
            bytes[at.tcp + 13] |= frame[at.tcp + 13];
        }
        let (src, dst) = addresses(self.first(), at)?;
        let length = bytes.len() - at.tcp;
        if at.v4 {
            let total = ((bytes.len() - at.ip) as u16).to_be_bytes();
            bytes[at.ip + 2..at.ip + 4].copy_from_slice(&total);
            bytes[at.ip + 10..at.ip + 12].fill(0);
            let sum = checksum::Sum::of(&bytes[at.ip..at.tcp]).checksum();
            bytes[at.ip + 10..at.ip + 12].copy_from_slice(&sum);
        } else {
            bytes[at.ip + 4..at.ip + 6].copy_from_slice(&(length as u16).to_be_bytes());
        }
        let pseudo = checksum::pseudo_header(&src, &dst, protocol::TCP, length as u32);
        bytes[at.tcp + CHECKSUM..at.tcp + CHECKSUM + 2].copy_from_slice(&pseudo.fold().to_ne_bytes());
        let checksum_partial = Some(PartialChecksum { start: at.tcp as u16, offset: CHECKSUM as u16 });
        Some((bytes, TxMeta { checksum_partial, gso_size, header_len: at.text as u16 }))
    }
}
