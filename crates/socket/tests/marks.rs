//! `IP_TTL` and `IP_TOS` of sockets, and what they are over IPv6, as they stand in their packets: between two stacks somebody looks at each.

use laneway::on_lane::Mib;
use laneway::{Config, Device, Stack, TcpListener, TcpSocket, TcpStream, UdpSocket};
use laneway_stack::device::memory::{LinkConfig, LinkQueue, link};
use laneway_stack::device::{Rx, Tx, TxMeta};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What a packet says of itself.
struct Marks {
    protocol: u8,
    hop_limit: u8,
    class: u8,
}

/// Those of what each of two stacks has sent, since that was last asked.
type Seen = Arc<Mutex<[Vec<Marks>; 2]>>;

fn look(packet: &[u8]) -> Marks {
    match packet[0] >> 4 {
        4 => Marks { protocol: packet[9], hop_limit: packet[8], class: packet[1] },
        _ => Marks { protocol: packet[6], hop_limit: packet[7], class: packet[0] << 4 | packet[1] >> 4 },
    }
}

fn carry(from: &mut LinkQueue, to: &mut LinkQueue, seen: &mut Vec<Marks>) {
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
    stacks_with(Config::default())
}

fn stacks_with(config: Config) -> ([Stack; 2], Seen) {
    let mut wires = Vec::new();
    let stacks = [1, 2].map(|host| {
        let (mut queue, mut wire) = link(LinkConfig::default());
        wires.append(&mut wire);
        let builder = Stack::builder(Device::queues(vec![queue.remove(0).boxed()])).pin(false).config(config.clone());
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

/// What stands in the packets of this protocol that each has sent, without repetitions.
fn those(seen: &Seen, protocol: u8, of: impl Fn(&Marks) -> u8) -> [Vec<u8>; 2] {
    seen.lock().unwrap().each_mut().map(|seen| {
        let mut those: Vec<u8> =
            seen.drain(..).filter(|marks| marks.protocol == protocol).map(|marks| of(&marks)).collect();
        those.dedup();
        those
    })
}

/// Their hop limits.
fn limits(seen: &Seen, protocol: u8) -> [Vec<u8>; 2] {
    those(seen, protocol, |marks| marks.hop_limit)
}

/// Their classes.
fn classes(seen: &Seen, protocol: u8) -> [Vec<u8>; 2] {
    those(seen, protocol, |marks| marks.class)
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
        let [of_server, of_client] = limits(&seen, TCP);
        assert_eq!(
            of_server,
            [255],
            "its SYN-ACK among them: whoever takes nothing that a router has passed on would not be connected"
        );
        assert_eq!(of_client, [64], "what is asked for later holds for what is sent later");

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

#[test]
fn packets_of_a_connection_are_of_the_class_that_was_set() {
    for at in ["10.0.0.1:80", "[fd00::1]:80"] {
        let ([server, client], seen) = stacks();
        let at: SocketAddr = at.parse().unwrap();
        let (v4, socket): (_, fn(&Stack) -> TcpSocket) =
            if at.is_ipv4() { (true, TcpSocket::new_v4_on) } else { (false, TcpSocket::new_v6_on) };
        let set = |socket: &TcpSocket, class| match v4 {
            true => socket.set_tos_v4(class).unwrap(),
            false => {
                socket.set_tos_v4(0x20).unwrap(); // of the other family
                socket.set_tclass_v6(class).unwrap();
            }
        };
        let listens = socket(&server);
        set(&listens, 0xb8);
        listens.bind(at).unwrap();
        let listener = listens.listen(8).unwrap();
        let connects = socket(&client);
        set(&connects, 0x48);
        let near = connects.connect(at).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        // ECN is not for a socket to say.
        let later = |class| if v4 { near.set_tos_v4(class) } else { near.set_tclass_v6(class) };
        let ping = |far: &mut TcpStream| {
            (&near).write_all(b"x").unwrap();
            far.read_exact(&mut [0]).unwrap();
            far.write_all(b"x").unwrap();
            (&near).read_exact(&mut [0]).unwrap();
        };
        ping(&mut far);
        assert_eq!(classes(&seen, TCP), [[0xb8], [0x48]], "from the first packet on");
        later(0x13).unwrap();
        ping(&mut far);
        let [of_server, of_client] = classes(&seen, TCP);
        assert_eq!((of_server, of_client.last()), (vec![0xb8], Some(&0x10)));
    }
}

#[test]
fn a_datagram_is_of_the_class_that_was_set_when_it_was_sent() {
    let ([server, client], seen) = stacks();
    let (there, here) =
        (UdpSocket::bind_on(&server, "[::]:53").unwrap(), UdpSocket::bind_on(&client, "[::]:0").unwrap());
    for class in [0, 0xb8, 0xff, 1, 0x20] {
        here.set_tclass_v6(class).unwrap();
        here.set_tos_v4(class ^ 0x80).unwrap();
        for (at, class) in [("[::ffff:10.0.0.1]:53", class ^ 0x80), ("[fd00::1]:53", class)] {
            here.send_to(b"who", at).unwrap();
            there.recv_from(&mut [0; 8]).unwrap();
            assert_eq!(classes(&seen, UDP)[1], [class as u8], "{at}");
        }
    }
}

/// A router between them would have made it one less.
#[test]
fn a_reset_lives_as_long_as_its_connection_was_told() {
    let ([server, client], seen) = stacks();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:80").unwrap();
    let socket = TcpSocket::new_v4_on(&client);
    socket.set_ttl(255).unwrap();
    socket.set_linger(Some(Duration::ZERO)).unwrap();
    let near = socket.connect("10.0.0.1:80".parse().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    drop(near);
    assert!(far.read(&mut [0]).is_err());
    assert_eq!(limits(&seen, TCP)[1], [255]);
}

/// Those who call when many do, too.
#[test]
fn a_cookie_is_marked_as_its_listener_was_told() {
    let config = Config { tcp_max_syn_backlog: 0, ..Config::default() };
    let ([server, client], seen) = stacks_with(config);
    let listener = TcpListener::bind_on(&server, "10.0.0.1:80").unwrap();
    listener.set_ttl(255).unwrap();
    let _near = TcpStream::connect_on(&client, "10.0.0.1:80").unwrap();
    let _far = listener.accept().unwrap();
    assert_eq!(server.counters().unwrap().get(Mib::TcpExtSyncookiesRecv), 1);
    assert_eq!(limits(&seen, TCP)[0], [255]);
}
