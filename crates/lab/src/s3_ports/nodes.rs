//! Owns the memory of bound flows: nodes that never move, named by number, so that chains can be made of them without
//! `unsafe`. Every lane takes nodes of its own, as every connection of a kernel brings its own memory.

use laneway_stack::ports::Claim;
use laneway_wire::flow::{Address, FlowKey};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// No node.
pub const NIL: u32 = u32::MAX;
/// Nodes that a lane takes at a time.
const CHUNK: usize = 1_024;
/// Chunks in all: sixteen million flows.
const CHUNKS: usize = 16_384;

/// One bound flow. Links and flow are guarded by the lock of the bucket that it hangs in.
#[repr(align(64))]
#[derive(Default)]
pub struct Node {
    /// The next port in the bucket's chain.
    pub next: AtomicU32,
    /// The next flow from the same port.
    pub same: AtomicU32,
    /// It is in TIME_WAIT, and RFC 6191 may allow to take it over. Written by the flow's own lane.
    pub waits: AtomicU32,
    ports: AtomicU32,
    local: [AtomicU32; 4],
    remote: [AtomicU32; 4],
}

impl Node {
    /// Our port.
    #[inline]
    pub fn port(&self) -> u16 {
        (self.ports.load(Relaxed) >> 16) as u16
    }

    /// Whether it is this flow.
    #[inline]
    pub fn is(&self, flow: &FlowKey) -> bool {
        let same = |words: &[AtomicU32; 4], address: &Address| {
            words.iter().zip(address.words()).all(|(word, other)| word.load(Relaxed) == other)
        };
        self.ports.load(Relaxed) == u32::from(flow.local_port) << 16 | u32::from(flow.remote_port)
            && same(&self.remote, &flow.remote)
            && same(&self.local, &flow.local)
    }

    fn set(&self, flow: &FlowKey) {
        self.next.store(NIL, Relaxed);
        self.same.store(NIL, Relaxed);
        self.waits.store(0, Relaxed);
        self.ports.store(u32::from(flow.local_port) << 16 | u32::from(flow.remote_port), Relaxed);
        for (words, address) in [(&self.local, &flow.local), (&self.remote, &flow.remote)] {
            for (word, value) in words.iter().zip(address.words()) {
                word.store(value, Relaxed);
            }
        }
    }
}

/// All nodes of a stack.
pub struct Nodes {
    chunks: Box<[OnceLock<Box<[Node]>>]>,
    taken: AtomicU32,
}

impl Nodes {
    /// None yet.
    pub fn new() -> Self {
        Nodes { chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(), taken: AtomicU32::new(0) }
    }

    /// A node that was taken.
    #[inline]
    pub fn get(&self, index: u32) -> &Node {
        let chunk = self.chunks[index as usize / CHUNK].get().expect("a node in a chain was taken by a lane");
        &chunk[index as usize % CHUNK]
    }
}

/// The free nodes of one lane.
#[derive(Default)]
pub struct Stock(Vec<u32>);

impl Stock {
    /// A node for a flow.
    #[inline]
    pub fn take(&mut self, nodes: &Nodes, flow: &FlowKey) -> u32 {
        let index = self.0.pop().unwrap_or_else(|| self.refill(nodes));
        nodes.get(index).set(flow);
        index
    }

    #[cold]
    fn refill(&mut self, nodes: &Nodes) -> u32 {
        let chunk = nodes.taken.fetch_add(1, Relaxed) as usize;
        assert!(chunk < CHUNKS, "a baseline has room for {} flows", CHUNKS * CHUNK);
        nodes.chunks[chunk].get_or_init(|| (0..CHUNK).map(|_| Node::default()).collect());
        let first = (chunk * CHUNK) as u32;
        self.0.extend((first + 1..first + CHUNK as u32).rev());
        first
    }

    /// A node that hangs in no chain any more.
    #[inline]
    pub fn give_back(&mut self, index: u32) {
        self.0.push(index);
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.0.capacity() * 4
    }
}

const _: () = assert!(CHUNK * CHUNKS <= Claim::MAX as usize && size_of::<Node>() == 64);
