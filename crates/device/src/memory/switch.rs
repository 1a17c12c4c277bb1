//! A switch with N ports, for tests with more than two hosts. It learns nothing: who is where is said when it is made.
//!
//! On Ethernet a frame goes to the port with its destination address, and to all others if there is none (broadcast, multicast, unknown).
//! Without Ethernet nobody's address can be read here, so it goes where [`SwitchConfig::pick`] says, or to all others.

use std::fmt;
use std::sync::Arc;

use super::link::{LinkConfig, LinkQueue, link};
use super::offload;
use crate::{BATCH_MAX, Medium, Rx, RxChecksum, Tx, TxMeta};

/// Chooses the port for a frame; `None`: all others.
pub type Pick = Arc<dyn Fn(&[u8]) -> Option<usize> + Send + Sync>;

/// What [`switch`] builds.
#[derive(Clone, Debug)]
pub struct SwitchConfig {
    /// Hosts.
    pub ports: usize,
    /// What each host's link is like; its `macs`, `queues`, `steer`, `tables` and `wake` are not used, and offloads end at the switch.
    pub link: LinkConfig,
    /// Where to find what on [`Medium::Ip`].
    pub pick: Option<PickBox>,
}

impl SwitchConfig {
    /// That many ports on links of the default kind.
    pub fn new(ports: usize) -> Self {
        SwitchConfig { ports, link: LinkConfig::default(), pick: None }
    }
}

/// A [`Pick`] that can be printed.
#[derive(Clone)]
pub struct PickBox(pub Pick);

impl fmt::Debug for PickBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pick(..)")
    }
}

/// The link address of the host at a port.
pub const fn mac_of_port(port: usize) -> [u8; 6] {
    let [.., high, low] = (port as u32 + 1).to_be_bytes();
    [2, 0, 0, 0, high, low]
}

/// The switch itself: whoever holds it calls [`Switch::poll`].
#[derive(Debug)]
pub struct Switch {
    ports: Vec<LinkQueue>,
    medium: Medium,
    pick: Option<PickBox>,
    dropped: u64,
}

/// Makes a switch, and the queue of each host at it. The host at port `p` has the link address [`mac_of_port`]`(p)`.
pub fn switch(config: SwitchConfig) -> (Switch, Vec<LinkQueue>) {
    let medium = config.link.medium;
    let mut hosts = Vec::with_capacity(config.ports);
    let mut ports = Vec::with_capacity(config.ports);
    for port in 0..config.ports {
        let (host, near) = link(LinkConfig {
            queues: 1,
            second_queues: None,
            rx_checksum: false,
            rx_super: false,
            macs: [mac_of_port(port), [0; 6]],
            steer: [None, None],
            tables: [None, None],
            wake: [None, None],
            ..config.link.clone()
        });
        hosts.extend(host);
        ports.extend(near);
    }
    (Switch { ports, medium, pick: config.pick, dropped: 0 }, hosts)
}

impl Switch {
    /// Moves what waits, up to a batch from each port. Says how many frames came in; call again until it is 0 for a quiet network.
    pub fn poll(&mut self) -> usize {
        let mut total = 0;
        for from in 0..self.ports.len() {
            let count = self.ports[from].rx.poll(BATCH_MAX);
            total += count;
            for i in 0..count {
                self.forward(from, i);
            }
            self.ports[from].rx.release();
        }
        for port in &mut self.ports {
            port.tx.flush();
        }
        total
    }

    /// Frames lost because a host's ring was full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn forward(&mut self, from: usize, i: usize) {
        // The sender lies between the receivers; split it out to read from it while writing to them.
        let (before, rest) = self.ports.split_at_mut(from);
        let (sender, after) = rest.split_first_mut().expect("`from` is a port");
        let frame = sender.rx.frame(i);
        let to = match (&self.pick, self.medium) {
            (Some(pick), _) => (pick.0)(frame.bytes),
            (None, Medium::Ethernet) => frame.bytes.first_chunk::<6>().and_then(port_of_mac),
            (None, Medium::Ip) => None,
        };
        let to = to.filter(|port| *port <= before.len() + after.len());
        let checksum_partial = match frame.meta.checksum {
            RxChecksum::Partial(partial) => Some(partial),
            _ => None,
        };
        let work = TxMeta { checksum_partial, gso_size: frame.meta.gso_size, header_len: 0 };
        let numbered = before.iter_mut().enumerate().chain((from + 1..).zip(after));
        for (_, port) in numbered.filter(|(number, _)| to.is_none_or(|to| to == *number)) {
            offload::finish(self.medium, frame.bytes, &work, |len, write| match port.tx.reserve(len) {
                Some(into) => {
                    write(into);
                    port.tx.commit(len, TxMeta::default());
                }
                None => self.dropped += 1,
            });
        }
    }
}

/// The inverse of [`mac_of_port`].
fn port_of_mac(mac: &[u8; 6]) -> Option<usize> {
    let [2, 0, 0, 0, high, low] = *mac else {
        return None;
    };
    usize::from(u16::from_be_bytes([high, low])).checked_sub(1)
}

#[cfg(test)]
mod tests;
