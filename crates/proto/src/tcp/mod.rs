//! TCP (RFC 9293): the protocol as pure functions of segments, verbs and time.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → [tcp::input] → tcp::state → [tcp::output] → ip::output → egress → device::tx`
//!
//! Eleven names (`state::State`), four shapes of data:
//!
//! | shape | type | states | bytes |
//! |---|---|---|---|
//! | half-open | [`HalfOpen`] | SYN-RECEIVED of a passive open | ≤ 64 |
//! | handshaking | [`Handshake`] | SYN-SENT, SYN-RECEIVED of an active open | ≤ 96 |
//! | synchronized | [`Connection`] | ESTABLISHED … LAST-ACK | ≤ 448, and 512 with its table entries |
//! | time-wait | [`TimeWaitV4`], [`TimeWaitV6`] | TIME-WAIT | ≤ 64 |
//!
//! LISTEN and CLOSED hold no data of a connection. A shape becomes the next one only through [`Agreed`], what two
//! ends settled in the handshake, or through [`Connection::time_wait`].
//!
//! The methods come in four kinds, as everywhere in this crate. Events in: `on_segment`, `on_timeout`,
//! `on_path_mtu`. Verbs: `send`, `recv`, `close`, `abort`. Out: `decide` → `build` → `commit`, and `deadline`.
//! Call `decide` after any event or verb, until it answers `None`; call `deadline` after that.

pub mod assembler;
mod black_hole;
pub mod buffer;
pub mod config;
pub mod congestion;
pub mod connection;
pub mod cookie;
mod ecn;
mod gaps;
pub mod handshake;
pub mod info;
pub mod input;
pub mod isn;
pub mod keepalive;
pub mod listen;
pub mod loss;
pub mod nagle;
pub mod output;
mod prediction;
pub mod queue;
pub mod reset;
pub mod rtt;
pub mod sack;
pub mod state;
pub mod timers;
pub mod timewait;
pub mod told;
mod window;

pub use buffer::{BufferPool, Ring};
pub use config::Config;
pub use connection::{Agreed, CloseReason, Connection};
pub use handshake::Handshake;
pub use info::Info;
pub use input::{Arrival, MoreText};
pub use keepalive::KeepaliveTimes;
pub use listen::HalfOpen;
pub use output::Plan;
pub use queue::Keeper;
pub use state::State;
pub use timewait::{TimeWait, TimeWaitV4, TimeWaitV6};

use crate::time::Instant;

/// What every event and verb is given: the time, the tunables, and the memory that buffers are lent from.
pub struct Cx<'a> {
    /// The time of this poll.
    pub now: Instant,
    /// The tunables, the same for a whole lane.
    pub config: &'a Config,
    /// Where rings for unsent, unacknowledged or unread bytes come from.
    pub pool: &'a mut BufferPool,
}

impl Cx<'_> {
    /// The same, made anew for a function that is seldom called: what is lent to it must lie in memory, and what lies there is written
    /// for all that never call it.
    #[inline(always)]
    pub(crate) fn again(&mut self) -> Cx<'_> {
        Cx { now: self.now, config: self.config, pool: self.pool }
    }
}
