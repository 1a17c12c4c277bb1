use super::*;
use crate::testing::{checksum_is_right, make_partial, tcp, udp};

const V4: (([u8; 4], u16), ([u8; 4], u16)) = (([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2));

fn v6() -> ((std::net::Ipv6Addr, u16), (std::net::Ipv6Addr, u16)) {
    (("2001:db8::1".parse().unwrap(), 1), ("2001:db8::2".parse().unwrap(), 2))
}

#[test]
fn completing_gives_what_software_would_have_written() {
    let payloads: [&[u8]; 3] = [b"", b"odd", b"even"];
    for payload in payloads {
        for whole in [
            udp(V4.0, V4.1, payload),
            tcp(V4.0, V4.1, 9, payload),
            udp(v6().0, v6().1, payload),
            tcp(v6().0, v6().1, 9, payload),
        ] {
            let mut frame = whole.clone();
            let partial = make_partial(&mut frame, Medium::Ip);
            assert_ne!(frame, whole);
            complete_checksum(&mut frame, partial);
            assert_eq!(frame, whole);
        }
    }
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
    // Find a payload whose checksum would be zero.
    let whole = (0..=u16::MAX)
        .map(|word| udp(V4.0, V4.1, &word.to_be_bytes()))
        .find(|packet| packet[26..28] == [0, 0])
        .expect("one word in 65,536 does it");
    let mut frame = whole.clone();
    let partial = make_partial(&mut frame, Medium::Ip);
    complete_checksum(&mut frame, partial);
    assert_eq!(frame[26..28], [0xff, 0xff]);
    assert!(checksum_is_right(&frame));
}

#[test]
fn nonsense_from_a_peer_is_harmless() {
    let mut frame = [0; 10];
    for (start, offset) in [(0, 9), (0, 65_535), (10, 0), (11, 0), (65_535, 65_535), (8, 1)] {
        complete_checksum(&mut frame, PartialChecksum { start, offset });
    }
    for medium in [Medium::Ip, Medium::Ethernet] {
        for len in 0..60 {
            let meta = TxMeta { checksum_partial: None, gso_size: 1, header_len: 0 };
            let mut total = 0;
            finish(medium, &vec![0x45; len], &meta, |len, write| {
                write(&mut vec![0; len]);
                total += 1;
            });
            assert!(total >= 1);
        }
    }
}

#[test]
fn a_segment_that_finds_no_room_does_not_take_the_others_along() {
    let payload: Vec<u8> = (0..250).collect();
    let whole = tcp(v6().0, v6().1, 100, &payload);
    let meta = TxMeta { checksum_partial: None, gso_size: 100, header_len: 60 };
    let mut out = Vec::new();
    let mut number = 0;
    finish(Medium::Ip, &whole, &meta, |len, write| {
        number += 1;
        if number != 2 {
            let mut frame = vec![0; len];
            write(&mut frame);
            out.push(frame);
        }
    });
    assert_eq!(out.len(), 2);
    assert!(out.iter().all(|frame| checksum_is_right(frame)));
    assert_eq!(out[0][60..], payload[..100]);
    assert_eq!(out[1][60..], payload[200..]);
    assert_eq!(out[1][44..48], 300u32.to_be_bytes());
}

/// Who vouches for a frame may have filled the field in: then it is left as it is.
#[test]
fn what_is_finished_is_not_unfinished() {
    for (medium, link) in [(Medium::Ip, &[][..]), (Medium::Ethernet, &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0])] {
        let mut frame = [link, &tcp(V4.0, V4.1, 9, b"text")].concat();
        assert_eq!(unfinished(medium, &frame, RxChecksum::Verified), None);
        let partial = make_partial(&mut frame, medium);
        assert_eq!(unfinished(medium, &frame, RxChecksum::Verified), Some(partial));
        assert_eq!(unfinished(medium, &frame, RxChecksum::Unknown), None);
    }
}
