use super::*;
use crate::checksum::{pseudo_header, verify_transport};
use crate::error::{Layer, Malformed, Why};
use crate::flow::Address;
use proptest::prelude::*;
use std::{format, vec, vec::Vec};

mod circle;

pub(crate) fn any_range() -> impl Strategy<Value = SeqRange> {
    any::<(u32, u32)>().prop_map(|(a, b)| SeqRange::new(SeqNum::new(a), SeqNum::new(b)))
}

/// Options that fit a header whole, so that nothing is left out when they are emitted.
pub(crate) fn any_options() -> impl Strategy<Value = Options> {
    let timestamps = prop::option::weighted(0.7, any::<(u32, u32)>().prop_map(|(val, echo)| Timestamps { val, echo }));
    let scale = prop::option::of((0u8..=14).prop_map(WindowScale::new));
    let sack = prop::collection::vec(any_range(), 0..5);
    let plain = timestamps.clone().prop_map(|timestamps| Options { timestamps, ..Options::NONE });
    let full = (prop::option::of(any::<u16>()), scale, any::<bool>(), timestamps, sack).prop_map(
        |(mss, window_scale, sack_permitted, timestamps, blocks)| {
            let mut options = Options { mss, window_scale, sack_permitted, timestamps, ..Options::NONE };
            for block in blocks {
                let before = options;
                options.sack.push(block);
                if options.len() == before.len() {
                    return before;
                }
            }
            options
        },
    );
    prop_oneof![plain, full]
}

pub(crate) fn any_header() -> impl Strategy<Value = Header> {
    (any::<(u16, u16, u32, u32, u8, u16, u16)>(), any_options()).prop_map(
        |((src_port, dst_port, seq, ack, flags, window, urgent), options)| Header {
            src_port,
            dst_port,
            seq: SeqNum::new(seq),
            ack: SeqNum::new(ack),
            flags: Flags::from_bits(flags),
            window: UnscaledWindow::new(window),
            urgent,
            options,
        },
    )
}

fn bytes_of(header: &Header, payload: &[u8]) -> Vec<u8> {
    // Rubbish in the buffer, to see that every byte is written.
    let mut bytes = vec![0xaa; header.len()];
    header.emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

proptest! {
    #[test]
    fn parse_is_the_inverse_of_emit(header in any_header(), payload: Vec<u8>) {
        let bytes = bytes_of(&header, &payload);
        let segment = Segment::parse(&bytes).unwrap();
        prop_assert_eq!(segment.to_header(), header);
        prop_assert_eq!(segment.payload, &payload[..]);
        // The general way and the fast one agree.
        let view = View::new(&bytes).unwrap();
        prop_assert_eq!(view.segment(), Ok(segment));
        prop_assert_eq!(view.header_len(), header.len());
        prop_assert_eq!(view.checksum(), [0, 0]);
        prop_assert_eq!((view.src_port(), view.dst_port()), (header.src_port, header.dst_port));
        prop_assert_eq!((view.seq(), view.ack(), view.flags()), (header.seq, header.ack, header.flags));
    }

    #[test]
    fn a_stranger_reads_what_we_write(header in any_header(), payload: Vec<u8>, v4: ([u8; 4], [u8; 4]), v6: ([u8; 16], [u8; 16])) {
        let mut bytes = bytes_of(&header, &payload);
        let len = bytes.len() as u32;

        let (src, dst) = (Address::from_v6(v6.0), Address::from_v6(v6.1));
        Header::fill_checksum(&mut bytes, pseudo_header(&src, &dst, 6, len));
        prop_assert!(verify_transport(&src, &dst, 6, &bytes));
        let (oracle, rest) = etherparse::TcpHeader::from_slice(&bytes).unwrap();
        prop_assert_eq!(oracle.calc_checksum_ipv6_raw(v6.0, v6.1, rest).unwrap(), oracle.checksum);

        let (src, dst) = (Address::from_v4(v4.0), Address::from_v4(v4.1));
        bytes[16..18].fill(0);
        Header::fill_checksum(&mut bytes, pseudo_header(&src, &dst, 6, len));
        prop_assert!(verify_transport(&src, &dst, 6, &bytes));
        let (oracle, rest) = etherparse::TcpHeader::from_slice(&bytes).unwrap();
        prop_assert_eq!(oracle.calc_checksum_ipv4_raw(v4.0, v4.1, rest).unwrap(), oracle.checksum);

        prop_assert_eq!(rest, &payload[..]);
        prop_assert_eq!((oracle.source_port, oracle.destination_port), (header.src_port, header.dst_port));
        prop_assert_eq!(oracle.sequence_number, header.seq.raw());
        prop_assert_eq!(oracle.acknowledgment_number, header.ack.raw());
        prop_assert_eq!(oracle.window_size, header.window.raw());
        prop_assert_eq!(oracle.urgent_pointer, header.urgent);
        let flags = [oracle.fin, oracle.syn, oracle.rst, oracle.psh, oracle.ack, oracle.urg, oracle.ece, oracle.cwr];
        for (bit, set) in flags.into_iter().enumerate() {
            prop_assert_eq!(header.flags.bits() >> bit & 1 == 1, set);
        }
        let mut found = Options::NONE;
        for element in oracle.options_iterator() {
            use etherparse::TcpOptionElement as E;
            match element.unwrap() {
                E::Noop => {}
                E::MaximumSegmentSize(mss) => found.mss = Some(mss),
                E::WindowScale(shift) => found.window_scale = Some(WindowScale::new(shift)),
                E::SelectiveAcknowledgementPermitted => found.sack_permitted = true,
                E::Timestamp(val, echo) => found.timestamps = Some(Timestamps { val, echo }),
                E::SelectiveAcknowledgement(first, more) => {
                    for (start, end) in core::iter::once(first).chain(more.into_iter().flatten()) {
                        found.sack.push(SeqRange::new(SeqNum::new(start), SeqNum::new(end)));
                    }
                }
            }
        }
        prop_assert_eq!(found, header.options);
    }

    #[test]
    fn we_read_what_a_stranger_writes(fields: (u16, u16, u32, u32, u16), options in prop::collection::vec(0u8..5, 0..4)) {
        use etherparse::TcpOptionElement as E;
        let (src, dst, seq, ack, window) = fields;
        let mut oracle = etherparse::TcpHeader::new(src, dst, seq, window);
        oracle.acknowledgment_number = ack;
        let elements: Vec<E> = options.iter().map(|kind| match kind {
            0 => E::MaximumSegmentSize(window),
            1 => E::WindowScale(window as u8),
            2 => E::SelectiveAcknowledgementPermitted,
            3 => E::Timestamp(seq, ack),
            _ => E::Noop,
        }).collect();
        oracle.set_options(&elements).unwrap();
        let bytes = oracle.to_bytes();
        let segment = Segment::parse(&bytes).unwrap();
        prop_assert_eq!((segment.src_port, segment.dst_port), (src, dst));
        prop_assert_eq!((segment.seq.raw(), segment.ack.raw(), segment.window.raw()), (seq, ack, window));
        prop_assert_eq!(segment.options.mss, options.contains(&0).then_some(window));
        prop_assert_eq!(segment.options.window_scale, options.contains(&1).then_some(WindowScale::new(window as u8)));
        prop_assert_eq!(segment.options.sack_permitted, options.contains(&2));
        prop_assert_eq!(segment.options.timestamps, options.contains(&3).then_some(Timestamps { val: seq, echo: ack }));
    }

    #[test]
    fn no_bytes_harm_us(bytes in prop::collection::vec(any::<u8>(), 0..80), offset in 0u8..16) {
        let mut bytes = bytes;
        if let Some(byte) = bytes.get_mut(12) {
            *byte = offset << 4;
        }
        if let Ok(segment) = Segment::parse(&bytes) {
            let again = bytes_of(&segment.to_header(), segment.payload);
            prop_assert!(segment.options.len() <= OPTIONS_LEN_MAX);
            prop_assert_eq!(Segment::parse(&again), Ok(segment));
        }
        let _ = Options::parse(&bytes);
    }

    /// The usual SYN's options are read by the general reader as soon as padding follows them.
    #[test]
    fn the_usual_syn_is_read_like_any_other(mss: [u8; 2], ts: [u8; 8], scale: u8) {
        let bytes = [&[2, 4][..], &mss, &[4, 2, 8, 10], &ts, &[1, 3, 3, scale]].concat();
        let padded = [&bytes[..], &[1, 1, 1, 1]].concat();
        prop_assert_eq!(bytes.len(), 20);
        prop_assert_eq!(Options::parse(&bytes), Options::parse(&padded));
    }

    /// And a whole segment of that kind is written and read on a way of its own, with the same meaning.
    #[test]
    fn a_usual_syn_means_what_any_segment_does(header in any_header(), text in prop::collection::vec(any::<u8>(), 0..9), all: bool) {
        let mut header = header;
        if all {
            header.options = Options {
                mss: Some(header.window.raw()),
                window_scale: Some(WindowScale::new(7)),
                sack_permitted: true,
                timestamps: Some(Timestamps { val: header.seq.raw(), echo: header.ack.raw() }),
                sack: SackBlocks::EMPTY,
            };
        }
        let bytes = bytes_of(&header, &text);
        let segment = View::new(&bytes).and_then(|view| view.segment()).unwrap();
        let usual = Segment::usual_syn(&bytes);
        prop_assert!(usual.is_none_or(|usual| usual == segment));
        prop_assert!(!all || usual.is_some());
        prop_assert_eq!(segment.to_header(), header);
        prop_assert_eq!(bytes.get(..39).and_then(Segment::usual_syn), None);
    }

    /// Nor has one without options another meaning, which are all that are bare.
    #[test]
    fn a_bare_segment_means_what_any_segment_does(header in any_header(), text in prop::collection::vec(any::<u8>(), 0..9), none: bool) {
        let mut header = header;
        if none {
            header.options = Options::NONE;
        }
        let bytes = bytes_of(&header, &text);
        let segment = View::new(&bytes).and_then(|view| view.segment()).unwrap();
        prop_assert_eq!(Segment::bare(&bytes), (header.len() == HEADER_LEN).then_some(segment));
        prop_assert_eq!(segment.to_header(), header);
        prop_assert_eq!(bytes.get(..19).and_then(Segment::bare), None);
    }

    #[test]
    fn what_does_not_fit_is_left_out(header in any_header(), blocks in prop::collection::vec(any_range(), 0..6)) {
        let mut header = header;
        for block in blocks {
            header.options.sack.push(block);
        }
        prop_assert!(header.len() <= HEADER_LEN_MAX && header.len() % 4 == 0);
        let bytes = bytes_of(&header, &[]);
        let parsed = Segment::parse(&bytes).unwrap().options;
        prop_assert!(header.options.sack.as_slice().starts_with(parsed.sack.as_slice()));
        prop_assert_eq!(Options { sack: header.options.sack, ..parsed }, header.options);
    }
}

#[test]
fn three_blocks_fit_beside_timestamps_and_four_without() {
    let mut options = Options::timestamps(Timestamps { val: 1, echo: 2 });
    for i in 0..6 {
        options.sack.push(SeqRange::new(SeqNum::new(i * 10), SeqNum::new(i * 10 + 5)));
    }
    assert_eq!((options.sack.len(), options.len()), (4, 12 + 4 + 24));
    options.timestamps = None;
    assert_eq!(options.len(), 4 + 32);
}

#[test]
fn lengths_that_cannot_be_are_refused() {
    let bad = Err(Malformed::new(Layer::Tcp, Why::OptionLength));
    for bytes in [
        &[2, 4, 5][..],
        &[2],
        &[2, 0],
        &[8, 1],
        &[2, 3, 0],
        &[3, 4, 0, 0],
        &[4, 3, 0],
        &[5, 2],
        &[5, 9, 0, 0, 0, 0, 0, 0, 0],
        &[5, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[8, 10, 0, 0, 0, 0, 0],
        &[99, 0],
        &[99, 5, 0],
        &[1, 1, 8, 11, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        assert_eq!(Options::parse(bytes), bad, "{bytes:?}");
    }
}

#[test]
fn unknown_options_and_what_follows_the_end_are_skipped() {
    let bytes = [99, 4, 7, 7, 1, 3, 3, 200, 0, 2, 0, 0];
    let options = Options::parse(&bytes).unwrap();
    assert_eq!(options, Options { window_scale: Some(WindowScale::MAX), ..Options::NONE });
    // Five blocks are more than a header holds; the first four count.
    let mut five = vec![5, 42];
    five.extend([1; 40]);
    assert_eq!(Options::parse(&five).unwrap().sack.len(), 4);
}

#[test]
fn options_that_begin_as_those_of_nearly_every_syn_may_end_otherwise() {
    let usual = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7];
    let options = Options::parse(&usual).unwrap();
    assert_eq!(options.window_scale, Some(WindowScale::new(7)));
    let mut other = usual;
    other[16..].fill(1);
    assert_eq!(Options::parse(&other), Ok(Options { window_scale: None, ..options }));
    let mut longer = usual;
    longer[7] = 11;
    assert_eq!(Options::parse(&longer), Err(Malformed::new(Layer::Tcp, Why::OptionLength)));
}

#[test]
fn of_an_option_that_comes_twice_the_last_counts() {
    let sack = |n| [5, 10, 0, 0, 0, n, 0, 0, 0, n + 1];
    let bytes = [&[2, 4, 1, 1, 3, 3, 1, 1][..], &sack(3), &sack(6), &[2, 4, 2, 2, 3, 3, 2, 0]].concat();
    let options = Options::parse(&bytes).unwrap();
    assert_eq!((options.mss, options.window_scale), (Some(0x0202), Some(WindowScale::new(2))));
    assert_eq!(options.sack.as_slice(), [SeqRange::new(SeqNum::new(6), SeqNum::new(7))]);
}

#[test]
fn lengths_of_the_header_are_checked() {
    let truncated = Malformed::new(Layer::Tcp, Why::Truncated);
    let header_len = Malformed::new(Layer::Tcp, Why::HeaderLength);
    let mut bytes = [0; 24];
    assert_eq!(Segment::parse(&bytes[..19]), Err(truncated));
    for (offset, ok) in [(4, false), (5, true), (6, true), (7, false), (15, false)] {
        bytes[12] = offset << 4;
        assert_eq!(Segment::parse(&bytes).map(|_| ()), if ok { Ok(()) } else { Err(header_len) });
    }
}

#[test]
fn a_segment_knows_where_it_ends() {
    let header = Header {
        src_port: 1,
        dst_port: 2,
        seq: SeqNum::new(u32::MAX),
        ack: SeqNum::default(),
        flags: Flags::SYN | Flags::FIN,
        window: UnscaledWindow::default(),
        urgent: 0,
        options: Options::NONE,
    };
    let bytes = bytes_of(&header, b"abc");
    let segment = Segment::parse(&bytes).unwrap();
    assert_eq!((segment.seq_len(), segment.end()), (5, SeqNum::new(4)));
}

#[test]
fn a_partial_checksum_is_the_sum_of_the_pseudo_header() {
    let (src, dst) = (Address::from_v4([10, 0, 0, 1]), Address::from_v4([10, 0, 0, 2]));
    let mut bytes = [0u8; 25];
    bytes[12] = 0x50;
    bytes[24] = 7;
    let pseudo = pseudo_header(&src, &dst, 6, 25);
    Header::fill_partial(&mut bytes, pseudo);
    // What an offload device does: sum from the start of the header, its field included, and write the complement.
    let checksum = crate::checksum::Sum::of(&bytes).checksum();
    bytes[16..18].copy_from_slice(&checksum);
    assert!(verify_transport(&src, &dst, 6, &bytes));
}

#[test]
fn flags_print_as_people_say_them() {
    assert_eq!(format!("{:?}", Flags::SYN | Flags::ACK), "SYN|ACK");
    assert_eq!(format!("{:?}", Flags::NONE), "none");
    assert!((Flags::FIN | Flags::ACK).contains(Flags::ACK));
    assert!(!Flags::ACK.contains(Flags::FIN | Flags::ACK) && Flags::ACK.intersects(Flags::FIN | Flags::ACK));
}

#[test]
fn a_window_meets_its_scale() {
    assert_eq!(WindowScale::new(15), WindowScale::MAX);
    assert_eq!((UnscaledWindow::new(65535) << WindowScale::MAX), Window::MAX);
    assert_eq!((UnscaledWindow::new(3) << WindowScale::new(7)).get(), 384);
    assert_eq!((Window::new(385) >> WindowScale::new(7)).raw(), 3);
    assert_eq!((Window::new(1 << 20) >> WindowScale::NONE).raw(), 65535);
    assert_eq!(Window::new(u32::MAX), Window::MAX);
}
