//! Owns which ports of a range hash alike.
//!
//! Toeplitz is linear over XOR, so the bucket of a reply is `L(port) ^ H0(addresses, peer's port)` on its low seven bits. The
//! 128 classes `{ port : L(port) = k }` are the same for every destination; a destination only permutes them. Where there is a single lane there is one class.

use crate::steering::{BUCKETS, Steering};
use laneway_wire::flow::{Address, FlowKey};

/// How many classes there are. A single lane has the replies to every port, and need not tell one from another: then it is one class, and the ports of a
/// slice follow each other.
#[inline]
pub(super) fn classes_of(steering: &Steering) -> usize {
    if steering.lanes() == 1 { 1 } else { BUCKETS }
}

/// A port that is never granted has this rank.
const NOWHERE: u16 = u16::MAX;

/// The classes of one range of ports, for one family of addresses.
pub(super) struct Classes {
    first: u16,
    of_low: [u8; 256],
    of_high: [u8; 256],
    /// Ports, sorted by class and then by number.
    ports: Box<[u16]>,
    /// Where each class begins in `ports`, and at last its length.
    starts: [u32; BUCKETS + 1],
    /// Place of each port of the range in its class.
    ranks: Box<[u16]>,
    longest: usize,
}

impl Classes {
    pub(super) fn new(steering: &Steering, v4: bool, range: (u16, u16), reserved: &[u16]) -> Self {
        let nowhere = if v4 { Address::UNSPECIFIED_V4 } else { Address::UNSPECIFIED_V6 };
        let alone = |local_port| {
            let key = FlowKey { local: nowhere, remote: nowhere, local_port, remote_port: 0 };
            (steering.bucket(&key) % classes_of(steering)) as u8
        };
        // The bucket of all zeros is 0 for IPv4; for IPv6 too. So a port's own share is what it hashes to alone.
        let mut of_low = [0; 256];
        let mut of_high = [0; 256];
        for byte in 0..=255u8 {
            of_low[usize::from(byte)] = alone(u16::from(byte));
            of_high[usize::from(byte)] = alone(u16::from(byte) << 8);
        }
        let first = range.0.max(1);
        let last = range.1.max(first);
        let mut kept_out = vec![false; 65_536];
        reserved.iter().for_each(|port| kept_out[usize::from(*port)] = true);
        let class = |port: u16| usize::from(of_low[usize::from(port & 255)] ^ of_high[usize::from(port >> 8)]);
        let mut lens = [0u32; BUCKETS];
        let mut ranks = vec![NOWHERE; usize::from(last - first) + 1].into_boxed_slice();
        for port in (first..=last).filter(|port| !kept_out[usize::from(*port)]) {
            let len = &mut lens[class(port)];
            ranks[usize::from(port - first)] = *len as u16;
            *len += 1;
        }
        let mut starts = [0; BUCKETS + 1];
        for k in 0..BUCKETS {
            starts[k + 1] = starts[k] + lens[k];
        }
        let mut ports = vec![0; starts[BUCKETS] as usize].into_boxed_slice();
        for port in (first..=last).filter(|port| !kept_out[usize::from(*port)]) {
            let rank = u32::from(ranks[usize::from(port - first)]);
            ports[(starts[class(port)] + rank) as usize] = port;
        }
        let longest = lens.iter().max().map_or(0, |len| *len as usize);
        Classes { first, of_low, of_high, ports, starts, ranks, longest }
    }

    /// How many ports a class has.
    #[inline]
    pub(super) fn len(&self, class: usize) -> usize {
        (self.starts[class + 1] - self.starts[class]) as usize
    }

    /// The longest class.
    #[inline]
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// A port of a class.
    #[inline]
    pub(super) fn port(&self, class: usize, rank: usize) -> u16 {
        self.ports[self.starts[class] as usize + rank]
    }

    /// The class of a port and its place there, if it may be granted at all.
    #[inline]
    pub(super) fn place(&self, port: u16) -> Option<(usize, usize)> {
        let rank = *self.ranks.get(usize::from(port.checked_sub(self.first)?))?;
        let class = self.of_low[usize::from(port & 255)] ^ self.of_high[usize::from(port >> 8)];
        (rank != NOWHERE).then_some((usize::from(class), usize::from(rank)))
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.ports) + size_of_val(&*self.ranks)
    }
}
