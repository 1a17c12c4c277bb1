//! Writes the seeds that the fuzzers start from: `cargo run --example seeds` in this directory. The same every time.
//!
//! Most targets read their input as a list of choices, for which any bytes will do; what matters is that there are enough
//! of them for a whole session. The parsers start from packets that are right.

use laneway_fuzz::{addresses, frames};
use laneway_wire::tcp::{
    Flags, Header, Options, SackBlocks, SeqNum, SeqRange, Timestamps, UnscaledWindow, WindowScale,
};
use std::path::Path;

/// splitmix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Bytes of which half are small, as lengths and offsets that mean something are.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let byte = |word: u64| if word & 0x100 == 0 { word as u8 } else { word as u8 & 3 };
        (0..len).map(|_| byte(self.next())).collect()
    }
}

fn segments() -> Vec<Vec<u8>> {
    let ((our4, our6), (peer4, peer6)) = (addresses(1), addresses(2));
    let mut sack = SackBlocks::EMPTY;
    sack.push(SeqRange { start: SeqNum::new(5), end: SeqNum::new(9) });
    sack.push(SeqRange { start: SeqNum::new(15), end: SeqNum::new(19) });
    let timestamps = Some(Timestamps { val: 1, echo: 2 });
    let syn = Options {
        mss: Some(1_460),
        window_scale: Some(WindowScale::new(7)),
        sack_permitted: true,
        timestamps,
        sack: SackBlocks::EMPTY,
    };
    let all = [
        (Flags::SYN, syn),
        (Flags::ACK, Options { timestamps, sack, ..Options::NONE }),
        (Flags::FIN | Flags::ACK, Options::NONE),
    ];
    let mut packets = Vec::new();
    for (flags, options) in all {
        let header = Header {
            src_port: 1_000,
            dst_port: 80,
            seq: SeqNum::new(1),
            ack: SeqNum::new(2),
            flags,
            window: UnscaledWindow::new(1_000),
            urgent: 0,
            options,
        };
        packets.push(frames::segment(peer4, our4, &header, b"text"));
        packets.push(frames::segment(peer6, our6, &header, b"text"));
    }
    packets
}

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let put = |target: &str, name: &str, bytes: &[u8]| {
        let folder = root.join(target);
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(folder.join(name), bytes))
            .expect("the corpus can be written");
    };
    let packets = segments();
    for (i, packet) in packets.iter().enumerate() {
        let v6 = packet[0] >> 4 == 6;
        let (kind, header) = if v6 { (3, 40) } else { (2, 20) };
        put("wire_parse", &format!("ip-{i}"), &[&[kind], &packet[..]].concat());
        put("wire_parse", &format!("tcp-{i}"), &[&[8], &packet[header..]].concat());
        put("options", &format!("{i}"), &packet[header + 20..packet.len() - 4]);
    }
    let icmp = [&[4u8, 3, 4, 0, 0, 0, 0, 5, 0][..], &packets[0][..28]].concat();
    put("wire_parse", "icmpv4-too-big", &icmp);
    let icmp = [&[5u8, 2, 0, 0, 0, 0, 0, 5, 0][..], &packets[1][..60]].concat();
    put("wire_parse", "icmpv6-too-big", &icmp);
    let solicit = [&[6u8, 135, 0, 0, 0, 0, 0, 0, 0][..], &[0xfd; 16], &[1, 1, 2, 0, 0, 0, 0, 9]].concat();
    put("wire_parse", "ndp-solicit", &solicit);
    let arp = [&[1u8, 0, 1, 8, 0, 6, 4, 0, 1][..], &[2, 0, 0, 0, 0, 2, 192, 0, 2, 2, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1]]
        .concat();
    put("wire_parse", "arp-request", &arp);
    put("wire_parse", "udp", &[7, 0, 5, 0, 6, 0, 10, 0, 0, 1, 2]);

    let mut chance = Chance(1);
    for (target, len) in [
        ("cookies", 80),
        ("segmentation_cut", 60),
        ("ip_reassembly", 400),
        ("lane_frames", 900),
        ("lane_session", 1_500),
        ("two_hosts", 300),
        ("control", 600),
    ] {
        for i in 0..6 {
            put(target, &format!("choices-{i}"), &chance.bytes(len * (i + 1) / 6 + 2));
        }
    }
    // A good link, and one that only loses.
    put("two_hosts", "good", &[20, 10]);
    put("two_hosts", "lossy", &[&[60u8, 60][..], &[0, 130, 0, 0, 0, 140, 0, 130].repeat(20)].concat());
}
