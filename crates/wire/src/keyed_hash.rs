//! SipHash-1-3 over whole 64-bit words, under a secret key.
//!
//! Whoever does not know the key cannot choose inputs that collide, so he cannot make a bucket long. (SipHash-1-3 is
//! what Rust's own `HashMap` uses. Where its output is shown, whole or in part, as in sequence numbers and IP identifications, it
//! stands for a random function; the strength of SipHash-2-4 as a MAC is not needed.)
//! Lengths are constants in the hot callers, so rounds and loads are laid out in a row without a branch.

#[cfg(test)]
mod tests;

/// A secret, of 128 bits, drawn when the table is made.
#[derive(Clone, Copy)]
pub struct HashKey {
    /// First half.
    pub k0: u64,
    /// Second half.
    pub k1: u64,
}

impl core::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

impl HashKey {
    /// A key of two random words.
    #[inline]
    pub const fn new(k0: u64, k1: u64) -> Self {
        Self { k0, k1 }
    }

    /// SipHash-1-3 of the words, as the byte string of their little-endian forms.
    ///
    /// Two to five words, the usual numbers, go through [`sip13_words`](Self::sip13_words).
    #[inline]
    pub fn sip13(&self, words: &[u64]) -> u64 {
        match words {
            [a, b] => self.sip13_words(&[*a, *b]),
            [a, b, c] => self.sip13_words(&[*a, *b, *c]),
            [a, b, c, d] => self.sip13_words(&[*a, *b, *c, *d]),
            [a, b, c, d, e] => self.sip13_words(&[*a, *b, *c, *d, *e]),
            _ => {
                let mut state = State::new(self);
                for &word in words {
                    state.absorb(word);
                }
                state.finish(words.len())
            }
        }
    }

    /// As [`sip13`](Self::sip13), for a number of words that the compiler knows.
    #[inline(always)]
    pub fn sip13_words<const N: usize>(&self, words: &[u64; N]) -> u64 {
        let mut state = State::new(self);
        for &word in words {
            state.absorb(word);
        }
        state.finish(N)
    }

    /// As [`sip13_words`](Self::sip13_words), of the words and up to seven bytes more, `tail_len` of them, the first being
    /// the lowest of `tail`. They share the last block with the length, so they cost nothing.
    #[inline(always)]
    pub fn sip13_tail<const N: usize>(&self, words: &[u64; N], tail: u64, tail_len: u32) -> u64 {
        debug_assert!(tail_len < 8 && tail >> (8 * tail_len) == 0, "the tail is longer than it says");
        let mut state = State::new(self);
        for &word in words {
            state.absorb(word);
        }
        state.finish_with(tail | ((N as u64 * 8 + u64::from(tail_len)) << 56))
    }
}

/// The four words of SipHash.
struct State {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl State {
    /// "somepseudorandomlygeneratedbytes", as the paper has it.
    #[inline(always)]
    fn new(key: &HashKey) -> Self {
        Self {
            v0: key.k0 ^ 0x736f_6d65_7073_6575,
            v1: key.k1 ^ 0x646f_7261_6e64_6f6d,
            v2: key.k0 ^ 0x6c79_6765_6e65_7261,
            v3: key.k1 ^ 0x7465_6462_7974_6573,
        }
    }

    #[inline(always)]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
    }

    #[inline(always)]
    fn absorb(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.v0 ^= word;
    }

    /// The last block is the length in bytes, modulo 256, in its top byte: no bytes are left over from whole words.
    #[inline(always)]
    fn finish(self, words: usize) -> u64 {
        self.finish_with((words as u64 * 8) << 56)
    }

    #[inline(always)]
    fn finish_with(mut self, last: u64) -> u64 {
        self.absorb(last);
        self.v2 ^= 0xff;
        self.round();
        self.round();
        self.round();
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }
}
