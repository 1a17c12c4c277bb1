//! An assembler for the few programs that we have the kernel run, and [what loads them](kernel).
//!
//! They are written in the kernel's instructions, because whatever would compile them from something else would be needed where Laneway is built.

pub(crate) mod kernel;

/// One eBPF instruction (`struct bpf_insn`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Insn {
    code: u8,
    /// Destination in the low four bits, source in the high four.
    registers: u8,
    offset: i16,
    imm: i32,
}

// Operation codes: class | operation | source.
const ALU32: u8 = 0x04;
const ALU64: u8 = 0x07;
const JMP: u8 = 0x05;
const FROM_REGISTER: u8 = 0x08;
pub(crate) const ADD: u8 = 0x00;
pub(crate) const SUB: u8 = 0x10;
pub(crate) const MUL: u8 = 0x20;
pub(crate) const DIV: u8 = 0x30;
pub(crate) const OR: u8 = 0x40;
pub(crate) const AND: u8 = 0x50;
pub(crate) const LSH: u8 = 0x60;
pub(crate) const RSH: u8 = 0x70;
pub(crate) const XOR: u8 = 0xa0;
pub(crate) const MOV: u8 = 0xb0;
const TO_BIG_ENDIAN: u8 = 0xdc;
pub(crate) const JEQ: u8 = 0x10;
pub(crate) const JGT: u8 = 0x20;
pub(crate) const JGE: u8 = 0x30;
pub(crate) const JNE: u8 = 0x50;
pub(crate) const JLT: u8 = 0xa0;
pub(crate) const JLE: u8 = 0xb0;
const LOAD_PACKET: u8 = 0x20; // BPF_LD | BPF_ABS
const LOAD_PACKET_INDEXED: u8 = 0x40; // BPF_LD | BPF_IND
pub(crate) const W: u8 = 0x00;
pub(crate) const H: u8 = 0x08;
pub(crate) const B: u8 = 0x10;
pub(crate) const DW: u8 = 0x18;
const LOAD: u8 = 0x61; // BPF_LDX | BPF_MEM
const STORE_IMM: u8 = 0x62; // BPF_ST | BPF_MEM
const STORE: u8 = 0x63; // BPF_STX | BPF_MEM
const ATOMIC: u8 = 0xc3; // BPF_STX | BPF_ATOMIC
const LOAD_IMM64: u8 = 0x18;
const PSEUDO_MAP: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// The program's memory ends where this register points.
pub(crate) const FRAME: u8 = 10;

/// What a program may call, by the kernel's numbers.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(crate) enum Helper {
    MapLookupElem = 1,
    KtimeGetNs = 5,
    SkbStoreBytes = 9,
    Redirect = 23,
    SkbLoadBytes = 26,
    CsumDiff = 28,
    SkbChangeTail = 38,
}

/// A program that is being written. Jumps go forward.
pub(crate) struct Program(pub(crate) Vec<Insn>);

/// A jump whose target is not known yet.
#[must_use]
pub(crate) struct Jump(usize);

impl Program {
    fn push(&mut self, code: u8, dst: u8, src: u8, offset: i16, imm: i32) -> usize {
        self.0.push(Insn { code, registers: src << 4 | dst, offset, imm });
        self.0.len() - 1
    }

    /// `dst = dst op imm`, in 32 bits.
    pub(crate) fn op(&mut self, op: u8, dst: u8, imm: i32) {
        self.push(ALU32 | op, dst, 0, 0, imm);
    }

    /// `dst = dst op src`, in 32 bits.
    pub(crate) fn op_register(&mut self, op: u8, dst: u8, src: u8) {
        self.push(ALU32 | op | FROM_REGISTER, dst, src, 0, 0);
    }

    /// `dst = dst op imm`, in 64 bits; the immediate is extended by its sign.
    pub(crate) fn op64(&mut self, op: u8, dst: u8, imm: i32) {
        self.push(ALU64 | op, dst, 0, 0, imm);
    }

    /// `dst = dst op src`, in 64 bits.
    pub(crate) fn op64_register(&mut self, op: u8, dst: u8, src: u8) {
        self.push(ALU64 | op | FROM_REGISTER, dst, src, 0, 0);
    }

    /// `dst = imm`, in 64 bits.
    pub(crate) fn set64(&mut self, dst: u8, imm: u64) {
        self.push(LOAD_IMM64, dst, 0, 0, imm as i32);
        self.push(0, 0, 0, 0, (imm >> 32) as i32);
    }

    /// `dst =` its lower `bits`, 16 or 32, from this machine's order to the network's or back.
    pub(crate) fn swap_to_network(&mut self, dst: u8, bits: i32) {
        self.push(TO_BIG_ENDIAN, dst, 0, 0, bits);
    }

    /// `dst = *(base + offset)`.
    pub(crate) fn load(&mut self, size: u8, dst: u8, base: u8, offset: i16) {
        self.push(LOAD | size, dst, base, offset, 0);
    }

    /// `*(base + offset) = src`.
    pub(crate) fn store(&mut self, size: u8, base: u8, offset: i16, src: u8) {
        self.push(STORE | size, base, src, offset, 0);
    }

    /// `*(base + offset) = imm`.
    pub(crate) fn store_imm(&mut self, size: u8, base: u8, offset: i16, imm: i32) {
        self.push(STORE_IMM | size, base, 0, offset, imm);
    }

    /// `*base += src`, of 64 bits, at once for all cores.
    pub(crate) fn add_atomically(&mut self, base: u8, src: u8) {
        self.push(ATOMIC | DW, base, src, 0, 0);
    }

    /// Register 0 = `packet[at..]` in host order, of the packet that register 6 is the context of. The program ends with 0 if it is shorter.
    pub(crate) fn load_packet(&mut self, size: u8, at: usize) {
        self.push(LOAD_PACKET | size, 0, 0, 0, at as i32);
    }

    /// The same at `index + at`.
    pub(crate) fn load_packet_indexed(&mut self, size: u8, index: u8, at: usize) {
        self.push(LOAD_PACKET_INDEXED | size, 0, index, 0, at as i32);
    }

    /// `dst` = the map with this descriptor.
    pub(crate) fn map(&mut self, dst: u8, fd: i32) {
        self.push(LOAD_IMM64, dst, PSEUDO_MAP, 0, fd);
        self.push(0, 0, 0, 0, 0);
    }

    /// `dst = &value[at]`, of the only value of the map with this descriptor.
    pub(crate) fn map_value(&mut self, dst: u8, fd: i32, at: usize) {
        self.push(LOAD_IMM64, dst, PSEUDO_MAP_VALUE, 0, fd);
        self.push(0, 0, 0, 0, at as i32);
    }

    /// Register 0 = what it says of registers 1 to 5, which mean nothing afterwards.
    pub(crate) fn call(&mut self, helper: Helper) {
        self.push(CALL, 0, 0, 0, helper as i32);
    }

    /// Ends with register 0.
    pub(crate) fn exit(&mut self) {
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// If `register op imm`.
    pub(crate) fn jump_if(&mut self, op: u8, register: u8, imm: i32) -> Jump {
        Jump(self.push(JMP | op, register, 0, 0, imm))
    }

    /// If `a op b`.
    pub(crate) fn jump_if_register(&mut self, op: u8, a: u8, b: u8) -> Jump {
        Jump(self.push(JMP | op | FROM_REGISTER, a, b, 0, 0))
    }

    pub(crate) fn jump(&mut self) -> Jump {
        Jump(self.push(JMP, 0, 0, 0, 0))
    }

    /// The jump goes to what is written next.
    pub(crate) fn land(&mut self, jump: Jump) {
        let distance = self.0.len() - jump.0 - 1;
        self.0[jump.0].offset = i16::try_from(distance).expect("a jump is no longer than an offset says");
    }

    /// All of them do.
    pub(crate) fn land_all(&mut self, jumps: impl IntoIterator<Item = Jump>) {
        jumps.into_iter().for_each(|jump| self.land(jump));
    }
}
