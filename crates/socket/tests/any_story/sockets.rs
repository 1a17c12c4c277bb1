//! What a story calls, of both kinds of sockets alike.

use crate::poller::Polls;
use crate::world::*;
use std::io::{IoSlice, IoSliceMut};

pub trait Stream: Options + Polled + Sized + Send + 'static {
    fn read(&self, buf: &mut [u8]) -> io::Result<usize>;
    fn read_pieces(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
    fn write(&self, buf: &[u8]) -> io::Result<usize>;
    fn write_pieces(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize>;
    fn peek(&self, buf: &mut [u8]) -> io::Result<usize>;
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;
    fn try_clone(&self) -> io::Result<Self>;
    fn set_nodelay(&self, on: bool) -> io::Result<()>;
    fn nodelay(&self) -> io::Result<bool>;
    fn set_nonblocking(&self, on: bool) -> io::Result<()>;
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    fn read_timeout(&self) -> io::Result<Option<Duration>>;
    fn set_ttl(&self, ttl: u32) -> io::Result<()>;
    fn ttl(&self) -> io::Result<u32>;
    fn take_error(&self) -> io::Result<Option<io::Error>>;
    fn peer_addr(&self) -> io::Result<SocketAddr>;
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

pub trait Listener: Polled {
    type Stream;
    fn accept(&self) -> io::Result<(Self::Stream, SocketAddr)>;
    fn set_nonblocking(&self, on: bool) -> io::Result<()>;
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

pub trait Udp: Polled + Sized + Send + 'static {
    fn send(&self, buf: &[u8]) -> io::Result<usize>;
    fn send_to(&self, buf: &[u8], to: SocketAddr) -> io::Result<usize>;
    fn connect(&self, to: SocketAddr) -> io::Result<()>;
    fn recv(&self, buf: &mut [u8]) -> io::Result<usize>;
    fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
    fn peek(&self, buf: &mut [u8]) -> io::Result<usize>;
    fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
    fn try_clone(&self) -> io::Result<Self>;
    fn set_broadcast(&self, on: bool) -> io::Result<()>;
    fn broadcast(&self) -> io::Result<bool>;
    fn set_nonblocking(&self, on: bool) -> io::Result<()>;
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    fn read_timeout(&self) -> io::Result<Option<Duration>>;
    fn take_error(&self) -> io::Result<Option<io::Error>>;
    fn peer_addr(&self) -> io::Result<SocketAddr>;
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// A world whose sockets a story can call.
pub trait Teller: Polls<Stream: Stream, Listener: Listener<Stream = <Self as World>::Stream>, Udp: Udp> {}

impl<W: Polls<Stream: Stream, Listener: Listener<Stream = <W as World>::Stream>, Udp: Udp>> Teller for W {}

/// Each method is the one of the same name that the type has itself.
macro_rules! forwards {
    ($($name:ident($($arg:ident: $of:ty),*) -> $back:ty;)+) => {
        $(
            fn $name(&self $(, $arg: $of)*) -> io::Result<$back> {
                self.$name($($arg),*)
            }
        )+
    };
}

macro_rules! sockets {
    ($($of:ident)+) => {
        $(
            impl Stream for $of::TcpStream {
                fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
                    (&mut &*self).read(buf)
                }
                fn read_pieces(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                    (&mut &*self).read_vectored(bufs)
                }
                fn write(&self, buf: &[u8]) -> io::Result<usize> {
                    (&mut &*self).write(buf)
                }
                fn write_pieces(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                    (&mut &*self).write_vectored(bufs)
                }
                forwards! {
                    peek(buf: &mut [u8]) -> usize;
                    shutdown(how: Shutdown) -> ();
                    try_clone() -> Self;
                    set_nodelay(on: bool) -> ();
                    nodelay() -> bool;
                    set_nonblocking(on: bool) -> ();
                    set_read_timeout(timeout: Option<Duration>) -> ();
                    read_timeout() -> Option<Duration>;
                    set_ttl(ttl: u32) -> ();
                    ttl() -> u32;
                    take_error() -> Option<io::Error>;
                    peer_addr() -> SocketAddr;
                    local_addr() -> SocketAddr;
                }
            }

            impl Listener for $of::TcpListener {
                type Stream = $of::TcpStream;
                forwards! {
                    accept() -> (Self::Stream, SocketAddr);
                    set_nonblocking(on: bool) -> ();
                    local_addr() -> SocketAddr;
                }
            }

            impl Udp for $of::UdpSocket {
                forwards! {
                    send(buf: &[u8]) -> usize;
                    send_to(buf: &[u8], to: SocketAddr) -> usize;
                    connect(to: SocketAddr) -> ();
                    recv(buf: &mut [u8]) -> usize;
                    recv_from(buf: &mut [u8]) -> (usize, SocketAddr);
                    peek(buf: &mut [u8]) -> usize;
                    peek_from(buf: &mut [u8]) -> (usize, SocketAddr);
                    try_clone() -> Self;
                    set_broadcast(on: bool) -> ();
                    broadcast() -> bool;
                    set_nonblocking(on: bool) -> ();
                    set_read_timeout(timeout: Option<Duration>) -> ();
                    read_timeout() -> Option<Duration>;
                    take_error() -> Option<io::Error>;
                    peer_addr() -> SocketAddr;
                    local_addr() -> SocketAddr;
                }
            }
        )+
    };
}

use std::net as kernel;
sockets!(kernel laneway);
