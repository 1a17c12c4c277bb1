//! Owns who may bind what beside whom: the rules of BSD sockets, as Linux answers them.
//!
//! | the newcomer and one who has the same port | |
//! |---|---|
//! | their addresses cannot mean the same packet | both may |
//! | both say `reuse_address`, and the other (TCP) does not listen | both may |
//! | both say `reuse_port` | both may; a SYN or datagram goes to one of them by the hash of its flow |
//! | otherwise | [`Error::AddressInUse`](crate::Error::AddressInUse) |
//!
//! "The other" is a binding, or a connection (TIME_WAIT included) that a lane still has from it: a connection has what its
//! listener or its binding had, and one whose port was chosen by `connect` has neither option. Listening asks again, as of then.
//!
//! Addresses overlap if they are equal or one of them is the wildcard of a family that takes in the other: `0.0.0.0` takes IPv4, `::`
//! takes both families unless `only_v6` is set. A v4-mapped address (`::ffff:a.b.c.d`) *is* the IPv4 address.
//!
//! There is no notion of privilege: ports below 1024 are like any others, and nobody is refused with EACCES. One process has one
//! user, so `SO_REUSEPORT`'s rule that all of a group belong to one user always holds.

use laneway_wire::flow::Address;

/// The highest [`Binding::rank`].
pub(crate) const RANK_MAX: u8 = 3;

/// Which space of ports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// What `setsockopt` says before `bind`. All off by default.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct BindOptions {
    /// `SO_REUSEADDR`.
    pub reuse_address: bool,
    /// `SO_REUSEPORT`.
    pub reuse_port: bool,
    /// `IPV6_V6ONLY`: `::` does not take IPv4 in.
    pub only_v6: bool,
}

impl BindOptions {
    /// The two that connections keep, in two bits.
    pub(crate) fn bits(self) -> u8 {
        u8::from(self.reuse_address) | u8::from(self.reuse_port) << 1
    }

    pub(crate) fn from_bits(bits: u8) -> Self {
        BindOptions { reuse_address: bits & 1 != 0, reuse_port: bits & 2 != 0, only_v6: false }
    }
}

/// One who has an address of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The address, or the wildcard of a family.
    pub address: Address,
    /// Its options.
    pub options: BindOptions,
    /// It listens (TCP).
    pub listens: bool,
}

impl Binding {
    /// One packet could be for both.
    pub fn overlaps(&self, other: &Binding) -> bool {
        let (a, b) = (self, other);
        let takes_in = |wild: &Binding, address: &Address| {
            (wild.address == Address::UNSPECIFIED_V4 && address.is_v4())
                || (wild.address == Address::UNSPECIFIED_V6 && !(wild.options.only_v6 && address.is_v4()))
        };
        a.address == b.address || takes_in(a, &b.address) || takes_in(b, &a.address)
    }

    /// A newcomer and one who is there already cannot both be.
    pub fn conflicts(&self, other: &Binding) -> bool {
        let both_reuse = self.options.reuse_address && other.options.reuse_address && !other.listens;
        let one_group = self.options.reuse_port && other.options.reuse_port;
        self.overlaps(other) && !both_reuse && !one_group
    }

    /// Whether packets for this address may come here.
    pub fn takes(&self, address: &Address) -> bool {
        self.rank(address) > 0
    }

    /// How exactly this binding means an address: 0 not at all, 1 both families' wildcard, 2 its family's, 3 the address.
    #[inline]
    pub fn rank(&self, address: &Address) -> u8 {
        if self.address == *address {
            RANK_MAX
        } else if self.address == Address::UNSPECIFIED_V4 {
            if address.is_v4() { 2 } else { 0 }
        } else if self.address == Address::UNSPECIFIED_V6 {
            match (address.is_v4(), self.options.only_v6) {
                (false, _) => 2,
                (true, false) => 1,
                (true, true) => 0,
            }
        } else {
            0
        }
    }
}
