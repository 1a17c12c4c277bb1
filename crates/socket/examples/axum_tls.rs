//! An unmodified axum application behind rustls, on Laneway: HTTP on port 80 and HTTPS on port 443 of a TUN interface.
//!
//! As root: `cargo run --release --features axum --example axum_tls -- --tun lw0 --addr 10.77.0.2/24`, then
//! `curl -k https://10.77.0.2/`, or `wrk -t2 -c100 -d10s https://10.77.0.2/`. `interop.sh` in the tests of the command does both.

use axum::Router;
use axum::routing::get;
use laneway::{Device, Stack, tokio::TcpListener, tokio::TcpStream};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::server::TlsStream;

/// Hands axum connections whose TLS handshake is done.
struct Tls {
    listener: TcpListener,
    handshakes: tokio::task::JoinSet<std::io::Result<(TlsStream<TcpStream>, SocketAddr)>>,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                Some(done) = self.handshakes.join_next() => {
                    if let Ok(Ok(ready)) = done {
                        return ready;
                    }
                }
                accepted = self.listener.accept() => {
                    if let Ok((stream, peer)) = accepted {
                        let handshake = self.acceptor.accept(stream);
                        self.handshakes.spawn(async move { Ok((handshake.await?, peer)) });
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

fn acceptor(name: &str) -> Result<TlsAcceptor, Box<dyn std::error::Error>> {
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed([name.to_owned()])?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![cert.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (tun, address) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => ("laneway0", "10.77.0.2/24"),
        ["--tun", tun, "--addr", address] => (tun, address),
        _ => {
            eprintln!("usage: axum_tls [--tun NAME --addr ADDRESS/BITS]");
            std::process::exit(2);
        }
    };
    let ip = address.split('/').next().unwrap_or_default().to_owned();
    // axum goes on accepting whatever its listener says. Where the interface is deleted, nobody comes any more.
    let end = |why: &str| {
        eprintln!("{why}");
        std::process::exit(1);
    };
    let stack = Stack::builder(Device::tun(tun)).address(address)?.on_failure(end).start()?;
    let app = || Router::new().route("/", get(|| async { "hello from a lane\n" }));
    let plain = TcpListener::bind_on(&stack, format!("{ip}:80")).await?;
    let tls = Tls {
        listener: TcpListener::bind_on(&stack, format!("{ip}:443")).await?,
        handshakes: tokio::task::JoinSet::new(),
        acceptor: acceptor(&ip)?,
    };
    println!("{} · {} lanes · http://{ip}/ and https://{ip}/", stack.device(), stack.lanes());
    tokio::try_join!(axum::serve(plain, app()), axum::serve(tls, app()))?;
    Ok(())
}
