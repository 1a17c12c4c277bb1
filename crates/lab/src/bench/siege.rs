//! Owns an attacker in front of a server: for each request that arrives, so many SYNs, ACKs, RSTs and fragments from all over the
//! world, which lie ready in the queue and so cost their sender next to nothing that is measured. How much that is, is measured where
//! none of them [arrives](Shape::attack_arrives).
//!
//! What the server answers to them leaves for the world, too: it is written as any frame is, and forgotten.

use super::crew::{End, Shape};
use super::outlet::{Queues, Way};
use laneway_device::memory::{LinkRx, LinkTx};
use laneway_device::{Capabilities, Queue, Rx, RxChecksum, RxFrame, RxMeta, Tx, TxMeta};
use laneway_proto::ethernet;
use laneway_proto::ip::output::{HEADER_LEN_V4, HeaderSpec, Template};
use laneway_stack::references::Tally;
use laneway_wire::checksum::Sum;
use laneway_wire::ethernet::{EtherType, Mac};
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::protocol;
use laneway_wire::tcp::{Flags, Header, Options, SeqNum, Timestamps, UnscaledWindow, WindowScale};
use std::any::Any;
use std::os::fd::BorrowedFd;

/// Frames of each kind that lie ready; the lower half of the address, the port and the IP identification change with each use.
const EACH: usize = 64;
/// Kinds of frames: SYN, ACK, RST, first fragment.
const KINDS: usize = 4;
/// All of them.
const READY: usize = EACH * KINDS;
/// The largest of them: link, IPv4 and TCP header, the last as Linux writes a SYN's.
const LONGEST: usize = ethernet::HEADER_LEN + HEADER_LEN_V4 + 40;
/// Where in a frame stand what changes: the identification, the source address, of which the lower half does, and the source port.
const CHANGES: [usize; 3] = [ethernet::HEADER_LEN + 4, ethernet::HEADER_LEN + 12, ethernet::HEADER_LEN + HEADER_LEN_V4];
/// Of the places in a batch one in so many is the clients', however many frames of the attacker's wait.
const LIVE_SHARE: usize = 8;

struct Ready {
    bytes: [u8; LONGEST],
    len: usize,
}

/// The receiving half of a server's queue with the attacker before it; of anyone else's as it is.
pub struct Siege {
    inner: LinkRx,
    frames: Box<[Ready; READY]>,
    checksum: RxChecksum,
    /// Frames for each request that arrives.
    each: usize,
    /// The server is lent them.
    arrive: bool,
    /// Of those, how many have not been lent yet.
    owed: usize,
    /// The first of those lent, how many there are, and how many of the link's come before them.
    first: usize,
    lent: usize,
    live: usize,
    /// What tells them apart.
    number: u16,
}

/// The addresses of both ends of the rig's link lie below this; all others are the world's.
fn is_near(address: &Address) -> bool {
    address.is_v4() && address.octets_v4()[..2] == [10, 0]
}

fn frames(to: Mac, server: Address) -> Box<[Ready; READY]> {
    Box::new(std::array::from_fn(|i| frame(to, server, i % KINDS, (i / KINDS) as u32)))
}

fn frame(to: Mac, server: Address, kind: usize, number: u32) -> Ready {
    let flags = [Flags::SYN, Flags::ACK, Flags::RST, Flags::ACK][kind];
    let timestamps = Some(Timestamps { val: 0x1234_5678 ^ number, echo: 0 });
    let options = match kind {
        0 => Options {
            mss: Some(1_460),
            window_scale: Some(WindowScale::new(7)),
            sack_permitted: true,
            timestamps,
            ..Options::default()
        },
        2 => Options::default(),
        // A fragment before another is a multiple of eight bytes long.
        _ => Options { timestamps, ..Options::default() },
    };
    let header = Header {
        // Together with what stands in the address it is no change to the checksum; see `renew`.
        src_port: u16::MAX,
        dst_port: super::crew::PORT,
        seq: SeqNum::new(number.wrapping_mul(0x9e37_79b9)),
        ack: SeqNum::new(number.wrapping_mul(0x85eb_ca6b)),
        flags,
        window: UnscaledWindow::new(64_240),
        urgent: 0,
        options,
    };
    let spec = HeaderSpec::new(Address::from_v4([100, number as u8, 0, 0]), server, protocol::TCP);
    let template = Template::new(&spec);
    let mut bytes = [0; LONGEST];
    let len = ethernet::HEADER_LEN + HEADER_LEN_V4 + header.len();
    let (link, rest) = bytes[..len].split_at_mut(ethernet::HEADER_LEN);
    link.copy_from_slice(&ethernet::template(to, Mac([2, 0, 0, 0, 0, 99]), EtherType::IPV4));
    let (ip, tcp) = rest.split_at_mut(HEADER_LEN_V4);
    template.emit(ip, tcp.len());
    // Identification, fragment field, checksum: the first says "the next is the same, turned round", the second "more follow".
    let more = if kind == 3 { 0x2000u16 } else { 0 };
    ip[4..6].fill(0xff);
    ip[6..8].copy_from_slice(&more.to_be_bytes());
    ip[10..12].fill(0);
    let sum = Sum::of(ip).checksum();
    ip[10..12].copy_from_slice(&sum);
    header.emit(tcp);
    Header::fill_checksum(tcp, template.pseudo(tcp.len()));
    Ready { bytes, len }
}

impl Ready {
    /// Another sender, another port, another packet. What the address gains the identification and the port lose, so that both
    /// checksums stay right.
    #[inline(always)]
    fn renew(&mut self, number: u16) {
        // The whole address, as whoever reads it does: what has just been written in pieces is waited for.
        let [id, source, port] = CHANGES;
        let [high, low] = number.to_be_bytes();
        let address = [self.bytes[source], self.bytes[source + 1], high, low];
        *self.at(source) = address;
        *self.at(id) = (!number).to_be_bytes();
        *self.at(port) = (!number).to_be_bytes();
    }

    /// By what is known to be so long, so that it is one store.
    #[inline(always)]
    fn at<const N: usize>(&mut self, at: usize) -> &mut [u8; N] {
        self.bytes[at..].first_chunk_mut().expect("within the frame")
    }
}

/// Whether a frame is TCP with text: then a request has arrived.
fn has_text(frame: &[u8]) -> bool {
    let ip = &frame[ethernet::HEADER_LEN..];
    match ip.get(..HEADER_LEN_V4 + 13) {
        Some(head) if head[9] == protocol::TCP => {
            let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
            total > HEADER_LEN_V4 + usize::from(head[HEADER_LEN_V4 + 12] >> 4) * 4
        }
        _ => false,
    }
}

impl Siege {
    fn live_frames(&mut self, max: usize) -> usize {
        let live = self.inner.poll(max);
        if self.each > 0 {
            let requests = (0..live).filter(|i| has_text(self.inner.frame(*i).bytes)).count();
            self.owed += requests * self.each;
        }
        live
    }
}

impl Rx for Siege {
    fn poll(&mut self, max: usize) -> usize {
        self.lent = self.owed.min(max - max / LIVE_SHARE);
        self.owed -= self.lent;
        self.live = self.live_frames(if self.arrive { max - self.lent } else { max });
        let mut number = self.number;
        for i in 0..self.lent {
            number = number.wrapping_add(0x9e37);
            self.frames[(self.first + i) % READY].renew(number);
        }
        self.number = number;
        self.live + if self.arrive { self.lent } else { 0 }
    }

    #[inline(always)]
    fn frame(&self, i: usize) -> RxFrame<'_> {
        if i < self.live {
            return self.inner.frame(i);
        }
        let ready = &self.frames[(self.first + i - self.live) % READY];
        RxFrame { bytes: &ready.bytes[..ready.len], meta: RxMeta { checksum: self.checksum, gso_size: 0 } }
    }

    fn release(&mut self) {
        self.inner.release();
        self.first = (self.first + self.lent) % READY;
        (self.lent, self.live) = (0, 0);
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness()
    }
}

/// The sending half of a queue beside a [`Siege`].
pub struct Answers {
    inner: LinkTx,
    /// Where what goes to the world is written.
    world: Vec<u8>,
    to_world: bool,
}

impl Tx for Answers {
    #[inline]
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }
    #[inline]
    fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        self.to_world = false;
        self.inner.reserve(len)
    }
    #[inline(always)]
    fn reserve_for(&mut self, len: usize, flow: &dyn Any) -> Option<&mut [u8]> {
        self.to_world = flow.downcast_ref::<FlowKey>().is_some_and(|flow| !is_near(&flow.remote));
        if self.to_world { self.world.get_mut(..len) } else { self.inner.reserve_for(len, flow) }
    }
    #[inline(always)]
    fn commit(&mut self, len: usize, meta: TxMeta) {
        if !self.to_world {
            self.inner.commit(len, meta);
        }
    }
    #[inline]
    fn flush(&mut self) {
        self.inner.flush();
    }
}

impl Way for Answers {
    type In = Siege;

    fn attach(queues: Queues<LinkRx, LinkTx>, shape: &Shape, end: End) -> Queues<Siege, Answers> {
        let each = if end == End::Server { shape.attack as usize } else { 0 };
        let server = Address::from(super::crew::addresses(false).0);
        let checksum = if queues.iter().any(|queue| queue.tx.capabilities().rx_checksum) {
            RxChecksum::Verified
        } else {
            RxChecksum::Unknown
        };
        let besieged = |queue: Queue<LinkRx, LinkTx>| {
            let capabilities = *queue.tx.capabilities();
            let frames = frames(Mac(capabilities.mac), server);
            let arrive = shape.attack_arrives;
            let rx = Siege {
                inner: queue.rx,
                frames,
                checksum,
                each,
                arrive,
                owed: 0,
                first: 0,
                lent: 0,
                live: 0,
                number: 0,
            };
            let world = vec![0; capabilities.frame_max()];
            Queue { rx, tx: Answers { inner: queue.tx, world, to_world: false } }
        };
        queues.into_iter().map(besieged).collect()
    }

    fn tally(&self) -> Tally {
        Tally::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_proto::ip::input;
    use laneway_wire::checksum::verify_transport;

    /// An attack that is dropped for its checksums is none.
    #[test]
    fn every_frame_is_right_whatever_its_number() {
        let (to, server) = (Mac([2, 0, 0, 0, 0, 1]), Address::from_v4([10, 0, 0, 1]));
        let mut fragments = 0;
        for mut ready in *frames(to, server) {
            for number in [0, 1, 0x9e37, 0xffff] {
                ready.renew(number);
                let Ok((EtherType::IPV4, bytes, false)) = ethernet::accept(&ready.bytes[..ready.len], to) else {
                    panic!("no frame for us");
                };
                let packet = input::input(bytes, false).expect("an IPv4 packet");
                assert!(!is_near(&packet.src) && packet.dst == server && !has_text(&ready.bytes[..ready.len]));
                assert!(verify_transport(&packet.src, &packet.dst, packet.protocol, packet.payload));
                fragments += usize::from(packet.fragment.is_some());
            }
        }
        assert_eq!(fragments, 4 * EACH);
    }
}
