//! Cutting a super-packet: no panic on any bytes; the pieces are right in every respect and make up the whole.
#![no_main]

use arbitrary::Arbitrary;
use laneway_fuzz::{addresses, frames, pattern};
use laneway_wire::segmentation::Cut;
use laneway_wire::tcp::{Flags, Header, Options, SeqNum, Timestamps, UnscaledWindow};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Raw { bytes: &'a [u8], mss: u16 },
    Made { v6: bool, len: u16, mss: u16, seq: u32, flags: u8, timestamps: Option<(u32, u32)> },
}

fuzz_target!(|input: Input<'_>| {
    match input {
        Input::Raw { bytes, mss } => {
            let Ok(mut cut) = Cut::new(bytes, mss.into()) else { return };
            let mut pieces = 0;
            while let Some(len) = cut.next_len() {
                let mut buf = vec![0; len];
                assert_eq!(cut.write_next(&mut buf), len);
                pieces += 1;
                assert!(pieces <= bytes.len().max(1), "more pieces than bytes");
            }
        }
        Input::Made { v6, len, mss, seq, flags, timestamps } => {
            let ((a4, a6), (b4, b6)) = (addresses(1), addresses(2));
            let (src, dst) = if v6 { (a6, b6) } else { (a4, b4) };
            let options =
                Options { timestamps: timestamps.map(|(val, echo)| Timestamps { val, echo }), ..Options::NONE };
            let flags = Flags::from_bits(flags);
            let window = UnscaledWindow::new(9);
            let header = Header {
                src_port: 1,
                dst_port: 2,
                seq: SeqNum::new(seq),
                ack: SeqNum::new(7),
                flags,
                window,
                urgent: 0,
                options,
            };
            let len = len % 1_300;
            let text: Vec<u8> = (0..u32::from(len)).map(pattern).collect();
            let whole = frames::segment(src, dst, &header, &text);
            let mut cut = Cut::new(&whole, mss.into()).expect("a plain TCP packet");
            let mut together: Vec<u8> = Vec::new();
            while let Some(len) = cut.next_len() {
                let mut buf = vec![0; len];
                cut.write_next(&mut buf);
                let piece = frames::read(&buf).expect("TCP");
                assert_eq!(piece.seq, SeqNum::new(seq) + together.len() as u32);
                assert_eq!(format!("{:?}", piece.options), format!("{options:?}"));
                let first = together.is_empty();
                together.extend(piece.payload);
                let last = together.len() == text.len();
                assert_eq!(piece.flags.contains(Flags::FIN), flags.contains(Flags::FIN) && last);
                assert_eq!(piece.flags.contains(Flags::PSH), flags.contains(Flags::PSH) && last);
                assert_eq!(piece.flags.contains(Flags::CWR), flags.contains(Flags::CWR) && first);
            }
            assert_eq!(together, text);
        }
    }
});
