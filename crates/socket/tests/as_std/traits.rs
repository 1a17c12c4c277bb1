//! What programs do with a socket beside calling it, and the compiler answers.

use std::panic::{RefUnwindSafe, UnwindSafe};

/// It goes to other threads, is shared by them, and is taken into what a panic is caught around.
const fn goes<T: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe + 'static>() {}

macro_rules! go {
    ($($socket:ty)+) => {
        $(const _: () = goes::<$socket>();)+
    };
}
go! { std::net::TcpStream std::net::TcpListener std::net::UdpSocket }
go! { laneway::TcpStream laneway::TcpListener laneway::UdpSocket laneway::Stack laneway::Poller }
#[cfg(feature = "tokio")]
go! {
    tokio::net::TcpStream tokio::net::TcpListener tokio::net::UdpSocket
    laneway::tokio::TcpStream laneway::tokio::TcpListener laneway::tokio::UdpSocket
    laneway::tokio::OwnedReadHalf laneway::tokio::OwnedWriteHalf
}
