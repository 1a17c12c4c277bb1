use super::*;
use laneway_stack::device::Medium;
use laneway_stack::device::pcap::{Direction, PcapngWriter};

/// A file as the stack writes it: one interface, a packet to port 80, a cut one, statistics.
fn file() -> Vec<u8> {
    let mut packet = vec![0u8; 40];
    packet[0] = 0x45;
    packet[9] = 6;
    packet[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    packet[20..24].copy_from_slice(&[0xab, 0xcd, 0, 80]);
    let mut file = PcapngWriter::new(Vec::new()).unwrap();
    let interface = file.interface("lane0", Medium::Ip).unwrap();
    file.frame(interface, Direction::In, 5_000_000_001, &packet, None).unwrap();
    file.frame_cut(interface, Direction::Out, 5_000_000_002, &packet[..10], 1_500, None).unwrap();
    file.statistics(interface, 5_000_000_003, 2, 7).unwrap();
    file.get_ref().clone()
}

fn blocks(file: Vec<u8>) -> Vec<Vec<u8>> {
    let (mut rest, mut blocks, mut block) = (&file[..], Vec::new(), Vec::new());
    while read_block(&mut rest, &mut block).unwrap() {
        blocks.push(block.clone());
    }
    blocks
}

#[test]
fn what_the_stack_writes_is_understood() {
    let blocks = blocks(file());
    let kinds: Vec<u32> = blocks.iter().map(|block| word(block, 0)).collect();
    assert_eq!(kinds, [SECTION_HEADER, 1, PACKET, PACKET, STATISTICS]);
    assert_eq!(missing(&blocks[4]), 7);
    assert_eq!(
        describe(&blocks[2], Link::Ip),
        json!({"time_us": 5_000_000_001u64, "lane": 0, "direction": "in", "len": 40, "protocol": 6,
               "src": "10.0.0.2", "dst": "10.0.0.1", "src_port": 0xabcd, "dst_port": 80})
    );
    assert_eq!(
        describe(&blocks[3], Link::Ip),
        json!({"time_us": 5_000_000_002u64, "lane": 0, "direction": "out", "len": 1_500})
    );
}

/// Its bytes are padded to whole words, behind which it says which way it went.
#[test]
fn a_frame_of_any_length_is_described() {
    for len in 34..38 {
        let mut frame = vec![0u8; len];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14] = 0x45;
        frame[23] = 1;
        frame[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
        let mut file = PcapngWriter::new(Vec::new()).unwrap();
        let interface = file.interface("lane0", Medium::Ethernet).unwrap();
        file.frame(interface, Direction::In, 7, &frame, None).unwrap();
        let blocks = blocks(file.get_ref().clone());
        assert_eq!(Link::of(&blocks[1]), Link::Ethernet);
        assert_eq!(
            describe(&blocks[2], Link::Ethernet),
            json!({"time_us": 7, "lane": 0, "direction": "in", "len": len, "protocol": 1, "src": "10.0.0.2", "dst": "10.0.0.1"})
        );
        frame[12..14].copy_from_slice(&[0x08, 0x06]);
        assert!(Link::Ethernet.packet(&frame).is_empty(), "ARP");
    }
}

#[test]
fn what_is_no_pcapng_is_refused() {
    for bytes in [&[0u8; 8][..], &[0xff; 64], &[1, 2, 3], &[6, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 0]] {
        let (mut rest, mut block) = (bytes, Vec::new());
        assert!(read_block(&mut rest, &mut block).is_err(), "{bytes:?}");
    }
    // Whatever is in a block, it is described without harm.
    for block in blocks(file()) {
        for cut in 0..block.len() {
            let _ = (describe(&block[..cut], Link::Ethernet), missing(&block[..cut]));
        }
    }
}

#[test]
fn protocols_by_name_and_number() {
    assert_eq!((protocol("tcp"), protocol("icmp6"), protocol("47")), (Ok(6), Ok(58), Ok(47)));
    assert!(protocol("256").is_err() && protocol("quic").is_err());
}
