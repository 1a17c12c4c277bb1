//! Owns what strangers may cost a lane that has others to serve: how many packets of theirs may come to nothing, and which are turned away
//! when that is used up.
//!
//! A stranger is who has no [path](crate::paths), nor had one lately: nobody who has completed a handshake, and nobody whom we called. Each
//! packet that finds nothing here (a SYN, until its handshake is complete; an ACK or RST of no flow; a fragment of TCP) costs one of a
//! stock, which grows with time, and with each poll that finds the queue empty. When it is used up, a stranger's packet ends before its
//! checksum is looked at, unless it is of a flow that there is, or bears a cookie. So whatever comes from everywhere cannot take from
//! those who are served more than a part of the lane's time ([decision 0042](../../../docs/decisions/0042-a-stock-for-strangers.md)).

use crate::counters::Mib;
use crate::lane::Local;
use crate::moving::{Decider, Note, Via};
use crate::tables::Tables;
use crate::worker::Lent;
use arrayvec::ArrayVec;
use laneway_device::{BATCH_MAX, Medium};
use laneway_proto::discard::Discard;
use laneway_proto::ethernet;
use laneway_proto::ip::input;
use laneway_proto::tcp::listen;
use laneway_proto::time::Instant;
use laneway_sync::prefetch::prefetch_line;
use laneway_wire::ethernet::{EtherType, Mac};
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::protocol;
use laneway_wire::tcp::{Flags, SeqNum};

/// Packets that may come to nothing at once: more than any queue in front of a lane holds, so that many who begin in the same moment are
/// all heard.
const FULL: i32 = 16_384;
/// So many more each millisecond. One takes 0.3 to 0.5 µs, so that they are a thirtieth of the lane's time at the most.
const EACH_MS: i32 = 64;
/// So many more whenever the queue is empty: then there is time for strangers.
const EACH_IDLE_POLL: i32 = 16;
/// The header of IPv4 and that of TCP, both without options.
const HEADER_LEN: usize = 20;
/// Those behind that of a frame.
const HEADERS_LEN: usize = ethernet::HEADER_LEN + 2 * HEADER_LEN - 1;

/// How many packets may come to nothing yet.
#[derive(Debug)]
pub(crate) struct Strangers {
    stock: i32,
    /// Until when time was added to it, in units of 1,024 µs.
    grown_until: u64,
}

impl Default for Strangers {
    fn default() -> Self {
        Strangers { stock: FULL, grown_until: 0 }
    }
}

impl Strangers {
    /// A poll has found so many frames.
    #[inline(always)]
    pub(crate) fn on_poll(&mut self, frames: usize, now: Instant) {
        if self.stock < FULL {
            self.grow(frames == 0, now);
        }
    }

    #[inline(never)]
    fn grow(&mut self, idle: bool, now: Instant) {
        let until = now.as_us() >> 10;
        let passed = until.saturating_sub(self.grown_until).min((2 * FULL / EACH_MS + 1) as u64) as i32;
        self.grown_until = until;
        let more = passed * EACH_MS + if idle { EACH_IDLE_POLL } else { 0 };
        self.stock = (self.stock + more).min(FULL);
    }

    /// A packet has found nothing. What is beyond the stock is taken from what it grows by next, as far as it is no more than a full one: of those who are known many have
    /// a handshake under way, and are not to give back more than was taken.
    #[inline(always)]
    pub(crate) fn on_nothing(&mut self) {
        self.stock -= i32::from(self.stock > -FULL);
    }

    /// A handshake is complete: its SYN has not come to nothing.
    #[inline(always)]
    pub(crate) fn on_welcome(&mut self) {
        self.stock += i32::from(self.stock < FULL);
    }

    /// The stock is used up.
    #[inline(always)]
    pub(crate) fn have_to_wait(&self) -> bool {
        self.stock <= 0
    }
}

/// What can be seen of a packet of TCP before any of it is verified.
#[derive(Clone, Copy)]
struct Glance<'a> {
    src: Address,
    dst: Address,
    /// The identification of the datagram of which it is a fragment, or the segment's header.
    what: Result<&'a [u8; HEADER_LEN], u32>,
}

impl Glance<'_> {
    /// Whose segment this is the header of.
    #[inline(always)]
    fn flow(&self, &[r0, r1, l0, l1, ..]: &[u8; HEADER_LEN]) -> FlowKey {
        FlowKey {
            local: self.dst,
            remote: self.src,
            local_port: u16::from_be_bytes([l0, l1]),
            remote_port: u16::from_be_bytes([r0, r1]),
        }
    }
}

/// Of a packet whose header is as nearly all are. `None`: it is another, or no TCP, or something is wrong with it.
#[inline(always)]
fn usual_glance(packet: &[u8]) -> Option<Glance<'_>> {
    let (header, rest) = packet.split_first_chunk::<HEADER_LEN>()?;
    let [0x45, _, _, _, i0, i1, f0, f1, _, protocol::TCP, _, _, s0, s1, s2, s3, d0, d1, d2, d3] = *header else {
        return None;
    };
    // More follow, or some have gone before.
    let is_fragment = u16::from_be_bytes([f0, f1]) & 0x3fff != 0;
    let what = if is_fragment { Err(u32::from(u16::from_be_bytes([i0, i1]))) } else { Ok(rest.first_chunk()?) };
    Some(Glance { src: Address::from_v4([s0, s1, s2, s3]), dst: Address::from_v4([d0, d1, d2, d3]), what })
}

/// Of any other. `None`: it is no TCP, or something is wrong with it, which is found out as it always is.
#[inline(never)]
fn close_glance(packet: &[u8]) -> Option<Glance<'_>> {
    let packet = input::input(packet, /* header_checksum_verified= */ true).ok()?;
    if packet.protocol != protocol::TCP {
        return None;
    }
    let what = match packet.fragment {
        Some(fragment) => Err(fragment.id),
        None => Ok(packet.payload.first_chunk()?),
    };
    Some(Glance { src: packet.src, dst: packet.dst, what })
}

/// Which of `n` frames go on, now that [strangers have to wait](Strangers::have_to_wait). The others have been counted.
#[inline(never)]
pub(crate) fn admitted<'a>(
    local: &mut Local,
    tables: &Tables,
    n: usize,
    lent: impl Lent<'a>,
) -> ArrayVec<u8, BATCH_MAX> {
    let mut admitted = ArrayVec::new();
    for i in 0..n {
        // Nothing hides the wait for one of them, because next to nothing is done with it.
        let bytes = lent.frame(i).0.bytes.as_ptr();
        prefetch_line(bytes);
        prefetch_line(bytes.wrapping_add(HEADERS_LEN));
    }
    let (mut octets, mut segments) = (0, 0);
    for i in 0..n {
        let (frame, mailed) = lent.frame(i);
        if !is_turned_away(local, tables, frame.bytes, mailed, (&mut octets, &mut segments)) {
            admitted.push(i as u8);
        }
    }
    local.counters.discard_all(Discard::TcpStranger, n - admitted.len());
    local.counters.add(Mib::IpExtInOctets, octets);
    local.counters.add(Mib::TcpInSegs, segments);
    admitted
}

/// Whether a frame goes no further. `mailed`: it is a packet from another lane.
#[inline(always)]
fn is_turned_away(
    local: &mut Local,
    tables: &Tables,
    frame: &[u8],
    mailed: Option<Note>,
    (octets, segments): (&mut u64, &mut u64),
) -> bool {
    let bare = mailed.is_some() || local.medium == Medium::Ip;
    let Some(packet) = (if bare { Some(frame) } else { carried(frame, local.paths.mac()) }) else { return false };
    let (is_stranger, is_segment) = match usual_glance(packet) {
        // Apart, so that what is known of the usual one stays at hand.
        Some(glance) => (is_strangers(local, tables, (packet, mailed), glance), glance.what.is_ok()),
        None => {
            let Some(glance) = close_glance(packet) else { return false };
            (is_strangers(local, tables, (packet, mailed), glance), glance.what.is_ok())
        }
    };
    if is_stranger && mailed.is_none() {
        // That of another lane was counted there.
        *octets += packet.len() as u64;
        *segments += u64::from(is_segment);
    }
    is_stranger
}

/// Whether a packet is of nobody known, and of no use.
#[inline(always)]
fn is_strangers(
    local: &mut Local,
    tables: &Tables,
    (packet, mailed): (&[u8], Option<Note>),
    glance: Glance<'_>,
) -> bool {
    if local.paths.lead(&glance.dst, &glance.src) {
        return false;
    }
    if local.steering.lanes() > 1 && is_for_another_lane(local, packet, mailed) {
        return false;
    }
    match glance.what {
        Ok(tcp) => !ends_a_handshake(local, tables, packet, glance.flow(tcp), tcp),
        Err(_) => true,
    }
}

/// It may be the end of a handshake that is under way, or was answered with a cookie.
#[inline(always)]
fn ends_a_handshake(local: &mut Local, tables: &Tables, packet: &[u8], key: FlowKey, tcp: &[u8; HEADER_LEN]) -> bool {
    if begins(tcp) {
        return false;
    }
    let flags = Flags::from_bits(tcp[FLAGS_AT]);
    // Whoever has a connection is known. A half-open entry was found lately, where it was put.
    tables.is_half_open_near(key.mix()) || !flags.intersects(Flags::SYN | Flags::RST) && may_bear_cookie(local, packet)
}

/// Where the flags are in a TCP header.
const FLAGS_AT: usize = 13;
const SYN: u8 = Flags::SYN.bits();
const SYN_ACK: u8 = SYN | Flags::ACK.bits();

/// It is a SYN, and begins something.
#[inline(always)]
fn begins(tcp: &[u8; HEADER_LEN]) -> bool {
    tcp[FLAGS_AT] & SYN_ACK == SYN
}

/// The packet in a frame of Ethernet, if that is what its type says. One that is for another host is nobody's packet, and counted as such.
#[inline(always)]
fn carried(frame: &[u8], ours: Mac) -> Option<&[u8]> {
    let (ethertype, packet, _) = ethernet::accept(frame, ours).ok()?;
    (ethertype == EtherType::IPV4 || ethertype == EtherType::IPV6).then_some(packet)
}

// Both of these look at the packet once more: two addresses that were laid down for them, in pieces of four bytes, would be waited for by
// all who are turned away.

/// Another lane is to judge it.
#[inline(never)]
fn is_for_another_lane(local: &mut Local, packet: &[u8], mailed: Option<Note>) -> bool {
    let Some(glance) = usual_glance(packet).or_else(|| close_glance(packet)) else { return true };
    match glance.what {
        Ok(tcp) => {
            let via = mailed.map_or(Via::Direct, |note| note.via);
            local.decider(&glance.flow(tcp), via, begins(tcp)) != Decider::Here
        }
        Err(id) => local.steering.lane_of_fragments(glance.src, glance.dst, id) != local.id,
    }
}

/// What it acknowledges may be a cookie of ours.
#[inline(never)]
fn may_bear_cookie(local: &mut Local, packet: &[u8]) -> bool {
    local.cookies_may_come()
        && match usual_glance(packet) {
            Some(glance) => acknowledges_one(local, glance),
            None => close_glance(packet).is_none_or(|glance| acknowledges_one(local, glance)),
        }
}

#[inline(always)]
fn acknowledges_one(local: &Local, glance: Glance<'_>) -> bool {
    let Ok(tcp) = glance.what else { return false };
    let [_, _, _, _, s0, s1, s2, s3, a0, a1, a2, a3, ..] = *tcp;
    let seq = SeqNum::new(u32::from_be_bytes([s0, s1, s2, s3]));
    let ack = SeqNum::new(u32::from_be_bytes([a0, a1, a2, a3]));
    listen::may_bear_cookie(&glance.flow(tcp), seq, ack, &local.secrets.get(), local.now)
}

#[cfg(test)]
mod tests;
