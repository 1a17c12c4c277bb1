use super::*;
use crate::testing::{checksum_is_right, make_partial, tcp};
use crate::{Medium, Tx};

struct Net {
    first: LinkQueue,
    node: Impair,
    second: LinkQueue,
}

fn net(there: Impairments, seed: u64) -> Net {
    let config = LinkConfig { ring_bytes: 1 << 22, ..LinkConfig::default() };
    let (mut first, node, mut second) = impaired_link(config, [there, Impairments::default()], seed);
    Net { first: first.remove(0), node, second: second.remove(0) }
}

impl Net {
    fn send(&mut self, frame: &[u8]) {
        self.first.tx.reserve(frame.len()).expect("room").copy_from_slice(frame);
        self.first.tx.commit(frame.len(), TxMeta::default());
        self.first.tx.flush();
    }

    fn received(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let count = self.second.rx.poll(64);
            if count == 0 {
                return all;
            }
            all.extend((0..count).map(|i| self.second.rx.frame(i).bytes.to_vec()));
            self.second.rx.release();
        }
    }

    /// Sends numbered frames, one a millisecond, and runs until all is quiet. What arrived, and when.
    fn run(&mut self, frames: u32) -> Vec<(u64, Vec<u8>)> {
        let mut log = Vec::new();
        let mut now = 0;
        for number in 0..frames {
            now = u64::from(number) * 1000;
            self.send(&[&number.to_be_bytes()[..], &[0; 96]].concat());
            self.node.step(now);
            log.extend(self.received().into_iter().map(|frame| (now, frame)));
        }
        while let Some(next) = self.node.next_us() {
            now = now.max(next);
            self.node.step(now);
            log.extend(self.received().into_iter().map(|frame| (now, frame)));
        }
        log
    }
}

fn numbers(log: &[(u64, Vec<u8>)]) -> Vec<u32> {
    log.iter().map(|(_, frame)| u32::from_be_bytes(frame[..4].try_into().unwrap())).collect()
}

#[test]
fn delay_is_kept_to_the_microsecond() {
    let mut net = net(Impairments { delay_us: 5000, ..Impairments::default() }, 1);
    net.send(b"x");
    net.node.step(100);
    assert_eq!(net.node.next_us(), Some(5100));
    net.node.step(5099);
    assert!(net.received().is_empty());
    net.node.step(5100);
    assert_eq!(net.received(), [b"x"]);
    assert_eq!(net.node.next_us(), None);
}

#[test]
fn a_perfect_network_changes_nothing() {
    let log = net(Impairments::default(), 1).run(500);
    assert_eq!(numbers(&log), (0..500).collect::<Vec<_>>());
}

#[test]
fn jitter_keeps_the_order() {
    let impairments = Impairments { delay_us: 3000, jitter_us: 5000, ..Impairments::default() };
    let log = net(impairments, 3).run(500);
    assert_eq!(numbers(&log), (0..500).collect::<Vec<_>>());
    let late = |i: usize| log[i].0 - i as u64 * 1000;
    assert!((0..500).all(|i| late(i) >= 3000));
    assert!((0..500).any(|i| late(i) > 5000));
}

#[test]
fn the_bottleneck_spaces_and_then_overflows() {
    // 100 bytes take 8 ms.
    let impairments = Impairments { rate_bps: 100_000, queue_bytes: 1000, ..Impairments::default() };
    let mut net = net(impairments, 1);
    for _ in 0..20 {
        net.send(&[0; 100]);
    }
    net.node.step(0);
    assert_eq!(net.node.counters()[0].overflowed, 10);
    let mut times = Vec::new();
    while let Some(next) = net.node.next_us() {
        net.node.step(next);
        times.extend(net.received().iter().map(|_| next));
    }
    assert_eq!(times, (1..=10).map(|i| i * 8000).collect::<Vec<u64>>());
}

#[test]
fn each_mischief_is_done_and_counted() {
    let rates =
        Rates { loss_ppm: 100_000, duplicate_ppm: 50_000, reorder_ppm: 50_000, corrupt_ppm: 20_000, mark_ppm: 0 };
    let impairments = Impairments { rates, delay_us: 2000, reorder_us: 3500, ..Impairments::default() };
    let mut net = net(impairments, 7);
    let log = net.run(2000);
    let counters = net.node.counters()[0];
    assert!((150..250).contains(&counters.lost), "{counters:?}");
    assert!((60..140).contains(&counters.duplicated), "{counters:?}");
    assert!((60..140).contains(&counters.reordered), "{counters:?}");
    assert!((15..65).contains(&counters.corrupted), "{counters:?}");
    assert_eq!(log.len() as u64, 2000 - counters.lost + counters.duplicated);
    assert_eq!(counters.delivered, log.len() as u64);
    assert!(numbers(&log).windows(2).any(|pair| pair[1] < pair[0]));
    assert_eq!(net.node.held(), 0);
}

#[test]
fn a_seed_is_a_run() {
    let rates =
        Rates { loss_ppm: 100_000, duplicate_ppm: 50_000, reorder_ppm: 50_000, corrupt_ppm: 20_000, mark_ppm: 0 };
    let impairments = Impairments { rates, delay_us: 2000, jitter_us: 700, ..Impairments::default() };
    assert_eq!(net(impairments, 4711).run(500), net(impairments, 4711).run(500));
    assert_ne!(net(impairments, 4711).run(500), net(impairments, 4712).run(500));
}

#[test]
fn a_full_receiver_delays_and_loses_nothing() {
    let config = LinkConfig { ring_bytes: 8192, ..LinkConfig::default() };
    let (mut first, mut node, mut second) = impaired_link(config, [Impairments::default(); 2], 1);
    let mut got = 0;
    for _ in 0..50 {
        let tx = &mut first[0].tx;
        tx.reserve(1500).expect("room").fill(1);
        tx.commit(1500, TxMeta::default());
        tx.flush();
        node.step(0);
    }
    while node.next_us().is_some() {
        got += second[0].rx.poll(64);
        second[0].rx.release();
        node.step(0);
    }
    got += second[0].rx.poll(64);
    assert_eq!(got, 50);
}

#[test]
fn offloads_end_at_the_node_and_steering_goes_through_it() {
    let config = LinkConfig {
        queues: 2,
        steer: [None, Some(std::sync::Arc::new(|_| 1))],
        ..LinkConfig::default().with_offloads()
    };
    let (mut first, mut node, mut second) = impaired_link(config, [Impairments::default(); 2], 1);
    assert_eq!((first.len(), second.len()), (2, 2));
    let mut packet = tcp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), 5, &[9; 5000]);
    let partial = make_partial(&mut packet, Medium::Ip);
    let tx = &mut first[0].tx;
    tx.reserve(packet.len()).unwrap().copy_from_slice(&packet);
    tx.commit(packet.len(), TxMeta { checksum_partial: Some(partial), gso_size: 1000, header_len: 40 });
    tx.flush();
    node.step(0);
    assert_eq!(second[0].rx.poll(64), 0);
    assert_eq!(second[1].rx.poll(64), 5);
    assert!((0..5).all(|i| checksum_is_right(second[1].rx.frame(i).bytes)));
}

/// In either direction.
#[test]
fn it_steps_again_for_whoever_is_due_first() {
    let way = |delay_us| Impairments { delay_us, ..Impairments::default() };
    for delays in [[100, 200], [200, 100]] {
        let config = LinkConfig::default();
        let (mut first, mut node, mut second) = impaired_link(config, delays.map(way), 1);
        for end in [&mut first[0], &mut second[0]] {
            end.tx.reserve(10).expect("room").fill(1);
            end.tx.commit(10, TxMeta::default());
            end.tx.flush();
        }
        node.step(0);
        assert_eq!((node.next_us(), node.held()), (Some(100), 2));
        node.step(100);
        assert_eq!((node.next_us(), node.held()), (Some(200), 1));
    }
}

#[test]
fn a_copy_is_under_way_as_long_as_what_it_is_of() {
    let rates = Rates { duplicate_ppm: 1_000_000, ..Rates::default() };
    let mut net = net(Impairments { rates, delay_us: 100, ..Impairments::default() }, 1);
    net.send(b"x");
    net.node.step(0);
    assert_eq!((net.node.held(), net.node.next_us()), (2, Some(100)));
    net.node.step(100);
    assert_eq!(net.received(), [b"x", b"x"]);
}

#[test]
fn what_is_held_back_is_so_for_as_long_as_was_said() {
    let rates = Rates { reorder_ppm: 1_000_000, ..Rates::default() };
    let mut net = net(Impairments { rates, delay_us: 100, reorder_us: 50, ..Impairments::default() }, 1);
    net.send(b"x");
    net.node.step(0);
    assert_eq!(net.node.next_us(), Some(150));
}

/// What the bottleneck does not space, too.
#[test]
fn frames_of_one_moment_keep_their_order() {
    let mut net = net(Impairments { delay_us: 100, ..Impairments::default() }, 1);
    let sent: Vec<Vec<u8>> = (0..50).map(|number: u8| vec![number.wrapping_mul(101); 10]).collect();
    for frame in &sent {
        net.send(frame);
    }
    net.node.step(0);
    net.node.step(100);
    assert_eq!(net.received(), sent);
}

/// What it may hold is not used up by what has gone.
#[test]
fn what_has_been_passed_on_is_not_held() {
    let mut net = net(Impairments::default(), 1);
    net.run(20);
    assert_eq!((net.node.ways[0].held_bytes, net.node.held()), (0, 0));
}

/// Who is behind the node is what he would be without it: his queues, his interrupt, his link address.
#[test]
fn each_end_has_what_is_said_of_it() {
    use crate::memory::Indirection;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let woken: [Arc<AtomicUsize>; 2] = Default::default();
    let wake = |end: usize| -> Option<super::super::link::Wake> {
        let woken = woken[end].clone();
        Some(Arc::new(move |queue| woken.store(10 + queue, Ordering::Relaxed)))
    };
    let tables = [Some(Indirection::new(&[0; crate::BUCKETS], 1)), Some(Indirection::new(&[1; crate::BUCKETS], 1))];
    let config = LinkConfig {
        queues: 2,
        second_queues: Some(3),
        medium: Medium::Ethernet,
        steer: [Some(Arc::new(|_| 5)), Some(Arc::new(|_| 5))],
        tables,
        wake: [wake(0), wake(1)],
        ..LinkConfig::default()
    };
    let macs = config.macs;
    let (mut first, mut node, mut second) = impaired_link(config, [Impairments::default(); 2], 1);
    assert_eq!([first[0].tx.capabilities().mac, second[0].tx.capabilities().mac], macs);
    for end in [&mut first[0], &mut second[0]] {
        end.tx.reserve(60).expect("room").fill(1);
        end.tx.commit(60, TxMeta::default());
        end.tx.flush();
    }
    node.step(0);
    assert_eq!((first[0].rx.poll(64), second[1].rx.poll(64)), (1, 1), "bucket 5 is theirs");
    assert_eq!(woken.map(|woken| woken.load(Ordering::Relaxed)), [10, 11]);
}

/// Its two links need not carry the same: nobody's frame may stop the node.
#[test]
fn what_the_next_link_does_not_carry_is_lost() {
    let only = |mtu| {
        let (mut host, mut node) = link(LinkConfig { mtu, ..LinkConfig::default() });
        (host.remove(0), node.remove(0))
    };
    let ((first, to_first), (second, to_second)) = (only(9_000), only(1_500));
    let node = Impair::new([to_first, to_second], [Impairments::default(); 2], 1);
    let mut net = Net { first, node, second };
    for len in [1_501, 1_500] {
        net.send(&vec![7; len]);
    }
    net.node.step(0);
    assert_eq!(net.received(), [vec![7; 1_500]]);
    assert_eq!((net.node.counters()[0].delivered, net.node.counters()[0].overflowed), (1, 1));
}

/// Offloads end at the node, also on a link that needs no checksums.
#[test]
fn what_only_one_link_vouches_for_has_its_checksum_behind_the_node() {
    let only = || {
        let (mut host, mut node) = link(LinkConfig::default().with_offloads());
        (host.remove(0), node.remove(0))
    };
    let ((mut first, to_first), (second, to_second)) = (only(), only());
    let whole = tcp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), 5, b"some text");
    let mut packet = whole.clone();
    let checksum_partial = Some(make_partial(&mut packet, Medium::Ip));
    first.tx.reserve(packet.len()).expect("room").copy_from_slice(&packet);
    first.tx.commit(packet.len(), TxMeta { checksum_partial, ..TxMeta::default() });
    first.tx.flush();
    let mut net = Net { first, node: Impair::new([to_first, to_second], [Impairments::default(); 2], 1), second };
    net.node.step(0);
    assert_eq!(net.received(), [whole]);
}
