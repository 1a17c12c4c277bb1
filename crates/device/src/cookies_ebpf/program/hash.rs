//! The keyed hash of a flow: SipHash-1-3, as `laneway_wire::keyed_hash` has it.

use super::{Family, reg, slot};
use crate::ebpf::{ADD, DW, FRAME, H, LSH, MOV, OR, Program, RSH, W, XOR};

/// What is hashed of a flow for what, as `laneway_proto::tcp::isn` numbers it.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Purpose {
    TimestampOffset = 2,
    CookieBase = 3,
    CookieBody = 4,
}

/// One word of what is hashed.
enum Word {
    /// What lies here, with these bits set.
    Slot(i16, u64),
    Const(u64),
}

impl Program {
    /// `ENDS` and `PORTS`, as `FlowKey::hash_words` has them: local before remote, and the peer's port in the low half.
    pub(super) fn lay_flow(&mut self, ip: &Family) {
        let pair = |p: &mut Program, low: i16, high: i16, to: i16| {
            p.load(W, 0, FRAME, slot::HEADERS + low);
            p.load(W, 1, FRAME, slot::HEADERS + high);
            p.op64(LSH, 1, 32);
            p.op64_register(OR, 0, 1);
            p.store(DW, FRAME, to, 0);
        };
        if ip.version == 4 {
            pair(self, ip.destination, ip.source, slot::ENDS);
        } else {
            for (i, from) in [ip.destination, ip.destination + 8, ip.source, ip.source + 8].into_iter().enumerate() {
                pair(self, from, from + 4, slot::ENDS + 8 * i as i16);
            }
        }
        let tcp = slot::HEADERS + ip.header;
        self.load(H, 0, FRAME, tcp);
        self.swap_to_network(0, 16);
        self.load(H, 1, FRAME, tcp + 2);
        self.swap_to_network(1, 16);
        self.op64(LSH, 1, 16);
        self.op64_register(OR, 0, 1);
        self.store(DW, FRAME, slot::PORTS, 0);
    }

    /// Register 0 = the keyed hash of the flow, as `laneway_proto::tcp::isn` has it; with `MORE`, if it is for a cookie's body, and of the addresses
    /// alone, if it is for timestamps.
    pub(super) fn hash_flow(&mut self, ip: &Family, key: i16, purpose: Purpose) {
        let number = purpose as u64;
        let ports = |bits| match purpose {
            Purpose::TimestampOffset => Word::Const(bits),
            _ => Word::Slot(slot::PORTS, bits),
        };
        let more = (purpose == Purpose::CookieBody).then_some(Word::Slot(slot::MORE, 0));
        let mut words: Vec<Word> = Vec::new();
        let last = if ip.version == 4 {
            words.push(Word::Slot(slot::ENDS, 0));
            words.extend(more);
            let len = 8 * words.len() as u64 + 5;
            ports(number << 32 | len << 56)
        } else {
            words.extend((0..4).map(|i| Word::Slot(slot::ENDS + 8 * i, 0)));
            words.push(ports(number << 56));
            words.push(more.unwrap_or(Word::Const(0)));
            Word::Const((8 * words.len() as u64) << 56)
        };
        words.push(last);
        self.siphash(key, &words);
    }

    /// Register 0 = SipHash-1-3 of the words, of which the last has the length in it, under the key at `key` in the recipe. Registers 1 to 5 are its own.
    fn siphash(&mut self, key: i16, words: &[Word]) {
        const BEGIN: [u64; 4] =
            [0x736f_6d65_7073_6575, 0x646f_7261_6e64_6f6d, 0x6c79_6765_6e65_7261, 0x7465_6462_7974_6573];
        for (v, begin) in BEGIN.into_iter().enumerate() {
            self.set64(v as u8, begin);
            self.load(DW, 4, reg::RECIPE, key + 8 * (v % 2) as i16);
            self.op64_register(XOR, v as u8, 4);
        }
        for word in words {
            match *word {
                Word::Const(word) => self.set64(5, word),
                Word::Slot(at, bits) => {
                    self.load(DW, 5, FRAME, at);
                    if bits != 0 {
                        self.set64(4, bits);
                        self.op64_register(OR, 5, 4);
                    }
                }
            }
            self.op64_register(XOR, 3, 5);
            self.sip_round();
            self.op64_register(XOR, 0, 5);
        }
        self.op64(XOR, 2, 0xff);
        (0..3).for_each(|_| self.sip_round());
        (1..4).for_each(|v| self.op64_register(XOR, 0, v));
    }

    fn sip_round(&mut self) {
        let rotate = |p: &mut Program, v: u8, bits: i32| {
            p.op64_register(MOV, 4, v);
            p.op64(LSH, v, bits);
            p.op64(RSH, 4, 64 - bits);
            p.op64_register(OR, v, 4);
        };
        self.op64_register(ADD, 0, 1);
        self.op64_register(ADD, 2, 3);
        rotate(self, 1, 13);
        self.op64_register(XOR, 1, 0);
        rotate(self, 3, 16);
        self.op64_register(XOR, 3, 2);
        rotate(self, 0, 32);
        self.op64_register(ADD, 2, 1);
        self.op64_register(ADD, 0, 3);
        rotate(self, 1, 17);
        self.op64_register(XOR, 1, 2);
        rotate(self, 3, 21);
        self.op64_register(XOR, 3, 0);
        rotate(self, 2, 32);
    }
}
