//! The SYN-ACK, and its way back.

use super::hash::Purpose;
use super::{BPF_F_INGRESS, DROP, ECE, ECE_CWR, Family, Maps, NO_SCALE, SKB_IFINDEX, SYN_ACK, TCP, reg, slot};
use crate::cookies_ebpf::recipe;
use crate::ebpf::{ADD, AND, B, DIV, DW, FRAME, H, Helper, JEQ, JNE, Jump, LSH, MOV, OR, Program, RSH, SUB, W, XOR};

/// Where the checksum is in a TCP header.
const CHECKSUM: i32 = 16;
const EINVAL: i32 = 22;

impl Program {
    /// Writes the SYN-ACK with the sequence number in register 0 to `ANSWER`. `LEN` is then how long its TCP header is.
    pub(super) fn lay_answer(&mut self, ip: &Family) {
        let (came, tcp) = (slot::HEADERS, slot::ANSWER + ip.header);
        let copy = |p: &mut Program, size: u8, from: i16, to: i16| {
            p.load(size, 1, FRAME, from);
            p.store(size, FRAME, to, 1);
        };
        self.swap_to_network(0, 32);
        self.store(W, FRAME, tcp + 4, 0);
        copy(self, H, came + ip.header + 2, tcp);
        copy(self, H, came + ip.header, tcp + 2);
        self.peers_isn(ip, 1);
        self.op(ADD, 1, 1);
        self.swap_to_network(1, 32);
        self.store(W, FRAME, tcp + 8, 1);
        self.store_imm(B, FRAME, tcp + 13, SYN_ACK);
        self.load(H, 1, reg::RECIPE, recipe::WINDOW);
        self.store(H, FRAME, tcp + 14, 1);
        self.store_imm(W, FRAME, tcp + 16, 0);
        self.store_imm(B, FRAME, tcp + 20, 2);
        self.store_imm(B, FRAME, tcp + 21, 4);
        self.load(H, 1, reg::RECIPE, recipe::MSS);
        self.store(H, FRAME, tcp + 22, 1);
        (24..40).step_by(4).for_each(|at| self.store_imm(W, FRAME, tcp + at, 0));
        self.op(MOV, reg::LEN, 24);

        // What else was offered can be kept only in a timestamp.
        self.load(W, 1, FRAME, slot::HAS_TIMESTAMP);
        let none = self.jump_if(JEQ, 1, 0);
        self.load(B, 1, reg::RECIPE, recipe::ACCEPTS);
        self.op(AND, 1, recipe::ACCEPTS_TIMESTAMPS);
        let unwanted = self.jump_if(JEQ, 1, 0);
        self.hash_flow(ip, recipe::TIMESTAMP, Purpose::TimestampOffset);
        // Register 2 gathers the bits of `cookie::encode_ts`.
        self.op(MOV, 2, NO_SCALE);
        self.op(MOV, reg::LEN, 36);
        self.load(B, 1, reg::RECIPE, recipe::ACCEPTS);
        self.op(AND, 1, recipe::ACCEPTS_SCALES);
        let unscaled = [self.jump_if(JEQ, 1, 0), {
            self.load(W, 1, FRAME, slot::SCALE);
            self.jump_if(JEQ, 1, NO_SCALE)
        }];
        self.op_register(MOV, 2, 1);
        self.op(MOV, reg::LEN, 40);
        self.store_imm(B, FRAME, tcp + 36, 1);
        self.store_imm(B, FRAME, tcp + 37, 3);
        self.store_imm(B, FRAME, tcp + 38, 3);
        self.load(B, 1, reg::RECIPE, recipe::WINDOW_SCALE);
        self.store(B, FRAME, tcp + 39, 1);
        self.land_all(unscaled);
        self.store_imm(B, FRAME, tcp + 24, 1);
        self.store_imm(B, FRAME, tcp + 25, 1);
        self.store_imm(B, FRAME, tcp + 26, 8);
        self.store_imm(B, FRAME, tcp + 27, 10);
        self.load(B, 1, reg::RECIPE, recipe::ACCEPTS);
        self.op(AND, 1, recipe::ACCEPTS_SACK);
        let without = [self.jump_if(JEQ, 1, 0), {
            self.load(W, 1, FRAME, slot::SACK);
            self.jump_if(JEQ, 1, 0)
        }];
        self.op(OR, 2, 0x10);
        self.store_imm(B, FRAME, tcp + 24, 4);
        self.store_imm(B, FRAME, tcp + 25, 2);
        self.land_all(without);
        self.load(B, 1, reg::RECIPE, recipe::ACCEPTS);
        self.op(AND, 1, recipe::ACCEPTS_ECN);
        let heedless = [self.jump_if(JEQ, 1, 0), {
            self.load(B, 1, FRAME, came + ip.header + 13);
            self.op(AND, 1, ECE_CWR);
            self.jump_if(JNE, 1, ECE_CWR)
        }];
        self.op(OR, 2, 0x20);
        self.store_imm(B, FRAME, tcp + 13, SYN_ACK | ECE);
        self.land_all(heedless);
        // The latest time with these bits below that is not after now, and the offset.
        self.load(DW, 1, FRAME, slot::NOW);
        self.op64(DIV, 1, 1_000);
        self.op_register(MOV, 3, 1);
        self.op_register(SUB, 3, 2);
        self.op(AND, 3, 63);
        self.op_register(SUB, 1, 3);
        self.op_register(ADD, 1, 0);
        self.swap_to_network(1, 32);
        self.store(W, FRAME, tcp + 28, 1);
        copy(self, W, slot::TIMESTAMP, tcp + 32);
        self.land(none);
        self.land(unwanted);
        self.op_register(MOV, 1, reg::LEN);
        self.op(LSH, 1, 2);
        self.store(B, FRAME, tcp + 12, 1);

        for word in (0..ip.address).step_by(4) {
            copy(self, W, came + ip.destination + word, slot::ANSWER + ip.source + word);
            copy(self, W, came + ip.source + word, slot::ANSWER + ip.destination + word);
        }
        self.op_register(MOV, 1, reg::LEN);
        self.op(ADD, 1, ip.len_of_nothing);
        self.swap_to_network(1, 16);
        self.load(B, 2, reg::RECIPE, recipe::HOP_LIMIT);
        self.load(B, 3, reg::RECIPE, recipe::TRAFFIC_CLASS);
        if ip.version == 4 {
            self.store_imm(B, FRAME, slot::ANSWER, 0x45);
            self.store(B, FRAME, slot::ANSWER + 1, 3);
            self.store(H, FRAME, slot::ANSWER + 2, 1);
            self.store_imm(H, FRAME, slot::ANSWER + 4, 0);
            self.store_imm(H, FRAME, slot::ANSWER + 6, i32::from(0x4000_u16.to_be())); // may not be cut
            self.store(B, FRAME, slot::ANSWER + 8, 2);
            self.store_imm(B, FRAME, slot::ANSWER + 9, TCP);
            self.store_imm(H, FRAME, slot::ANSWER + 10, 0);
            self.op(MOV, 4, ip.header.into());
            self.op(MOV, 5, 0);
            self.checksum(slot::ANSWER, slot::ANSWER + 10);
        } else {
            self.op(LSH, 3, 20);
            self.op(OR, 3, 0x6000_0000);
            self.swap_to_network(3, 32);
            self.store(W, FRAME, slot::ANSWER, 3);
            self.store(H, FRAME, slot::ANSWER + 4, 1);
            self.store_imm(B, FRAME, slot::ANSWER + 6, TCP);
            self.store(B, FRAME, slot::ANSWER + 7, 2);
        }
        // The addresses, which the pseudo-header has, lie right before the TCP header; the rest of it is protocol and length.
        self.rest_of_pseudo_header();
        self.op_register(MOV, 4, reg::LEN);
        self.op(ADD, 4, (2 * ip.address).into());
        self.checksum(slot::ANSWER + ip.source, tcp + CHECKSUM as i16);
    }

    /// Register 5 = protocol and length.
    fn rest_of_pseudo_header(&mut self) {
        self.op_register(MOV, 5, reg::LEN);
        self.op(ADD, 5, TCP);
        self.swap_to_network(5, 16);
    }

    /// Writes the checksum of register 4's bytes from `from` on, and of register 5, to `to`.
    fn checksum(&mut self, from: i16, to: i16) {
        self.sum(from);
        self.op(XOR, 0, 0xffff);
        self.store(H, FRAME, to, 0);
    }

    /// Register 0 = the sum, in 16 bits, of register 4's bytes from `from` on, and of register 5.
    fn sum(&mut self, from: i16) {
        self.op(MOV, 1, 0);
        self.op(MOV, 2, 0);
        self.address(3, from);
        self.call(Helper::CsumDiff);
        self.op_register(MOV, 0, 0);
        for _ in 0..2 {
            self.op_register(MOV, 1, 0);
            self.op(RSH, 1, 16);
            self.op(AND, 0, 0xffff);
            self.op_register(ADD, 0, 1);
        }
    }

    /// Puts the answer in the packet's place, and sends it back. The jumps are taken if nothing could be done, and nothing was.
    pub(super) fn send(&mut self, ip: &Family, (link, mac): (i32, [u8; 6]), maps: &Maps) -> Vec<Jump> {
        let mut undone = Vec::new();
        if link != 0 {
            self.copy_packet(0, slot::LINK, 12);
            undone.push(self.jump_if(JNE, 0, 0));
            // A bridge that does not know where somebody is sends what is for him to all.
            for (at, half) in (slot::LINK..).step_by(2).zip(mac.as_chunks().0) {
                self.load(H, 0, FRAME, at);
                undone.push(self.jump_if(JNE, 0, u16::from_ne_bytes(*half).into()));
            }
        }
        // Of a SYN whose checksum is yet to be completed, wherever it leaves, the answer's will be in its place, from the sum of the pseudo-header.
        // That it is such a one the kernel says only by not letting it end before its checksum does.
        self.op64_register(MOV, 1, reg::CONTEXT);
        self.op(MOV, 2, link + i32::from(ip.header) + CHECKSUM + 1);
        self.op(MOV, 3, 0);
        self.call(Helper::SkbChangeTail);
        let complete = self.jump_if(JEQ, 0, 0);
        undone.push(self.jump_if(JNE, 0, -EINVAL));
        self.rest_of_pseudo_header();
        self.op(MOV, 4, (2 * ip.address).into());
        self.sum(slot::ANSWER + ip.source);
        self.store(H, FRAME, slot::ANSWER + ip.header + CHECKSUM as i16, 0);
        self.land(complete);
        self.op64_register(MOV, 1, reg::CONTEXT);
        self.op_register(MOV, 2, reg::LEN);
        self.op(ADD, 2, link + i32::from(ip.header));
        self.op(MOV, 3, 0);
        self.call(Helper::SkbChangeTail);
        let mut lost = vec![self.jump_if(JNE, 0, 0)];
        let write = |p: &mut Program, to: i32, from: i16, len: Option<i32>| {
            p.op64_register(MOV, 1, reg::CONTEXT);
            p.op(MOV, 2, to);
            p.address(3, from);
            match len {
                Some(len) => p.op(MOV, 4, len),
                None => {
                    p.op_register(MOV, 4, reg::LEN);
                    p.op(ADD, 4, ip.header.into());
                }
            }
            p.op(MOV, 5, 0);
            p.call(Helper::SkbStoreBytes);
            p.jump_if(JNE, 0, 0)
        };
        lost.push(write(self, link, slot::ANSWER, None));
        if link != 0 {
            lost.push(write(self, 0, slot::LINK + 6, Some(6)));
            lost.push(write(self, 6, slot::LINK, Some(6)));
        }
        self.find(maps.recent, slot::INDEX);
        let unknown = self.jump_if(JEQ, 0, 0);
        self.load(W, 1, FRAME, slot::ANSWER + ip.header + 8);
        self.store(W, 0, 0, 1);
        self.land(unknown);
        self.store_imm(W, FRAME, slot::INDEX, 0);
        self.find(maps.count, slot::INDEX);
        let uncounted = self.jump_if(JEQ, 0, 0);
        self.op(MOV, 1, 1);
        self.add_atomically(0, 1);
        self.land(uncounted);
        self.load(W, 1, reg::CONTEXT, SKB_IFINDEX);
        self.op(MOV, 2, BPF_F_INGRESS);
        self.call(Helper::Redirect);
        self.exit();
        self.land_all(lost);
        self.verdict(DROP);
        undone
    }
}
