//! `IP_TTL` of sockets, as it stands in their packets: between two stacks somebody looks at each.

use laneway::{Device, Stack, TcpListener, TcpSocket, TcpStream, UdpSocket};
use laneway_stack::device::memory::{LinkConfig, LinkQueue, link};
use laneway_stack::device::{Rx, Tx, TxMeta};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// (Protocol, hop limit) of what each of two stacks has sent, since that was last asked.
type Seen = Arc<Mutex<[Vec<(u8, u8)>; 2]>>;

fn look(packet: &[u8]) -> (u8, u8) {
    match packet[0] >> 4 {
        4 => (packet[9], packet[8]),
        _ => (packet[6], packet[7]),
    }
}

fn carry(from: &mut LinkQueue, to: &mut LinkQueue, seen: &mut Vec<(u8, u8)>) {
    for i in 0..from.rx.poll(64) {
        let packet = from.rx.frame(i).bytes;
        seen.push(look(packet));
        to.tx.reserve(packet.len()).expect("there is room").copy_from_slice(packet);
        to.tx.commit(packet.len(), TxMeta::default());
    }
    from.rx.release();
    to.tx.flush();
}

/// Two stacks, and what they send.
fn stacks() -> ([Stack; 2], Seen) {
    let mut wires = Vec::new();
    let stacks = [1, 2].map(|host| {
        let (mut queue, mut wire) = link(LinkConfig::default());
        wires.append(&mut wire);
        let builder = Stack::builder(Device::queues(vec![queue.remove(0).boxed()])).pin(false);
        let builder = builder.address(&format!("10.0.0.{host}/24")).unwrap();
        builder.address(&format!("fd00::{host}/64")).unwrap().start().unwrap()
    });
    let seen = Seen::default();
    let watched = seen.clone();
    thread::spawn(move || {
        let [mut a, mut b] = <[LinkQueue; 2]>::try_from(wires).expect("one for each");
        loop {
            let mut seen = watched.lock().unwrap();
            carry(&mut a, &mut b, &mut seen[0]);
            carry(&mut b, &mut a, &mut seen[1]);
            drop(seen);
            thread::sleep(Duration::from_micros(100));
        }
    });
    (stacks, seen)
}

/// The hop limits of what each has sent of this protocol, without repetitions.
fn limits(seen: &Seen, protocol: u8) -> [Vec<u8>; 2] {
    seen.lock().unwrap().each_mut().map(|seen| {
        let mut limits: Vec<u8> = seen.drain(..).filter(|(of, _)| *of == protocol).map(|(_, limit)| limit).collect();
        limits.dedup();
        limits
    })
}

const TCP: u8 = 6;
const UDP: u8 = 17;

#[test]
fn packets_of_a_connection_live_as_long_as_was_set() {
    for at in ["10.0.0.1:80", "[fd00::1]:80"] {
        let ([server, client], seen) = stacks();
        let listener = TcpListener::bind_on(&server, at).unwrap();
        listener.set_ttl(255).unwrap();
        let mut near = TcpStream::connect_on(&client, at).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        assert_eq!((near.ttl().unwrap(), far.ttl().unwrap(), listener.ttl().unwrap()), (64, 255, 255));
        assert_eq!(limits(&seen, TCP)[1], [64], "what is asked for later holds for what is sent later");

        near.set_ttl(100).unwrap();
        let much = vec![7; 100_000];
        let writer = thread::spawn(move || near.write_all(&much).map(|()| near));
        far.read_exact(&mut vec![0; 100_000]).unwrap();
        let near = writer.join().unwrap().unwrap();
        let [of_server, of_client] = limits(&seen, TCP);
        assert_eq!((of_server.last(), of_client), (Some(&255), vec![100]));
        assert_eq!(near.try_clone().unwrap().ttl().unwrap(), 100);
    }
}

#[test]
fn a_syn_lives_as_long_as_its_socket_was_told() {
    for at in ["10.0.0.1:80", "[fd00::1]:80"] {
        let ([server, client], seen) = stacks();
        let at: SocketAddr = at.parse().unwrap();
        let listener = TcpListener::bind_on(&server, at).unwrap();
        let socket = if at.is_ipv4() { TcpSocket::new_v4_on(&client) } else { TcpSocket::new_v6_on(&client) };
        assert_eq!(socket.ttl().unwrap(), 64);
        socket.set_ttl(255).unwrap();
        let near = socket.connect(at).unwrap();
        let _far = listener.accept().unwrap();
        assert_eq!(near.ttl().unwrap(), 255);
        (&near).write_all(b"x").unwrap();
        assert_eq!(limits(&seen, TCP)[1], [255], "its SYN among them");
    }
}

/// As whoever asks each router on the way who it is does it.
#[test]
fn a_datagram_lives_as_long_as_was_set_when_it_was_sent() {
    let ([server, client], seen) = stacks();
    for (at, from) in [("10.0.0.1:53", "0.0.0.0:0"), ("[fd00::1]:53", "[::]:0")] {
        let (there, here) = (UdpSocket::bind_on(&server, at).unwrap(), UdpSocket::bind_on(&client, from).unwrap());
        let limits_set = [64, 1, 2, 3, 255];
        for limit in limits_set {
            here.set_ttl(limit).unwrap();
            assert_eq!(here.ttl().unwrap(), limit);
            here.send_to(b"who", at).unwrap();
        }
        for _ in limits_set {
            there.recv_from(&mut [0; 8]).unwrap();
        }
        assert_eq!(limits(&seen, UDP)[1], limits_set.map(|limit| limit as u8));
    }
}
