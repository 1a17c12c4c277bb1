use super::*;
use crate::ip::input::input;
use laneway_wire::protocol;
use proptest::prelude::*;

proptest! {
    #[test]
    fn input_reads_what_output_wrote(
        v4: bool, src: [u8; 16], dst: [u8; 16], hop_limit: u8, dscp_ecn: u8, id: u16, dont_fragment: bool,
        flow_label in 0u32..1 << 20, payload in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let address = |mut o: [u8; 16]| {
            o[0] = 0x2a;
            if v4 { Address::from_v4([o[0], o[1], o[2], o[3]]) } else { Address::from_v6(o) }
        };
        let protocol = protocol::TCP;
        let spec = HeaderSpec { src: address(src), dst: address(dst), protocol, hop_limit, dscp_ecn, id, dont_fragment, flow_label };
        let mut bytes = vec![0xaa; spec.len()];
        bytes.extend_from_slice(&payload);
        bytes.extend_from_slice(&[0xee; 6]); // the link's padding
        emit(&spec, &mut bytes, payload.len());
        let packet = input(&bytes, false).unwrap();
        prop_assert_eq!((packet.src, packet.dst, packet.protocol), (spec.src, spec.dst, protocol));
        prop_assert_eq!((packet.hop_limit, packet.ecn), (hop_limit, dscp_ecn & 3));
        prop_assert_eq!(packet.header, &bytes[..spec.len()]);
        prop_assert_eq!(packet.payload, &payload[..]);
        prop_assert!(packet.fragment.is_none());
        // What a host that receives it need not know, and who passes it on must.
        if v4 {
            let header = ipv4::View::new(&bytes).unwrap().header();
            prop_assert_eq!((header.dscp, header.id, header.dont_fragment), (dscp_ecn >> 2, id, dont_fragment));
        } else {
            let [b0, b1, b2, b3, ..] = bytes[..] else { unreachable!("a header is longer") };
            let word = u32::from_be_bytes([b0, b1, b2, b3]);
            prop_assert_eq!(word, 6 << 28 | u32::from(dscp_ecn) << 20 | flow_label);
        }
    }
}

#[test]
#[should_panic(expected = "too long")]
fn our_own_mistake_is_loud() {
    let address = Address::from_v4([192, 0, 2, 1]);
    emit(&HeaderSpec::new(address, address, 6), &mut [0; 20], 65_516);
}

#[test]
fn the_longest_payload_is_no_mistake() {
    for (address, longest) in [(Address::from_v4([192, 0, 2, 1]), 65_515), (Address::from_v6([0x20; 16]), 65_535)] {
        let spec = HeaderSpec::new(address, address, 17);
        let mut packet = vec![0; spec.len() + longest];
        emit(&spec, &mut packet, longest);
        assert_eq!(input(&packet, false).unwrap().payload.len(), longest);
    }
}

/// A template writes what `emit` writes, whatever the length.
#[test]
fn a_template_is_emit_with_the_length_left_open() {
    let v4 = HeaderSpec {
        hop_limit: 7,
        ..HeaderSpec::new(Address::from_v4([10, 0, 0, 1]), Address::from_v4([10, 200, 3, 255]), 6)
    };
    let v6 = HeaderSpec::new(Address::from_v6([0xfd; 16]), Address::from_v6([0x20; 16]), 6);
    for spec in [v4, v6] {
        let template = Template::new(&spec);
        for len in [0, 1, 20, 32, 1_448, 40_000, 65_000] {
            let (mut by_template, mut by_emit) = ([0xaa; 40], [0xaa; 40]);
            template.emit(&mut by_template, len);
            emit(&spec, &mut by_emit, len);
            assert_eq!(by_template[..spec.len()], by_emit[..spec.len()], "{spec:?} {len}");
            let pseudo = pseudo_header(&spec.src, &spec.dst, spec.protocol, len as u32);
            assert_eq!(template.pseudo(len).fold() % 0xffff, pseudo.fold() % 0xffff);
            let link: [u8; ethernet::HEADER_LEN] = std::array::from_fn(|i| i as u8 + 1);
            for link in [&link[..], &[]] {
                let behind = template.behind(&[0xcc; ethernet::HEADER_LEN]).behind(link);
                let mut whole = [0xaa; ethernet::HEADER_LEN + HEADER_LEN_V6 + 3];
                let rest = behind.emit(&mut whole, len).len();
                assert_eq!(rest, whole.len() - behind.len(), "{spec:?} {len}");
                let (front, header) = whole[..behind.len()].split_at(behind.link_len());
                assert_eq!((front, header), (link, &by_emit[..spec.len()]), "{spec:?} {len}");
                assert!(behind.link() == link && whole[behind.len()..].iter().all(|byte| *byte == 0xaa));
                // One for the unspecified address is one for everybody.
                let nobody = if spec.src.is_v4() { Address::UNSPECIFIED_V4 } else { Address::UNSPECIFIED_V6 };
                let open = Template::new(&HeaderSpec { dst: nobody, ..spec }).behind(link);
                let mut other = [0xaa; ethernet::HEADER_LEN + HEADER_LEN_V6 + 3];
                let (tcp, sum) = open.emit_to(&spec.dst, &mut other, len);
                assert_eq!((tcp.len(), sum.fold() % 0xffff), (rest, pseudo.fold() % 0xffff), "{spec:?} {len}");
                assert_eq!(other, whole, "{spec:?} {len}");
            }
        }
    }
}

/// One that is changed is as one that was made so.
#[test]
fn a_template_with_marks_or_to_be_cut_is_as_one_made_so() {
    let ends = |v4| {
        if v4 { [1, 2].map(|n| Address::from_v4([192, 0, 2, n])) } else { [1, 2].map(|n| Address::from_v6([n; 16])) }
    };
    let bytes = |template: &Template| {
        let mut buf = vec![0; template.len()];
        template.emit(&mut buf, 100);
        (buf, template.pseudo(100).fold())
    };
    for v4 in [true, false] {
        for link in [&[][..], &[7; ethernet::HEADER_LEN]] {
            let [src, dst] = ends(v4);
            let spec = HeaderSpec { dscp_ecn: 0xb8, flow_label: 0xabcde, ..HeaderSpec::new(src, dst, protocol::TCP) };
            let plain = Template::new(&spec).behind(link);
            let made = |spec: &HeaderSpec| bytes(&Template::new(spec).behind(link));
            let cases = [(0, 0), (1, 0), (0, 0x2c), (255, 0xff)];
            for (hop_limit, dscp_ecn) in cases {
                let marked = plain.marked(Marks { hop_limit, dscp_ecn });
                let or = |own, usual| if own == 0 { usual } else { own };
                let other = HeaderSpec { hop_limit: or(hop_limit, 64), dscp_ecn: or(dscp_ecn, 0xb8), ..spec };
                assert_eq!(bytes(&marked), made(&other), "{hop_limit} {dscp_ecn:#x}");
                let cut = HeaderSpec { dont_fragment: false, id: 0xabcd, ..other };
                assert_eq!(bytes(&marked.to_be_cut(0xabcd)), made(&cut));
            }
        }
    }
}
