//! Owns the eleven names of RFC 9293 section 3.3.2 and the table of how one leads to another.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → tcp::input → [tcp::state] → tcp::output → ip::output → egress → device::tx`

/// A TCP state, by the RFC's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// No connection.
    Closed,
    /// Waiting for a SYN from anyone.
    Listen,
    /// SYN sent, waiting for the peer's.
    SynSent,
    /// Both SYNs seen, waiting for the ACK of ours.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// We closed; FIN not yet acknowledged.
    FinWait1,
    /// We closed and that is acknowledged; the peer still sends.
    FinWait2,
    /// The peer closed; we still send.
    CloseWait,
    /// Both closed at once; our FIN not yet acknowledged.
    Closing,
    /// The peer closed, then we; our FIN not yet acknowledged.
    LastAck,
    /// Waiting until no segment of this connection can be alive.
    TimeWait,
}

/// What moves a connection from one state to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The application listens.
    Listen,
    /// The application connects: a SYN goes out.
    Connect,
    /// A SYN without ACK arrived.
    Syn,
    /// A SYN that acknowledges ours arrived.
    SynAck,
    /// Our SYN was acknowledged.
    AckOfSyn,
    /// The application has nothing more to send.
    Close,
    /// The peer's FIN arrived in order.
    Fin,
    /// Our FIN was acknowledged.
    AckOfFin,
    /// 2·MSL, or the life of an orphan, is over.
    Expire,
    /// An acceptable RST arrived, or the application aborts.
    Reset,
}

impl State {
    /// Every state, in the RFC's order.
    pub const ALL: [State; 11] = [
        State::Closed,
        State::Listen,
        State::SynSent,
        State::SynReceived,
        State::Established,
        State::FinWait1,
        State::FinWait2,
        State::CloseWait,
        State::Closing,
        State::LastAck,
        State::TimeWait,
    ];

    /// Where `event` leads from here; `None` where the event changes nothing. This is figure 5 of RFC 9293.
    #[inline]
    pub const fn on(self, event: Event) -> Option<State> {
        use State::*;
        Some(match (self, event) {
            (Closed, Event::Listen) => Listen,
            (Closed | Listen, Event::Connect) => SynSent,
            (Listen | SynSent, Event::Syn) => SynReceived,
            (SynSent, Event::SynAck) => Established,
            (SynReceived, Event::AckOfSyn | Event::SynAck) => Established,
            (Listen | SynSent, Event::Close) => Closed,
            (SynReceived | Established, Event::Close) => FinWait1,
            (CloseWait, Event::Close) => LastAck,
            (SynReceived | Established, Event::Fin) => CloseWait,
            (FinWait1, Event::Fin) => Closing,
            (FinWait2, Event::Fin) => TimeWait,
            (FinWait1, Event::AckOfFin) => FinWait2,
            (Closing, Event::AckOfFin) => TimeWait,
            (LastAck, Event::AckOfFin) => Closed,
            (TimeWait | FinWait2, Event::Expire) => Closed,
            // A passive open that is reset goes back to LISTEN: here that is the half-open entry being dropped.
            (
                SynSent | SynReceived | Established | FinWait1 | FinWait2 | CloseWait | Closing | LastAck | TimeWait,
                Event::Reset,
            ) => Closed,
            _ => return None,
        })
    }

    /// Both sequence spaces are known.
    #[inline]
    pub const fn is_synchronized(self) -> bool {
        self as u8 >= State::Established as u8
    }

    /// The application may still queue data.
    #[inline]
    pub const fn can_send(self) -> bool {
        matches!(self, State::Established | State::CloseWait)
    }

    /// The peer may still send text.
    #[inline]
    pub const fn can_receive(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// The name that `ss` prints, but for `CLOSED`, which the listing of a running stack calls `UNCONN` as `ss` does.
    pub const fn name(self) -> &'static str {
        match self {
            State::Closed => "CLOSED",
            State::Listen => "LISTEN",
            State::SynSent => "SYN-SENT",
            State::SynReceived => "SYN-RECV",
            State::Established => "ESTAB",
            State::FinWait1 => "FIN-WAIT-1",
            State::FinWait2 => "FIN-WAIT-2",
            State::CloseWait => "CLOSE-WAIT",
            State::Closing => "CLOSING",
            State::LastAck => "LAST-ACK",
            State::TimeWait => "TIME-WAIT",
        }
    }
}

#[cfg(test)]
mod tests;
