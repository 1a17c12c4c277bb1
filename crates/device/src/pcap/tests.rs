use pcap_file::DataLink;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use std::os::fd::AsRawFd;

use super::*;
use crate::memory::{LinkConfig, link};
use crate::testing::{make_partial, tcp, udp};

/// A file in memory that outlives its writer.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, PartialEq)]
struct Read {
    interface: u32,
    time_us: u64,
    flags: u32,
    bytes: Vec<u8>,
}

/// The file as an independent reader sees it. It takes every time stamp for nanoseconds whatever the interface's resolution is, which is
/// therefore checked by itself.
fn read(file: &[u8]) -> (Vec<(String, DataLink)>, Vec<Read>) {
    let mut reader = PcapNgReader::new(file).unwrap();
    let mut interfaces = Vec::new();
    let mut frames = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.unwrap().into_owned() {
            Block::InterfaceDescription(block) => {
                let name = block.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                });
                assert!(block.options.contains(&InterfaceDescriptionOption::IfTsResol(6)), "microseconds");
                interfaces.push((name.unwrap(), block.linktype));
            }
            Block::EnhancedPacket(block) => {
                assert_eq!(block.original_len as usize, block.data.len());
                let flags = block.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Flags(flags) => Some(*flags),
                    _ => None,
                });
                frames.push(Read {
                    interface: block.interface_id,
                    time_us: block.timestamp.as_nanos() as u64,
                    flags: flags.unwrap(),
                    bytes: block.data.into_owned(),
                });
            }
            other => panic!("nothing else is written: {other:?}"),
        }
    }
    (interfaces, frames)
}

#[test]
fn an_independent_reader_reads_both_directions() {
    let memory = Memory::default();
    let capture = Capture::new(memory.clone()).unwrap();
    let (mut a, mut b) = link(LinkConfig { tx_checksum: true, ..LinkConfig::default() });
    let mut a = capture.tap("lane 0", a.remove(0));
    let mut b = b.remove(0);

    let whole = udp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), b"question");
    let mut partly = whole.clone();
    let partial = make_partial(&mut partly, Medium::Ip);
    let late = (7 << 32) + 123_456; // more microseconds than 32 bits hold
    capture.set_time(late);
    a.tx.reserve(partly.len()).unwrap().copy_from_slice(&partly);
    a.tx.commit(partly.len(), TxMeta { checksum_partial: Some(partial), ..TxMeta::default() });
    a.tx.flush();
    assert_eq!(b.rx.poll(64), 1);
    assert_eq!(b.rx.frame(0).bytes, whole);
    b.rx.release();
    let answer = udp(([192, 0, 2, 2], 2), ([192, 0, 2, 1], 1), b"an answer of odd length");
    b.tx.reserve(answer.len()).unwrap().copy_from_slice(&answer);
    b.tx.commit(answer.len(), TxMeta::default());
    b.tx.flush();
    capture.set_time(late + 1);
    assert_eq!(a.rx.poll(64), 1);
    assert_eq!(a.rx.frame(0).bytes, answer);
    capture.flush().unwrap();

    let (interfaces, frames) = read(&memory.0.lock().unwrap());
    assert_eq!(interfaces, [("lane 0".to_string(), DataLink::RAW)]);
    assert_eq!(
        frames,
        [
            Read { interface: 0, time_us: late, flags: 2, bytes: whole },
            Read { interface: 0, time_us: late + 1, flags: 1, bytes: answer },
        ]
    );
}

/// Over a link that vouches for the bytes nobody finishes the checksum, but for who writes it down.
#[test]
fn what_is_received_over_a_link_that_offloads_is_written_down_with_its_checksum() {
    use std::net::Ipv6Addr;
    for medium in [Medium::Ip, Medium::Ethernet] {
        let memory = Memory::default();
        let capture = Capture::new(memory.clone()).unwrap();
        let (mut a, mut b) = link(LinkConfig { medium, ..LinkConfig::default() }.with_offloads());
        let (mut a, mut b) = (a.remove(0), capture.tap("b", b.remove(0)));
        let (v4, v6) = (|last| [192, 0, 2, last], |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
        let packets = [
            tcp((v4(1), 1), (v4(2), 2), 7, b"a segment of odd length"),
            udp((v4(1), 1), (v4(2), 2), b"a datagram"),
            tcp((v6(1), 1), (v6(2), 2), 7, &[7; 4_000]),
            udp((v6(1), 1), (v6(2), 2), b""),
        ];
        let mut written = Vec::new();
        for packet in packets {
            let ether_type: &[u8] = if packet[0] >> 4 == 4 { &[8, 0] } else { &[0x86, 0xdd] };
            let link = [&[2; 12], ether_type].concat();
            let whole = [&link[..medium.header_len()], &packet].concat();
            let mut partly = whole.clone();
            let partial = make_partial(&mut partly, medium);
            let super_packet = partly.len() > 2_000;
            let gso_size = if super_packet { 1_000 } else { 0 };
            for (frame, checksum_partial) in [(&partly, Some(partial)), (&whole, None)] {
                if super_packet && checksum_partial.is_none() {
                    continue;
                }
                let header_len = if super_packet { partial.start + 20 } else { 0 };
                let meta = TxMeta { checksum_partial, gso_size, header_len };
                a.tx.reserve(frame.len()).unwrap().copy_from_slice(frame);
                a.tx.commit(frame.len(), meta);
                written.push(whole.clone());
            }
        }
        a.tx.flush();
        assert_eq!(b.rx.poll(64), written.len());
        capture.flush().unwrap();
        let seen: Vec<Vec<u8>> = read(&memory.0.lock().unwrap()).1.into_iter().map(|frame| frame.bytes).collect();
        assert_eq!(seen, written);
    }
}

#[test]
fn several_taps_share_a_file() {
    let memory = Memory::default();
    let capture = Capture::new(memory.clone()).unwrap();
    let (mut a, mut b) = link(LinkConfig { medium: Medium::Ethernet, ..LinkConfig::default() });
    let mut a = capture.tap("a", a.remove(0));
    let mut b = capture.tap("b", b.remove(0));
    for len in 14..80 {
        a.tx.reserve(len).unwrap().fill(len as u8);
        a.tx.commit(len, TxMeta::default());
    }
    a.tx.flush();
    assert_eq!(b.rx.poll(64), 64);
    let (interfaces, frames) = read(&memory.0.lock().unwrap());
    assert_eq!(interfaces, [("a".to_string(), DataLink::ETHERNET), ("b".to_string(), DataLink::ETHERNET)]);
    assert_eq!(frames.len(), 66 + 64);
    for (i, frame) in frames[..66].iter().enumerate() {
        assert_eq!((frame.interface, frame.flags, frame.bytes.len()), (0, 2, 14 + i));
    }
    assert!(frames[66..].iter().all(|frame| (frame.interface, frame.flags) == (1, 1)));
    assert!(capture.flush().is_ok());
}

#[test]
fn a_full_disk_stops_the_capture_and_not_the_traffic() {
    struct Full(usize, Memory);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            self.1.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let memory = Memory::default();
    let capture = Capture::new(Full(300, memory.clone())).unwrap();
    let (mut a, mut b) = link(LinkConfig::default());
    let mut a = capture.tap("a", a.remove(0));
    // There would be room for the last ones, but not for those before them.
    for len in [100, 100, 100, 20, 20] {
        a.tx.reserve(len).unwrap().fill(1);
        a.tx.commit(len, TxMeta::default());
    }
    a.tx.flush();
    assert_eq!(b[0].rx.poll(64), 5);
    for _ in 0..2 {
        assert_eq!(capture.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
    let seen: Vec<usize> = read(&memory.0.lock().unwrap()).1.iter().map(|frame| frame.bytes.len()).collect();
    assert_eq!(seen, [100], "nothing comes after what is missing");
}

/// Whoever is told of it may know of no file: the warning of a running stack is made where nobody has its name.
#[test]
fn a_capture_that_could_not_be_written_says_which_file_it_was() {
    let capture = Capture::to_file("/dev/full").unwrap();
    for _ in 0..2 {
        let error = capture.flush().unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().starts_with("/dev/full: ")),
            (io::ErrorKind::StorageFull, true),
            "{error}"
        );
    }
}

/// Does it elsewhere, since whoever waits for ever can be given up only from outside.
fn in_time<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(act()));
    done.recv_timeout(std::time::Duration::from_secs(60)).expect("nobody is waited for without an end")
}

/// A pipe may have a reader that does not read, or none at all.
#[test]
fn a_pipe_from_which_nobody_reads_stops_the_capture_and_not_the_traffic() {
    let (reader, writer) = io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let to_pipe = path.clone();
    let (arrived, error) = in_time(move || {
        let capture = Capture::to_file(to_pipe).unwrap();
        let (mut a, mut b) = link(LinkConfig::default());
        let mut a = capture.tap("a", a.remove(0));
        let mut arrived = 0;
        for _ in 0..300 {
            a.tx.reserve(1_000).unwrap().fill(1);
            a.tx.commit(1_000, TxMeta::default());
            a.tx.flush();
            arrived += b[0].rx.poll(64);
            b[0].rx.release();
        }
        (arrived, capture.flush().unwrap_err())
    });
    assert_eq!((arrived, error.kind()), (300, io::ErrorKind::TimedOut));
    assert!(error.to_string().starts_with(&format!("{path}: nobody has read")), "{error}");
    drop(reader);
    let name = std::env::temp_dir().join(format!("laneway-pipe-{}", std::process::id()));
    let c_name = std::ffi::CString::new(name.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the name ends with a zero, and is there until the call is over.
    assert_eq!(unsafe { libc::mkfifo(c_name.as_ptr(), 0o600) }, 0, "{}", io::Error::last_os_error());
    let to_pipe = name.clone();
    let refused = in_time(move || Capture::to_file(to_pipe).map(drop));
    std::fs::remove_file(name).unwrap();
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::TimedOut);
}

/// Whoever does read gets all, however much more it is than a pipe holds.
#[test]
fn a_pipe_from_which_somebody_reads_has_all_of_it() {
    let (mut reader, writer) = io::pipe().unwrap();
    let capture = Capture::to_file(format!("/proc/self/fd/{}", writer.as_raw_fd())).unwrap();
    drop(writer);
    let all = std::thread::spawn(move || {
        let mut all = Vec::new();
        io::Read::read_to_end(&mut reader, &mut all).map(|_| all)
    });
    let (mut a, mut b) = link(LinkConfig::default());
    let mut a = capture.tap("a", a.remove(0));
    for _ in 0..1_000 {
        a.tx.reserve(1_000).unwrap().fill(1);
        a.tx.commit(1_000, TxMeta::default());
        a.tx.flush();
        b[0].rx.poll(64);
        b[0].rx.release();
    }
    capture.flush().unwrap();
    drop((capture, a));
    assert_eq!(read(&all.join().unwrap().unwrap()).1.len(), 1_000);
}

/// What a trace writes: the beginning of each packet, and how many are missing.
#[test]
fn a_frame_that_is_cut_says_so_and_statistics_count_what_is_missing() {
    let mut packet = udp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), &[7; 100]);
    let partial = make_partial(&mut packet, Medium::Ip);
    let mut writer = PcapngWriter::new(Vec::new()).unwrap();
    let interface = writer.interface("lane 0", Medium::Ip).unwrap();
    // Behind the checksum's place, before it, and before all that it is made of.
    for len in [40, 24, 10] {
        let whole = packet.len() as u32;
        writer.frame_cut(interface, Direction::In, 1, &packet[..len], whole, Some(partial)).unwrap();
    }
    writer.statistics(interface, 2, /* received= */ 3, /* dropped= */ 4).unwrap();
    let mut reader = PcapNgReader::new(&writer.get_ref()[..]).unwrap();
    let (mut cut, mut counts) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block() {
        match block.unwrap().into_owned() {
            Block::EnhancedPacket(block) => cut.push((block.data.into_owned(), block.original_len as usize)),
            Block::InterfaceStatistics(block) => counts.extend(block.options),
            _ => {}
        }
    }
    assert_eq!(cut, [40, 24, 10].map(|len| (packet[..len].to_vec(), packet.len())));
    assert_eq!(counts, [InterfaceStatisticsOption::IsbIfRecv(7), InterfaceStatisticsOption::IsbIfDrop(4)]);
}
