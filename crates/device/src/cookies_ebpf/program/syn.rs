//! What a SYN says, and the cookie that stands for it.

use super::hash::Purpose;
use super::{Family, NO_SCALE, OPTIONS_MAX, TCP_HEADER, reg, slot};
use crate::cookies_ebpf::recipe;
use crate::ebpf::{
    ADD, AND, B, DIV, DW, FRAME, H, Helper, JEQ, JGE, JGT, JLE, JLT, JNE, Jump, LSH, MOV, OR, Program, RSH, SUB, W,
};

impl Program {
    /// What the SYN's options say. The jumps are taken if it is for the lane to say something about them.
    pub(super) fn read_options(&mut self, ip: &Family, link: i32) -> Vec<Jump> {
        const END: i32 = 0;
        const NOP: i32 = 1;
        let tcp = slot::HEADERS + ip.header;
        let mut strange = Vec::new();
        self.load(B, reg::LEN, FRAME, tcp + 12);
        self.op(RSH, reg::LEN, 4);
        self.op(LSH, reg::LEN, 2);
        strange.push(self.jump_if(JLT, reg::LEN, TCP_HEADER.into()));
        self.load(H, 0, FRAME, slot::HEADERS + ip.len);
        self.swap_to_network(0, 16);
        self.op(SUB, 0, ip.len_of_nothing);
        strange.push(self.jump_if_register(JNE, 0, reg::LEN)); // it has text

        self.store_imm(W, FRAME, slot::MSS, ip.default_mss);
        self.store_imm(W, FRAME, slot::SCALE, NO_SCALE);
        self.store_imm(W, FRAME, slot::SACK, 0);
        self.store_imm(W, FRAME, slot::HAS_TIMESTAMP, 0);
        self.store_imm(W, FRAME, slot::TIMESTAMP, 0);
        self.op(MOV, reg::AT, TCP_HEADER.into());
        let mut done = Vec::new();
        let here = link + i32::from(ip.header);
        // `len` bytes of the option to `OPTION`.
        let fetch = |p: &mut Program, len: i32| {
            p.op64_register(MOV, 1, reg::CONTEXT);
            p.op_register(MOV, 2, reg::AT);
            p.op(ADD, 2, here);
            p.address(3, slot::OPTION);
            p.op(MOV, 4, len);
            p.call(Helper::SkbLoadBytes);
            p.jump_if(JNE, 0, 0)
        };
        for _ in 0..OPTIONS_MAX {
            done.push(self.jump_if_register(JGE, reg::AT, reg::LEN));
            strange.push(fetch(self, 1));
            self.load(B, 1, FRAME, slot::OPTION);
            done.push(self.jump_if(JEQ, 1, END));
            let nop = self.jump_if(JEQ, 1, NOP);
            strange.push(fetch(self, 2));
            self.load(B, 2, FRAME, slot::OPTION + 1);
            strange.push(self.jump_if(JLT, 2, 2));
            self.op_register(MOV, 3, reg::AT);
            self.op_register(ADD, 3, 2);
            strange.push(self.jump_if_register(JGT, 3, reg::LEN));
            self.load(B, 1, FRAME, slot::OPTION);
            self.op(LSH, 1, 8);
            self.op_register(OR, 1, 2);
            let [mss, scale, sack, timestamp] =
                [2 << 8 | 4, 3 << 8 | 3, 4 << 8 | 2, 8 << 8 | 10].map(|kind_len| self.jump_if(JEQ, 1, kind_len));
            let other = self.jump();
            let mut read = vec![other];

            self.land(mss);
            strange.push(fetch(self, 4));
            self.load(H, 0, FRAME, slot::OPTION + 2);
            self.swap_to_network(0, 16);
            self.store(W, FRAME, slot::MSS, 0);
            self.op(MOV, 2, 4);
            read.push(self.jump());

            self.land(scale);
            strange.push(fetch(self, 3));
            self.load(B, 0, FRAME, slot::OPTION + 2);
            let fits = self.jump_if(JLE, 0, 14);
            self.op(MOV, 0, 14);
            self.land(fits);
            self.store(W, FRAME, slot::SCALE, 0);
            self.op(MOV, 2, 3);
            read.push(self.jump());

            self.land(sack);
            self.store_imm(W, FRAME, slot::SACK, 1);
            read.push(self.jump());

            self.land(timestamp);
            strange.push(fetch(self, 6));
            self.load(H, 0, FRAME, slot::OPTION + 2);
            self.store(H, FRAME, slot::TIMESTAMP, 0);
            self.load(H, 0, FRAME, slot::OPTION + 4);
            self.store(H, FRAME, slot::TIMESTAMP + 2, 0);
            self.store_imm(W, FRAME, slot::HAS_TIMESTAMP, 1);
            self.op(MOV, 2, 10);

            self.land_all(read);
            self.op_register(ADD, reg::AT, 2);
            let behind = self.jump();
            self.land(nop);
            self.op(ADD, reg::AT, 1);
            self.land(behind);
            // Nothing that is not so already; but who checks this program forgets now which way it came, and need not follow each to its end.
            self.op(AND, reg::AT, 63);
        }
        strange.push(self.jump_if_register(JLT, reg::AT, reg::LEN));
        self.land_all(done);
        strange
    }

    /// Register 0 = the sequence number of the SYN-ACK, as `cookie::encode` has it.
    pub(super) fn cookie(&mut self, ip: &Family) {
        const INDEX_BITS: i32 = 3;
        const BODY_BITS: i32 = 24;
        // The largest value of the table that is not above what was offered, or the first.
        self.load(W, 1, FRAME, slot::MSS);
        self.op(MOV, 2, 0);
        let mut found = Vec::new();
        for class in 1..1 << INDEX_BITS {
            self.load(H, 3, reg::RECIPE, recipe::MSS_TABLE + 2 * class);
            found.push(self.jump_if_register(JLT, 1, 3));
            self.op(MOV, 2, class.into());
        }
        self.land_all(found);
        self.store(W, FRAME, slot::CLASS, 2);

        self.minute(0);
        self.op(LSH, 0, INDEX_BITS);
        self.op_register(OR, 0, 2);
        self.peers_isn(ip, 1);
        self.op64(LSH, 1, 32);
        self.op64_register(OR, 0, 1);
        self.store(DW, FRAME, slot::MORE, 0);
        self.hash_flow(ip, recipe::COOKIE, Purpose::CookieBody);
        self.op(LSH, 0, INDEX_BITS);
        self.load(W, 1, FRAME, slot::CLASS);
        self.op_register(OR, 0, 1);
        self.op(AND, 0, (1 << BODY_BITS) - 1);
        self.minute(1);
        self.op(LSH, 1, BODY_BITS);
        self.op_register(OR, 0, 1);
        self.load(DW, 1, FRAME, slot::BASE);
        self.op_register(ADD, 0, 1);
        self.peers_isn(ip, 1);
        self.op_register(ADD, 0, 1);
    }

    /// `dst` = the minute, of 32 bits.
    fn minute(&mut self, dst: u8) {
        self.load(DW, dst, FRAME, slot::NOW);
        self.op64(DIV, dst, 60_000_000);
        self.op_register(MOV, dst, dst);
    }

    /// `dst` = the SYN's sequence number.
    pub(super) fn peers_isn(&mut self, ip: &Family, dst: u8) {
        self.load(W, dst, FRAME, slot::HEADERS + ip.header + 4);
        self.swap_to_network(dst, 32);
    }
}
