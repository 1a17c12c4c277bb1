//! Every parser on raw bytes: none panics, and what one has read is read again from what it writes.
#![no_main]

use laneway_wire::checksum::Sum;
use laneway_wire::flow::Address;
use laneway_wire::tcp::Segment;
use laneway_wire::{arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, ndp, udp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&which, bytes)) = data.split_first() else { return };
    match which % 9 {
        0 => {
            if let Ok((header, payload)) = ethernet::Header::parse(bytes) {
                let mut out = bytes.to_vec();
                header.emit(&mut out);
                assert_eq!(ethernet::Header::parse(&out), Ok((header, payload)));
            }
        }
        1 => {
            if let Ok(packet) = arp::Packet::parse(bytes) {
                let mut out = [0; arp::LEN];
                packet.emit(&mut out);
                assert_eq!(arp::Packet::parse(&out), Ok(packet));
            }
        }
        2 => {
            let _ = ipv4::View::new(bytes);
            if let Ok(view) = ipv4::View::new_checksum_verified(bytes) {
                let (header, payload) = (view.header(), view.payload());
                let mut out = vec![0; ipv4::HEADER_LEN];
                header.emit(&mut out);
                out.extend(payload);
                assert_eq!(ipv4::Header::parse(&out), Ok((header, payload)));
            }
        }
        3 => {
            if let Ok((header, payload)) = ipv6::Header::parse(bytes) {
                let mut out = vec![0; ipv6::HEADER_LEN];
                header.emit(&mut out);
                out.extend(payload);
                assert_eq!(ipv6::Header::parse(&out), Ok((header, payload)));
                if let Ok(view) = ipv6::View::new(bytes)
                    && let Ok(upper) = view.upper()
                {
                    assert!(upper.offset <= payload.len());
                }
            }
        }
        4 => {
            // The checksum is set right, or almost nothing gets through.
            let mut bytes = bytes.to_vec();
            if let Some(field) = bytes.get_mut(2..4) {
                field.fill(0);
                let sum = Sum::of(&bytes).checksum();
                bytes[2..4].copy_from_slice(&sum);
            }
            if let Ok(message) = icmpv4::Message::parse(&bytes) {
                let mut out = vec![0; message.len()];
                message.emit(&mut out);
                assert_eq!(icmpv4::Message::parse(&out), Ok(message));
            }
        }
        5 => {
            let (src, dst) = (Address::from_v6([1; 16]), Address::from_v6([2; 16]));
            let mut bytes = bytes.to_vec();
            if let Some(field) = bytes.get_mut(2..4) {
                field.fill(0);
                let pseudo = laneway_wire::checksum::pseudo_header(&src, &dst, 58, bytes.len() as u32);
                let sum = (pseudo + Sum::of(&bytes)).checksum();
                bytes[2..4].copy_from_slice(&sum);
            }
            if let Ok(message) = icmpv6::Message::parse(&bytes, &src, &dst) {
                let mut out = vec![0; message.len()];
                message.emit(&mut out, &src, &dst);
                assert_eq!(icmpv6::Message::parse(&out, &src, &dst), Ok(message));
            }
        }
        6 => {
            if let Ok(message) = ndp::Message::parse(bytes) {
                let mut out = vec![0; message.len()];
                message.emit(&mut out);
                assert_eq!(ndp::Message::parse(&out), Ok(message));
            }
        }
        7 => {
            if let Ok((header, payload)) = udp::Header::parse(bytes) {
                let mut out = vec![0; udp::HEADER_LEN];
                header.emit(&mut out);
                out.extend(payload);
                assert_eq!(udp::Header::parse(&out), Ok((header, payload)));
            }
        }
        _ => {
            if let Ok(segment) = Segment::parse(bytes) {
                let header = segment.to_header();
                let mut out = vec![0; header.len()];
                header.emit(&mut out);
                out.extend(segment.payload);
                let again = Segment::parse(&out).expect("what we write can be read");
                let same = (
                    again.src_port,
                    again.dst_port,
                    again.seq,
                    again.ack,
                    again.flags,
                    again.window,
                    again.urgent,
                    again.payload,
                );
                let was = (
                    segment.src_port,
                    segment.dst_port,
                    segment.seq,
                    segment.ack,
                    segment.flags,
                    segment.window,
                    segment.urgent,
                    segment.payload,
                );
                assert_eq!(same, was);
                assert_eq!(segment.end(), segment.seq + segment.seq_len());
            }
        }
    }
});
