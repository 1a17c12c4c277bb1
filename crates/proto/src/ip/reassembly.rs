//! Owns the fragments of datagrams that are not whole yet, under a hard budget of bytes and entries.
//!
//! Off the packet's path: TCP does not meet fragments. Every rule here has an attack behind it:
//! - A datagram in which two fragments overlap is refused whole and stays refused (RFC 5722, for IPv4 as well): overlaps are
//!   only ever sent to show one thing to a filter and another to us. An exact repetition of a fragment is harmless.
//! - The first fragment must hold the whole transport header (RFC 1858, RFC 7112), for the same reason.
//! - The pieces of one datagram are counted (CVE-2018-5391), and held apart: a fragment at the far end costs its own length,
//!   not the hole before it.
//! - An IPv4 sender has 65,536 numbers for his datagrams, which he may have used up within a second. What is left of one is given up when so many others
//!   have begun that the next with its number may be under way: two that are mixed have a right checksum once in a while (RFC 4963).
//! - When the budget is used up the oldest datagram goes. To refuse the newest instead would let one burst shut out everybody for
//!   the whole timeout.
//! - Where a datagram is kept is found by a keyed hash, and the memory of one that goes is that of the next: a flood of small
//!   fragments costs neither long searches nor calls of the heap.

use crate::discard::Discard;
use crate::ip::input::{FragmentInfo, Packet};
use crate::time::Instant;
use core::hint::cold_path;
use laneway_wire::checksum::Sum;
use laneway_wire::flow::Address;
use laneway_wire::keyed_hash::HashKey;
use laneway_wire::{ipv4, ipv6, protocol};

mod store;
use store::{Age, At, Store};

#[cfg(test)]
mod tests;

/// The limits of one lane's [`Reassembly`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes held at most, bookkeeping included (the kernel's `ipfrag_high_thresh`, per lane).
    pub bytes_max: usize,
    /// Datagrams under way at most.
    pub entries_max: usize,
    /// Pieces of one datagram at most.
    pub pieces_max: usize,
    /// How long an IPv4 datagram is waited for, microseconds (the kernel's `ipfrag_time`).
    pub timeout_v4_us: u64,
    /// How long an IPv6 datagram is waited for, microseconds (RFC 8200 section 4.5).
    pub timeout_v6_us: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            bytes_max: 1 << 20,
            entries_max: 256,
            pieces_max: 128,
            timeout_v4_us: 30_000_000,
            timeout_v6_us: 60_000_000,
        }
    }
}

/// What a piece or a datagram is taken to cost besides its bytes: allocations are not free, however small.
const OVERHEAD: usize = 64;

/// Whether a packet with the header of such a fragment and so much text has a length that its field can say. That of IPv6 counts from behind the
/// fixed header, and the fragment header goes.
fn is_too_long(fragment_header: &[u8], text: usize) -> bool {
    let v4 = fragment_header.first().is_some_and(|first| first >> 4 == 4);
    let uncounted = if v4 { 0 } else { ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN };
    fragment_header.len().saturating_sub(uncounted) + text > usize::from(u16::MAX)
}

/// A datagram that is whole: one IP packet without any sign of fragmentation, to be judged by [`super::input::input`] like
/// one that has just arrived. (An IPv4 header checksum is filled in and need not be verified.)
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reassembled {
    /// The IP packet.
    pub packet: Vec<u8>,
    /// Some fragment of it went to a group, as [`Packet::to_group`] says of one packet.
    pub to_group: bool,
}

/// A datagram that was not whole in time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expired {
    /// The first fragment, if it had come: "time exceeded, code 1" is sent for it (RFC 1122 section 3.3.2, RFC 8200 section
    /// 4.5).
    pub first_fragment: Option<FirstFragment>,
}

/// The first fragment of a datagram, its payload cut to what an ICMP error quotes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FirstFragment {
    first: First,
    header: Vec<u8>,
    payload: Vec<u8>,
}

impl FirstFragment {
    /// As it came, for [`crate::icmp::error_reply`].
    pub fn packet(&self) -> Packet<'_> {
        let First { src, dst, protocol, hop_limit, ecn, to_group, info } = self.first;
        let (header, payload, fragment) = (&*self.header, &*self.payload, Some(info));
        Packet { src, dst, protocol, hop_limit, ecn, header, payload, fragment, to_group }
    }
}

/// Which fragments belong together. (RFC 791: IPv4 tells apart protocols too; RFC 8200 does not, and 0 stands there.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key {
    src: [u32; 4],
    dst: [u32; 4],
    id: u32,
    protocol: u8,
}

impl Key {
    fn of(packet: &Packet<'_>, info: FragmentInfo) -> Key {
        Key {
            src: packet.src.words(),
            dst: packet.dst.words(),
            id: info.id,
            protocol: if packet.src.is_v4() { packet.protocol } else { 0 },
        }
    }

    /// Over IPv4 of the 13 bytes that it is.
    #[inline(always)]
    fn hash(&self, age: Age, secret: &HashKey) -> u64 {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let ([a, b, c, d], [e, f, g, h]) = (self.src, self.dst);
        let last = pair(self.id, self.protocol.into());
        match age {
            Age::V4 => secret.sip13_tail(&[pair(d, h)], last, 5),
            Age::V6 => secret.sip13_words(&[pair(a, b), pair(c, d), pair(e, f), pair(g, h), last]),
        }
    }
}

#[derive(Debug, Default)]
struct Datagram {
    /// Bytes charged to the budget.
    charged: usize,
    progress: Progress,
}

impl Default for Progress {
    fn default() -> Self {
        Progress::Collecting(Collecting::default())
    }
}

#[derive(Debug)]
enum Progress {
    Collecting(Collecting),
    //= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
    //# If any of the fragments being reassembled overlap with any other fragments being reassembled for the same packet,
    //# reassembly of that packet must be abandoned and all the fragments that have been received for that packet must be
    //# discarded
    Refused,
}

#[derive(Debug, Default)]
struct Collecting {
    /// By offset; no two meet.
    pieces: Vec<Piece>,
    /// Bytes in `pieces`.
    held: usize,
    /// The datagram's length, once its last fragment has come.
    total: Option<u32>,
    /// The first fragment, once it has come, and its header, which the datagram gets.
    first: Option<First>,
    header: Vec<u8>,
    /// Which of the four ECN values were seen, a bit each.
    ecn_seen: u8,
    /// Some fragment went to a group.
    to_group: bool,
}

/// Of a first fragment what its payload does not say, nor its header where it is kept. It holds no memory, so that there is nothing to give back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct First {
    src: Address,
    dst: Address,
    protocol: u8,
    hop_limit: u8,
    ecn: u8,
    to_group: bool,
    info: FragmentInfo,
}

#[derive(Debug)]
struct Piece {
    offset: u32,
    more: bool,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> u32 {
        self.offset + self.bytes.len() as u32
    }
}

/// The datagrams under way on one lane.
#[derive(Debug)]
pub struct Reassembly {
    config: Config,
    datagrams: Store,
    /// What the last datagram that had to make room leaves to the next.
    spare: Spare,
    bytes: usize,
    evicted: u64,
}

/// Memory of a datagram that is gone: of its list of pieces, of a piece, of its header. What is taken from it is at least half full,
/// so that the budget means what it says.
#[derive(Debug, Default)]
struct Spare {
    pieces: Vec<Piece>,
    bytes: Vec<u8>,
    header: Vec<u8>,
}

/// After so many others what is left of an IPv4 datagram is given up: half as many as a sender has numbers.
const OVERTAKEN: u64 = 32_768;

/// More is not kept for the next.
const SPARE_MAX: usize = 256;

/// A copy of `bytes`, in `spare` if that suits.
fn copied(bytes: &[u8], spare: &mut Vec<u8>) -> Vec<u8> {
    let suits = (bytes.len()..=2 * bytes.len()).contains(&spare.capacity());
    let mut copy = if suits { core::mem::take(spare) } else { Vec::with_capacity(bytes.len()) };
    copy.clear();
    copy.extend_from_slice(bytes);
    copy
}

impl Spare {
    /// Takes what it can use of a datagram that is gone, and leaves nothing.
    fn keep(&mut self, gone: &mut Datagram) {
        let Progress::Collecting(collecting) = &mut gone.progress else {
            return gone.progress = Progress::default();
        };
        // What is in hand changes places with what is kept, which is mostly nothing: it was lent to the one before.
        if let Some(piece) = collecting.pieces.pop() {
            self.bytes = piece.bytes;
        }
        collecting.pieces.clear();
        core::mem::swap(&mut self.pieces, &mut collecting.pieces);
        core::mem::swap(&mut self.header, &mut collecting.header);
        (collecting.held, collecting.total, collecting.first) = (0, None, None);
        (collecting.ecn_seen, collecting.to_group) = (0, false);
        let pieces = self.pieces.capacity() * size_of::<Piece>();
        if pieces.max(self.bytes.capacity()).max(self.header.capacity()) > SPARE_MAX
            || collecting.pieces.capacity() + collecting.header.capacity() > 0
        {
            cold_path();
            self.shrink();
            gone.progress = Progress::default();
        }
    }

    /// More than that is not kept.
    fn shrink(&mut self) {
        if self.pieces.capacity() * size_of::<Piece>() > SPARE_MAX {
            self.pieces = Vec::new();
        }
        for bytes in [&mut self.bytes, &mut self.header] {
            if bytes.capacity() > SPARE_MAX {
                *bytes = Vec::new();
            }
        }
    }
}

impl Reassembly {
    /// Nothing under way.
    pub fn new(config: Config) -> Self {
        Reassembly { config, datagrams: Store::new(config.entries_max), spare: Spare::default(), bytes: 0, evicted: 0 }
    }

    /// A fragment arrived. `Ok(Some(_))` when it makes its datagram whole. `secret`: the same for all of them, and no sender's to know.
    ///
    /// # Panics
    /// If `packet` is not a fragment: whole packets have no business here.
    pub fn on_fragment(
        &mut self,
        packet: &Packet<'_>,
        secret: &HashKey,
        now: Instant,
    ) -> Result<Option<Reassembled>, Discard> {
        let Some(info) = packet.fragment else { panic!("only fragments are reassembled") };
        check(packet, info)?;
        let key = Key::of(packet, info);
        let age = if packet.src.is_v4() { Age::V4 } else { Age::V6 };
        let hash = key.hash(age, secret);
        let cost = packet.payload.len() + OVERHEAD + if info.offset == 0 { packet.header.len() } else { 0 };
        let mut known = self.datagrams.find(hash, &key);
        if let Some(at) = known
            && age == Age::V4
            && self.datagrams.begun_since(at) > OVERTAKEN
        {
            cold_path();
            self.give_up(at);
            known = None;
        }
        if !self.make_room(cost, known) {
            return Err(Discard::FragmentBudget);
        }
        let at = match known {
            Some(at) => at,
            None => {
                let timeout = match age {
                    Age::V4 => self.config.timeout_v4_us,
                    Age::V6 => self.config.timeout_v6_us,
                };
                let at = self.datagrams.begin(hash, key, (age, now.after_us(timeout)));
                self.bytes += OVERHEAD;
                let datagram = self.datagrams.get_mut(at);
                datagram.charged = OVERHEAD;
                if let Progress::Collecting(collecting) = &mut datagram.progress {
                    collecting.pieces = core::mem::take(&mut self.spare.pieces);
                }
                at
            }
        };
        let datagram = self.datagrams.get_mut(at);
        let Progress::Collecting(collecting) = &mut datagram.progress else {
            return Err(Discard::FragmentOverlap);
        };
        match collecting.add(packet, info, self.config.pieces_max, &mut self.spare) {
            Ok(Added::Repeated) => return Ok(None),
            Ok(Added::New) => {
                datagram.charged += cost;
                self.bytes += cost;
            }
            Err(why) => {
                self.bytes -= datagram.charged - OVERHEAD;
                datagram.charged = OVERHEAD;
                datagram.progress = Progress::Refused;
                return Err(why);
            }
        }
        if !collecting.is_whole() {
            return Ok(None);
        }
        match self.end(at).progress {
            Progress::Collecting(collecting) => collecting.join().map(Some),
            Progress::Refused => Ok(None),
        }
    }

    /// Gives up the next datagram that was not whole in time. Call until `None`, at or after [`Reassembly::poll_timeout`];
    /// earlier is harmless. Each `Some` is a [`Discard::FragmentTimeout`].
    pub fn poll_expired(&mut self, now: Instant) -> Option<Expired> {
        for age in [Age::V6, Age::V4] {
            while let Some((at, expires)) = self.datagrams.oldest_of(age)
                && expires <= now
            {
                // A refused datagram was discarded and counted when it was refused.
                if let Progress::Collecting(collecting) = self.end(at).progress {
                    return Some(Expired { first_fragment: collecting.quote() });
                }
            }
        }
        None
    }

    /// Gives up all that was not whole in time, and says how many datagrams that were.
    pub fn on_timeout(&mut self, now: Instant) -> usize {
        core::iter::from_fn(|| self.poll_expired(now)).count()
    }

    /// When something has to be given up next. Changes after `on_fragment`, `poll_expired` and `on_timeout`.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [Age::V6, Age::V4].into_iter().filter_map(|age| self.datagrams.oldest_of(age)).map(|(_, expires)| expires).min()
    }

    /// Datagrams under way, refused ones included.
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.datagrams.len() == 0
    }

    /// Bytes charged to the budget.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many datagrams had to make room for others, or were overtaken by so many that the next with their number may have come, ever: each is a [`Discard::FragmentBudget`], beside what
    /// [`on_fragment`](Self::on_fragment) says of the fragment itself. Those that were refused before are not among them.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Gives up the oldest datagrams until a fragment of `cost` bytes can be taken in, of a datagram that is `known` or of a new one.
    /// `false` if it cannot: its datagram does not fit into the budget even alone, or was itself the oldest and is gone.
    fn make_room(&mut self, cost: usize, known: Option<At>) -> bool {
        let (new, own) = match known {
            Some(at) => (0, self.datagrams.get(at).charged),
            None => (1, OVERHEAD),
        };
        if own + cost > self.config.bytes_max || self.config.entries_max == 0 {
            return false;
        }
        while self.bytes + new * OVERHEAD + cost > self.config.bytes_max
            || self.datagrams.len() + new > self.config.entries_max
        {
            let Some(oldest) = self.datagrams.oldest() else { return false };
            if Some(oldest) == known {
                // What its own fragment is said of counts for it.
                self.forget(oldest);
                return false;
            }
            self.give_up(oldest);
        }
        true
    }

    /// Ends one that is not whole, and counts it, unless it has been counted already.
    fn give_up(&mut self, at: At) {
        self.evicted += u64::from(!self.forget(at));
    }

    /// Ends one that is not whole, and says whether it had been refused.
    fn forget(&mut self, at: At) -> bool {
        let gone = self.datagrams.end(at);
        self.bytes -= gone.charged;
        let was_refused = matches!(gone.progress, Progress::Refused);
        self.spare.keep(gone);
        was_refused
    }

    fn end(&mut self, at: At) -> Datagram {
        let datagram = core::mem::take(self.datagrams.end(at));
        self.bytes -= datagram.charged;
        datagram
    }
}

enum Added {
    New,
    Repeated,
}

impl Collecting {
    /// Takes in a fragment, or says why the whole datagram is to be refused.
    fn add(
        &mut self,
        packet: &Packet<'_>,
        info: FragmentInfo,
        pieces_max: usize,
        spare: &mut Spare,
    ) -> Result<Added, Discard> {
        let end = info.offset + packet.payload.len() as u32;
        let at = self.pieces.partition_point(|piece| piece.offset < info.offset);
        if let Some(same) = self.pieces.get(at)
            && same.offset == info.offset
            && same.more == info.more
            && same.bytes == packet.payload
        {
            return Ok(Added::Repeated);
        }
        let meets_before = at.checked_sub(1).is_some_and(|before| self.pieces[before].end() > info.offset);
        let meets_after = self.pieces.get(at).is_some_and(|after| after.offset < end);
        // Two ends, or something beyond the end: as contradictory as an overlap.
        let contradicts = match self.total {
            Some(total) => !info.more || end > total,
            None => !info.more && self.pieces.last().is_some_and(|last| last.end() > end),
        };
        if meets_before || meets_after || contradicts {
            return Err(Discard::FragmentOverlap);
        }
        if self.pieces.len() >= pieces_max {
            return Err(Discard::FragmentBudget);
        }
        if info.offset == 0 {
            let Packet { src, dst, protocol, hop_limit, ecn, to_group, .. } = *packet;
            self.first = Some(First { src, dst, protocol, hop_limit, ecn, to_group, info });
            self.header = copied(packet.header, &mut spare.header);
        }
        if !info.more {
            self.total = Some(end);
        }
        self.ecn_seen |= 1 << (packet.ecn & 3);
        self.to_group |= packet.to_group;
        self.held += packet.payload.len();
        let bytes = copied(packet.payload, &mut spare.bytes);
        self.pieces.insert(at, Piece { offset: info.offset, more: info.more, bytes });
        Ok(Added::New)
    }

    /// Nothing overlaps, so the lengths tell.
    fn is_whole(&self) -> bool {
        self.total.is_some_and(|total| total as usize == self.held)
    }

    /// The datagram as one packet, under the first fragment's header.
    fn join(self) -> Result<Reassembled, Discard> {
        let header = self.header;
        let v4 = header.first().is_some_and(|first| first >> 4 == 4);
        let header_len = if v4 { header.len() } else { header.len().saturating_sub(ipv6::FRAGMENT_HEADER_LEN) };
        if is_too_long(&header, self.held) {
            return Err(Discard::FragmentMalformed);
        }
        let ecn = join_ecn(self.ecn_seen)?;
        let mut packet = Vec::with_capacity(header_len + self.held);
        packet.extend_from_slice(&header[..header_len]);
        if v4 {
            mend_v4(&mut packet, ecn, self.held)
        } else {
            mend_v6(&mut packet, ecn, self.held, &header[header_len..])
        }
        .ok_or(Discard::FragmentMalformed)?;
        for piece in &self.pieces {
            packet.extend_from_slice(&piece.bytes);
        }
        Ok(Reassembled { packet, to_group: self.to_group })
    }

    /// What an ICMP error about the datagram would quote.
    fn quote(self) -> Option<FirstFragment> {
        const QUOTED_MAX: usize = 1232;
        let first = self.first?;
        let (header, piece) = (self.header, self.pieces.first().filter(|piece| piece.offset == 0)?);
        let room = QUOTED_MAX.saturating_sub(header.len());
        let payload = piece.bytes[..piece.bytes.len().min(room)].to_vec();
        Some(FirstFragment { first, header, payload })
    }
}

/// The ECN bits of the whole from those of the parts (RFC 3168 section 5.3): one mark of congestion marks the whole, unless a
/// part says that it could not have been marked; then the datagram is dropped, which is a congestion signal as well.
fn join_ecn(seen: u8) -> Result<u8, Discard> {
    const NOT_ECT: u8 = 1 << 0;
    const ECT_1: u8 = 1 << 1;
    const CE: u8 = 1 << 3;
    match seen {
        _ if seen & CE != 0 && seen & NOT_ECT != 0 => Err(Discard::FragmentMalformed),
        _ if seen & CE != 0 => Ok(3),
        _ if seen & NOT_ECT != 0 => Ok(0),
        ECT_1 => Ok(1),
        _ => Ok(2),
    }
}

/// Makes the first fragment's IPv4 header that of the whole.
fn mend_v4(header: &mut [u8], ecn: u8, payload_len: usize) -> Option<()> {
    let total = (header.len() + payload_len) as u16;
    let fixed = header.first_chunk_mut::<{ ipv4::HEADER_LEN }>()?;
    fixed[1] = fixed[1] & !3 | ecn;
    fixed[2..4].copy_from_slice(&total.to_be_bytes());
    fixed[6..8].fill(0);
    fixed[10..12].fill(0);
    let checksum = Sum::of(header).checksum();
    header.get_mut(10..12)?.copy_from_slice(&checksum);
    Some(())
}

/// Makes the headers before the fragment header those of the whole: whatever named the fragment header names what it named.
fn mend_v6(headers: &mut [u8], ecn: u8, payload_len: usize, fragment_header: &[u8]) -> Option<()> {
    const FIXED: usize = ipv6::HEADER_LEN;
    let next = *fragment_header.first()?;
    let payload_len = (headers.len().checked_sub(FIXED)? + payload_len) as u16;
    headers[1] = headers[1] & 0xcf | ecn << 4;
    headers[4..6].copy_from_slice(&payload_len.to_be_bytes());
    let named_at = ipv6::names_upper(headers);
    *headers.get_mut(named_at)? = next;
    Some(())
}

/// What can be said about a fragment without knowing the others.
fn check(packet: &Packet<'_>, info: FragmentInfo) -> Result<(), Discard> {
    let len = packet.payload.len();
    if len == 0 || info.more && !len.is_multiple_of(8) {
        return Err(Discard::FragmentMalformed);
    }
    if is_too_long(packet.header, info.offset as usize + len) {
        return Err(Discard::FragmentMalformed);
    }
    if info.offset == 0 && !holds_headers(packet) {
        return Err(Discard::FragmentTiny);
    }
    Ok(())
}

/// Whether a first fragment holds every header down to the end of the transport's.
//= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
//# If the first fragment does not include all headers through an Upper-Layer header, then that fragment should be
//# discarded
fn holds_headers(packet: &Packet<'_>) -> bool {
    let mut upper = (packet.protocol, packet.payload);
    if !packet.src.is_v4() {
        // A fragment header inside a fragment has no honest use, and would be reassembled twice.
        const FRAGMENT: u8 = 44;
        let found = ipv6::walk(packet.protocol, packet.payload);
        if packet.protocol == FRAGMENT || found.is_ok_and(|found| found.fragment.is_some()) {
            return false;
        }
        // What the headers say is judged when the datagram is whole: here it matters that they are there.
        let Some((protocol, at)) = ipv6::skip(packet.protocol, packet.payload) else { return false };
        let Some(bytes) = packet.payload.get(at..) else { return false };
        upper = (protocol, bytes);
    }
    let (protocol, bytes) = upper;
    match protocol {
        protocol::TCP => bytes.get(12).is_some_and(|offset| bytes.len() >= usize::from(offset >> 4).max(5) * 4),
        protocol::UDP | protocol::ICMPV4 | protocol::ICMPV6 => bytes.len() >= 8,
        _ => true,
    }
}
