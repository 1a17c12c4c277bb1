//! An established connection and a peer that does what it likes, near enough to the rules to get everywhere. What the host
//! sends must be right: only bytes that the application wrote, only acknowledgments of what was sent, a window that keeps
//! its promises.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use laneway_fuzz::{Mind, PORT, Rig, addresses, frames, pattern};
use laneway_stack::app::{ConnId, Context};
use laneway_stack::device::Medium;
use laneway_stack::proto::tcp::congestion::Algorithm;
use laneway_wire::flow::Address;
use laneway_wire::tcp::{
    Flags, Header, Options, SackBlocks, SeqNum, SeqRange, Timestamps, UnscaledWindow, WindowScale,
};
use libfuzzer_sys::fuzz_target;

/// Flags, most of them such that the connection goes on.
#[derive(Debug)]
struct Said(Flags);

impl<'a> Arbitrary<'a> for Said {
    fn arbitrary(data: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let [kind, bits] = <[u8; 2]>::arbitrary(data)?;
        Ok(Said(match kind % 32 {
            0..=17 => Flags::ACK,
            18..=26 => Flags::ACK | Flags::PSH,
            27 => Flags::ACK | Flags::URG,
            28 => Flags::ACK | Flags::FIN,
            29 => Flags::RST,
            _ => Flags::from_bits(bits),
        }))
    }
}

#[derive(Arbitrary, Debug)]
enum Input {
    Segment {
        seq: i16,
        ack: i16,
        flags: Said,
        window: u16,
        urgent: u16,
        len: u16,
        stamp: Option<i16>,
        sack: [(u8, u8); 3],
    },
    /// In order, and acknowledging all.
    Proper {
        len: u16,
        fin: bool,
        window: u16,
    },
    Write(u16),
    WriteUrgent(u8),
    Read(u16),
    Hold(bool),
    Close,
    Shutdown,
    Abort,
    KeepAlive(bool),
    UserTimeout(u16),
    SendBuffer(u16),
    ReceiveBuffer(u16),
    Quickack(bool),
    Reno(bool),
    Ttl(u8),
    TooBig {
        mtu: u16,
        seq: i16,
    },
    Pass {
        ms: u16,
    },
}

enum Verb {
    Write(u16, bool),
    Read(u16),
    Close,
    Shutdown,
    Abort,
    KeepAlive(bool),
    UserTimeout(u16),
    SendBuffer(u16),
    ReceiveBuffer(u16),
    Quickack(bool),
    Reno(bool),
    Ttl(u8),
}

#[derive(Default)]
struct Told {
    verbs: Vec<Verb>,
    id: Option<ConnId>,
    holds: bool,
    written: u32,
    taken: u32,
}

impl Told {
    fn take(&mut self, data: &[u8]) {
        for byte in data {
            assert_eq!(*byte, pattern(self.taken), "byte {} of the stream is wrong", self.taken);
            self.taken += 1;
        }
    }
}

impl Mind for Told {
    fn poll(&mut self, cx: &mut Context<'_>) {
        let Some(id) = self.id else { return };
        for verb in std::mem::take(&mut self.verbs) {
            match verb {
                Verb::Write(len, urgent) => {
                    let bytes: Vec<u8> = (self.written..self.written + u32::from(len)).map(pattern).collect();
                    self.written += if urgent { cx.send_urgent(id, &bytes) } else { cx.send(id, &bytes) } as u32;
                }
                Verb::Read(len) => {
                    let mut bytes = vec![0; len.into()];
                    let n = cx.recv(id, &mut bytes);
                    self.take(&bytes[..n]);
                }
                Verb::Close => cx.close(id),
                Verb::Shutdown => cx.shutdown(id),
                Verb::Abort => cx.abort(id),
                Verb::KeepAlive(on) => cx.set_keepalive(id, on),
                Verb::UserTimeout(ms) => cx.set_user_timeout_ms(id, ms.into()),
                Verb::SendBuffer(bytes) => cx.set_send_buffer(id, bytes.into()),
                Verb::ReceiveBuffer(bytes) => cx.set_receive_buffer(id, bytes.into()),
                Verb::Quickack(on) => cx.set_quickack(id, on),
                Verb::Reno(on) => cx.set_congestion_control(id, if on { Algorithm::Reno } else { Algorithm::Cubic }),
                Verb::Ttl(ttl) => cx.set_ttl(id, ttl),
            }
        }
    }
    fn open(&mut self, _: &mut Context<'_>, id: ConnId) {
        self.id.get_or_insert(id);
    }
    fn data(&mut self, _: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        if self.id != Some(id) || self.holds {
            return 0;
        }
        self.take(data);
        data.len()
    }
    // The end is the fuzzer's to answer.
    fn peer_closed(&mut self, _: &mut Context<'_>, _: ConnId) {}
}

const ISN: u32 = u32::MAX - 500;

/// What the peer knows.
struct Peer {
    ours: Address,
    theirs: Address,
    /// The host's numbers.
    iss: Option<SeqNum>,
    nxt: SeqNum,
    /// What the peer has sent, and the host has acknowledged.
    sent: SeqNum,
    acked: SeqNum,
    edge: Option<SeqNum>,
    scale: u8,
    timestamps: bool,
    stamp: u32,
    /// Another connection on the flow makes later checks meaningless.
    wild: bool,
}

impl Peer {
    fn heard(&mut self, packet: &[u8], written: u32) {
        let Some(segment) = frames::read(packet) else { return };
        if let Some(stamp) = segment.options.timestamps {
            self.stamp = stamp.val;
        }
        if segment.flags.syn() {
            // The first handshake had one answer. In the same moment another connection may begin with the same numbers.
            self.wild |= self.iss.is_some();
            if self.iss.is_none() {
                self.iss = Some(segment.seq);
                self.nxt = segment.seq + 1;
                self.scale = segment.options.window_scale.map_or(0, |s| s.get());
            }
            return;
        }
        let Some(iss) = self.iss else { return };
        if segment.flags.rst() || self.wild {
            return;
        }
        for (byte, at) in segment.payload.iter().zip(0u32..) {
            let offset = (segment.seq + at).offset_from(iss + 1) as u32;
            assert!(offset < written, "byte {offset} was sent, but only {written} were written");
            assert_eq!(*byte, pattern(offset), "byte {offset} of the host's stream is wrong");
        }
        self.nxt = self.nxt.latest(segment.end());
        if segment.flags.ack() {
            assert!(segment.ack.at_or_before(self.sent), "acknowledged beyond what was sent");
            assert!(segment.ack.at_or_after(self.acked), "an acknowledgment taken back");
            self.acked = segment.ack;
            let unit = 1u32 << self.scale;
            let edge = segment.ack + (u32::from(segment.window.raw()) << self.scale);
            if let Some(before) = self.edge {
                assert!((edge + (unit - 1)).at_or_after(before), "the window shrinks from {before:?} to {edge:?}");
            }
            self.edge = Some(self.edge.map_or(edge, |before| before.latest(edge)));
        }
    }

    fn segment(
        &self,
        seq: SeqNum,
        ack: SeqNum,
        flags: Flags,
        window: u16,
        urgent: u16,
        len: u16,
        options: Options,
    ) -> Vec<u8> {
        let start = seq.offset_from(SeqNum::new(ISN) + 1) as u32;
        let text: Vec<u8> = (0..u32::from(len % 1_400)).map(|at| pattern(start.wrapping_add(at))).collect();
        let header = Header {
            src_port: 5_000,
            dst_port: PORT,
            seq,
            ack,
            flags,
            window: UnscaledWindow::new(window),
            urgent,
            options,
        };
        frames::segment(self.theirs, self.ours, &header, &text)
    }
}

fuzz_target!(|data: &[u8]| {
    let mut data = Unstructured::new(data);
    let Ok([v6, timestamps, sack, scaling]) = <[bool; 4]>::arbitrary(&mut data) else { return };
    let mut rig = Rig::<Told>::new(1, Medium::Ip, |config| {
        config.tcp.tcp_keepalive_time_us = 10_000_000;
        config.tcp.tcp_rmem = (16_384, 65_536);
    });
    let ((our4, our6), (peer4, peer6)) = (addresses(1), addresses(2));
    let (ours, theirs) = if v6 { (our6, peer6) } else { (our4, peer4) };
    let isn = SeqNum::new(ISN);
    let mut peer = Peer {
        ours,
        theirs,
        iss: None,
        nxt: SeqNum::new(0),
        sent: isn + 1,
        acked: isn,
        edge: None,
        scale: 0,
        timestamps,
        stamp: 0,
        wild: false,
    };
    let mut clock = 100;
    let options = Options {
        mss: Some(1_000),
        window_scale: scaling.then(|| WindowScale::new(3)),
        sack_permitted: sack,
        timestamps: timestamps.then_some(Timestamps { val: clock, echo: 0 }),
        sack: SackBlocks::EMPTY,
    };
    let stamped = |peer: &Peer, val: u32| Options {
        timestamps: peer.timestamps.then_some(Timestamps { val, echo: peer.stamp }),
        ..Options::NONE
    };
    rig.inject(&peer.segment(isn, SeqNum::new(0), Flags::SYN, 8_000, 0, 0, options));
    rig.rest(|packet| peer.heard(packet, 0));
    rig.inject(&peer.segment(isn + 1, peer.nxt, Flags::ACK, 8_000, 0, 0, stamped(&peer, clock)));
    rig.rest(|packet| peer.heard(packet, 0));
    assert!(rig.seat().app.mind.id.is_some(), "a proper handshake makes a connection");

    for _ in 0..200 {
        if data.is_empty() {
            break;
        }
        let Ok(input) = Input::arbitrary(&mut data) else { break };
        let mind = &mut rig.host.seats[0].app.mind;
        match input {
            Input::Segment { seq, ack, flags, window, urgent, len, stamp, sack } => {
                let shift = |at: SeqNum, by: i16| SeqNum::new(at.raw().wrapping_add(i32::from(by) as u32));
                let (seq, ack, flags) = (shift(peer.acked, seq), shift(peer.nxt, ack), flags.0);
                let mut options = stamped(&peer, clock.wrapping_add(i32::from(stamp.unwrap_or(0)) as u32));
                if stamp.is_none() && flags.intersects(Flags::URG) {
                    options.timestamps = None;
                }
                for (from, len) in sack.iter().filter(|(_, len)| *len > 0) {
                    let start = peer.nxt + u32::from(*from) * 100 - 10_000;
                    options.sack.push(SeqRange { start, end: start + u32::from(*len) * 100 });
                }
                let bytes = peer.segment(seq, ack, flags, window, urgent, len, options);
                // SYN and FIN have a number each.
                let numbers = u32::from(flags.syn()) + u32::from(flags.fin());
                peer.sent = peer.sent.latest(seq + u32::from(len % 1_400) + numbers);
                rig.inject(&bytes);
            }
            Input::Proper { len, fin, window } => {
                let seq = peer.acked.latest(isn + 1);
                let flags = if fin { Flags::FIN | Flags::ACK } else { Flags::ACK };
                clock += 1;
                let bytes = peer.segment(seq, peer.nxt, flags, window, 0, len, stamped(&peer, clock));
                peer.sent = peer.sent.latest(seq + u32::from(len % 1_400) + u32::from(fin));
                rig.inject(&bytes);
            }
            Input::Write(len) => mind.verbs.push(Verb::Write(len, false)),
            Input::WriteUrgent(len) => mind.verbs.push(Verb::Write(len.into(), true)),
            Input::Read(len) => mind.verbs.push(Verb::Read(len)),
            Input::Hold(on) => mind.holds = on,
            Input::Close => mind.verbs.push(Verb::Close),
            Input::Shutdown => mind.verbs.push(Verb::Shutdown),
            Input::Abort => mind.verbs.push(Verb::Abort),
            Input::KeepAlive(on) => mind.verbs.push(Verb::KeepAlive(on)),
            Input::UserTimeout(ms) => mind.verbs.push(Verb::UserTimeout(ms)),
            Input::SendBuffer(bytes) => mind.verbs.push(Verb::SendBuffer(bytes)),
            Input::ReceiveBuffer(bytes) => mind.verbs.push(Verb::ReceiveBuffer(bytes)),
            Input::Quickack(on) => mind.verbs.push(Verb::Quickack(on)),
            Input::Reno(on) => mind.verbs.push(Verb::Reno(on)),
            Input::Ttl(ttl) => mind.verbs.push(Verb::Ttl(ttl)),
            Input::TooBig { mtu, seq } => {
                let seq = SeqNum::new(peer.nxt.raw().wrapping_add(i32::from(seq) as u32));
                let mut quoted = [PORT, 5_000].map(u16::to_be_bytes).concat();
                quoted.extend(seq.raw().to_be_bytes());
                quoted.extend([0; 12]);
                let quoted = frames::packet(ours, theirs, 6, quoted);
                let mut message = if v6 { vec![2, 0, 0, 0, 0, 0] } else { vec![3, 4, 0, 0, 0, 0] };
                message.extend(mtu.to_be_bytes());
                message.extend(quoted);
                rig.inject(&frames::packet(theirs, ours, if v6 { 58 } else { 1 }, message));
            }
            Input::Pass { ms } => {
                let written = rig.seat().app.mind.written;
                rig.pass(u64::from(ms) * 1_000, |packet| peer.heard(packet, written));
                clock = clock.wrapping_add(ms.into());
            }
        }
        // What is written in this poll may go out in this poll.
        let written = rig.seat().app.mind.written + 70_000;
        rig.rest(|packet| peer.heard(packet, written));
        rig.check();
    }
});
