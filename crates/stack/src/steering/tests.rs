use super::*;
use laneway_wire::flow::Address;

/// An IPv4 or IPv6 packet of this flow, as far as a device looks at it; the flow as its sender sees it.
fn packet(flow: &FlowKey) -> Vec<u8> {
    let mut packet = if flow.is_v4() {
        [&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0][..], &flow.local.octets_v4(), &flow.remote.octets_v4()].concat()
    } else {
        [&[0x60, 0, 0, 0, 0, 0, 6, 64][..], &flow.local.octets(), &flow.remote.octets()].concat()
    };
    packet.extend(flow.local_port.to_be_bytes());
    packet.extend(flow.remote_port.to_be_bytes());
    packet
}

#[test]
fn a_sender_that_says_the_flow_and_a_device_that_looks_at_the_frame_agree() {
    let steering = Steering::new(std::array::from_fn(|i| (i * 41 + 7) as u8), 5);
    for i in 0..1_000u16 {
        let [high, low] = i.to_be_bytes();
        let v6 = |last: u8| Address::from_v6(std::array::from_fn(|at| if at == 15 { last } else { high ^ at as u8 }));
        let (local, remote) = match i % 2 {
            0 => (Address::from_v4([10, high, low, 1]), Address::from_v4([10, 9, low, high])),
            _ => (v6(low), v6(!low)),
        };
        let flow = FlowKey { local, remote, local_port: 40_000 + i, remote_port: 80 };
        assert_eq!(steering.bucket_of_sent(&flow), Some(steering.bucket_of_frame(&packet(&flow), 0)));
        assert_eq!(steering.lane_of_sent(&flow), Some(steering.queue_of_frame(&packet(&flow), 0)));
    }
}
