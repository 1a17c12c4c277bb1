//! Owns what asks for the addresses of a name.

use ::tokio::net::{ToSocketAddrs, lookup_host};
use std::io;
use std::net::SocketAddr;

/// The addresses of a name. A resolver may take seconds, so tokio asks it on a thread that has no tasks.
pub(super) async fn looked_up(name: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    Ok(lookup_host(name).await?.collect())
}
