//! What cannot leave at once leaves as it would have.

use super::*;
use crate::app::{App, ConnId, Context};
use crate::config::Config;
use crate::control::Network;
use crate::entropy::BootSecrets;
use crate::host::Host;
use laneway_device::Medium;
use laneway_device::memory::{LinkConfig, link};
use laneway_proto::time::Instant;
use laneway_wire::tcp::{Options, SeqNum, UnscaledWindow};

struct Nobody;

impl App for Nobody {
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

/// RFC 1191 section 3: what goes along a path that carries less than is believed of any may be cut on the way, also if it waits for its neighbour first.
#[test]
fn a_segment_that_waits_for_its_neighbour_may_be_cut_on_the_way() {
    let (queues, _other) = link(LinkConfig { medium: Medium::Ethernet, ..LinkConfig::default() });
    let network = Network { addresses: vec!["10.0.0.1/24".parse().unwrap()], gateways: vec![] };
    let (secrets, now) = (BootSecrets::from_seed(1), Instant::from_us(3_600_000_000));
    let mut host: Host<_, _, _> = Host::new(Config::default(), &network, &secrets, queues, now, |_| Nobody).unwrap();
    let seat = &mut host.seats[0];
    let (local, tx) = (&mut seat.lane.local, &mut seat.queue.tx);
    let [here, there] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(Address::from_v4);
    let key = FlowKey { local: here, remote: there, local_port: 80, remote_port: 5_000 };
    assert_eq!(local.paths.on_packet_too_big(&local.snapshot, there, 296, now), Some(552));
    for _ in 0..2 {
        let header = Header {
            src_port: key.local_port,
            dst_port: key.remote_port,
            seq: SeqNum::new(1),
            ack: SeqNum::new(1),
            flags: Flags::ACK,
            window: UnscaledWindow::new(1_000),
            urgent: 0,
            options: Options::default(),
        };
        let out = Outgoing { key: &key, path: PathPlace::of(&key), header_len: header.len(), payload_len: 0 };
        assert_eq!(segment(local, tx, out, &header), Sent::Yes);
    }
    let waits = local.waiting.settle(|_| Some(true));
    let packets: Vec<_> = waits.iter().flat_map(|(_, packets, _)| packets).collect();
    assert!(packets.iter().all(|packet| packet[6] & 0x40 == 0), "routers must not cut them");
    assert_ne!(packets[0][4..6], packets[1][4..6], "their pieces would be taken for each other's");
}
