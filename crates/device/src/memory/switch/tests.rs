use super::*;
use crate::testing::{checksum_is_right, make_partial, udp};

fn ethernet(ports: usize) -> SwitchConfig {
    let mut config = SwitchConfig::new(ports);
    config.link.medium = Medium::Ethernet;
    config
}

fn send(host: &mut LinkQueue, frame: &[u8], meta: TxMeta) {
    host.tx.reserve(frame.len()).expect("room").copy_from_slice(frame);
    host.tx.commit(frame.len(), meta);
    host.tx.flush();
}

fn frame_to(mac: [u8; 6]) -> Vec<u8> {
    [&mac[..], &[0; 30]].concat()
}

/// How many frames wait at each host.
fn arrived(hosts: &mut [LinkQueue]) -> Vec<usize> {
    hosts.iter_mut().map(|host| host.rx.poll(64)).collect()
}

#[test]
fn a_known_address_gets_it_alone() {
    let (mut switch, mut hosts) = switch(ethernet(4));
    assert_eq!(hosts[2].tx.capabilities().mac, mac_of_port(2));
    send(&mut hosts[0], &frame_to(mac_of_port(2)), TxMeta::default());
    assert_eq!(switch.poll(), 1);
    assert_eq!(arrived(&mut hosts), [0, 0, 1, 0]);
    assert_eq!(switch.poll(), 0);
}

#[test]
fn broadcast_and_unknown_go_to_all_others() {
    for mac in [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1], mac_of_port(9), [2, 0, 0, 0, 0, 0]] {
        let (mut switch, mut hosts) = switch(ethernet(4));
        send(&mut hosts[1], &frame_to(mac), TxMeta::default());
        switch.poll();
        assert_eq!(arrived(&mut hosts), [1, 0, 1, 1]);
    }
}

#[test]
fn a_frame_to_its_own_sender_goes_nowhere() {
    let (mut switch, mut hosts) = switch(ethernet(3));
    send(&mut hosts[1], &frame_to(mac_of_port(1)), TxMeta::default());
    switch.poll();
    assert_eq!(arrived(&mut hosts), [0, 0, 0]);
}

#[test]
fn without_ethernet_the_caller_picks() {
    let pick: Pick = Arc::new(|frame| Some(usize::from(frame[0])));
    let (mut switch, mut hosts) = switch(SwitchConfig { pick: Some(PickBox(pick)), ..SwitchConfig::new(3) });
    for port in [2, 2, 0] {
        send(&mut hosts[1], &[port; 20], TxMeta::default());
    }
    switch.poll();
    assert_eq!(arrived(&mut hosts), [1, 0, 2]);
}

#[test]
fn a_full_port_loses_and_counts() {
    let mut config = ethernet(2);
    config.link.ring_bytes = 8192;
    let (mut switch, mut hosts) = switch(config);
    let frame = [&mac_of_port(1)[..], &[0; 1400]].concat();
    for _ in 0..10 {
        send(&mut hosts[0], &frame, TxMeta::default());
        switch.poll();
    }
    let got = arrived(&mut hosts)[1] as u64;
    assert!(got >= 3);
    assert_eq!(got + switch.dropped(), 10);
}

#[test]
fn checksums_are_complete_behind_the_switch() {
    let mut config = ethernet(2);
    config.link = config.link.with_offloads();
    let (mut switch, mut hosts) = switch(config);
    let mut frame = [&mac_of_port(1)[..], &[0; 6], &[8, 0]].concat();
    frame.extend(udp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), b"hello"));
    let partial = make_partial(&mut frame, Medium::Ethernet);
    send(&mut hosts[0], &frame, TxMeta { checksum_partial: Some(partial), ..TxMeta::default() });
    switch.poll();
    assert_eq!(hosts[1].rx.poll(64), 1);
    assert!(checksum_is_right(&hosts[1].rx.frame(0).bytes[14..]));
}
