//! Options that few programs set, and that have no name in `std`: against those of `socket2`.

use crate::unconnected::{KernelSocket, Unconnected};
use crate::world::*;
use socket2::SockRef;
use std::os::fd::AsFd;

macro_rules! rare_options {
    ($($set:ident($what:ty) $get:ident -> $is:ty,)*) => {
        /// What a stream and a socket have.
        pub trait RareOptions {
            $(
                fn $set(&self, value: $what) -> io::Result<()>;
                fn $get(&self) -> io::Result<$is>;
            )*
        }
        rare_options!(@kernel std::net::TcpStream, $($set($what) $get -> $is,)*);
        rare_options!(@kernel KernelSocket, $($set($what) $get -> $is,)*);
        rare_options!(@ours laneway::TcpStream, $($set($what) $get -> $is,)*);
        rare_options!(@ours laneway::TcpSocket, $($set($what) $get -> $is,)*);
    };
    (@kernel $socket:ty, $($set:ident($what:ty) $get:ident -> $is:ty,)*) => {
        impl RareOptions for $socket {
            $(
                fn $set(&self, value: $what) -> io::Result<()> {
                    SockRef::from(&self.as_fd()).$set(value)
                }
                fn $get(&self) -> io::Result<$is> {
                    SockRef::from(&self.as_fd()).$get()
                }
            )*
        }
    };
    (@ours $socket:ty, $($set:ident($what:ty) $get:ident -> $is:ty,)*) => {
        impl RareOptions for $socket {
            $(
                fn $set(&self, value: $what) -> io::Result<()> {
                    <$socket>::$set(self, value)
                }
                fn $get(&self) -> io::Result<$is> {
                    <$socket>::$get(self)
                }
            )*
        }
    };
}
rare_options! {
    set_tos_v4(u32) tos_v4 -> u32,
    set_tclass_v6(u32) tclass_v6 -> u32,
    set_send_buffer_size(usize) send_buffer_size -> usize,
    set_recv_buffer_size(usize) recv_buffer_size -> usize,
    set_tcp_notsent_lowat(u32) tcp_notsent_lowat -> u32,
    set_tcp_congestion(&[u8]) tcp_congestion -> Vec<u8>,
}

/// What a stream has besides.
pub trait Streams {
    fn set_cork(&self, cork: bool) -> io::Result<()>;
    fn cork(&self) -> io::Result<bool>;
    fn set_quickack(&self, quickack: bool) -> io::Result<()>;
    fn quickack(&self) -> io::Result<bool>;
}

impl Streams for std::net::TcpStream {
    fn set_cork(&self, cork: bool) -> io::Result<()> {
        SockRef::from(self).set_tcp_cork(cork)
    }
    fn cork(&self) -> io::Result<bool> {
        SockRef::from(self).tcp_cork()
    }
    fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        SockRef::from(self).set_tcp_quickack(quickack)
    }
    fn quickack(&self) -> io::Result<bool> {
        SockRef::from(self).tcp_quickack()
    }
}

impl Streams for laneway::TcpStream {
    fn set_cork(&self, cork: bool) -> io::Result<()> {
        self.set_tcp_cork(cork)
    }
    fn cork(&self) -> io::Result<bool> {
        self.tcp_cork()
    }
    fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        self.set_tcp_quickack(quickack)
    }
    fn quickack(&self) -> io::Result<bool> {
        self.tcp_quickack()
    }
}

/// The kernel ends a name with zeros, as many as fill its room.
fn name(said: io::Result<Vec<u8>>) -> io::Result<String> {
    said.map(|name| String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned())
}

/// Sets each of them to what is taken and to what is not, and says what it is then.
fn tell_all(log: &mut Log, socket: &impl RareOptions) {
    log.say("TOS", socket.tos_v4());
    log.say("class", socket.tclass_v6());
    for value in [0xb8, 1, 0xff, 0x20, 256, 0x12c, u32::MAX, 0x48] {
        log.say("set TOS", socket.set_tos_v4(value));
        log.say("TOS", socket.tos_v4());
        log.say("set class", socket.set_tclass_v6(value));
        log.say("class", socket.tclass_v6());
    }
    for size in [0, 1, 5_000, 70_000, 200_000, 30_000] {
        log.say("set send buffer", socket.set_send_buffer_size(size));
        log.say("send buffer", socket.send_buffer_size());
        log.say("set receive buffer", socket.set_recv_buffer_size(size));
        log.say("receive buffer", socket.recv_buffer_size());
    }
    for lowat in [0, 1, 5_000, u32::MAX, 30_000] {
        log.say("set lowat", socket.set_tcp_notsent_lowat(lowat));
        log.say("lowat", socket.tcp_notsent_lowat());
    }
    for algorithm in [&b"reno"[..], b"none of these", b"cubic", b"", b"reno\0", b"Reno", b"reno"] {
        log.say("set congestion control", socket.set_tcp_congestion(algorithm));
        log.say("congestion control", name(socket.tcp_congestion()));
    }
}

fn tell(log: &mut Log, socket: &impl RareOptions) {
    log.say("TOS", socket.tos_v4());
    log.say("class", socket.tclass_v6());
    log.say("send buffer", socket.send_buffer_size());
    log.say("receive buffer", socket.recv_buffer_size());
    log.say("lowat", socket.tcp_notsent_lowat());
    log.say("congestion control", name(socket.tcp_congestion()));
}

story!(of_a_connection, |world, log| {
    let (a, mut b) = world.pair();
    tell_all(log, &a);
    tell(log, &a.try_clone().unwrap());
    for on in [true, true, false, true] {
        log.say("cork", a.set_cork(on));
        log.say("corked", a.cork());
        log.say("quick ACKs", a.set_quickack(on));
        log.say("are quick", a.quickack());
    }
    // What is corked leaves when the cork is out.
    log.say("write", (&a).write(b"abc"));
    log.say("out", a.set_cork(false));
    log.say("read", b.read(&mut [0; 8]));
    drop(b);
    world.settle();
    log.say("cork", a.set_cork(true).and_then(|()| a.cork()));
    log.say("quick ACKs", a.set_quickack(false));
    tell_all(log, &a);
});

story!(of_a_socket, |world, log| {
    let (listener, socket) = (world.listen(), world.socket());
    tell_all(log, &socket);
    let near = socket.connect(listener.local_addr().unwrap()).unwrap();
    tell(log, &near);
});

story!(of_those_that_come_to_a_socket, |world, log| {
    let socket = world.server_socket();
    tell_all(log, &socket);
    log.say("bind", socket.bind((world.server(), 0).into()));
    let listener = socket.listen(8).unwrap();
    let _near = world.connect(listener.local_addr().unwrap()).unwrap();
    tell(log, &listener.accept().unwrap().0);
});

story!(a_drop_that_lingers, |world, log| {
    const MUCH: usize = 150_000;
    let soon = Duration::from_millis(200);
    for (linger, reads) in [(None, false), (Some(Duration::from_secs(20)), true), (Some(Duration::from_secs(1)), false)]
    {
        let (mut a, b) = world.pair();
        log.say("small", b.set_recv_buffer_size(5_000));
        log.say("large", a.set_send_buffer_size(200_000));
        log.say("write", a.write_all(&[7; MUCH]));
        log.say("linger", a.set_lingers(linger));
        let read_all = |mut b: &_| Read::read_to_end(&mut b, &mut Vec::new());
        let waited = std::thread::scope(|scope| {
            let reader = reads.then(|| {
                scope.spawn(|| {
                    std::thread::sleep(2 * soon);
                    read_all(&b)
                })
            });
            let began = std::time::Instant::now();
            drop(a);
            let waited = began.elapsed();
            reader.into_iter().for_each(|reader| log.say("all of it", reader.join().unwrap()));
            waited
        });
        log.say("waits", Ok(waited > soon));
        log.say("not for ever", Ok(waited < Duration::from_secs(10)));
        if !reads {
            log.say("all of it", read_all(&b));
        }
    }
    // Who has left something unread resets, and waits for nothing.
    let (mut a, mut b) = world.pair();
    log.say("write", b.write(b"unread"));
    world.settle();
    log.say("linger", a.set_lingers(Some(Duration::from_secs(20))));
    log.say("write", a.write(b"x"));
    drop(a);
    world.settle();
    log.say("reset", b.read_to_end(&mut Vec::new()));
});

/// The class of datagrams.
pub trait Classes {
    fn set_class(&self, v6: bool, class: u32) -> io::Result<()>;
    fn class(&self, v6: bool) -> io::Result<u32>;
}

impl Classes for std::net::UdpSocket {
    fn set_class(&self, v6: bool, class: u32) -> io::Result<()> {
        if v6 { SockRef::from(self).set_tclass_v6(class) } else { SockRef::from(self).set_tos_v4(class) }
    }
    fn class(&self, v6: bool) -> io::Result<u32> {
        if v6 { SockRef::from(self).tclass_v6() } else { SockRef::from(self).tos_v4() }
    }
}

impl Classes for laneway::UdpSocket {
    fn set_class(&self, v6: bool, class: u32) -> io::Result<()> {
        if v6 { self.set_tclass_v6(class) } else { self.set_tos_v4(class) }
    }
    fn class(&self, v6: bool) -> io::Result<u32> {
        if v6 { self.tclass_v6() } else { self.tos_v4() }
    }
}

story!(of_datagrams, |world, log| {
    let socket = world.udp_client();
    for v6 in [false, true] {
        log.say("class", socket.class(v6));
        for class in [0xb8, 1, 0xff, 256, 0x12c, u32::MAX, 7] {
            log.say("set", socket.set_class(v6, class));
            log.say("class", socket.class(v6));
        }
    }
});
