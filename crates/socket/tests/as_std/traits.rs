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

/// A runtime is given it by `try_into`, and who is generic over halves and whole streams looks at it as they do.
#[cfg(feature = "tokio")]
mod of_tokio {
    const fn is_made_of<Std, Tokio: TryFrom<Std, Error = std::io::Error>>() {}
    const fn is_seen_as<T: AsRef<Stream>, Stream>() {}

    macro_rules! pairs {
        ($($std:ty => $tokio:ty;)+) => {
            $(const _: () = is_made_of::<$std, $tokio>();)+
        };
    }
    pairs! {
        std::net::TcpStream => tokio::net::TcpStream;
        std::net::TcpListener => tokio::net::TcpListener;
        std::net::UdpSocket => tokio::net::UdpSocket;
        laneway::TcpStream => laneway::tokio::TcpStream;
        laneway::TcpListener => laneway::tokio::TcpListener;
        laneway::UdpSocket => laneway::tokio::UdpSocket;
    }
    const _: () = is_seen_as::<tokio::net::TcpStream, tokio::net::TcpStream>();
    const _: () = is_seen_as::<laneway::tokio::TcpStream, laneway::tokio::TcpStream>();
    const _: () = is_seen_as::<laneway::tokio::OwnedReadHalf, laneway::tokio::TcpStream>();
    const _: () = is_seen_as::<laneway::tokio::OwnedWriteHalf, laneway::tokio::TcpStream>();
}
