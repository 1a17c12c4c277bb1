//! Reassembly: whatever fragments come, the budget holds, and a datagram that becomes whole has the bytes that were sent.
#![no_main]

use arbitrary::Arbitrary;
use laneway_fuzz::{addresses, pattern};
use laneway_proto::ip::input;
use laneway_proto::ip::reassembly::{Config, Reassembly};
use laneway_proto::time::Instant;
use laneway_wire::ipv6::Fragment;
use laneway_wire::keyed_hash::HashKey;
use laneway_wire::{ipv4, ipv6, protocol};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Piece {
    v6: bool,
    id: u8,
    /// In units of 8 bytes.
    offset: u16,
    len: u16,
    more: bool,
    ecn: u8,
    pause_ms: u16,
    /// Bytes other than those of the pattern.
    lies: bool,
}

const SMALL: Config =
    Config { bytes_max: 1 << 16, entries_max: 8, pieces_max: 16, timeout_v4_us: 30_000_000, timeout_v6_us: 60_000_000 };

fn build(piece: &Piece) -> Vec<u8> {
    let ((a4, a6), (b4, b6)) = (addresses(1), addresses(2));
    let offset = u32::from(piece.offset % 64) * 8;
    let mut len = u32::from(piece.len % 512);
    if piece.more {
        len &= !7;
    }
    let payload: Vec<u8> = (offset..offset + len).map(|at| pattern(at) ^ u8::from(piece.lies)).collect();
    let mut packet;
    if piece.v6 {
        packet = vec![0; 48];
        let payload_len = (8 + payload.len()) as u16;
        let header = ipv6::Header {
            dscp: 0,
            ecn: piece.ecn & 3,
            flow_label: 0,
            payload_len,
            next_header: 44,
            hop_limit: 64,
            src: a6,
            dst: b6,
        };
        header.emit(&mut packet);
        Fragment { offset, more: piece.more, id: u32::from(piece.id % 4) }.emit(protocol::UDP, &mut packet[40..]);
    } else {
        packet = vec![0; 20];
        let header = ipv4::Header {
            dscp: 0,
            ecn: piece.ecn & 3,
            id: u16::from(piece.id % 4),
            dont_fragment: false,
            more_fragments: piece.more,
            fragment_offset: offset as u16,
            ttl: 64,
            protocol: protocol::UDP,
            src: a4,
            dst: b4,
            payload_len: payload.len() as u16,
        };
        header.emit(&mut packet);
    }
    packet.extend(payload);
    packet
}

fuzz_target!(|pieces: Vec<Piece>| {
    let mut reassembly = Reassembly::new(SMALL);
    let mut now = Instant::from_us(1_000_000);
    let mut lied = false;
    for piece in pieces.iter().take(200) {
        now = now.after_us(u64::from(piece.pause_ms) * 1_000);
        reassembly.on_timeout(now);
        lied |= piece.lies;
        let bytes = build(piece);
        let Ok(packet) = input::input(&bytes, false) else { continue };
        if packet.fragment.is_some()
            && let Ok(Some(whole)) = reassembly.on_fragment(&packet, &HashKey::new(1, 2), now)
        {
            let whole = input::input(&whole.packet, false).expect("a whole packet");
            assert!(whole.fragment.is_none());
            if !lied {
                assert!(
                    whole.payload.iter().zip(0..).all(|(byte, at)| *byte == pattern(at)),
                    "bytes in the wrong place"
                );
            }
        }
        assert!(reassembly.bytes() <= SMALL.bytes_max && reassembly.len() <= SMALL.entries_max);
    }
    reassembly.on_timeout(now.after_us(120_000_000));
    assert_eq!((reassembly.len(), reassembly.bytes()), (0, 0), "something outlives its time");
});
