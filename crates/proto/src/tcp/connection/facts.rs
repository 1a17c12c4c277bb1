//! Owns what is true of a connection or not, one bit each.

/// So many answers in a row are counted, and no more.
pub(in crate::tcp) const EXCHANGES_MAX: u32 = 7;

/// A set of facts about a connection, one bit each; in the bits that are left, how often in a row a word of the peer's was
/// answered before its next came, because a byte more would be a line more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::tcp) struct Facts(u32);

/// Numbers the facts: two that shared a bit would be one.
macro_rules! facts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[allow(clippy::upper_case_acronyms, non_camel_case_types, reason = "each is the number of the constant of its name")]
        enum Bit {
            $($name,)*
            /// How many there are.
            All,
        }
        impl Facts {
            $($(#[$doc])* pub(in crate::tcp) const $name: u32 = 1 << Bit::$name as u32;)*
        }
    };
}

facts! {
    TIMESTAMPS,
    SACK,
    NODELAY,
    KEEPALIVE,
    /// An ACK must go out at the end of this poll.
    ACK_NOW,
    /// Text has arrived that is not acknowledged yet.
    ACK_PENDING,
    /// The application has closed for writing: a FIN follows the queued data.
    FIN_QUEUED,
    /// The FIN has been sent at least once.
    FIN_SENT,
    /// The place of the peer's FIN is known (`rcv.fin`).
    FIN_SEEN,
    /// The application reads no more.
    RECEIVE_SHUT,
    /// An RST has to go out.
    RESET_DUE,
    /// One segment is being timed (`rtt_seq`, `rtt_at`).
    TIMING,
    /// The next retransmission goes out whatever the congestion window says.
    FORCE,
    /// `rexmt_at` is the persist timer.
    PERSIST,
    /// A window or keepalive probe is due.
    PROBE_DUE,
    /// The application was refused room to send and waits for it.
    WANTS_ROOM,
    /// Urgent data is queued up to `snd.up`.
    URGENT_OUT,
    /// The peer has announced urgent data up to `rcv.up`.
    URGENT_IN,
    /// The congestion window is used: it held the connection back when it last stopped sending, or earlier in this round.
    CWND_LIMITED,
    /// TCP_CORK: no small segment leaves.
    CORK,
    /// The last `send` announced more (MSG_MORE).
    MORE,
    /// `rexmt_at` is the end of the cork's 200 ms.
    CORK_WAIT,
    /// They are over: what is held leaves.
    CORK_OVER,
    /// Unacknowledged text came with PSH: its sender has no more, or holds it back until it hears of this.
    PUSHED,
    /// The application has its turn elsewhere: its answer comes soon, but not in this poll.
    ANSWERS_LATER,
    /// The peer has pushed, and nothing new was said since.
    ASKED,
    /// That data is held back has been reported.
    HELD,
    /// A repair has begun, and no ACK has said yet whether it was needed. `rtt_at` is when.
    DOUBTED,
    /// That no memory could be had to send has been reported.
    STARVED,
}

impl Facts {
    const EXCHANGE: u32 = 1 << Bit::All as u32;
    const EXCHANGES: u32 = EXCHANGES_MAX * Self::EXCHANGE;

    /// Exchanges in a row.
    #[inline]
    pub(in crate::tcp) fn exchanges(self) -> u32 {
        self.0 / Self::EXCHANGE
    }
    /// One more.
    #[inline]
    pub(in crate::tcp) fn count_exchange(&mut self) {
        if !self.are(Self::EXCHANGES, Self::EXCHANGES) {
            self.0 += Self::EXCHANGE;
        }
    }
    /// Something new was said, and with PSH, if `pushed`: what that ends. (By itself: where each turn answers at once nothing of it holds.)
    #[inline(never)]
    pub(in crate::tcp) fn spoken(mut self, pushed: bool) -> Facts {
        self.clear(Self::PROBE_DUE | Self::HELD); // it asks no less than a probe
        if self.has(Self::ASKED) {
            self.clear(Self::ASKED);
            self.count_exchange();
        }
        if pushed {
            self.clear(Self::CORK_OVER); // the cork is in again for what is written next
        }
        self
    }
    /// None.
    #[inline]
    pub(in crate::tcp) fn forget_exchanges(&mut self) {
        self.clear(Self::EXCHANGES);
    }
    #[inline]
    pub(in crate::tcp) fn has(self, fact: u32) -> bool {
        self.0 & fact != 0
    }
    /// Of these facts exactly `those` hold.
    #[inline]
    pub(in crate::tcp) fn are(self, facts: u32, those: u32) -> bool {
        self.0 & facts == those
    }
    #[inline]
    pub(in crate::tcp) fn set(&mut self, fact: u32) {
        self.0 |= fact;
    }
    /// The fact is set if `condition` holds. A fact known to the compiler is set in the one byte that it lies in, and whoever asks for facts next,
    /// which is for all of them, waits until that has reached the cache. This writes all of them.
    #[inline]
    pub(in crate::tcp) fn set_if(&mut self, condition: bool, fact: u32) {
        self.0 |= u32::from(condition) * fact;
    }
    #[inline]
    pub(in crate::tcp) fn clear(&mut self, fact: u32) {
        self.0 &= !fact;
    }
}
