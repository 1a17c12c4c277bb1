//! Owns whom a UDP socket hears, and at which address of ours: threads that connect it write that, and lanes ask for each datagram.

use super::datagram::octets;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

#[cfg(test)]
mod tests;

/// Whom a socket hears, as lanes look it up when a datagram arrives; what they have taken then is handed out, whomever it is connected to
/// since. While one peer takes the place of another they may hear a mixture of both, and miss what either sends, but never hear everybody, nor at
/// another address: that is there before the first peer is, and stays.
#[derive(Default)]
pub(super) struct Heard {
    /// The address that a connect has chosen; 0: none has, and the binding says it.
    at: Words,
    peer: Words,
    /// Beside the port one bit more; 0: everybody.
    port: AtomicU32,
}

/// In the place of a port: whoever is connected to port 0 hears all ports of the peer's address, as the kernel has it.
const ANY_PORT: u32 = 1 << 16;

/// An address, in two halves that are not read as one.
#[derive(Default)]
struct Words([AtomicU64; 2]);

impl Words {
    fn of(ip: IpAddr) -> [u64; 2] {
        let whole = u128::from_be_bytes(octets(ip));
        [(whole >> 64) as u64, whole as u64]
    }

    fn set(&self, ip: IpAddr) {
        self.0.iter().zip(Self::of(ip)).for_each(|(half, is)| half.store(is, Relaxed));
    }

    fn get(&self) -> [u64; 2] {
        self.0.each_ref().map(|half| half.load(Relaxed))
    }
}

impl Heard {
    /// It hears `peer` alone, and `at` this address of ours alone; `None`: wherever it is bound.
    pub(super) fn set(&self, at: Option<IpAddr>, peer: SocketAddr) {
        at.into_iter().for_each(|at| self.at.set(at));
        self.peer.set(peer.ip());
        self.port.store(ANY_PORT | u32::from(peer.port()), Release);
    }

    /// Whether that is whom it hears, and where; `None` if it hears everybody.
    pub(super) fn is(&self, at: IpAddr, peer: SocketAddr) -> Option<bool> {
        self.is_from(peer).map(|is_peer| {
            let chosen = self.at.get();
            is_peer && (chosen == [0; 2] || chosen == Words::of(at))
        })
    }

    /// Whether that is whom it hears, at whichever address; `None` if it hears everybody.
    pub(super) fn is_from(&self, peer: SocketAddr) -> Option<bool> {
        let port = self.port.load(Acquire);
        let its_port = ANY_PORT | u32::from(peer.port());
        (port != 0).then(|| self.peer.get() == Words::of(peer.ip()) && (port == its_port || port == ANY_PORT))
    }
}
