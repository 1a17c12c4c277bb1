//! The program itself: what it does with a packet, in the kernel's instructions.

use super::{RECENT, recipe};
use crate::Medium;
use crate::ebpf::{ADD, AND, B, DIV, DW, FRAME, H, Helper, Insn, JEQ, JGT, JNE, MOV, Program, RSH, W};
use hash::Purpose;

mod answer;
mod hash;
mod syn;

/// Descriptors of what the program looks things up in.
pub(super) struct Maps {
    pub(super) endpoints: i32,
    pub(super) recent: i32,
    pub(super) count: i32,
}

/// Registers that calls leave alone.
mod reg {
    /// The packet.
    pub const CONTEXT: u8 = 6;
    /// The [`Recipe`](super::super::Recipe), once it is found.
    pub const RECIPE: u8 = 7;
    /// Time; then how far the options are read.
    pub const AT: u8 = 8;
    /// The flags that matter; then lengths.
    pub const LEN: u8 = 9;
}

/// The program's memory: where in it what lies, from its end.
mod slot {
    /// IP and TCP header of what came, without options.
    pub const HEADERS: i16 = -64;
    pub const ENDPOINT: i16 = HEADERS - 24;
    /// The lane's clock, microseconds.
    pub const NOW: i16 = ENDPOINT - 8;
    /// What the cookie's first hash says.
    pub const BASE: i16 = NOW - 8;
    /// The flow as words to be hashed: four for its addresses, one for its ports, and what is hashed with it.
    pub const ENDS: i16 = BASE - 32;
    pub const PORTS: i16 = ENDS - 8;
    pub const MORE: i16 = PORTS - 8;
    /// An index into a map.
    pub const INDEX: i16 = MORE - 4;
    /// The place of the MSS in the table.
    pub const CLASS: i16 = INDEX - 4;
    // What the options said.
    pub const MSS: i16 = CLASS - 4;
    pub const SCALE: i16 = MSS - 4;
    pub const SACK: i16 = SCALE - 4;
    pub const HAS_TIMESTAMP: i16 = SACK - 4;
    /// As it came.
    pub const TIMESTAMP: i16 = HAS_TIMESTAMP - 4;
    /// One option.
    pub const OPTION: i16 = TIMESTAMP - 12;
    /// IP and TCP header of what goes back, at most 80 bytes.
    pub const ANSWER: i16 = OPTION - 80;
    /// Link addresses, and each in the other's place.
    pub const LINK: i16 = ANSWER - 16;
}

const SYN: i32 = 0x02;
const RST: i32 = 0x04;
const SYN_ACK: i32 = 0x12;
const FIN_SYN_RST_ACK: i32 = 0x17;
const ECE: i32 = 0x40;
const ECE_CWR: i32 = 0xc0;
const TCP: i32 = 6;
const TCP_HEADER: i16 = 20;
/// Stands for "no window scale option" in a timestamp.
const NO_SCALE: i32 = 15;
/// So many options of a SYN are read. No system writes more.
const OPTIONS_MAX: usize = 16;
/// The packet goes on (`TCX_NEXT`), or is dropped (`TCX_DROP`).
const NEXT: i32 = -1;
const DROP: i32 = 2;
const BPF_F_INGRESS: i32 = 1;
// Offsets in `struct __sk_buff`.
const SKB_PROTOCOL: i16 = 16;
const SKB_VLAN_PRESENT: i16 = 20;
const SKB_IFINDEX: i16 = 40;

/// Where things are in the headers of an IP version.
struct Family {
    version: u16,
    ethertype: u16,
    header: i16,
    source: i16,
    destination: i16,
    address: i16,
    /// Where it says how long it is, and how long that is with nothing in it.
    len: i16,
    len_of_nothing: i32,
    default_mss: i32,
}

const V4: Family = Family {
    version: 4,
    ethertype: 0x0800,
    header: 20,
    source: 12,
    destination: 16,
    address: 4,
    len: 2,
    len_of_nothing: 20,
    default_mss: 536,
};
const V6: Family = Family {
    version: 6,
    ethertype: 0x86dd,
    header: 40,
    source: 8,
    destination: 24,
    address: 16,
    len: 4,
    len_of_nothing: 0,
    default_mss: 1_220,
};

/// All of it, for a stack with this link address; see the head of [`cookies_ebpf`](super).
pub(super) fn assemble(medium: Medium, mac: [u8; 6], maps: &Maps) -> Vec<Insn> {
    let mut p = Program(Vec::with_capacity(4_000));
    p.op64_register(MOV, reg::CONTEXT, 1);
    let mut aside = Vec::new();
    if medium == Medium::Ethernet {
        p.load(W, 0, reg::CONTEXT, SKB_VLAN_PRESENT);
        aside.push(p.jump_if(JNE, 0, 0));
    }
    p.load(W, 0, reg::CONTEXT, SKB_PROTOCOL);
    let v6 = p.jump_if(JEQ, 0, i32::from(V6.ethertype.to_be()));
    aside.push(p.jump_if(JNE, 0, i32::from(V4.ethertype.to_be())));
    p.family(&V4, (medium, mac), maps);
    p.land(v6);
    p.family(&V6, (medium, mac), maps);
    p.land_all(aside);
    p.verdict(NEXT);
    p.0
}

impl Program {
    fn verdict(&mut self, verdict: i32) {
        self.op(MOV, 0, verdict);
        self.exit();
    }

    /// `dst = &memory[at]`.
    fn address(&mut self, dst: u8, at: i16) {
        self.op64_register(MOV, dst, FRAME);
        self.op64(ADD, dst, at.into());
    }

    /// Register 0 = what the map has under the key that lies at `at`, or 0.
    fn find(&mut self, map: i32, at: i16) {
        self.map(1, map);
        self.address(2, at);
        self.call(Helper::MapLookupElem);
    }

    /// Copies `len` bytes of the packet from `from` on; register 0 is not 0 if there are not so many.
    fn copy_packet(&mut self, from: i32, to: i16, len: i32) {
        self.op64_register(MOV, 1, reg::CONTEXT);
        self.op(MOV, 2, from);
        self.address(3, to);
        self.op(MOV, 4, len);
        self.call(Helper::SkbLoadBytes);
    }

    /// All that is done with a packet of one IP version. Ends on every way.
    fn family(&mut self, ip: &Family, (medium, mac): (Medium, [u8; 6]), maps: &Maps) {
        let link = medium.header_len() as i32;
        let tcp = slot::HEADERS + ip.header;
        let mut next = Vec::new();
        self.copy_packet(link, slot::HEADERS, (ip.header + TCP_HEADER).into());
        next.push(self.jump_if(JNE, 0, 0));
        self.load(B, 0, FRAME, slot::HEADERS);
        if ip.version == 4 {
            next.push(self.jump_if(JNE, 0, 0x45));
            self.load(H, 0, FRAME, slot::HEADERS + 6);
            self.op(AND, 0, i32::from(0x3fff_u16.to_be())); // more fragments, or an offset
            next.push(self.jump_if(JNE, 0, 0));
            self.load(B, 0, FRAME, slot::HEADERS + 9);
        } else {
            self.op(RSH, 0, 4);
            next.push(self.jump_if(JNE, 0, 6));
            self.load(B, 0, FRAME, slot::HEADERS + 6);
        }
        next.push(self.jump_if(JNE, 0, TCP));
        self.load(B, reg::LEN, FRAME, tcp + 13);
        self.op(AND, reg::LEN, FIN_SYN_RST_ACK);
        let syn = self.jump_if(JEQ, reg::LEN, SYN);
        next.push(self.jump_if(JNE, reg::LEN, RST));
        self.land(syn);

        // Is it to an endpoint that is overrun?
        for word in 0..4 {
            if 4 * word < ip.address {
                self.load(W, 0, FRAME, slot::HEADERS + ip.destination + 4 * word);
                self.store(W, FRAME, slot::ENDPOINT + 4 * word, 0);
            } else {
                self.store_imm(W, FRAME, slot::ENDPOINT + 4 * word, 0);
            }
        }
        self.load(H, 0, FRAME, tcp + 2);
        self.store(H, FRAME, slot::ENDPOINT + 16, 0);
        self.store_imm(H, FRAME, slot::ENDPOINT + 18, ip.version.into());
        self.find(maps.endpoints, slot::ENDPOINT);
        next.push(self.jump_if(JEQ, 0, 0));
        self.op64_register(MOV, reg::RECIPE, 0);
        self.call(Helper::KtimeGetNs);
        self.load(DW, 1, reg::RECIPE, recipe::UNTIL_NS);
        next.push(self.jump_if_register(JGT, 0, 1));
        self.op64(DIV, 0, 1_000);
        self.load(DW, 1, reg::RECIPE, recipe::OFFSET_US);
        self.op64_register(ADD, 0, 1);
        self.store(DW, FRAME, slot::NOW, 0);

        self.lay_flow(ip);
        self.hash_flow(ip, recipe::COOKIE, Purpose::CookieBase);
        self.store(DW, FRAME, slot::BASE, 0);
        self.op64(RSH, 0, 32);
        self.op(AND, 0, RECENT as i32 - 1);
        self.store(W, FRAME, slot::INDEX, 0);
        let syn = self.jump_if(JEQ, reg::LEN, SYN);

        // A RST, which says no more than the sequence number that the SYN-ACK acknowledged.
        self.find(maps.recent, slot::INDEX);
        next.push(self.jump_if(JEQ, 0, 0));
        self.load(W, 1, FRAME, tcp + 4);
        next.push(self.jump_if(JEQ, 1, 0));
        self.load(W, 2, 0, 0);
        next.push(self.jump_if_register(JNE, 1, 2));
        // Once: what refuses a connection that began with this cookie, later, is the lane's.
        self.store_imm(W, 0, 0, 0);
        self.verdict(DROP);

        self.land(syn);
        next.extend(self.read_options(ip, link));
        self.cookie(ip);
        self.lay_answer(ip);
        next.extend(self.send(ip, (link, mac), maps));
        self.land_all(next);
        self.verdict(NEXT);
    }
}
