//! Owns the contract of congestion control: what a controller is told, what it answers, and the choice between
//! controllers.
//!
//! A controller answers one question, [`Controller::window`]: how many bytes may be in flight. *Which* bytes are lost,
//! when a loss counts as a new congestion event and when recovery is over is the caller's (`tcp::sack`, `tcp::input`).

pub mod cubic;
pub mod hystart;
pub mod reno;
mod window;

pub use cubic::Cubic;
pub use hystart::HyStart;
pub use reno::Reno;
pub use window::{WINDOW_MAX, initial_window};

use crate::time::Instant;

/// What one ACK said, for [`Controller::on_ack`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acked {
    /// When the ACK came.
    pub now: Instant,
    /// Bytes newly acknowledged. Bytes that SACK reported earlier should not be counted again, or the hole that a
    /// retransmission fills looks like a whole window of progress.
    pub bytes: u32,
    /// The most bytes that were in flight at once lately, up to this ACK.
    pub in_flight: u32,
    /// Smoothed round trip in microseconds; 0 if there is none yet.
    pub srtt_us: u32,
    /// The window, and not the application or the peer's receive window, held the sender back: only a window that is
    /// used may grow. (In slow start a controller takes a window for used when more than half of it was in flight.)
    pub is_cwnd_limited: bool,
}

/// A congestion controller: events in (`on_*`), window out. All sizes are bytes.
///
/// The order of a loss is `on_congestion` (or `on_timeout`), any number of `on_ack`, then `on_recovered`; `undo` may come
/// anywhere after the first, once.
pub trait Controller {
    /// Bytes that may be in flight (cwnd). Never 0. Changes only in `on_*` and `undo`.
    fn window(&self) -> u32;

    /// The slow-start threshold (ssthresh); `u32::MAX` until a loss, a mark or a queue has ended slow start.
    fn slow_start_threshold(&self) -> u32;

    /// An ACK acknowledged something new. During fast recovery (from `on_congestion` to `on_recovered`) the window
    /// stands still, so calling this then is allowed and changes nothing.
    fn on_ack(&mut self, ack: Acked) {
        if self.may_grow(ack.now, ack.in_flight, ack.is_cwnd_limited) {
            self.grow(ack.now, ack.bytes, ack.srtt_us);
        }
    }

    /// The first half of [`on_ack`](Self::on_ack): takes note of it, and says whether it lets the window grow. Mostly it does not, and who asks
    /// need not find out the rest.
    fn may_grow(&mut self, now: Instant, in_flight: u32, is_cwnd_limited: bool) -> bool;

    /// The second half, if it does.
    fn grow(&mut self, now: Instant, bytes: u32, srtt_us: u32);

    /// A loss was found by duplicate ACKs or SACK, or the peer echoed ECE. `in_flight` is what was outstanding just
    /// before. The caller calls this once per window of data: the losses of one window are one event.
    fn on_congestion(&mut self, now: Instant, in_flight: u32);

    /// The retransmission timer fired. Ends fast recovery; the window is one segment until ACKs open it again. When it
    /// fires again with no ACK in between, the threshold is kept: that is the same loss, not another one.
    fn on_timeout(&mut self, now: Instant, in_flight: u32);

    /// Everything outstanding at the time of the loss has been acknowledged.
    fn on_recovered(&mut self, now: Instant);

    /// The last loss was a mistake (RFC 3522): take its reductions back. False if there are none, or they are [confirmed](Self::confirm).
    fn undo(&mut self) -> bool;

    /// The last reduction was no mistake, whatever is heard of what was lost then.
    fn confirm(&mut self);

    /// About to send after `idle_us` without sending; `rto_us` is the current retransmission time-out. After more than
    /// one time-out the ACK clock is gone and the window restarts (RFC 5681 section 4.1): true if so.
    fn on_idle(&mut self, idle_us: u64, rto_us: u32) -> bool;

    /// The sender's segment size (bytes of payload) changed: handshake agreed, or path MTU. Before the first event this
    /// chooses the initial window anew.
    fn on_mss(&mut self, mss: u32);

    /// The SYN or SYN-ACK was lost: the first flight is one segment (RFC 5681 section 3.1). The threshold stays.
    fn on_syn_lost(&mut self);

    /// Slow start has found what the path carries, without a loss: the threshold is what the window is now.
    fn leave_slow_start(&mut self);
}

/// Which controller a connection gets. The names are those of Linux's `tcp_congestion_control`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 5681 and RFC 3465.
    Reno,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 2] = [Algorithm::Cubic, Algorithm::Reno];

    /// The one that an operator means.
    pub fn by_name(name: &str) -> Option<Algorithm> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The name an operator uses.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Cubic => "cubic",
            Algorithm::Reno => "reno",
        }
    }
}

/// The controller of one connection, held by value: the choice is a match and not a pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Congestion {
    /// RFC 9438.
    Cubic(Cubic),
    /// RFC 5681 and RFC 3465.
    Reno(Reno),
}

const _: () = assert!(size_of::<Congestion>() <= 64);

impl Congestion {
    /// A controller for a connection that sends segments of `mss` bytes, with the initial window of RFC 6928.
    #[inline]
    pub const fn new(algorithm: Algorithm, mss: u32) -> Self {
        match algorithm {
            Algorithm::Cubic => Congestion::Cubic(Cubic::new(mss)),
            Algorithm::Reno => Congestion::Reno(Reno::new(mss)),
        }
    }

    /// The same, of a connection whose SYN or SYN-ACK was lost: see [`on_syn_lost`](Controller::on_syn_lost).
    #[inline(always)]
    pub fn after_lost_syn(algorithm: Algorithm, mss: u32) -> Self {
        match algorithm {
            Algorithm::Cubic => {
                let mut cubic = Cubic::new(mss);
                cubic.on_syn_lost();
                Congestion::Cubic(cubic)
            }
            Algorithm::Reno => {
                let mut reno = Reno::new(mss);
                reno.on_syn_lost();
                Congestion::Reno(reno)
            }
        }
    }

    /// From now on it is another's: the window, its threshold and a loss under way are as they were, and what else was known is forgotten.
    pub fn hand_over(&mut self, to: Algorithm) {
        let (Congestion::Cubic(Cubic { mut window, .. }) | Congestion::Reno(Reno { mut window })) = *self;
        window.credit = 0; // each counts other bytes
        *self = match to {
            algorithm if algorithm == self.algorithm() => return,
            Algorithm::Cubic => Congestion::Cubic(Cubic::from_window(window)),
            Algorithm::Reno => Congestion::Reno(Reno { window }),
        };
    }

    /// Which one this is.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Congestion::Cubic(_) => Algorithm::Cubic,
            Congestion::Reno(_) => Algorithm::Reno,
        }
    }

    /// Whether nothing has ended it yet: no loss was found, nor a queue.
    #[inline]
    pub fn is_first_slow_start(&self) -> bool {
        self.slow_start_threshold() == u32::MAX
    }
}

macro_rules! each {
    ($self:ident, $it:ident => $what:expr) => {
        match $self {
            Congestion::Cubic($it) => $what,
            Congestion::Reno($it) => $what,
        }
    };
}

impl Controller for Congestion {
    #[inline]
    fn window(&self) -> u32 {
        each!(self, it => it.window())
    }

    #[inline]
    fn slow_start_threshold(&self) -> u32 {
        each!(self, it => it.slow_start_threshold())
    }

    #[inline(always)]
    fn may_grow(&mut self, now: Instant, in_flight: u32, is_cwnd_limited: bool) -> bool {
        each!(self, it => it.may_grow(now, in_flight, is_cwnd_limited))
    }

    #[inline]
    fn grow(&mut self, now: Instant, bytes: u32, srtt_us: u32) {
        each!(self, it => it.grow(now, bytes, srtt_us));
    }

    fn on_congestion(&mut self, now: Instant, in_flight: u32) {
        each!(self, it => it.on_congestion(now, in_flight));
    }

    fn on_timeout(&mut self, now: Instant, in_flight: u32) {
        each!(self, it => it.on_timeout(now, in_flight));
    }

    fn on_recovered(&mut self, now: Instant) {
        each!(self, it => it.on_recovered(now));
    }

    fn undo(&mut self) -> bool {
        each!(self, it => it.undo())
    }

    fn confirm(&mut self) {
        each!(self, it => it.confirm());
    }

    fn on_idle(&mut self, idle_us: u64, rto_us: u32) -> bool {
        each!(self, it => it.on_idle(idle_us, rto_us))
    }

    fn on_mss(&mut self, mss: u32) {
        each!(self, it => it.on_mss(mss));
    }

    fn on_syn_lost(&mut self) {
        each!(self, it => it.on_syn_lost());
    }

    fn leave_slow_start(&mut self) {
        each!(self, it => it.leave_slow_start());
    }
}

#[cfg(test)]
mod tests;
