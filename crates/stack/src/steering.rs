//! Owns which lane a flow belongs to: Toeplitz over the 4-tuple, 128 buckets, an indirection table, as a NIC does it.

use laneway_wire::flow::{Address, FlowKey, ToeplitzTable, toeplitz_bytes};
use std::sync::Arc;

/// The unit of ownership.
pub const BUCKETS: usize = 128;

/// The steering function of one stack, shared by its lanes and its devices; immutable once published.
#[derive(Clone)]
pub struct Steering {
    toeplitz: Arc<ToeplitzTable>,
    key: [u8; 40],
    indirection: [u8; BUCKETS],
    lanes: usize,
}

impl Steering {
    /// Spreads the buckets evenly over `lanes` (1 to 256) lanes.
    pub fn new(key: [u8; 40], lanes: usize) -> Self {
        assert!((1..=256).contains(&lanes), "a stack has 1 to 256 lanes, not {lanes}");
        let mut indirection = [0; BUCKETS];
        for (bucket, lane) in indirection.iter_mut().enumerate() {
            *lane = (bucket % lanes) as u8;
        }
        Steering { toeplitz: Arc::new(ToeplitzTable::new(&key)), key, indirection, lanes }
    }

    /// The same with another owner for each bucket, as after buckets have moved.
    ///
    /// # Panics
    /// If a bucket is given to a lane that there is not.
    pub fn with_indirection(mut self, indirection: [u8; BUCKETS]) -> Self {
        assert!(indirection.iter().all(|lane| usize::from(*lane) < self.lanes), "there are {} lanes", self.lanes);
        self.indirection = indirection;
        self
    }

    /// The Toeplitz key: what a device that steers for us must be given.
    pub fn key(&self) -> &[u8; 40] {
        &self.key
    }

    /// Bucket to lane.
    pub fn indirection(&self) -> &[u8; BUCKETS] {
        &self.indirection
    }

    /// How many lanes there are.
    #[inline]
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// The bucket of a flow, as the packets of its remote end hash.
    #[inline]
    pub fn bucket(&self, key: &FlowKey) -> usize {
        self.toeplitz.hash(key) as usize % BUCKETS
    }

    /// The lane that owns a flow.
    #[inline]
    pub fn lane(&self, key: &FlowKey) -> usize {
        if self.lanes == 1 { 0 } else { self.indirection[self.bucket(key)].into() }
    }

    /// The lane for fragments of a datagram: all of them meet there (ports are only in the first).
    pub fn lane_of_fragments(&self, src: Address, dst: Address, id: u32) -> usize {
        if self.lanes == 1 {
            return 0;
        }
        let key = FlowKey { local: dst, remote: src, local_port: (id >> 16) as u16, remote_port: id as u16 };
        self.lane(&key)
    }

    /// The queue for a frame, for devices that let us choose (the in-memory link's virtual RSS). Anything without ports
    /// goes to lane 0.
    pub fn queue_of_frame(&self, frame: &[u8], link_header_len: usize) -> usize {
        if self.lanes == 1 {
            return 0;
        }
        flow_of_packet(frame.get(link_header_len..).unwrap_or(&[])).map_or(0, |key| self.lane(&key))
    }
}

/// Whether our own port alone can lead a flow to any bucket, whatever the other three parts of it are. One random key in
/// a hundred is too dull for that, and leaves some lane without ports of its own.
///
/// Toeplitz is linear: each bit of the port adds what it hashes to alone. So the low 13 bits, which every sensible range of
/// ports runs through, must span all bits of a bucket's number.
pub(crate) fn reaches_every_bucket(key: &[u8; 40]) -> bool {
    let spans = |len: usize| {
        let mut basis = [0; BUCKETS.ilog2() as usize];
        for bit in 0..13 {
            let mut input = [0; 36];
            input[len - 1 - bit / 8] = 1 << (bit % 8);
            let mut alone = toeplitz_bytes(key, &input[..len]) as usize % BUCKETS;
            while alone != 0 {
                let place = &mut basis[alone.ilog2() as usize];
                if *place == 0 {
                    *place = alone;
                    break;
                }
                alone ^= *place;
            }
        }
        basis.iter().all(|place| *place != 0)
    };
    spans(12) && spans(36)
}

/// The flow of an IP packet as its receiver sees it, from fixed offsets: what a NIC looks at. No fragments, no extension
/// headers.
pub fn flow_of_packet(packet: &[u8]) -> Option<FlowKey> {
    let (src, dst, protocol, at) = match packet.first()? >> 4 {
        4 => {
            let header = packet.first_chunk::<20>()?;
            if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
                return None;
            }
            let src = Address::from_v4([header[12], header[13], header[14], header[15]]);
            let dst = Address::from_v4([header[16], header[17], header[18], header[19]]);
            (src, dst, header[9], usize::from(header[0] & 15) * 4)
        }
        6 => {
            let header = packet.first_chunk::<40>()?;
            let part = |from: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&header[from..from + 16]);
                Address::from_v6(octets)
            };
            (part(8), part(24), header[6], 40)
        }
        _ => return None,
    };
    if !matches!(protocol, 6 | 17) {
        return None;
    }
    let ports = packet.get(at..at + 4)?;
    Some(FlowKey {
        local: dst,
        remote: src,
        local_port: u16::from_be_bytes([ports[2], ports[3]]),
        remote_port: u16::from_be_bytes([ports[0], ports[1]]),
    })
}

impl std::fmt::Debug for Steering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steering").field("lanes", &self.lanes).finish_non_exhaustive()
    }
}
