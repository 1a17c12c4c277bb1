use super::*;
use crate::memory::{LinkConfig, LinkQueue, link};
use crate::testing::{checksum_is_right, make_partial, tcp};
use crate::{Alarms, CookieAnswer};
use std::net::IpAddr;
use std::time::Duration;

const A: ([u8; 4], u16) = ([192, 0, 2, 1], 1000);
const B: ([u8; 4], u16) = ([192, 0, 2, 2], 2000);

fn ends(config: LinkConfig) -> (LinkQueue, LinkQueue) {
    let (mut a, mut b) = link(LinkConfig { ring_bytes: 1 << 22, ..config });
    (a.remove(0), b.remove(0))
}

fn send(tx: &mut impl Tx, frame: &[u8], meta: TxMeta) {
    tx.reserve(frame.len()).expect("room").copy_from_slice(frame);
    tx.commit(frame.len(), meta);
}

/// Polls until nothing has come ten times.
fn drain(rx: &mut impl Rx) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut quiet = 0;
    while quiet < 10 {
        let count = rx.poll(64);
        quiet = if count == 0 { quiet + 1 } else { 0 };
        all.extend((0..count).map(|i| rx.frame(i).bytes.to_vec()));
        rx.release();
    }
    all
}

fn numbered(count: u32) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|number| tcp(A, B, number, b"some text"))
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[24..28].try_into().unwrap())
}

fn receive(rates: Rates, seed: u64) -> (Vec<Vec<u8>>, FaultCounters) {
    let (mut a, b) = ends(LinkConfig::default());
    let mut b = wrap(b, FaultConfig { rx: rates, tx: Rates::default() }, seed);
    numbered(2000).for_each(|frame| send(&mut a.tx, &frame, TxMeta::default()));
    a.tx.flush();
    (drain(&mut b.rx), b.rx.counters())
}

fn transmit(rates: Rates, seed: u64) -> (Vec<Vec<u8>>, FaultCounters) {
    let (a, mut b) = ends(LinkConfig::default());
    let mut a = wrap(a, FaultConfig { rx: Rates::default(), tx: rates }, seed);
    numbered(2000).for_each(|frame| send(&mut a.tx, &frame, TxMeta::default()));
    for _ in 0..3 {
        a.tx.flush();
    }
    (drain(&mut b.rx), a.tx.counters())
}

#[test]
fn without_faults_nothing_changes() {
    for (frames, counters) in [receive(Rates::default(), 1), transmit(Rates::default(), 1)] {
        assert_eq!(frames, numbered(2000).collect::<Vec<_>>());
        assert_eq!(counters, FaultCounters::default());
    }
}

#[test]
fn each_fault_is_made_and_counted() {
    let rates =
        Rates { loss_ppm: 100_000, duplicate_ppm: 50_000, reorder_ppm: 50_000, corrupt_ppm: 50_000, mark_ppm: 0 };
    for (frames, counters) in [receive(rates, 7), transmit(rates, 7)] {
        assert_eq!(frames.len() as u64, 2000 - counters.lost + counters.duplicated);
        assert!((150..250).contains(&counters.lost), "{counters:?}");
        for count in [counters.duplicated, counters.reordered, counters.corrupted] {
            assert!((50..150).contains(&count), "{counters:?}");
        }
        // A flipped bit in an IP header is not the transport checksum's business, and some fall there.
        let wrong = frames.iter().filter(|frame| frame[0] != 0x45 || !checksum_is_right(frame)).count() as u64;
        assert!(wrong <= counters.corrupted && wrong >= counters.corrupted / 3, "{wrong} of {counters:?}");
    }
}

#[test]
fn reordering_is_by_a_few_and_loses_nothing() {
    let rates = Rates { reorder_ppm: 200_000, ..Rates::default() };
    for (frames, counters) in [receive(rates, 3), transmit(rates, 3)] {
        let mut numbers: Vec<u32> = frames.iter().map(|frame| number(frame)).collect();
        let behind = numbers.iter().enumerate().map(|(i, number)| i.abs_diff(*number as usize)).max().unwrap();
        assert!((1..=8).contains(&behind), "{behind}");
        assert!(counters.reordered > 300);
        numbers.sort_unstable();
        assert_eq!(numbers, (0..2000).collect::<Vec<_>>());
    }
}

#[test]
fn the_last_frame_is_not_held_for_ever() {
    let rates = Rates { reorder_ppm: 1_000_000, ..Rates::default() };
    let (mut a, b) = ends(LinkConfig::default());
    let mut b = wrap(b, FaultConfig { rx: rates, tx: rates }, 1);
    send(&mut a.tx, b"alone", TxMeta::default());
    a.tx.flush();
    assert_eq!(drain(&mut b.rx).len(), 1);
    send(&mut b.tx, b"alone", TxMeta::default());
    for _ in 0..3 {
        b.tx.flush();
    }
    assert_eq!(drain(&mut a.rx).len(), 1);
}

#[test]
fn a_seed_is_a_run() {
    let rates =
        Rates { loss_ppm: 100_000, duplicate_ppm: 50_000, reorder_ppm: 50_000, corrupt_ppm: 50_000, mark_ppm: 0 };
    assert_eq!(receive(rates, 4711), receive(rates, 4711));
    assert_ne!(receive(rates, 4711), receive(rates, 4712));
    assert_eq!(transmit(rates, 4711), transmit(rates, 4711));
}

#[test]
fn offloads_are_finished_before_the_damage() {
    // Every plain frame is damaged in one bit; if a checksum were computed afterwards, it would be right.
    let rates = Rates { corrupt_ppm: 1_000_000, ..Rates::default() };
    let payload = vec![3; 5000];
    let mut packet = tcp(A, B, 5, &payload);
    let partial = make_partial(&mut packet, Medium::Ip);
    let meta = TxMeta { checksum_partial: Some(partial), gso_size: 1000, header_len: 40 };
    let mut intact = Vec::new();
    offload::finish(Medium::Ip, &packet, &meta, |len, write| {
        intact.push(vec![0; len]);
        write(intact.last_mut().unwrap());
    });
    for on_receive in [false, true] {
        let whole = LinkConfig { rx_checksum: false, ..LinkConfig::default().with_offloads() };
        let (a, b) = ends(whole);
        let faults = |here| if here { rates } else { Rates::default() };
        let mut a = wrap(a, FaultConfig { tx: faults(!on_receive), ..FaultConfig::default() }, 5);
        let mut b = wrap(b, FaultConfig { rx: faults(on_receive), ..FaultConfig::default() }, 5);
        send(&mut a.tx, &packet, meta);
        a.tx.flush();
        let frames = drain(&mut b.rx);
        assert_eq!(frames.len(), 5, "cut, and each damaged on its own");
        for (frame, intact) in frames.iter().zip(&intact) {
            let flipped: u32 = frame.iter().zip(intact).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!((frame.len(), flipped), (intact.len(), 1));
        }
        assert!(frames.iter().any(|frame| !checksum_is_right(frame)));
    }
}

/// A device of which there is nothing to be had but one frame and what it says of it.
struct One {
    bytes: Vec<u8>,
    meta: RxMeta,
    told: Vec<&'static str>,
}

impl Rx for One {
    fn poll(&mut self, _: usize) -> usize {
        usize::from(!self.bytes.is_empty())
    }
    fn frame(&self, _: usize) -> RxFrame<'_> {
        RxFrame { bytes: &self.bytes, meta: self.meta }
    }
    fn release(&mut self) {
        self.bytes.clear();
    }
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn floodgate(&mut self) -> Option<&mut dyn FloodGate> {
        Some(self)
    }
    fn failed(&self) -> Option<&str> {
        Some("gone")
    }
}

impl FloodGate for One {
    fn rests(&self) -> Duration {
        Duration::from_secs(7)
    }
    fn look_aside(&mut self) {
        self.told.push("look aside");
    }
    fn vouch(&mut self, _: IpAddr) {
        self.told.push("vouch");
    }
    fn overrun(&mut self, _: &CookieAnswer) {}
    fn alarms(&self) -> Alarms {
        Alarms::default()
    }
    fn answered(&mut self) -> u64 {
        0
    }
}

fn around(bytes: Vec<u8>, checksum: RxChecksum, rx: Rates) -> FaultRx<One> {
    let one = One { bytes, meta: RxMeta { checksum, gso_size: 0 }, told: Vec::new() };
    let (a, _) = ends(LinkConfig::default());
    wrap(Queue { rx: one, tx: a.tx }, FaultConfig { rx, ..FaultConfig::default() }, 1).rx
}

/// Else they were taken for good as they are.
#[test]
fn nobody_vouches_for_damaged_bytes() {
    let packet = tcp(A, B, 5, b"some text");
    let damage = Rates { corrupt_ppm: 1_000_000, ..Rates::default() };
    for (rates, expected) in [(Rates::default(), RxChecksum::Verified), (damage, RxChecksum::Unknown)] {
        let mut rx = around(packet.clone(), RxChecksum::Verified, rates);
        assert_eq!(rx.poll(64), 1);
        assert_eq!((rx.frame(0).bytes == packet, rx.frame(0).meta.checksum), (rates == Rates::default(), expected));
    }
}

/// What was left to an offload is finished, for nobody says of it any more that it was.
#[test]
fn a_checksum_that_was_left_to_nobody_is_completed() {
    let whole = tcp(A, B, 5, b"some text");
    let mut packet = whole.clone();
    let partial = make_partial(&mut packet, Medium::Ip);
    let mut rx = around(packet, RxChecksum::Partial(partial), Rates::default());
    assert_eq!(rx.poll(64), 1);
    assert_eq!((rx.frame(0).bytes, rx.frame(0).meta), (&whole[..], RxMeta::default()));
}

/// And so it is where the device vouches for it: a sum without the bytes is that of others, which damage may make of these.
#[test]
fn damage_to_what_was_left_to_an_offload_does_not_look_right() {
    let damage = Rates { corrupt_ppm: 1_000_000, ..Rates::default() };
    let whole = |word: u16| tcp(A, B, 5, &[&word.to_be_bytes()[..], b"some text"].concat());
    let left = |word| {
        let mut packet = whole(word);
        make_partial(&mut packet, Medium::Ip);
        packet
    };
    let damaged = |packet, checksum| {
        let mut rx = around(packet, checksum, damage);
        assert_eq!(rx.poll(64), 1);
        assert_eq!(rx.frame(0).meta.checksum, RxChecksum::Unknown);
        rx.frame(0).bytes.to_vec()
    };
    let differ = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| a ^ b).collect::<Vec<_>>();
    // The same bit falls over in each.
    let bit = differ(&whole(0), &damaged(whole(0), RxChecksum::Unknown));
    let unlucky = (0..=u16::MAX).find(|word| checksum_is_right(&differ(&left(*word), &bit))).expect("there is one");
    let frame = damaged(left(unlucky), RxChecksum::Verified);
    assert!(!checksum_is_right(&frame));
    assert_eq!(differ(&whole(unlucky), &frame), bit);
}

/// Also behind a capture.
#[test]
fn what_is_asked_of_a_wrapped_device_is_asked_of_that_inside() {
    let mut faults = around(Vec::new(), RxChecksum::Unknown, Rates::default());
    let (a, _) = ends(LinkConfig::default());
    let capture = crate::pcap::Capture::new(std::io::sink()).unwrap();
    let inside = around(Vec::new(), RxChecksum::Unknown, Rates::default());
    let mut tap = capture.tap("x", Queue { rx: inside, tx: a.tx }).rx;
    let devices: [&mut dyn Rx; 2] = [&mut faults, &mut tap];
    for rx in devices {
        let gate = rx.floodgate().expect("that of the device inside");
        gate.look_aside();
        gate.vouch([192, 0, 2, 1].into());
        assert_eq!(gate.rests(), Duration::from_secs(7));
        assert_eq!(rx.failed(), Some("gone"));
    }
    for one in [&faults.inner, &tap.inner().inner] {
        assert_eq!(one.told, ["look aside", "vouch"]);
    }
}
