//! Owns the far end of a stream: a device that acknowledges what is sent into it, and keeps nothing of it.
//!
//! With a whole second stack at the other end, two cores would have to run both, and would wait for each other. What the
//! send path costs is on this side alone; the far end is here a few instructions for each packet, and has no connection:
//! whatever it must know stands in the packet that it answers.
//!
//! It answers as a receiver does that is never short of anything: every second segment at once, a single one before it
//! turns to something else (RFC 9293 section 3.8.6.3), with the sender's timestamp.

use laneway_device::{Capabilities, Medium, Rx, RxFrame, RxMeta, Tx, TxMeta};
use laneway_sync::ring::items::{ItemConsumer, ItemProducer, items};
use laneway_wire::flow::Address;
use laneway_wire::tcp::{self, Flags, Header, Options, Segment, SeqNum, Timestamps, UnscaledWindow, WindowScale};
use laneway_wire::{checksum, ipv4, protocol};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the far end has heard and not yet answered.
const HEARD_MAX: usize = 8_192;
/// Segments that it looks at before it gives out its answers.
const HEARD_AT_ONCE: usize = 64;
/// Longest answer: IPv4, and TCP with the options of a SYN-ACK.
const ANSWER_MAX: usize = ipv4::HEADER_LEN + tcp::HEADER_LEN_MAX;

/// What the far end takes in a segment: whatever fits an IPv4 packet, so that the link decides.
const MSS: u16 = u16::MAX - (ipv4::HEADER_LEN + tcp::HEADER_LEN) as u16;

/// What an answer is made from.
#[derive(Clone, Copy)]
struct Heard {
    from: Address,
    to: Address,
    from_port: u16,
    to_port: u16,
    /// The number that the sender waits for.
    expected: SeqNum,
    /// Everything before this has been sent.
    end: SeqNum,
    flags: Flags,
    /// Bytes of text.
    text: u32,
    timestamp: Option<u32>,
}

/// An IPv4 header without options and fragments begins with this.
const PLAIN_IP: u8 = 0x45;

impl Heard {
    #[inline]
    fn new(packet: &[u8]) -> Option<Heard> {
        let (ip, rest) = packet.split_first_chunk::<{ ipv4::HEADER_LEN }>()?;
        match Segment::usual(rest) {
            Some(segment) if ip[0] == PLAIN_IP && ip[9] == protocol::TCP => {
                let [.., a, b, c, d, e, f, g, h] = *ip;
                Some(Self::of(Address::from_v4([a, b, c, d]), Address::from_v4([e, f, g, h]), &segment))
            }
            _ => Self::any(packet),
        }
    }

    /// Of a packet that is not as nearly all are.
    #[cold]
    fn any(packet: &[u8]) -> Option<Heard> {
        let ip = ipv4::View::new_checksum_verified(packet).ok()?;
        Some(Self::of(ip.src(), ip.dst(), &Segment::parse(ip.payload()).ok()?))
    }

    #[inline]
    fn of(from: Address, to: Address, segment: &Segment<'_>) -> Heard {
        Heard {
            from,
            to,
            from_port: segment.src_port,
            to_port: segment.dst_port,
            expected: segment.ack,
            end: segment.end(),
            flags: segment.flags,
            text: segment.payload.len() as u32,
            timestamp: segment.options.timestamps.map(|timestamps| timestamps.val),
        }
    }

    fn is_same_flow(&self, other: &Heard) -> bool {
        (self.from_port, self.to_port, self.from, self.to) == (other.from_port, other.to_port, other.from, other.to)
    }

    /// The answer to this and to all before it, as a packet.
    fn answer(&self, packet: &mut Vec<u8>) {
        let syn = self.flags.syn();
        let mut options = Options::NONE;
        // The far end's clock stands still: its timestamps say nothing, but must not go back.
        options.timestamps = self.timestamp.map(|echo| Timestamps { val: 1, echo });
        if syn {
            options.mss = Some(MSS);
            options.window_scale = Some(WindowScale::new(10));
            options.sack_permitted = true;
        }
        let mut flags = if syn { Flags::SYN.union(Flags::ACK) } else { Flags::ACK };
        if self.flags.fin() {
            flags = flags.union(Flags::FIN);
        }
        let seq = if syn { SeqNum::new(1) } else { self.expected };
        let header = Header {
            src_port: self.to_port,
            dst_port: self.from_port,
            seq,
            ack: self.end,
            flags,
            window: UnscaledWindow::new(u16::MAX),
            urgent: 0,
            options,
        };
        packet.resize(ipv4::HEADER_LEN + header.len(), 0);
        let (ip, tcp) = packet.split_at_mut(ipv4::HEADER_LEN);
        let head = ipv4::Header {
            dscp: 0,
            ecn: 0,
            id: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: protocol::TCP,
            src: self.to,
            dst: self.from,
            payload_len: tcp.len() as u16,
        };
        head.emit(ip);
        match options.timestamps {
            Some(timestamps) if !syn => header.emit_usual(timestamps, tcp),
            _ => header.emit(tcp),
        }
        tcp::fill_checksum(tcp, checksum::pseudo_header(&self.to, &self.from, protocol::TCP, tcp.len() as u32));
    }
}

/// What all parts of one sink know.
#[derive(Default)]
pub struct Wire {
    /// Something was sent since the far end last looked: its interrupt.
    interrupt: AtomicBool,
    packets: AtomicU64,
    octets: AtomicU64,
    answers: AtomicU64,
}

impl Wire {
    /// Whether something was sent since this was last asked.
    pub fn take_interrupt(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed) && self.interrupt.swap(false, Ordering::Acquire)
    }

    /// Packets with text that were sent, the octets of text in them, and answers given.
    pub fn tally(&self) -> [u64; 3] {
        [&self.packets, &self.octets, &self.answers].map(|number| number.load(Ordering::Relaxed))
    }
}

/// Counts what one thread alone counts.
fn add(count: &AtomicU64, n: u64) {
    count.store(count.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

/// A sink for packets of up to `mtu` bytes: the sending half for a lane, and the far end itself, for whoever receives.
pub fn sink(mtu: usize) -> (SinkTx, FarEnd, Arc<Wire>) {
    let (told, heard) = items(HEARD_MAX);
    let wire = Arc::new(Wire::default());
    let capabilities =
        Capabilities { medium: Medium::Ip, mtu, tx_checksum: false, tso_max: 0, rx_checksum: false, mac: [0; 6] };
    let tx = SinkTx { frame: vec![0; capabilities.frame_max()], capabilities, told, wire: Arc::clone(&wire) };
    (tx, FarEnd { heard, wire: Arc::clone(&wire) }, wire)
}

/// Packets go in, and are gone.
pub struct SinkTx {
    capabilities: Capabilities,
    frame: Vec<u8>,
    told: ItemProducer<Heard>,
    wire: Arc<Wire>,
}

impl Tx for SinkTx {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.told.room() == 0 {
            return None;
        }
        Some(&mut self.frame[..len])
    }

    fn commit(&mut self, len: usize, _: TxMeta) {
        let Some(heard) = Heard::new(&self.frame[..len]) else { return };
        if heard.text > 0 {
            add(&self.wire.packets, 1);
            add(&self.wire.octets, heard.text.into());
        }
        // There is room: `reserve` saw to that, and nobody else sends.
        let _ = self.told.stage(heard);
    }

    fn flush(&mut self) {
        self.told.publish();
        if !self.told.is_drained() && !self.wire.interrupt.load(Ordering::Relaxed) {
            self.wire.interrupt.store(true, Ordering::Release);
        }
    }
}

/// Whoever acknowledges.
pub struct FarEnd {
    heard: ItemConsumer<Heard>,
    wire: Arc<Wire>,
}

impl FarEnd {
    /// Puts answers to what was heard into `answers`, up to a batch; false if there were none.
    pub fn answer(&mut self, answers: &mut Answers) -> bool {
        let mut waiting: Option<Heard> = None;
        let before = answers.len();
        for _ in 0..HEARD_AT_ONCE {
            let Some(heard) = self.heard.pop() else { break };
            match waiting.take() {
                // Two of one flow, or something that does not wait.
                Some(first) if !first.is_same_flow(&heard) => {
                    answers.add(&first);
                    waiting = Some(heard);
                }
                Some(_) => answers.add(&heard),
                None if heard.flags.syn() || heard.flags.fin() => answers.add(&heard),
                None if heard.text > 0 => waiting = Some(heard),
                None => {}
            }
        }
        if let Some(last) = waiting {
            answers.add(&last);
        }
        let given = answers.len() - before;
        add(&self.wire.answers, given as u64);
        given > 0
    }
}

/// Packets on their way to a lane: the receiving half of its queue. What is put in is what the next poll lends.
#[derive(Default)]
pub struct Answers {
    packets: Vec<Vec<u8>>,
    filled: usize,
    lent: usize,
}

impl Answers {
    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.filled
    }

    fn add(&mut self, heard: &Heard) {
        if self.filled == self.packets.len() {
            self.packets.push(Vec::with_capacity(ANSWER_MAX));
        }
        heard.answer(&mut self.packets[self.filled]);
        self.filled += 1;
    }

    /// Takes everything out of `other`; nothing is copied.
    pub fn take_from(&mut self, other: &mut Answers) {
        for packet in &mut other.packets[..other.filled] {
            if self.filled == self.packets.len() {
                self.packets.push(Vec::with_capacity(ANSWER_MAX));
            }
            std::mem::swap(&mut self.packets[self.filled], packet);
            self.filled += 1;
        }
        other.filled = 0;
    }
}

impl Rx for Answers {
    fn poll(&mut self, max: usize) -> usize {
        self.release();
        self.lent = self.filled.min(max);
        self.lent
    }

    fn frame(&self, i: usize) -> RxFrame<'_> {
        RxFrame { bytes: &self.packets[..self.lent][i], meta: RxMeta::default() }
    }

    fn release(&mut self) {
        if self.lent > 0 {
            self.packets[..self.filled].rotate_left(self.lent);
            self.filled -= self.lent;
            self.lent = 0;
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
