//! Owns which lane a flow belongs to: Toeplitz over the 4-tuple, 128 buckets, an indirection table, as a NIC does it.

pub use laneway_device::BUCKETS;
use laneway_device::memory::Indirection;
use laneway_wire::flow::{Address, FlowKey, ToeplitzTable, toeplitz_bytes};
use std::any::Any;
use std::sync::Arc;

/// Who owns which bucket, and who has owned it until lately. Immutable once published; each lane has a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table {
    /// Grows with every publication.
    pub version: u64,
    /// The lane of the flows that begin now.
    pub(crate) owner: [u8; BUCKETS],
    /// While a bucket moves: the lane that it was taken from, and that may still have flows of it. Else the owner.
    pub(crate) previous: [u8; BUCKETS],
}

impl Table {
    /// Deals the buckets out to `lanes` lanes in turn.
    pub fn even(lanes: usize) -> Self {
        let dealt = std::array::from_fn(|bucket| (bucket % lanes) as u8);
        Table { version: 0, owner: dealt, previous: dealt }
    }

    /// Not all of this bucket's flows are known to be with its owner.
    #[inline]
    pub fn is_moving(&self, bucket: usize) -> bool {
        self.owner[bucket] != self.previous[bucket]
    }
}

/// The steering function of one stack, shared by its lanes and its devices.
#[derive(Clone)]
pub struct Steering {
    toeplitz: Arc<ToeplitzTable>,
    key: [u8; 40],
    table: Table,
    lanes: usize,
}

/// What a device that steers for us must be told when buckets move. The control plane has it, and no lane.
pub trait Source: Send {
    /// Sends each bucket to this queue from now on, or as soon as it can.
    fn steer(&mut self, table: &[u8; BUCKETS]) -> Result<(), String>;

    /// No frame of this bucket is put into another queue any more than the one that was last asked for.
    fn has_switched(&mut self, bucket: usize) -> bool;

    /// The device switches at once, and not only when the queue that a bucket leaves has been read to the end of it: the lane
    /// that reads that queue has to see to the order. A queue of such a device has no more frames when it lends fewer than it was
    /// asked for.
    fn is_abrupt(&self) -> bool;

    /// The most frames that one queue of such a device holds: when so many have been read, those that were in it have been.
    fn capacity(&self) -> usize {
        usize::MAX
    }
}

/// A memory link's table follows by itself.
impl Source for Arc<Indirection> {
    fn steer(&mut self, table: &[u8; BUCKETS]) -> Result<(), String> {
        self.set(table);
        Ok(())
    }

    fn has_switched(&mut self, bucket: usize) -> bool {
        Indirection::has_switched(self, bucket)
    }

    fn is_abrupt(&self) -> bool {
        false
    }
}

/// The kernel goes by what is in the map from the next frame on.
impl Source for laneway_device::steering_ebpf::Steering {
    fn steer(&mut self, table: &[u8; BUCKETS]) -> Result<(), String> {
        self.set_table(table).map_err(|error| error.to_string())
    }

    fn has_switched(&mut self, _: usize) -> bool {
        true
    }

    fn is_abrupt(&self) -> bool {
        true
    }

    fn capacity(&self) -> usize {
        self.queue_len().unwrap_or(usize::MAX)
    }
}

impl Steering {
    /// Spreads the buckets evenly over `lanes` (1 to 256) lanes.
    pub fn new(key: [u8; 40], lanes: usize) -> Self {
        assert!((1..=256).contains(&lanes), "a stack has 1 to 256 lanes, not {lanes}");
        Steering { toeplitz: Arc::new(ToeplitzTable::new(&key)), key, table: Table::even(lanes), lanes }
    }

    /// The same with another owner for each bucket, as after buckets have moved and all is settled.
    ///
    /// # Panics
    /// If a bucket is given to a lane that there is not.
    pub fn with_indirection(mut self, indirection: [u8; BUCKETS]) -> Self {
        assert!(indirection.iter().all(|lane| usize::from(*lane) < self.lanes), "there are {} lanes", self.lanes);
        let version = self.table.version + 1;
        self.table = Table { version, owner: indirection, previous: indirection };
        self
    }

    /// The Toeplitz key: what a device that steers for us must be given.
    pub fn key(&self) -> &[u8; 40] {
        &self.key
    }

    /// Bucket to lane.
    pub fn indirection(&self) -> &[u8; BUCKETS] {
        &self.table.owner
    }

    /// Who owns what, and who did.
    #[inline]
    pub fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn set_table(&mut self, table: &Table) {
        self.table = *table;
    }

    /// How many lanes there are.
    #[inline]
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// The bucket of a flow, as the packets of its remote end hash.
    #[inline]
    pub fn bucket(&self, key: &FlowKey) -> usize {
        usize::from(self.toeplitz.low_byte(key)) % BUCKETS
    }

    /// The lane that owns a flow.
    #[inline]
    pub fn lane(&self, key: &FlowKey) -> usize {
        if self.lanes == 1 { 0 } else { self.table.owner[self.bucket(key)].into() }
    }

    /// The lane that may begin a flow of its own here: the only one that can have a flow between these two ends already. While
    /// a bucket moves that is the lane which it was taken from.
    pub(crate) fn opener(&self, key: &FlowKey) -> usize {
        if self.lanes == 1 { 0 } else { self.table.previous[self.bucket(key)].into() }
    }

    /// The bucket of a flow that is sent to us, as its sender sees it: a [`FlowKey`]. `None`: it is none.
    #[inline]
    pub fn bucket_of_sent(&self, flow: &dyn Any) -> Option<usize> {
        flow.downcast_ref::<FlowKey>().map(|flow| self.bucket(&flow.reversed()))
    }

    /// The lane that owns a flow that is sent to us, as its sender sees it: a [`FlowKey`]. `None`: it is none.
    #[inline]
    pub fn lane_of_sent(&self, flow: &dyn Any) -> Option<usize> {
        flow.downcast_ref::<FlowKey>().map(|flow| self.lane(&flow.reversed()))
    }

    /// Whether this lane may begin a flow here from a port of its own choice: not while the bucket moves.
    pub(crate) fn may_choose(&self, key: &FlowKey, lane: usize) -> bool {
        self.lanes == 1 || {
            let bucket = self.bucket(key);
            usize::from(self.table.owner[bucket]) == lane && !self.table.is_moving(bucket)
        }
    }

    /// The lane for fragments of a datagram: all of them meet there (ports are only in the first). It stays what it was at the
    /// start, wherever buckets move, so that no datagram is collected on two lanes.
    pub fn lane_of_fragments(&self, src: Address, dst: Address, id: u32) -> usize {
        if self.lanes == 1 {
            return 0;
        }
        let key = FlowKey { local: dst, remote: src, local_port: (id >> 16) as u16, remote_port: id as u16 };
        self.bucket(&key) % self.lanes
    }

    /// The bucket of a frame, for devices that have a table of their own. Anything without ports is in bucket 0.
    pub fn bucket_of_frame(&self, frame: &[u8], link_header_len: usize) -> usize {
        flow_of_packet(frame.get(link_header_len..).unwrap_or(&[])).map_or(0, |key| self.bucket(&key))
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

#[cfg(test)]
mod tests;
