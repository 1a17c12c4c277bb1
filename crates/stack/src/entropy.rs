//! Owns chance: the only place that asks the machine for random bytes. `sim` gives a seed instead.

use crate::steering::reaches_every_bucket;
use laneway_proto::tcp::listen::Secrets;
use laneway_sync::fork::Secret;
use laneway_wire::keyed_hash::HashKey;

/// A small generator for choices that need not be secret (jitter, tie-breaks). Whoever sees what it gives can compute the rest: what
/// others see comes from [`Chance`].
#[derive(Clone, Debug)]
pub struct Entropy(u64);

impl Entropy {
    /// From a seed: the same seed gives the same run.
    pub fn from_seed(seed: u64) -> Self {
        Entropy(seed)
    }

    /// From the operating system.
    ///
    /// # Panics
    /// If the system has no randomness to give: nothing here would be safe then.
    pub fn from_system() -> Self {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed)
            .expect("the system gives no random bytes: initial sequence numbers would be guessable");
        Entropy(u64::from_ne_bytes(seed))
    }

    /// The next 64 bits (splitmix64).
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// What nobody can foresee, also who has seen much of it: a keyed hash of how often it was asked, under a key that serves nothing else.
/// A hash for each value, so not for what is asked per segment.
#[derive(Debug)]
pub struct Chance {
    key: KeptKey,
    lane: u64,
    asked: u64,
}

impl Chance {
    /// That of a lane, by its number. The same key gives the same run, and each lane another.
    pub fn new(key: HashKey, lane: usize) -> Self {
        Chance { key: KeptKey::new(key), lane: lane as u64, asked: 0 }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.asked += 1;
        self.key.get().sip13_words(&[self.lane, self.asked])
    }
}

/// Every secret of one stack. All lanes share them: a cookie or sequence number may be checked on any.
#[derive(Clone)]
pub struct BootSecrets {
    /// For TCP: sequence numbers, timestamps, cookies.
    pub tcp: Secrets,
    /// For the flow table.
    pub flow: HashKey,
    /// For ephemeral ports (RFC 6056).
    pub port: HashKey,
    /// For choosing IP identifications and the like: see [`Chance`].
    pub chance: HashKey,
    /// The Toeplitz key that steers flows to lanes, where the choice is ours.
    pub steering: [u8; 40],
}

impl BootSecrets {
    /// From a seed, for tests and simulations.
    pub fn from_seed(seed: u64) -> Self {
        let mut entropy = Entropy::from_seed(seed);
        Self::draw(|bytes| {
            for chunk in bytes.chunks_mut(8) {
                chunk.copy_from_slice(&entropy.next_u64().to_ne_bytes()[..chunk.len()]);
            }
        })
    }

    /// From the operating system: every secret drawn on its own.
    ///
    /// # Panics
    /// As [`Entropy::from_system`].
    pub fn from_system() -> Self {
        Self::draw(|bytes| {
            getrandom::fill(bytes)
                .expect("the system gives no random bytes: initial sequence numbers would be guessable");
        })
    }

    fn draw(mut fill: impl FnMut(&mut [u8])) -> Self {
        let mut word = || {
            let mut bytes = [0; 8];
            fill(&mut bytes);
            u64::from_ne_bytes(bytes)
        };
        let tcp = Secrets { isn: [word(), word()], timestamp: [word(), word()], cookie: [word(), word()] };
        let flow = HashKey { k0: word(), k1: word() };
        let port = HashKey { k0: word(), k1: word() };
        let chance = HashKey { k0: word(), k1: word() };
        let mut steering = [0; 40];
        fill(&mut steering);
        while !reaches_every_bucket(&steering) {
            fill(&mut steering);
        }
        BootSecrets { tcp, flow, port, chance, steering }
    }
}

/// They are drawn once and handed to those who need them, who keep them as [`KeptKey`] and [`KeptSecrets`]; of what carried them
/// nothing stays in memory that is given back.
impl Drop for BootSecrets {
    fn drop(&mut self) {
        self.tcp = Secrets { isn: [0; 2], timestamp: [0; 2], cookie: [0; 2] };
        (self.flow, self.port, self.chance) = (HashKey::new(0, 0), HashKey::new(0, 0), HashKey::new(0, 0));
        self.steering = [0; 40];
        std::hint::black_box(self); // somebody may look: the stores are not idle
    }
}

/// A key, where a child of the process finds only zeroes.
#[derive(Clone, Debug)]
pub struct KeptKey(Secret<2>);

impl KeptKey {
    /// Keeps it.
    pub fn new(key: HashKey) -> Self {
        KeptKey(Secret::new([key.k0, key.k1]))
    }

    /// The key.
    #[inline]
    pub fn get(&self) -> HashKey {
        let [k0, k1] = *self.0.words();
        HashKey { k0, k1 }
    }
}

/// TCP's secrets, where a child of the process finds only zeroes.
#[derive(Clone, Debug)]
pub struct KeptSecrets(Secret<6>);

impl KeptSecrets {
    /// Keeps them.
    pub fn new(secrets: &Secrets) -> Self {
        let ([a, b], [c, d], [e, f]) = (secrets.isn, secrets.timestamp, secrets.cookie);
        KeptSecrets(Secret::new([a, b, c, d, e, f]))
    }

    /// The secrets.
    #[inline]
    pub fn get(&self) -> Secrets {
        let [a, b, c, d, e, f] = *self.0.words();
        Secrets { isn: [a, b], timestamp: [c, d], cookie: [e, f] }
    }
}

impl std::fmt::Debug for BootSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BootSecrets { .. }")
    }
}

#[cfg(test)]
mod tests;
