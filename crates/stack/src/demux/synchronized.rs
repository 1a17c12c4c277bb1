//! Owns what a segment does at a synchronized connection, and what the application is told of it.
//!
//! path: `device::rx → ingress → ethernet → ip::input → [demux] → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`

use super::{Arriving, Fate, Stage, read};
use crate::app::{ConnId, Context};
use crate::counters::Mib;
use crate::ingress;
use crate::tables::{Slot, Tcb};
use crate::worker;
use laneway_device::Tx;
use laneway_proto::discard::Discard;
use laneway_proto::tcp::{self, Connection, MoreText};
use laneway_wire::tcp::{Segment, SeqNum, Usual};
use std::hint::cold_path;

/// What a segment leaves to be told to the application.
struct News {
    /// There are more kept bytes to show.
    readable: bool,
    /// The peer has closed …
    closed: bool,
    /// … and bytes before that are kept.
    unread: bool,
    /// There is room to send again.
    room: bool,
    /// The acknowledgement cannot wait for the end of the poll.
    overdue: bool,
}

impl News {
    /// Completes the segment that brought `arrival`, of whose text the application took `consumed` bytes.
    #[inline(always)]
    fn of(connection: &mut Connection, arrival: &tcp::Arrival<'_>, consumed: usize, cx: &mut tcp::Cx<'_>) -> News {
        // Who has closed both ways wants to hear nothing more.
        let closed = connection.finish(arrival, consumed, cx) && !connection.is_receive_shut();
        News {
            readable: arrival.readable,
            closed,
            unread: closed && connection.buffered() > 0,
            room: arrival.acked && connection.takes_room(),
            overdue: connection.ack_is_overdue(),
        }
    }
}

impl<T: Tx> Stage<'_, T> {
    /// For a connection, if this is its flow and the segment is one as nearly all are. What it says is read here and nowhere before, so that it
    /// is never written down.
    #[inline(never)]
    pub(super) fn usual(&mut self, index: u32, came: &ingress::Arriving<'_>) -> Fate {
        let Some(usual) = Usual::of(came.tcp) else { return Fate::Elsewhere };
        self.synchronized(index, came, Some(usual), |stage| stage.read_again(index, came))
    }

    /// For a connection that is synchronized, if this is its flow: a segment with any options, or none, or one that is malformed.
    #[inline(never)]
    pub(super) fn any(&mut self, index: u32, came: &ingress::Arriving<'_>) -> Fate {
        let Some(segment) = &read(came, self.local) else { return Fate::Alone };
        // Who needs the hash has asked the index, and not us.
        let whole = Arriving { key: &came.key, hash: 0, segment, came };
        self.synchronized(index, came, Usual::of(came.tcp), |stage| stage.unexpected(index, &whole))
    }

    /// For a connection that is synchronized, if this is its flow. If the segment is not what it expected, `otherwise` sees to it.
    #[inline(always)]
    fn synchronized(
        &mut self,
        index: u32,
        came: &ingress::Arriving<'_>,
        usual: Option<Usual<'_>>,
        otherwise: impl FnOnce(&mut Self) -> Fate,
    ) -> Fate {
        let Some(slot) = self.tables.slots.get_mut(index) else { return Fate::Elsewhere };
        let Tcb::Synchronized(connection) = &mut slot.tcb else { return Fate::Elsewhere };
        if *connection.key() != came.key {
            return Fate::Elsewhere;
        }
        let accepted = slot.accepted;
        if !slot.touched {
            slot.touched = true;
            self.local.touched.add(index);
        }
        let mut cx = cx!(self);
        // A mark is for those who heed it, and not expected.
        let is_marked = connection.uses_ecn() && came.is_marked();
        let expected =
            usual.filter(|_| !is_marked).and_then(|usual| connection.on_expected(usual, came.size.into(), &mut cx));
        let Some(arrival) = expected else { return otherwise(self) };
        if arrival.text.is_empty() || !accepted {
            // Nothing to show, so nothing has changed under us: the connection in hand is still the one.
            let news = News::of(connection, &arrival, 0, &mut cx);
            self.tell(index, &news, accepted);
        } else {
            self.deliver(index, &arrival, accepted);
        }
        Fate::TakenIn
    }

    /// A usual segment that was not expected: the steps want all of it, laid down.
    #[inline(never)]
    fn read_again(&mut self, index: u32, came: &ingress::Arriving<'_>) -> Fate {
        let Some(segment) = Segment::usual(came.tcp) else { return Fate::Elsewhere };
        self.unexpected(index, &Arriving { key: &came.key, hash: 0, segment: &segment, came })
    }

    /// For this connection, but not what it expected. By itself: what asks every step has no registers to spare for what was.
    #[inline(never)]
    fn unexpected(&mut self, index: u32, arriving: &Arriving<'_, '_>) -> Fate {
        let Arriving { segment, came, .. } = *arriving;
        let Some(slot) = self.tables.slots.get_mut(index) else { return Fate::Elsewhere };
        let Tcb::Synchronized(connection) = &mut slot.tcb else { return Fate::Elsewhere };
        if connection.only_waits_to_be_read() {
            cold_path();
            return Fate::Elsewhere; // who was found where the flow was last is not its owner any more
        }
        let accepted = slot.accepted;
        let mut cx = cx!(self);
        let mut arrival = tcp::Arrival::default();
        if connection.uses_ecn() && came.is_marked() {
            cold_path();
            arrival.is_marked = true;
            self.tables.counters.count(Mib::IpExtInCEPkts);
        }
        connection.on_unexpected(segment, came.size.into(), &mut cx, &mut arrival);
        let mut fate = Fate::TakenIn;
        if let Some(discard) = arrival.discard {
            fate = Fate::Alone;
            self.tables.counters.discard(discard);
            if arrival.challenged {
                self.tables.counters.count(Mib::TcpExtTCPChallengeACK);
            }
            if discard == Discard::TcpNoConnection {
                self.reset(arriving);
                return fate;
            }
        }
        if arrival.text.is_empty() || !accepted {
            // Nothing to show, so nothing has changed under us: the connection in hand is still the one.
            let speaks_of_another = arrival.discard.is_some() && !connection.may_be_acknowledged(segment.ack);
            let mut news = News::of(connection, &arrival, 0, &mut cx);
            news.overdue |= connection.owes_duplicate(arrival.discard);
            if speaks_of_another {
                self.cookie_beside(arriving);
            }
            self.tell(index, &news, accepted);
        } else {
            self.deliver(index, &arrival, accepted);
        }
        fate
    }

    /// An ACK that a later one has spoken for.
    #[inline]
    pub(super) fn superseded(&mut self, index: Option<u32>) {
        let slot = index.and_then(|index| self.tables.slots.get_mut(index));
        if let Some(Slot { tcb: Tcb::Synchronized(connection), .. }) = slot {
            connection.count_superseded();
        }
    }

    /// Text that follows on what connection `index` has just taken in. False if it must be taken in for itself.
    #[inline]
    pub(super) fn more_text(&mut self, index: u32, seq: SeqNum, text: &[u8], arriving: &ingress::Arriving<'_>) -> bool {
        let Some(slot) = self.tables.slots.get_mut(index) else { return false };
        let Tcb::Synchronized(connection) = &mut slot.tcb else { return false };
        let more = MoreText { seq, text, size: arriving.size.into(), pushed: arriving.is_pushed() };
        let Some(arrival) = connection.on_more_text(&more, &mut cx!(self)) else { return false };
        let accepted = slot.accepted;
        self.deliver(index, &arrival, accepted);
        true
    }

    /// Shows the application what has arrived, and completes it.
    #[inline(always)]
    fn deliver(&mut self, index: u32, arrival: &tcp::Arrival<'_>, accepted: bool) {
        let mut consumed = 0;
        if !arrival.text.is_empty() && accepted {
            let id = self.tables.id(index);
            consumed = self.app.on_data(&mut Context { tables: self.tables, local: self.local }, id, arrival.text);
        }
        // The application may have done anything to the connection, but it cannot have removed it: that happens at the
        // end of the poll.
        let mut cx = cx!(self);
        let Some(Slot { tcb: Tcb::Synchronized(connection), .. }) = self.tables.slots.get_mut(index) else {
            return;
        };
        let news = News::of(connection, arrival, consumed, &mut cx);
        self.tell(index, &news, accepted);
    }

    /// Tells the application what else has come of a segment.
    #[inline(always)]
    fn tell(&mut self, index: u32, news: &News, accepted: bool) {
        if accepted && (news.readable | news.closed | news.room) {
            let id = self.tables.id(index);
            if news.readable || (news.closed && news.unread) {
                self.show_kept(id);
            } else if news.closed {
                self.app.on_peer_closed(&mut Context { tables: self.tables, local: self.local }, id);
            }
            if news.room {
                self.app.on_writable(&mut Context { tables: self.tables, local: self.local }, id);
            }
        }
        if news.overdue {
            self.acknowledge(index);
        }
    }

    /// Sends the acknowledgement that is due on a connection, without waiting for the end of the poll. If the device is
    /// full, it waits for that all the same.
    #[inline(never)]
    pub fn acknowledge(&mut self, index: u32) {
        let Some(Slot { tcb: Tcb::Synchronized(connection), path, .. }) = self.tables.slots.get_mut(index) else {
            return;
        };
        if let Some(plan) = connection.decide_ack() {
            let _ = worker::send((connection, *path), plan, &mut self.tables.counters, self.local, self.tx);
        }
    }

    /// Shows the application bytes that were kept, and the end if that is reached.
    pub fn show_kept(&mut self, id: ConnId) {
        loop {
            let Some(connection) = self.tables.connection(id) else { return };
            if connection.buffered() == 0 || connection.is_receive_shut() {
                break;
            }
            let ring = connection.lend_readable();
            let context = &mut Context { tables: self.tables, local: self.local };
            let consumed = self.app.on_data(context, id, ring.front()).min(ring.front().len());
            let mut cx = cx!(self);
            if let Some(Slot { tcb: Tcb::Synchronized(connection), .. }) = self.tables.slots.get_mut(id.index()) {
                connection.return_readable(ring, consumed, &mut cx);
            }
            if consumed > 0 {
                continue;
            }
            // The rest of what it waits for may be there already, where the ring begins anew.
            let waits = !self.app.takes_pieces();
            if !(waits && self.tables.connection(id).is_some_and(Connection::straighten)) {
                break;
            }
        }
        self.touch(id);
        let Some(connection) = self.tables.connection(id) else { return };
        let peer_closed = match connection.state() {
            tcp::State::CloseWait | tcp::State::LastAck | tcp::State::Closing | tcp::State::TimeWait => true,
            tcp::State::Closed => connection.reason() == tcp::CloseReason::Normal, // it ended while bytes were unread
            _ => false,
        };
        if peer_closed && connection.buffered() == 0 && !connection.is_receive_shut() {
            self.app.on_peer_closed(&mut Context { tables: self.tables, local: self.local }, id);
        }
    }

    pub(super) fn touch(&mut self, id: ConnId) {
        if let Some(slot) = self.tables.slot(id)
            && !slot.touched
        {
            slot.touched = true;
            self.local.touched.add(id.index());
        }
    }
}
