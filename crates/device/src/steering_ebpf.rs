//! Our Toeplitz hash as a program in the kernel: chooses the queue of a multi-queue TUN (`TUNSETSTEERINGEBPF`).
//!
//! Without it the kernel picks queues by a flow table of its own, and replies land where the last frame was *sent* from. With it a flow
//! arrives on the lane that owns it from its first SYN, as with receive-side scaling in hardware:
//!
//! ```text
//! hash   = toeplitz(key, source, destination, source port, destination port)
//! bucket = hash mod 128
//! queue  = table[bucket]
//! ```
//!
//! The hash is `laneway_wire::flow::toeplitz`, bit for bit. Fragments, and packets that are neither TCP nor UDP or have extension
//! headers, are hashed over the addresses alone, which is the same as ports of zero. A packet too short to tell goes to queue 0.
//!
//! # How it is computed
//! The hash is the XOR of one 32-bit window of the key per set bit of the input. The windows are constants in the code: the key is known
//! when the program is made. Each bit takes five instructions without a branch (isolate the bit, multiply the window by it, XOR), because
//! a branch per bit would give the verifier 2^96 paths to walk. Nor is the window masked with the bit spread by an arithmetic shift, the
//! obvious thing: a verifier of 2025 takes `s>>= 31` and `&=` for a hidden branch, walks both sides of each, and gives up.
//! That is 480 instructions for IPv4 and 1,440 for IPv6, which a core does several of in a cycle.
//!
//! The table is a map that the program reads as memory, so it can be changed ([`Steering::set_table`]) while packets flow. Where all flows
//! have one queue nothing is hashed.
//!
//! # Strangers
//! A device may have a second queue for each of the first, with numbers from `queues` on. Into those go the SYNs of
//! strangers, of whom nobody has [vouched](Peers::vouch) that a handshake with them was completed: a flood of SYNs, which bears addresses that nobody
//! answers to, then fills a queue in which nothing else waits, and whoever reads it may leave it alone for a while.
//!
//! ```text
//! queue  = table[bucket]            as above
//!        = table[bucket] + queues   if SYN is set, ACK, RST and FIN are not, and the source is not among the peers
//! ```

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::ebpf::kernel::{
    BPF_F_RDONLY_PROG, BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_LRU_HASH, Kind, create_map, load_program, update,
};
use crate::ebpf::{ADD, AND, B, FRAME, H, Helper, Insn, JEQ, JNE, LSH, MOV, MUL, Program, RSH, W, XOR};
use crate::{BUCKETS, Medium};

/// The bucket of a Toeplitz hash.
#[inline]
pub const fn bucket(hash: u32) -> usize {
    hash as usize % BUCKETS
}

/// A table that deals the buckets out to `queues` queues in turn.
///
/// # Panics
/// If `queues` is 0 or more than 256.
pub fn even_table(queues: usize) -> [u8; BUCKETS] {
    assert!((1..=256).contains(&queues), "1 to 256 queues, not {queues}");
    std::array::from_fn(|bucket| (bucket % queues) as u8)
}

const TUNSETSTEERINGEBPF: libc::Ioctl = 0x8004_54e0_u32 as libc::Ioctl;

/// Has the TUN device behind this descriptor choose queues by its own flow table.
pub(crate) fn detach(tun: BorrowedFd<'_>) -> io::Result<()> {
    crate::tun::ioctl_int(tun, TUNSETSTEERINGEBPF, -1)
}

/// The most addresses that are known as peers' at a time. From then on the kernel forgets whoever has not been asked for lately.
const PEERS_MAX: u32 = 65_536;

/// Who has completed a handshake with us, for a program that keeps strangers apart. Clones are the same peers.
#[derive(Clone, Debug)]
pub struct Peers(Arc<OwnedFd>);

impl Peers {
    /// Nobody yet.
    pub fn new() -> Result<Peers, SteeringError> {
        let map = create_map(BPF_MAP_TYPE_LRU_HASH, PEER_LEN, 1, PEERS_MAX, 0).map_err(SteeringError::Table)?;
        Ok(Peers(Arc::new(map)))
    }

    /// This address is no stranger's. If the kernel has no room for it, it remains one.
    pub fn vouch(&self, peer: IpAddr) {
        // In words of the machine's order, as the program loads them.
        let words: [u32; 4] = match peer {
            IpAddr::V4(ip) => [ip.to_bits(), 0, 0, 0],
            IpAddr::V6(ip) => std::array::from_fn(|i| (ip.to_bits() >> (96 - 32 * i)) as u32),
        };
        // SAFETY: `words` has the map's key size (PEER_LEN), and a byte its value size (1).
        let _ = unsafe { update(&self.0, &words, &1u8) };
    }
}

/// A loaded steering program and its table. The kernel keeps the program while a device uses it, even after this is dropped.
#[derive(Debug)]
pub struct Steering {
    program: OwnedFd,
    table: OwnedFd,
    /// How many queues there are before those of strangers, if those are apart.
    apart: Option<u8>,
    /// The interface that uses it, once it is known by name.
    pub(crate) interface: Option<String>,
}

/// Why the kernel does not steer for us, in a sentence.
#[derive(Debug)]
pub enum SteeringError {
    /// The program could not be loaded.
    Load(io::Error),
    /// The table could not be made.
    Table(io::Error),
    /// The device did not take the program.
    Attach(io::Error),
}

impl fmt::Display for SteeringError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, error) = match self {
            SteeringError::Load(error) => ("loaded", error),
            SteeringError::Table(error) => ("given its table", error),
            SteeringError::Attach(error) => ("attached", error),
        };
        write!(f, "the steering program could not be {what} ({error}")?;
        if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) {
            f.write_str(": it needs the capabilities CAP_BPF and CAP_NET_ADMIN")?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for SteeringError {}

impl Steering {
    /// Makes the program for this key and medium, and loads it with its table. With `apart` it sends strangers' SYNs to the queues behind the first so
    /// many, of which each must have its second then: at most 128.
    pub fn load(
        key: &[u8; 40],
        medium: Medium,
        table: &[u8; BUCKETS],
        apart: Option<(&Peers, usize)>,
    ) -> Result<Steering, SteeringError> {
        let queues = apart.map(|(_, queues)| u8::try_from(queues).expect("at most 128 queues have a second one"));
        let map =
            create_map(BPF_MAP_TYPE_ARRAY, 4, ENTRIES as u32, 1, BPF_F_RDONLY_PROG).map_err(SteeringError::Table)?;
        update_table(&map, table, queues).map_err(SteeringError::Table)?;
        // One queue for all: no question which.
        let key = (queues != Some(1)).then_some(key);
        let peers = apart.map(|(peers, _)| peers.0.as_raw_fd());
        let program = load_program(Kind::SocketFilter, &assemble(key, medium, map.as_raw_fd(), peers))
            .map_err(SteeringError::Load)?;
        Ok(Steering { program, table: map, apart: queues, interface: None })
    }

    /// Has the TUN device behind this descriptor (any of its queues) use the program, in place of an earlier one.
    pub fn attach(&self, tun: BorrowedFd<'_>) -> Result<(), SteeringError> {
        crate::tun::ioctl_int(tun, TUNSETSTEERINGEBPF, self.program.as_raw_fd()).map_err(SteeringError::Attach)
    }

    /// Frames that each queue of the interface holds, unless the interface is not to be found.
    pub fn queue_len(&self) -> Option<usize> {
        let interface = self.interface.as_deref()?;
        crate::tun::queue_len(interface).ok()
    }

    /// Changes which queue each bucket goes to. Packets that the kernel is queueing at this moment may see some of both.
    pub fn set_table(&self, table: &[u8; BUCKETS]) -> Result<(), SteeringError> {
        update_table(&self.table, table, self.apart).map_err(SteeringError::Table)
    }
}

/// Registers by what they hold here. 6 to 9 survive a packet load.
mod reg {
    /// Result of a packet load; the program's answer.
    pub const ACC: u8 = 0;
    /// Scratch.
    pub const WORD: u8 = 1;
    /// Scratch.
    pub const TERM: u8 = 2;
    /// Packet loads want the context here.
    pub const CONTEXT: u8 = 6;
    pub const HASH: u8 = 7;
    pub const PROTOCOL: u8 = 8;
    /// The same register, when the protocol is known: 0, or 1 for a stranger.
    pub const STRANGER: u8 = 8;
    pub const PORTS: u8 = 9;
}

/// Entries of the table: for each bucket its queue, and behind those its queue for strangers.
const ENTRIES: usize = 2 * BUCKETS;
/// Bytes of an address among the peers.
const PEER_LEN: u32 = 16;

impl Program {
    /// `PORTS` = the four bytes at `at`.
    fn load_ports(&mut self, at: usize) {
        self.load_packet(W, at);
        self.op_register(MOV, reg::PORTS, reg::ACC);
    }

    /// The same behind the IPv4 header at `ip`. PROTOCOL is then how long that is.
    fn load_ports_v4(&mut self, ip: usize) {
        self.load_packet(B, ip);
        self.op(AND, reg::ACC, 0x0f);
        self.op(LSH, reg::ACC, 2);
        self.op_register(MOV, reg::PROTOCOL, reg::ACC);
        self.load_packet_indexed(W, reg::PROTOCOL, ip);
        self.op_register(MOV, reg::PORTS, reg::ACC);
    }

    /// Whether a SYN that begins a connection is a stranger's. `flags` bytes into the packet, and as many more as PROTOCOL says, are its flags;
    /// the sender's address is `words` words from `address` on.
    fn judge(&mut self, peers: i32, flags: usize, address: usize, words: usize) {
        const FIN_SYN_RST_ACK: i32 = 0x17;
        const SYN: i32 = 0x02;
        self.load_packet_indexed(B, reg::PROTOCOL, flags);
        self.op(MOV, reg::STRANGER, 0);
        self.op(AND, reg::ACC, FIN_SYN_RST_ACK);
        let other = self.jump_if(JNE, reg::ACC, SYN);
        for word in 0..PEER_LEN as usize / 4 {
            let at = (4 * word) as i16 - PEER_LEN as i16;
            if word < words {
                self.load_packet(W, address + 4 * word);
                self.store(W, FRAME, at, reg::ACC);
            } else {
                self.store_imm(W, FRAME, at, 0);
            }
        }
        self.map(reg::WORD, peers);
        self.op64_register(MOV, reg::TERM, FRAME);
        self.op64(ADD, reg::TERM, -(PEER_LEN as i32));
        self.call(Helper::MapLookupElem);
        let known = self.jump_if(JNE, reg::ACC, 0);
        self.op(MOV, reg::STRANGER, 1);
        self.land(known);
        self.land(other);
    }

    /// Ends with the entry of the table that WORD points to.
    fn answer(&mut self) {
        self.load(B, reg::ACC, reg::WORD, 0);
        self.exit();
    }

    /// Takes the 32 bits in ACC into the hash; they are the input's bits from `bit` on.
    fn absorb(&mut self, key: &[u8; 40], bit: usize) {
        self.op_register(MOV, reg::WORD, reg::ACC);
        for i in 0..32 {
            self.op_register(MOV, reg::TERM, reg::WORD);
            self.op(RSH, reg::TERM, 31); // the highest bit: 0 or 1
            self.op(MUL, reg::TERM, window(key, bit + i) as i32);
            self.op_register(XOR, reg::HASH, reg::TERM);
            self.op(LSH, reg::WORD, 1);
        }
    }
}

/// The 32 bits of the key that begin at `bit`.
fn window(key: &[u8; 40], bit: usize) -> u32 {
    let at = |byte: usize| u64::from(key.get(byte).copied().unwrap_or(0));
    let first = bit / 8;
    let forty = at(first) << 32 | at(first + 1) << 24 | at(first + 2) << 16 | at(first + 3) << 8 | at(first + 4);
    (forty >> (8 - bit % 8)) as u32
}

/// The whole program; see the head of this file. Without a key there is nothing to choose from; without peers nobody is a stranger.
fn assemble(key: Option<&[u8; 40]>, medium: Medium, table: i32, peers: Option<i32>) -> Vec<Insn> {
    const TCP: i32 = 6;
    const UDP: i32 = 17;
    /// Where the flags are in a TCP header.
    const FLAGS: usize = 13;
    const IPV6_HEADER: usize = 40;
    let ip = medium.header_len();
    let mut p = Program(Vec::with_capacity(2100));
    p.op64_register(MOV, reg::CONTEXT, 1);
    p.op(MOV, reg::HASH, 0);
    p.op(MOV, reg::PORTS, 0);

    // Which family?
    let (to_v4, to_v6) = match medium {
        Medium::Ethernet => {
            p.load_packet(H, 12);
            (p.jump_if(JEQ, reg::ACC, 0x0800), p.jump_if(JEQ, reg::ACC, 0x86dd))
        }
        Medium::Ip => {
            p.load_packet(B, 0);
            p.op(RSH, reg::ACC, 4);
            (p.jump_if(JEQ, reg::ACC, 4), p.jump_if(JEQ, reg::ACC, 6))
        }
    };
    let neither = p.jump();

    p.land(to_v4);
    p.load_packet(B, ip + 9);
    p.op_register(MOV, reg::PROTOCOL, reg::ACC);
    p.load_packet(H, ip + 6);
    p.op(AND, reg::ACC, 0x3fff); // more fragments, or an offset
    let fragment = p.jump_if(JNE, reg::ACC, 0);
    let tcp = p.jump_if(JEQ, reg::PROTOCOL, TCP);
    let other = p.jump_if(JNE, reg::PROTOCOL, UDP);
    p.load_ports_v4(ip);
    let udp = p.jump();
    p.land(tcp);
    p.load_ports_v4(ip);
    let judged = peers.map(|peers| {
        p.judge(peers, ip + FLAGS, ip + 12, 1);
        p.jump()
    });
    p.land(fragment);
    p.land(other);
    p.land(udp);
    p.op(MOV, reg::STRANGER, 0);
    p.land_all(judged);
    if let Some(key) = key {
        for word in 0..2 {
            p.load_packet(W, ip + 12 + 4 * word);
            p.absorb(key, 32 * word);
        }
        p.op_register(MOV, reg::ACC, reg::PORTS);
        p.absorb(key, 64);
    }
    let v4_done = p.jump();

    p.land(to_v6);
    p.load_packet(B, ip + 6);
    p.op_register(MOV, reg::PROTOCOL, reg::ACC);
    let tcp = p.jump_if(JEQ, reg::PROTOCOL, TCP);
    let other = p.jump_if(JNE, reg::PROTOCOL, UDP);
    p.load_ports(ip + IPV6_HEADER);
    let udp = p.jump();
    p.land(tcp);
    p.load_ports(ip + IPV6_HEADER);
    let judged = peers.map(|peers| {
        p.op(MOV, reg::PROTOCOL, 0); // no header is longer than another
        p.judge(peers, ip + IPV6_HEADER + FLAGS, ip + 8, 4);
        p.jump()
    });
    p.land(other);
    p.land(udp);
    p.op(MOV, reg::STRANGER, 0);
    p.land_all(judged);
    if let Some(key) = key {
        for word in 0..8 {
            p.load_packet(W, ip + 8 + 4 * word);
            p.absorb(key, 32 * word);
        }
        p.op_register(MOV, reg::ACC, reg::PORTS);
        p.absorb(key, 256);
    }

    p.land(v4_done);
    // What one addition to a pointer adds must be known on every way there or on none, and within the same bounds, or the verifier takes it for
    // a leak, which only CAP_PERFMON allows. So there is one for each kind of sender, and none where there is no hash.
    p.op(AND, reg::HASH, BUCKETS as i32 - 1);
    let stranger = p.jump_if(JNE, reg::STRANGER, 0);
    for (lands, first) in [(None, 0), (Some(stranger), BUCKETS)] {
        p.land_all(lands);
        p.map_value(reg::WORD, table, first);
        p.op64_register(ADD, reg::WORD, reg::HASH);
        p.answer();
    }

    p.land(neither);
    p.map_value(reg::WORD, table, 0);
    p.answer();
    p.0
}

/// `apart` queues on, each bucket has its queue for strangers.
fn update_table(map: &OwnedFd, table: &[u8; BUCKETS], apart: Option<u8>) -> io::Result<()> {
    let entries: [u8; ENTRIES] =
        std::array::from_fn(|i| table[i % BUCKETS] + if i < BUCKETS { 0 } else { apart.unwrap_or(0) });
    // SAFETY: a `u32` has the map's key size (4), `entries` its value size (ENTRIES).
    unsafe { update(map, &0u32, &entries) }
}

#[cfg(test)]
mod tests;
