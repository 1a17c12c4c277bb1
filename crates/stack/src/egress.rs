//! Owns the way out: where the bytes of a packet are written, and how it fares there. Which way that is, [`paths`](crate::paths) knows.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → [egress] → device::tx`

use crate::counters::{Counters, Mib};
use crate::lane::Local;
use crate::mail::ToControl;
use crate::mtu_news::MtuNews;
use crate::neighbours::Wait;
use crate::paths::{Path, PathPlace, second_of};
use laneway_device::{PartialChecksum, Tx, TxMeta};
use laneway_proto::discard::Discard;
use laneway_proto::ethernet;
use laneway_proto::ip::fragment::Fragments;
use laneway_proto::ip::output::{self, HeaderSpec, Marks};
use laneway_proto::tcp::connection::effective_mss;
use laneway_proto::tcp::output::Pieces;
use laneway_proto::tcp::{Connection, Plan};
use laneway_sync::prefetch::{LINE, prefetch_lines};
use laneway_wire::checksum::Sum;
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::protocol;
use laneway_wire::segmentation::Place;
use laneway_wire::tcp::{Flags, Header, UsualSyn};
use std::hint::cold_path;

/// How a packet fared.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It is in the device's hands, or waits for its neighbour.
    Yes,
    /// The device is full: keep it and try again next poll.
    Full,
    /// Enough waits for that neighbour already: keep it and try again next poll.
    Waiting,
    /// There is no way there. It is gone, and counted.
    Nowhere,
}

/// A TCP segment to be written: its flow, and how long header and payload are.
pub struct Outgoing<'a> {
    /// The flow, seen from here.
    pub key: &'a FlowKey,
    /// The place of its path.
    pub path: PathPlace,
    /// TCP header with options, bytes.
    pub header_len: usize,
    /// Payload bytes.
    pub payload_len: usize,
}

/// What knows how to write a TCP segment. (No closure: this one must become part of [`segment`], whatever its size. What leaves that
/// path takes a copy along: of what is nowhere else lent, the compiler keeps the parts in registers.)
pub trait Written: Clone {
    /// Fills it in, checksum field zero, and answers with the sum over the payload; with `offloaded` that means nothing.
    fn write(self, buf: &mut [u8], offloaded: bool) -> Sum;

    /// Whether the peer has acknowledged something within the last second: its next hop is alive (RFC 4861 section 7.3.1). Of what is no
    /// connection's nobody knows.
    #[inline(always)]
    fn is_answered(&self) -> bool {
        false
    }

    /// Whether its packet may have marks.
    #[inline(always)]
    fn may_be_marked(&self) -> bool {
        false
    }

    /// Those, if it may.
    #[inline(always)]
    fn marks(&self) -> Marks {
        Marks::NONE
    }

    /// Control bits that are added to what is written, if it may.
    #[inline(always)]
    fn notes(&self) -> Flags {
        Flags::NONE
    }
}

/// Where they lie in a TCP header.
const FLAGS_OFFSET: usize = 13;

/// A segment with more control bits than were planned.
#[derive(Clone)]
struct Noted<W>(W, Flags);

impl<W: Written> Written for Noted<W> {
    fn write(self, buf: &mut [u8], offloaded: bool) -> Sum {
        let Noted(text, notes) = self;
        let sum = text.write(buf, offloaded);
        buf[FLAGS_OFFSET] |= notes.bits();
        sum
    }
}

impl Written for &Header {
    #[inline(always)]
    fn write(self, buf: &mut [u8], _: bool) -> Sum {
        self.emit(buf);
        Sum::ZERO
    }
}

impl Written for UsualSyn {
    #[inline(always)]
    fn write(self, buf: &mut [u8], _: bool) -> Sum {
        self.emit(buf);
        Sum::ZERO
    }
}

/// A header whose packet has marks.
#[derive(Clone)]
struct Marked<'a> {
    header: &'a Header,
    marks: Marks,
}

impl Written for Marked<'_> {
    fn write(self, buf: &mut [u8], offloaded: bool) -> Sum {
        self.header.write(buf, offloaded)
    }

    fn may_be_marked(&self) -> bool {
        true
    }

    fn marks(&self) -> Marks {
        self.marks
    }
}

/// Sends one TCP segment, which `text` writes.
#[inline(always)]
pub fn segment<T: Tx>(local: &mut Local, tx: &mut T, out: Outgoing<'_>, text: impl Written) -> Sent {
    let Outgoing { key, path: place, header_len, payload_len } = out;
    let offloads = local.tx_checksum;
    let Some(mut path) = way(local, tx, key, place, || text.is_answered()) else { return Sent::Nowhere };
    let tcp_len = header_len + payload_len;
    let total = path.header.len() + tcp_len;
    if total > path.carries as usize || text.may_be_marked() {
        cold_path();
        let (marks, notes) = (text.marks(), text.notes());
        if !path.resolved {
            let (mut header, next_hop, is_cut) = (marked(path, marks), path.next_hop, path.is_cut);
            if is_cut {
                header = to_be_cut(local, key, &header);
            }
            let text = Noted(text.clone(), notes);
            return unresolved(local, &header, next_hop, (header_len, tcp_len), text, /* is_kept= */ true);
        }
        if total > path.header.link_len() + path.mtu as usize {
            match narrowed(local, key, place, (header_len, payload_len)) {
                Some(again) => path = again,
                None => return Sent::Nowhere,
            }
        }
        if path.is_cut || !marks.is_none() || notes != Flags::NONE {
            let (mut header, is_cut) = (marked(path, marks), path.is_cut);
            if is_cut {
                header = to_be_cut(local, key, &header);
            }
            let octets = put(tx, key, &header, (header_len, tcp_len, offloads), Noted(text.clone(), notes));
            return count(&mut local.counters, octets);
        }
    }
    let octets = put(tx, key, &path.header, (header_len, tcp_len, offloads), text);
    count(&mut local.counters, octets)
}

/// The headers of what goes by a path, with these marks if there are some.
#[cold]
fn marked(path: &Path, marks: Marks) -> output::Template {
    if marks.is_none() { path.header } else { path.header.marked(marks) }
}

/// The headers of a segment by a path that carries less than is believed of any.
#[cold]
#[inline(never)]
fn to_be_cut(local: &mut Local, key: &FlowKey, header: &output::Template) -> output::Template {
    header.to_be_cut(identification(local, &HeaderSpec::new(key.local, key.remote, protocol::TCP)) as u16)
}

/// Writes a segment to where it leaves from. Says how many octets of IP it has; `None`: the device is full.
#[inline(always)]
fn put<T: Tx>(
    tx: &mut T,
    key: &FlowKey,
    header: &output::Template,
    (header_len, tcp_len, offloads): (usize, usize, bool),
    text: impl Written,
) -> Option<usize> {
    let total = header.len() + tcp_len;
    let buf = tx.reserve_for(total, key)?;
    let tcp = header.emit(buf, tcp_len);
    let (at, pseudo, octets) = (header.len(), header.pseudo(tcp_len), total - header.link_len());
    let payload = text.write(tcp, offloads);
    let meta = checksum(tcp, (header_len, payload, pseudo), offloads.then_some(at));
    tx.commit(total, meta);
    Some(octets)
}

#[inline(always)]
fn count(counters: &mut Counters, octets: Option<usize>) -> Sent {
    let Some(octets) = octets else {
        cold_path();
        counters.count(Mib::TxBusy);
        return Sent::Full;
    };
    counters.count(Mib::IpOutRequests);
    counters.add(Mib::IpExtOutOctets, octets as u64);
    Sent::Yes
}

/// A connection sends segments that its path does not carry any more: its route says so since. It is told, and others to the same peer; this
/// segment may still get through, and if not, it is sent again as smaller ones.
#[cold]
#[inline(never)]
fn narrow(news: &mut MtuNews, key: &FlowKey, mtu: u32, (header_len, payload_len): (usize, usize)) {
    // Below the least that a connection sends, telling it changes nothing.
    let most = effective_mss(u16::MAX, mtu, key.local.is_v4(), header_len > 20);
    if payload_len > usize::from(most) {
        news.learn(key.remote, mtu);
    }
}

/// The same, and the path again.
#[cold]
#[inline(never)]
fn narrowed<'a>(local: &'a mut Local, key: &FlowKey, place: PathPlace, lens: (usize, usize)) -> Option<&'a mut Path> {
    let path = local.paths.at(place, &local.snapshot, &key.local, &key.remote)?;
    narrow(&mut local.mtu_news, key, path.mtu, lens);
    Some(path)
}

/// A segment that waits for its neighbour. It is sent later, by whoever hears of that, and no device completes it. `is_kept`: if it finds no
/// room there, whoever sends it tries again.
#[cold]
#[inline(never)]
fn unresolved(
    local: &mut Local,
    header: &output::Template,
    next_hop: Address,
    (header_len, tcp_len): (usize, usize),
    text: impl Written,
    is_kept: bool,
) -> Sent {
    let mut frame = vec![0; header.len() + tcp_len];
    let tcp = header.emit(&mut frame, tcp_len);
    let payload = text.write(tcp, false);
    complete(tcp, header_len, payload, header.pseudo(tcp_len));
    let sent = wait_for_neighbour(local, next_hop, &frame[header.link_len()..], is_kept);
    if sent == Sent::Yes {
        local.counters.count(Mib::IpOutRequests);
    }
    sent
}

/// Link, IP and TCP header, the last with all its options.
const HEADERS_MAX: usize = ethernet::HEADER_LEN + 40 + 60;

/// Sends a super-segment of `connection`: whole to a device that cuts, or in as few pieces as it takes; else cut here, once,
/// each piece written straight to where it leaves from. Says how many payload bytes left: not all of them, but whole
/// segments, if the device filled up on the way.
#[inline(always)]
pub fn super_segment<T: Tx>(
    local: &mut Local,
    tx: &mut T,
    (connection, path): (&Connection, PathPlace),
    plan: &Plan,
) -> (Sent, u32) {
    let (now, link_len, tso_max) = (local.now, local.medium.header_len(), local.tso_max);
    let (key, place) = (connection.key(), path);
    let answered = || connection.is_answered(now);
    let Some(mut path) = way(local, tx, key, place, answered) else { return (Sent::Nowhere, plan.len) };
    let (header_len, mss) = (usize::from(plan.header_len), usize::from(plan.mss));
    if path.header.len() - link_len + header_len + mss > path.mtu as usize {
        cold_path();
        let mtu = path.mtu;
        narrow(&mut local.mtu_news, key, mtu, (header_len, mss));
        match local.paths.at(place, &local.snapshot, &key.local, &key.remote) {
            Some(again) => path = again,
            None => return (Sent::Nowhere, plan.len),
        }
    }
    let ip_len = path.header.len() - link_len;
    let tcp_len = plan.segment_len();
    if !path.resolved || path.is_cut || is_noted(connection, plan) || ip_len + tcp_len > tso_max {
        let path = *path;
        return in_pieces(local, tx, connection, &path, plan);
    }
    // The device cuts all of it.
    let total = link_len + ip_len + tcp_len;
    let checksum_partial = Some(PartialChecksum { start: (link_len + ip_len) as u16, offset: 16 });
    let headers = link_len + ip_len + usize::from(plan.header_len);
    let meta = TxMeta { checksum_partial, gso_size: plan.mss, header_len: headers as u16 };
    let mut head = [0; HEADERS_MAX];
    let taken = if tx.gathers(total)
        && let tcp = path.header.emit(&mut head[..headers], tcp_len)
        && let Some((first, second)) = connection.parts(plan, now, tcp)
    {
        // And takes the text from where it is queued.
        Header::fill_partial(tcp, path.header.pseudo(tcp_len));
        tx.gather([&head[..headers], first, second], meta)
    } else if let Some(buf) = tx.reserve_for(total, connection.key()) {
        let tcp = path.header.emit(buf, tcp_len);
        connection.build(plan, now, true, tcp);
        Header::fill_partial(tcp, path.header.pseudo(tcp_len));
        tx.commit(total, meta);
        true
    } else {
        false
    };
    if !taken {
        local.counters.count(Mib::TxBusy);
        return (Sent::Full, 0);
    }
    local.counters.count(Mib::IpOutRequests);
    local.counters.add(Mib::IpExtOutOctets, (ip_len + tcp_len) as u64);
    (Sent::Yes, plan.len)
}

/// Whether a packet says more than its plan.
#[inline(always)]
fn is_noted(connection: &Connection, plan: &Plan) -> bool {
    connection.may_be_marked() && !(connection.marks_of(plan).is_none() && connection.notes_of(plan) == Flags::NONE)
}

/// A piece that is longer keeps whoever copies it busy for so long that its text comes by itself.
const FETCH_MAX: usize = 2_048;

/// Has the text of the next piece come while this one is finished: its writer was on another core, mostly.
#[inline(always)]
fn fetch(pieces: &Pieces<'_>, at: usize, len: usize) {
    if let Some((text, _)) = pieces.text(at, len) {
        prefetch_lines(text.as_ptr(), text.len().div_ceil(LINE));
    }
}

/// A super-segment that the device cannot cut, or not in one piece; or whose neighbour is not known yet; or that routers cut again, who must be able to
/// tell its segments apart.
#[inline(never)]
fn in_pieces<T: Tx>(local: &mut Local, tx: &mut T, connection: &Connection, path: &Path, plan: &Plan) -> (Sent, u32) {
    let (now, link_len, tso_max) = (local.now, local.medium.header_len(), local.tso_max);
    let ip_len = path.header.len() - link_len;
    let (header_len, mss) = (usize::from(plan.header_len), usize::from(plan.mss));
    // Whole segments only, as many as the device takes in one piece.
    let room = tso_max.saturating_sub(ip_len + header_len) / mss * mss;
    let most = if path.resolved && !path.is_cut { room.max(mss) } else { mss };
    // CWR is said by a segment alone: not each device that cuts knows that it belongs to the first (RFC 3168 section 6.1.2).
    let first = if connection.notes_of(plan).contains(Flags::CWR) { mss } else { most };
    let pieces = connection.pieces(plan, now);
    let own = marked(path, connection.marks_of(plan));
    let mut header = own;
    let (mut at, len) = (0, plan.len as usize);
    let mut sent = Sent::Yes;
    let mut buffer = Vec::new();
    while at < len {
        let piece = (if at == 0 { first } else { most }).min(len - at);
        let place = Place { forward: at as u32, last: at + piece == len };
        let tcp_len = header_len + piece;
        let total = link_len + ip_len + tcp_len;
        if path.is_cut {
            header = to_be_cut(local, connection.key(), &own);
        }
        let pseudo = header.pseudo(tcp_len);
        if !path.resolved {
            buffer.resize(total, 0);
            let tcp = header.emit(&mut buffer, tcp_len);
            let sum = pieces.write(place, false, tcp) + pseudo;
            tcp[16..18].copy_from_slice(&sum.checksum());
            sent = wait_for_neighbour(local, path.next_hop, &buffer[link_len..], /* is_kept= */ true);
            if sent != Sent::Yes {
                break;
            }
            local.counters.count(Mib::IpOutRequests);
            at += piece;
            continue;
        }
        let Some(buf) = tx.reserve_for(total, connection.key()) else {
            local.counters.count(Mib::TxBusy);
            sent = Sent::Full;
            break;
        };
        let tcp = header.emit(buf, tcp_len);
        let sum = pieces.write(place, local.tx_checksum, tcp);
        if piece <= FETCH_MAX {
            fetch(&pieces, at + piece, piece);
        }
        let mut meta = TxMeta::default();
        if local.tx_checksum {
            Header::fill_partial(tcp, pseudo);
            meta.checksum_partial = Some(PartialChecksum { start: (link_len + ip_len) as u16, offset: 16 });
        } else {
            tcp[16..18].copy_from_slice(&(sum + pseudo).checksum());
        }
        if piece > mss {
            meta.gso_size = plan.mss;
            meta.header_len = (link_len + ip_len + header_len) as u16;
        }
        tx.commit(total, meta);
        at += piece;
    }
    if at > 0 && path.resolved {
        // It is one packet where IP is asked to send it; what a device, or this function, makes of it comes later.
        local.counters.count(Mib::IpOutRequests);
        local.counters.add(Mib::IpExtOutOctets, (ip_len + header_len + at) as u64);
    }
    (if at == len { Sent::Yes } else { sent }, if sent == Sent::Nowhere { plan.len } else { at as u32 })
}

/// The path of a flow, and news of its next hop for the control plane. Without a path the packet is counted as lost.
#[inline(always)]
fn way<'a, T: Tx>(
    local: &'a mut Local,
    tx: &mut T,
    key: &FlowKey,
    place: PathPlace,
    answered: impl FnOnce() -> bool,
) -> Option<&'a mut Path> {
    let Some(path) = local.paths.at(place, &local.snapshot, &key.local, &key.remote) else {
        let _ = no_route(&mut local.counters);
        return None;
    };
    tx.on_behalf(&local.snapshot, path.route);
    if path.confirmed_in != second_of(local.now) {
        path.report(local.now, answered(), &mut local.waiting, &mut local.mail);
    }
    Some(path)
}

#[cold]
#[inline(never)]
fn no_route(counters: &mut Counters) -> Sent {
    counters.count(Mib::IpOutNoRoutes);
    counters.discard(Discard::IpNoRoute);
    Sent::Nowhere
}

/// Fills in the checksum of a segment with such a header length, payload and pseudo-header, or leaves it to a device, for which the
/// segment begins `at` there in the frame.
#[inline(always)]
fn checksum(tcp: &mut [u8], (header_len, payload, pseudo): (usize, Sum, Sum), at: Option<usize>) -> TxMeta {
    match at {
        None => {
            complete(tcp, header_len, payload, pseudo);
            TxMeta::default()
        }
        Some(at) => {
            Header::fill_partial(tcp, pseudo);
            let checksum_partial = Some(PartialChecksum { start: at as u16, offset: 16 });
            TxMeta { checksum_partial, ..TxMeta::default() }
        }
    }
}

#[inline(always)]
fn complete(tcp: &mut [u8], header_len: usize, payload: Sum, pseudo: Sum) {
    // Nearly every segment has a header of 32 bytes, nearly every SYN one of 40, and every reset one of 20.
    let rest = pseudo + payload;
    let sum = match (tcp.first_chunk::<32>(), tcp.first_chunk::<40>(), tcp.first_chunk::<20>()) {
        (Some(plain), ..) if header_len == 32 => rest.and_array(plain),
        (_, Some(syn), _) if header_len == 40 => rest.and_array(syn),
        (.., Some(reset)) if header_len == 20 => rest.and_array(reset),
        _ => rest + Sum::of(&tcp[..header_len]),
    };
    tcp[16..18].copy_from_slice(&sum.checksum());
}

/// Sends a segment that is a header only, of no connection: a challenge, an answer from TIME_WAIT.
#[inline(never)]
pub fn header<T: Tx>(local: &mut Local, tx: &mut T, key: &FlowKey, header: &Header) -> Sent {
    answer(local, tx, key, |_, _| *header)
}

/// Sends a segment that is a header only to somebody of whom nothing is kept: a reset, a cookie. `make` says which, by the largest packet that goes
/// there.
#[inline(always)]
pub fn answer<T: Tx>(local: &mut Local, tx: &mut T, key: &FlowKey, make: impl FnOnce(&Local, u32) -> Header) -> Sent {
    marked_answer(local, tx, key, Marks::NONE, make)
}

/// The same, with these marks.
#[inline(always)]
pub fn marked_answer<T: Tx>(
    local: &mut Local,
    tx: &mut T,
    key: &FlowKey,
    marks: Marks,
    make: impl FnOnce(&Local, u32) -> Header,
) -> Sent {
    let sent = in_passing(local, tx, key, marks, make);
    if sent == Sent::Yes {
        local.counters.count(Mib::TcpOutSegs);
    }
    sent
}

/// The same, and whoever asks for it counts the segment. `make` becomes part of this, so that what it says is not laid down before it is written.
#[inline(always)]
pub fn in_passing<T: Tx>(
    local: &mut Local,
    tx: &mut T,
    key: &FlowKey,
    marks: Marks,
    make: impl FnOnce(&Local, u32) -> Header,
) -> Sent {
    let (offloads, hop_limit) = (local.tx_checksum, local.paths.hop_limit);
    let Some(path) = local.paths.passing(&local.snapshot, key.remote) else { return no_route(&mut local.counters) };
    let (mtu, route, next_hop, resolved) = (path.mtu, path.route, path.next_hop, path.resolved);
    tx.on_behalf(&local.snapshot, route);
    let header = make(local, mtu);
    let tcp_len = header.len();
    let Some(path) = local.paths.passing.as_mut().filter(|_| resolved) else {
        cold_path();
        let spec = HeaderSpec { hop_limit, ..HeaderSpec::new(key.local, key.remote, protocol::TCP) };
        let ahead = output::Template::new(&spec).marked(marks);
        return unresolved(local, &ahead, next_hop, (tcp_len, tcp_len), &header, /* is_kept= */ false);
    };
    if path.used_in != second_of(local.now) {
        path.report(local.now, &mut local.waiting, &mut local.mail);
    }
    let ahead = path.from(&key.local, hop_limit);
    let marked;
    let ahead = match marks.is_none() {
        true => ahead,
        false => {
            cold_path();
            marked = ahead.marked(marks);
            &marked
        }
    };
    let total = ahead.len() + tcp_len;
    let Some(buf) = tx.reserve_for(total, key) else {
        cold_path();
        local.counters.count(Mib::TxBusy);
        return Sent::Full;
    };
    let (tcp, pseudo) = ahead.emit_to(&key.remote, buf, tcp_len);
    let (at, octets) = (ahead.len(), total - ahead.link_len());
    header.emit_here(tcp);
    let meta = checksum(tcp, (tcp_len, Sum::ZERO, pseudo), offloads.then_some(at));
    tx.commit(total, meta);
    local.counters.count(Mib::IpOutRequests);
    local.counters.add(Mib::IpExtOutOctets, octets as u64);
    Sent::Yes
}

/// Sends the SYN or SYN-ACK of a flow, by a path whose place is known. Whoever has just made it has its words at hand: of one as nearly all are only
/// those are laid down.
#[inline(always)]
pub fn syn_at<T: Tx>(local: &mut Local, tx: &mut T, key: &FlowKey, path: PathPlace, header: Header) -> Sent {
    match header.usual_syn() {
        Some(syn) => usual_syn_at(local, tx, key, path, syn),
        None => any_syn_at(local, tx, key, path, header),
    }
}

/// As [`syn_at`], with these marks.
#[inline(always)]
pub fn marked_syn_at<T: Tx>(
    local: &mut Local,
    tx: &mut T,
    (key, path): (&FlowKey, PathPlace),
    header: Header,
    marks: Marks,
) -> Sent {
    match marks.is_none() {
        true => syn_at(local, tx, key, path, header),
        false => marked_any_syn_at(local, tx, (key, path), header, marks),
    }
}

#[cold]
fn marked_any_syn_at<T: Tx>(
    local: &mut Local,
    tx: &mut T,
    (key, path): (&FlowKey, PathPlace),
    header: Header,
    marks: Marks,
) -> Sent {
    let out = Outgoing { key, path, header_len: header.len(), payload_len: 0 };
    segment(local, tx, out, Marked { header: &header, marks })
}

#[inline(never)]
fn usual_syn_at<T: Tx>(local: &mut Local, tx: &mut T, key: &FlowKey, path: PathPlace, syn: UsualSyn) -> Sent {
    let out = Outgoing { key, path, header_len: UsualSyn::LEN, payload_len: 0 };
    segment(local, tx, out, syn)
}

/// One with other options than nearly all have.
#[inline(never)]
fn any_syn_at<T: Tx>(local: &mut Local, tx: &mut T, key: &FlowKey, path: PathPlace, header: Header) -> Sent {
    let out = Outgoing { key, path, header_len: header.len(), payload_len: 0 };
    segment(local, tx, out, &header)
}

/// Sends a whole IP packet that is not TCP's, which `write` fills in, with the host's hop limit if that of `spec` is 0; fragmented if it is longer than the path carries. Over IPv4 routers
/// may cut it as well: what they say of it is not believed, since nothing in it can be verified, so they may not be forbidden to.
pub fn packet<T: Tx>(
    local: &mut Local,
    tx: &mut T,
    spec: &HeaderSpec,
    payload_len: usize,
    write: impl FnOnce(&mut [u8]),
) -> Sent {
    let Some(path) = local.paths.get(&local.snapshot, spec.dst) else {
        return no_route(&mut local.counters);
    };
    let mtu = path.mtu;
    let narrower = if spec.protocol == protocol::ICMPV6 { local.paths.echo_mtu(spec.dst) } else { None };
    let mtu = narrower.map_or(mtu, |narrower| narrower.min(mtu)) as usize;
    // It is one, whatever becomes of it: in how many fragments it leaves is counted by itself.
    local.counters.count(Mib::IpOutRequests);
    let mut payload = vec![0; payload_len];
    write(&mut payload);
    let id = identification(local, spec);
    let hop_limit = if spec.hop_limit == 0 { local.paths.hop_limit } else { spec.hop_limit };
    let spec = &HeaderSpec { hop_limit, dont_fragment: false, id: id as u16, ..*spec };
    let ip_len = spec.len();
    if ip_len + payload_len <= mtu {
        let mut whole = vec![0; ip_len + payload_len];
        output::emit(spec, &mut whole, payload_len);
        whole[ip_len..].copy_from_slice(&payload);
        return raw(local, tx, spec.dst, &whole);
    }
    let Ok(mut pieces) = Fragments::new(spec, id, &payload, mtu) else {
        local.counters.count(Mib::IpFragFails);
        local.counters.discard(Discard::IpNoRoute);
        return Sent::Nowhere;
    };
    while let Some(len) = pieces.next_len() {
        let mut piece = vec![0; len];
        pieces.write_next(&mut piece);
        let sent = raw(local, tx, spec.dst, &piece);
        if sent != Sent::Yes {
            local.counters.count(Mib::IpFragFails);
            return sent;
        }
        local.counters.count(Mib::IpFragCreates);
    }
    local.counters.count(Mib::IpFragOKs);
    Sent::Yes
}

/// What tells this datagram's fragments from those of others. Of IPv6's 32 bits chance is as good as a count; of IPv4's 16 it is not.
fn identification(local: &mut Local, spec: &HeaderSpec) -> u32 {
    if !spec.src.is_v4() {
        return local.chance.next_u64() as u32;
    }
    let pair = FlowKey { local: spec.src, remote: spec.dst, local_port: spec.protocol.into(), remote_port: 0 };
    local.identifications.next(pair.hash(&local.hash_key.get())).into()
}

/// Sends an IP packet that is complete. Whoever asked for it, or for that of which it is a fragment, has counted that.
pub fn raw<T: Tx>(local: &mut Local, tx: &mut T, dst: Address, packet: &[u8]) -> Sent {
    let Some(path) = local.paths.get(&local.snapshot, dst) else { return no_route(&mut local.counters) };
    tx.on_behalf(&local.snapshot, path.route);
    if !path.resolved {
        let next_hop = path.next_hop;
        return wait_for_neighbour(local, next_hop, packet, /* is_kept= */ false);
    }
    if path.confirmed_in != second_of(local.now) {
        path.report(local.now, /* answered= */ false, &mut local.waiting, &mut local.mail);
    }
    let link = path.header.link();
    let total = link.len() + packet.len();
    let Some(buf) = tx.reserve(total) else {
        local.counters.discard(Discard::TxFull);
        return Sent::Full;
    };
    let (front, rest) = buf.split_at_mut(link.len());
    front.copy_from_slice(link);
    rest.copy_from_slice(packet);
    tx.commit(total, TxMeta::default());
    local.counters.add(Mib::IpExtOutOctets, packet.len() as u64);
    Sent::Yes
}

/// `is_kept`: if it finds no room, whoever sends it tries again, so it need not push out what waits already.
#[cold]
fn wait_for_neighbour(local: &mut Local, next_hop: Address, packet: &[u8], is_kept: bool) -> Sent {
    let mut waits = local.waiting.wait(next_hop, packet, is_kept, local.now);
    if waits == Wait::Crowded
        && let Some(gone) = local.waiting.make_room(local.now)
    {
        local.counters.discard_all(Discard::NeighbourUnreachable, gone);
        waits = local.waiting.wait(next_hop, packet, is_kept, local.now);
    }
    local.counters.discard_all(Discard::NeighbourQueueFull, local.waiting.take_pushed_out());
    if matches!(waits, Wait::Ask | Wait::Full { ask: true }) {
        let _ = local.mail.to_control.push(ToControl::Used(next_hop));
    }
    match waits {
        Wait::Ask | Wait::Asked => Sent::Yes,
        Wait::Full { .. } | Wait::Crowded if is_kept => {
            local.counters.count(Mib::TxBusy);
            local.waits_for_neighbour = true;
            Sent::Waiting
        }
        Wait::Full { .. } | Wait::Crowded => {
            local.counters.discard(Discard::NeighbourQueueFull);
            Sent::Nowhere
        }
    }
}

#[cfg(test)]
mod tests;
