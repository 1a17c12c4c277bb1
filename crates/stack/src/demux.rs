//! Owns who a segment is for: one look-up finds the connection, the half-open entry, the TIME_WAIT record or the listener.
//!
//! path: `device::rx → ingress → ethernet → ip::input → [demux] → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`

use crate::app::{App, ConnId, Context, announced_mss};
use crate::counters::Mib;
use crate::egress;
use crate::ingress::{self, Vouched};
use crate::lane::Local;
use crate::moving::{Decider, Note, Via};
use crate::paths::PathPlace;
use crate::ports::Claim;
use crate::tables::{Handle, Kind, Slot, Tables, Tcb, position};
use crate::worker;
use laneway_device::Tx;
use laneway_proto::discard::Discard;
use laneway_proto::tcp::nagle::Segmentation;
use laneway_proto::tcp::{
    self, BufferPool, Connection, HalfOpen, MoreText, TimeWait, handshake, isn, listen, reset, timewait,
};
use laneway_proto::time::Instant;
use laneway_sync::prefetch::{LINE, prefetch_line_to_write};
use laneway_wire::flow::FlowKey;
use laneway_wire::tcp::{Flags, Segment, SeqNum, Usual, View};
use std::hint::cold_path;

/// An ACK out of the blue may carry a cookie for this long after cookies were last sent.
const COOKIE_LIFE_US: u64 = 120_000_000;

/// Handshakes that take over flows in TIME_WAIT may be so many at least, however few others may be.
const RETURNING_MIN: usize = 64;

/// A segment whose meaning has been read, with its flow.
#[derive(Clone, Copy)]
struct Arriving<'s, 'a> {
    key: &'s FlowKey,
    hash: u64,
    segment: &'s Segment<'a>,
    /// As it came in.
    came: &'s ingress::Arriving<'a>,
}

/// What a segment says that need not be as nearly all are. If that is nonsense, it goes no further. (Called in a `match` and not by `or_else`,
/// which would have what was read before laid down.)
#[inline(never)]
fn read<'a>(came: &ingress::Arriving<'a>, local: &mut Local) -> Option<Segment<'a>> {
    let plain = Segment::usual(came.tcp).or_else(|| Segment::bare(came.tcp));
    let segment = plain.or_else(|| Segment::parse(came.tcp).ok());
    if segment.is_none() {
        cold_path();
        local.counters.count(Mib::TcpInErrs);
        local.counters.discard(Discard::TcpMalformed);
    }
    segment
}

/// Hands the packet that a segment came in to another lane.
#[inline(never)]
fn mail(local: &mut Local, came: &ingress::Arriving<'_>, lane: usize, note: Note) -> bool {
    let ingress::Arriving { packet, verified, size, .. } = *came;
    mail_packet(local, lane, packet, Vouched { verified, size }, note)
}

/// Everything that a segment may need on its way.
pub struct Stage<'s, T> {
    /// Shared, or the lane's own.
    pub tables: &'s mut Tables,
    /// The lane's own.
    pub local: &'s mut Local,
    /// Where answers go.
    pub tx: &'s mut T,
    /// Who is told.
    pub app: &'s mut dyn App,
}

/// What became of a segment at the connection that it was taken to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is of another flow, and nothing was done.
    Elsewhere,
    /// It was discarded, or was no text of a synchronized connection: it speaks for no other.
    Alone,
    /// It was taken in. What follows on it, with the same header, would be found as good.
    TakenIn,
}

/// A SYN may begin a connection. It must start beyond this sequence number, if its flow was in TIME_WAIT, here or where its bucket was before.
struct Begins {
    beyond: Option<SeqNum>,
}

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

macro_rules! cx {
    ($stage:expr) => {
        tcp::Cx { now: $stage.local.now, config: &$stage.local.config.tcp, pool: &mut $stage.tables.pool }
    };
}

impl<T: Tx> Stage<'_, T> {
    /// Takes a segment in, with the `run` of those for which it speaks; acknowledges at once if that is the rule.
    #[inline(always)]
    pub fn take_in<G: Segmentation>(&mut self, arriving: &ingress::Arriving<'_>, run: &[ingress::Arriving<'_>]) {
        if let Some(index) = self.segment(arriving, run)
            && !G::ACK_AFTER_TURN
        {
            self.acknowledge(index);
        }
    }

    /// Takes a segment to whoever it is for, and with it the `run` of those for which it speaks. Says which connection that
    /// was, if it was one.
    #[inline]
    pub fn segment(&mut self, arriving: &ingress::Arriving<'_>, run: &[ingress::Arriving<'_>]) -> Option<u32> {
        let guess = match arriving.hint {
            Some(handle) if handle.kind() == Kind::Connection => {
                Some((handle.index(), self.usual(handle.index(), arriving)))
            }
            _ => None,
        };
        let met = match guess {
            Some((_, Fate::Elsewhere)) | None => self.unusual(arriving),
            met => met,
        };
        if !run.is_empty() {
            self.run(met, arriving.tcp, run);
        }
        met.map(|(index, _)| index)
    }

    /// One that is not what nearly all are, or whose flow is not where it was found last: the first of it, most likely. Whoever it is for
    /// reads what it says.
    #[inline(never)]
    fn unusual(&mut self, came: &ingress::Arriving<'_>) -> Option<(u32, Fate)> {
        if let Some(hint) = came.hint {
            match hint.kind() {
                Kind::Connection => {
                    let fate = self.connection(hint.index(), came);
                    if fate != Fate::Elsewhere {
                        return Some((hint.index(), fate));
                    }
                }
                Kind::HalfOpen if self.half_open(hint, came) => return None,
                Kind::TimeWaitV4 | Kind::TimeWaitV6 if self.no_connection(Some(hint), came) => return None,
                _ => {}
            }
        }
        self.look_up(came)
    }

    /// As the index has it.
    #[inline(never)]
    fn look_up(&mut self, came: &ingress::Arriving<'_>) -> Option<(u32, Fate)> {
        let found = self.tables.lookup(came.hash(&self.local.hash_key), &came.key);
        match found.map(|handle| (handle.kind(), handle)) {
            Some((Kind::Connection, handle)) => {
                self.tables.recent.note(came.mix, handle);
                return Some((handle.index(), self.connection(handle.index(), came)));
            }
            Some((Kind::HalfOpen, handle)) => self.half_open(handle, came),
            _ => self.no_connection(found, came),
        };
        None
    }

    /// What continues the segment `first` that met its connection, or what that one supersedes. Their headers, as long as its, say nothing
    /// new; but if it was discarded for what its own says, each is asked for itself.
    #[inline(never)]
    fn run(&mut self, met: Option<(u32, Fate)>, first: &[u8], run: &[ingress::Arriving<'_>]) {
        let Ok(view) = View::new(first) else { return };
        // Neither SYN nor FIN begins a run.
        let mut seq = view.seq() + view.payload().len() as u32;
        for arriving in run {
            let text = &arriving.tcp[view.header_len()..];
            let merged = match met {
                Some((_, Fate::Alone)) => false,
                _ if text.is_empty() => {
                    self.superseded(met.map(|(index, _)| index));
                    true
                }
                Some((index, _)) => self.more_text(index, seq, text, arriving),
                None => false,
            };
            if merged {
                self.local.counters.count(Mib::TcpInMerged);
            } else {
                self.segment(arriving, &[]);
            }
            seq = seq + text.len() as u32;
        }
    }

    /// An ACK that a later one has spoken for.
    #[inline]
    fn superseded(&mut self, index: Option<u32>) {
        let slot = index.and_then(|index| self.tables.slots.get_mut(index));
        if let Some(Slot { tcb: Tcb::Synchronized(connection), .. }) = slot {
            connection.count_superseded();
        }
    }

    /// Text that follows on what connection `index` has just taken in. False if it must be taken in for itself.
    #[inline]
    fn more_text(&mut self, index: u32, seq: SeqNum, text: &[u8], arriving: &ingress::Arriving<'_>) -> bool {
        let Some(slot) = self.tables.slots.get_mut(index) else { return false };
        let Tcb::Synchronized(connection) = &mut slot.tcb else { return false };
        let more = MoreText { seq, text, size: arriving.size.into(), pushed: arriving.is_pushed() };
        let Some(arrival) = connection.on_more_text(&more, &mut cx!(self)) else { return false };
        let accepted = slot.accepted;
        self.deliver(index, &arrival, accepted);
        true
    }

    /// For a connection, if this is its flow and the segment is one as nearly all are. What it says is read here and nowhere before, so that it
    /// is never written down.
    #[inline(never)]
    fn usual(&mut self, index: u32, came: &ingress::Arriving<'_>) -> Fate {
        let Some(usual) = Usual::of(came.tcp) else { return Fate::Elsewhere };
        self.synchronized(index, came, Some(usual), |stage| stage.read_again(index, came))
    }

    /// For what is rare: the segment is read again, and laid down this time. What was read for what is not rare can stay in registers then.
    #[cold]
    #[inline(never)]
    fn laid_down<R: Default>(
        &mut self,
        came: &ingress::Arriving<'_>,
        hash: u64,
        act: impl FnOnce(&mut Self, &Arriving<'_, '_>) -> R,
    ) -> R {
        match &Segment::parse(came.tcp) {
            Ok(segment) => act(self, &Arriving { key: &came.key, hash, segment, came }),
            Err(_) => R::default(),
        }
    }

    /// For a connection, if this is its flow: what led here may have been a guess.
    #[inline(always)]
    fn connection(&mut self, index: u32, came: &ingress::Arriving<'_>) -> Fate {
        match self.tables.slots.get(index) {
            Some(Slot { tcb: Tcb::Handshaking(_), .. }) => self.handshaking(index, came),
            _ => self.any(index, came),
        }
    }

    /// For a connection that is synchronized, if this is its flow: a segment with any options, or none, or one that is malformed.
    #[inline(never)]
    fn any(&mut self, index: u32, came: &ingress::Arriving<'_>) -> Fate {
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
        let expected = usual.and_then(|usual| connection.on_expected(usual, came.size.into(), &mut cx));
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
            let news = News::of(connection, &arrival, 0, &mut cx);
            self.tell(index, &news, accepted);
        } else {
            self.deliver(index, &arrival, accepted);
        }
        fate
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

    fn touch(&mut self, id: ConnId) {
        if let Some(slot) = self.tables.slot(id)
            && !slot.touched
        {
            slot.touched = true;
            self.local.touched.add(id.index());
        }
    }

    /// For an active open under way, if this is its flow.
    #[inline(never)]
    fn handshaking(&mut self, index: u32, came: &ingress::Arriving<'_>) -> Fate {
        let id = self.tables.id(index);
        let Some(slot) = self.tables.slots.get_mut(index) else { return Fate::Elsewhere };
        let Tcb::Handshaking(handshake) = &mut slot.tcb else { return Fate::Elsewhere };
        if *handshake.key() != came.key {
            cold_path();
            return Fate::Elsewhere;
        }
        let segment = match Segment::usual_syn(came.tcp) {
            Some(segment) => segment,
            None => match read(came, self.local) {
                Some(segment) => segment,
                None => return Fate::Alone,
            },
        };
        let cx = cx!(self);
        match handshake.on_segment(&segment, &cx) {
            handshake::Outcome::Waiting(discard) => {
                cold_path();
                if let Some(discard) = discard {
                    self.tables.counters.discard(discard);
                }
                self.touch(id);
            }
            handshake::Outcome::Established(agreed) => {
                prefetch_ring(&self.tables.pool);
                let (mtu, _) = path_facts(self.local, &came.key, slot.path);
                let config = &self.local.config.tcp;
                let mut connection = Connection::new(&agreed, mtu, config, self.local.now);
                connection.token = handshake.token;
                if segment.flags.syn() {
                    connection.owe_ack();
                }
                slot.establish(connection);
                if !slot.touched {
                    slot.touched = true;
                    self.local.touched.add(index);
                }
                self.app.on_connect(&mut Context { tables: self.tables, local: self.local }, id);
                if !segment.flags.syn() {
                    self.connection(index, came); // the end of a simultaneous open may carry text
                }
            }
            handshake::Outcome::Failed(reason) => {
                cold_path();
                let token = handshake.token;
                self.tables.counters.count(Mib::TcpAttemptFails);
                self.tables.remove(index);
                self.app.on_closed(&mut Context { tables: self.tables, local: self.local }, id, token, reason);
            }
            handshake::Outcome::Unacceptable => drop(self.laid_down(came, 0, Self::reset)),
        }
        Fate::Alone
    }

    /// For a passive open under way. False, with nothing done, if it is another flow's.
    #[inline(never)]
    fn half_open(&mut self, handle: Handle, came: &ingress::Arriving<'_>) -> bool {
        let index = handle.index();
        let Some(half) = self.tables.half_open.get_mut(index) else { return false };
        if *half.key() != came.key {
            cold_path();
            return false;
        }
        let segment = match Segment::usual(came.tcp) {
            Some(segment) => segment,
            None => match read(came, self.local) {
                Some(segment) => segment,
                None => return true,
            },
        };
        let noted = self.tables.recent.hash_of_half_open(came.mix, handle);
        let hash = noted.unwrap_or_else(|| came.hash(&self.local.hash_key));
        debug_assert_eq!(hash, came.key.hash(&self.local.hash_key.get()), "the hash of another flow was noted");
        let cx = cx!(self);
        match half.on_segment(&segment, &cx) {
            listen::Outcome::Established(agreed) => {
                let listener = crate::app::ListenerId(half.listener);
                let Some(reuse) = self.tables.listeners.room(listener) else {
                    // The peer will send it again, and by then somebody may have accepted.
                    self.accept_queue_full();
                    return true;
                };
                prefetch_ring(&self.tables.pool);
                let path = PathPlace::of(&came.key);
                let (mtu, _) = path_facts(self.local, &came.key, path);
                let (config, now) = (&self.local.config.tcp, self.local.now);
                let make = || Connection::accepted(&agreed, mtu, config, now, listener.0.into());
                let id = self.tables.promote((hash, came.mix), index, path, reuse, make);
                self.welcome(listener, id, came);
            }
            listen::Outcome::Repeat => {
                cold_path();
                half.note_repeat();
                self.send_syn_ack(index);
            }
            listen::Outcome::Challenge => {
                cold_path();
                if let Some(header) = half.challenge(&cx) {
                    self.tables.counters.count(Mib::TcpExtTCPChallengeACK);
                    let _ = egress::header(self.local, self.tx, &came.key, &header);
                }
            }
            listen::Outcome::Reset => self.tables.remove_half_open(index),
            // The SYN may have come twice, and the peer believes in the first answer, which was a cookie.
            listen::Outcome::Unacceptable
                if self.local.cookies_until > self.local.now
                    && self.laid_down(came, hash, |stage, whole| stage.cookie(whole, Some(index))) => {}
            listen::Outcome::Unacceptable => drop(self.laid_down(came, hash, Self::reset)),
            listen::Outcome::Ignore(discard) => self.tables.counters.discard(discard),
        }
        true
    }

    /// A connection is complete: it is queued, offered, and shown the segment that completed it.
    #[inline]
    fn welcome(&mut self, listener: crate::app::ListenerId, id: ConnId, came: &ingress::Arriving<'_>) {
        self.tables.counters.count(Mib::TcpPassiveOpens);
        self.tables.listeners.push(listener, id);
        self.app.on_acceptable(&mut Context { tables: self.tables, local: self.local }, listener);
        if self.usual(id.index(), came) == Fate::Elsewhere {
            self.connection(id.index(), came);
        }
    }

    /// For a flow that has no connection, nor is about to: at the most it has a record. False, with nothing done, if that is another flow's.
    #[inline(never)]
    fn no_connection(&mut self, record: Option<Handle>, came: &ingress::Arriving<'_>) -> bool {
        if record.is_some_and(|record| !self.tables.is_flow(record, &came.key)) {
            cold_path();
            return false;
        }
        let segment = match Segment::usual_syn(came.tcp) {
            Some(segment) => segment,
            None => match read(came, self.local) {
                Some(segment) => segment,
                None => return true,
            },
        };
        let hash = came.hash(&self.local.hash_key);
        let begins = match record {
            Some(record) => self.time_wait(record, came, &segment),
            None => self.nobody((came, hash), &segment),
        };
        if let Some(Begins { beyond }) = begins {
            self.syn((came, hash), &segment, record, beyond);
        }
        true
    }

    /// For a flow in TIME_WAIT; nothing more is to be done unless a SYN takes it over.
    #[inline(always)]
    fn time_wait(&mut self, handle: Handle, came: &ingress::Arriving<'_>, segment: &Segment<'_>) -> Option<Begins> {
        let now = self.local.now;
        let (key, secrets, config) = (&came.key, &self.local.secrets, &self.local.config.tcp);
        let ts_offset = || isn::ts_offset(&secrets.get().timestamp, &key.local, &key.remote);
        let tables = &mut *self.tables;
        let outcome = if handle.kind() == Kind::TimeWaitV4 {
            let at = position(&tables.tw4, handle);
            tables.tw4.get_mut(at).map(|tw| tw.on_segment(segment, ts_offset, config, now))
        } else {
            let at = position(&tables.tw6, handle);
            tables.tw6.get_mut(at).map(|tw| tw.on_segment(segment, ts_offset, config, now))
        };
        match outcome {
            Some(timewait::Outcome::Reuse(least)) => match self.local.successor(key) {
                Some(owner) => self.give_back(handle, least, owner, came),
                None => return Some(Begins { beyond: Some(least) }),
            },
            Some(timewait::Outcome::Answer { header, restart }) => {
                if restart {
                    tables.restart_time_wait(handle, now);
                }
                tables.counters.discard(Discard::TcpTimeWait);
                let _ = egress::header(self.local, self.tx, key, &header);
            }
            Some(timewait::Outcome::Ignore(discard)) => tables.counters.discard(discard),
            None => {}
        }
        None
    }

    /// For nothing that exists; nothing more is to be done unless a SYN begins something here.
    #[inline(always)]
    fn nobody(&mut self, (came, hash): (&ingress::Arriving<'_>, u64), segment: &Segment<'_>) -> Option<Begins> {
        // What finds a flow has been asked this when the flow began.
        if !self.local.snapshot.addresses.can_be_remote(&came.key.remote) {
            self.tables.counters.discard(Discard::IpMartianSource);
            return None;
        }
        let flags = segment.flags;
        let begins = flags.syn() && !flags.ack();
        if let Decider::Lane(lane, via) = self.local.decider(&came.key, came.via, begins) {
            self.local.count_mailed(via);
            let cookies_s = if via == Via::Direct { 0 } else { self.local.cookies_s() };
            let note = Note { via, cookies_s, ..Note::default() };
            mail(self.local, came, lane, note);
            return None;
        }
        if begins {
            let returned = came.via == Via::Returned;
            let beyond = if returned { self.local.moving.take_beyond(&came.key) } else { None };
            return Some(Begins { beyond });
        }
        // What bears no cookie is not asked for one.
        let may_be_cookie = flags.ack() && !flags.intersects(Flags::SYN | Flags::RST);
        self.laid_down(came, hash, |stage, arriving| {
            if may_be_cookie && stage.local.cookies_until > stage.local.now && stage.cookie(arriving, None) {
                return;
            }
            stage.tables.counters.discard(Discard::TcpNoConnection);
            stage.reset(arriving);
        });
        None
    }

    /// A SYN that takes over a flow in TIME_WAIT, whose bucket has been handed over: the flow goes to its new owner, and the
    /// record ends here. If there is no room in the mail, nothing has happened, and the peer will send it again.
    #[cold]
    fn give_back(&mut self, handle: Handle, least: SeqNum, owner: usize, came: &ingress::Arriving<'_>) {
        let note = Note { via: Via::Returned, beyond: Some(least), ..Note::default() };
        self.local.count_mailed(Via::Returned);
        if mail(self.local, came, owner, note) {
            self.tables.give_up(came.hash(&self.local.hash_key), handle);
        }
    }

    /// A SYN. `over`: it takes over a flow in TIME_WAIT; `least`: it must start beyond this sequence number, because it takes
    /// over one, here or where its bucket was before.
    #[inline(always)]
    fn syn(
        &mut self,
        (came, hash): (&ingress::Arriving<'_>, u64),
        segment: &Segment<'_>,
        over: Option<Handle>,
        least: Option<SeqNum>,
    ) {
        let key = &came.key;
        let Some(listener) = self.tables.listeners.find(&key.local, key.local_port, hash) else {
            self.tables.counters.discard(Discard::TcpNoConnection);
            if self.laid_down(came, hash, Self::reset) {
                self.tables.counters.count(Mib::TcpRefused);
            }
            return;
        };
        if segment.flags.intersects(Flags::RST | Flags::FIN) {
            return self.tables.counters.discard(Discard::TcpSynDropped);
        }
        if !self.tables.listeners.has_room(listener) {
            return self.accept_queue_full();
        }
        let (under_way, most) = (self.tables.half_open.len(), self.local.config.tcp_max_syn_backlog);
        if under_way >= most {
            cold_path();
            if least.is_none() {
                return self.laid_down(came, hash, Self::send_cookie);
            }
            // A cookie cannot promise to begin beyond the flow's former use. So whoever comes back to a flow has as many entries
            // again, which a flood of strangers cannot take from him; beyond them the record stays, and he has to ask once more.
            if under_way >= most.saturating_add(most.max(RETURNING_MIN)) {
                return self.too_many_half_open();
            }
        }
        let path = PathPlace::of(key);
        let Before { mtu, ts_offset, known } = before(self.local, key, path);
        let cx = cx!(self);
        let half = HalfOpen::on_syn(key, segment, listener.0, least, &self.local.secrets.get(), ts_offset, &cx);
        let retry_at_ms = half.retry_at_ms();
        // Written before the entry is laid down: what has just been laid down is not at hand.
        let header = half.syn_ack(announced_mss(mtu, key.is_v4()), &cx);
        let index = self.tables.insert_half_open(hash, half, came.mix, over);
        self.tables.timers.arm_tick(Handle::new(Kind::HalfOpen, index), next_tick(self.local.now, retry_at_ms));
        let sent = if known {
            egress::syn_at(self.local, self.tx, key, path, header)
        } else {
            egress::in_passing(self.local, self.tx, key, |_, _| header)
        };
        if sent == egress::Sent::Full {
            return self.answer_later(index);
        }
        self.tables.counters.count(Mib::TcpOutSegs);
    }

    /// A SYN, or what ends a handshake, goes no further because nobody accepts those that wait. As in the kernel, the drops of a
    /// listener are all that it drops, and the overflows those for this reason.
    #[cold]
    fn accept_queue_full(&mut self) {
        self.tables.counters.count(Mib::TcpExtListenOverflows);
        self.tables.counters.count(Mib::TcpExtListenDrops);
        self.tables.counters.discard(Discard::TcpListenOverflow);
    }

    /// A SYN goes no further because too many handshakes are under way.
    #[cold]
    fn too_many_half_open(&mut self) {
        self.tables.counters.count(Mib::TcpExtListenDrops);
        self.tables.counters.count(Mib::TcpExtTCPReqQFullDrop);
        self.tables.counters.discard(Discard::TcpSynDropped);
    }

    /// The SYN-ACK of a half-open entry waits for room in the device, behind those that wait already. If they are too many, it is left to its
    /// timer: who repeats a SYN may be answered twice, but not make the list grow.
    #[cold]
    fn answer_later(&mut self, index: u32) {
        if self.local.unsent.len() < self.local.config.tcp_max_syn_backlog {
            self.local.unsent.push_back(index);
        }
    }

    /// Sends the SYN-ACK of a half-open entry again. If the device is full, it waits.
    pub fn send_syn_ack(&mut self, index: u32) {
        if !self.try_syn_ack(index) {
            self.answer_later(index);
        }
    }

    /// Sends the SYN-ACK of a half-open entry, if there still is one; false if the device is full.
    pub fn try_syn_ack(&mut self, index: u32) -> bool {
        let Some(half) = self.tables.half_open.get(index) else { return true };
        let (key, pool) = (half.key(), &mut self.tables.pool);
        let sent = egress::in_passing(self.local, self.tx, key, |local, mtu| {
            let cx = tcp::Cx { now: local.now, config: &local.config.tcp, pool };
            half.syn_ack(announced_mss(mtu, key.is_v4()), &cx)
        });
        if sent == egress::Sent::Full {
            return false;
        }
        self.tables.counters.count(if half.is_repeated() { Mib::TcpRetransSegs } else { Mib::TcpOutSegs });
        true
    }

    #[cold]
    fn send_cookie(&mut self, arriving: &Arriving<'_, '_>) {
        if !self.local.config.tcp.tcp_syncookies {
            return self.too_many_half_open();
        }
        self.local.cookies_until = self.local.now.after_us(COOKIE_LIFE_US);
        self.tables.counters.count(Mib::TcpExtSyncookiesSent);
        let (Arriving { key, segment, .. }, pool) = (arriving, &mut self.tables.pool);
        let _ = egress::answer(self.local, self.tx, key, |local, mtu| {
            let cx = tcp::Cx { now: local.now, config: &local.config.tcp, pool };
            listen::cookie_syn_ack(key, segment, announced_mss(mtu, key.is_v4()), &local.secrets.get(), &cx)
        });
    }

    /// An ACK that may be the answer to a cookie, and then takes the place of a half-open entry that there may be. True if
    /// it was dealt with.
    #[cold]
    fn cookie(&mut self, arriving: &Arriving<'_, '_>, half_open: Option<u32>) -> bool {
        let Some(listener) = self.tables.listeners.find(&arriving.key.local, arriving.key.local_port, arriving.hash)
        else {
            return false;
        };
        let cx = cx!(self);
        let Some(agreed) = listen::on_cookie_ack(arriving.key, arriving.segment, &self.local.secrets.get(), &cx) else {
            self.tables.counters.count(Mib::TcpExtSyncookiesFailed);
            self.tables.counters.discard(Discard::TcpCookieInvalid);
            return false;
        };
        if !self.tables.listeners.has_room(listener) {
            self.accept_queue_full();
            return true;
        }
        self.tables.counters.count(Mib::TcpExtSyncookiesRecv);
        if let Some(index) = half_open {
            self.tables.remove_half_open(index);
        }
        let path = PathPlace::of(arriving.key);
        let (mtu, _) = path_facts(self.local, arriving.key, path);
        let (config, now) = (&self.local.config.tcp, self.local.now);
        let (tag, hash) = (Claim::NONE.pack(self.tables.listeners.reuse(listener)), arriving.hash);
        let id = self.tables.insert(arriving.key, hash, || {
            let tcb = Tcb::Synchronized(Connection::accepted(&agreed, mtu, config, now, listener.0.into()));
            Slot { tcb, hash, touched: false, accepted: false, tag, path }
        });
        self.local.began(arriving.key);
        self.welcome(listener, id, arriving.came);
        true
    }

    /// Answers with RST (RFC 9293 section 3.10.7.1), unless it was one.
    #[cold]
    fn reset(&mut self, arriving: &Arriving<'_, '_>) -> bool {
        let Some(header) = reset::answer(arriving.segment) else { return false };
        self.tables.counters.count(Mib::TcpOutRsts);
        let _ = egress::answer(self.local, self.tx, arriving.key, |_, _| header);
        true
    }
}

/// Brings the ring that the connection after this one will write to into the cache: one that begins is about to say something, in the ring
/// that is lent next, and so is the one behind it.
#[inline(always)]
fn prefetch_ring(pool: &BufferPool) {
    if let Some(ring) = pool.upcoming() {
        for line in 0..4 {
            prefetch_line_to_write(ring.as_ptr().wrapping_add(line * LINE));
        }
    }
}

/// The MTU of the path to a flow's peer, and the offset of timestamps on it. Without a route the former is the least that
/// every path carries.
#[inline(always)]
fn path_facts(local: &mut Local, key: &FlowKey, path: PathPlace) -> (u32, u32) {
    match local.paths.at(path, &local.snapshot, &key.local, &key.remote) {
        Some(path) => (path.mtu, path.ts_offset),
        None => without_route(local, key),
    }
}

/// The same, for a flow whose route has gone.
#[cold]
#[inline(never)]
fn without_route(local: &Local, key: &FlowKey) -> (u32, u32) {
    (least_mtu(key), isn::ts_offset(&local.secrets.get().timestamp, &key.local, &key.remote))
}

/// What a SYN-ACK says of the path to whoever has sent a SYN.
struct Before {
    mtu: u32,
    ts_offset: u32,
    /// There is a path in its place. Else none is worked out: a flood of SYNs would put as many in the places of those that connections
    /// use. Who completes his handshake gets one.
    known: bool,
}

#[inline(always)]
fn before(local: &mut Local, key: &FlowKey, place: PathPlace) -> Before {
    match local.paths.known(place, &local.snapshot, &key.local, &key.remote) {
        Some(path) => Before { mtu: path.mtu, ts_offset: path.ts_offset, known: true },
        None => before_a_path(local, key),
    }
}

#[inline(never)]
fn before_a_path(local: &mut Local, key: &FlowKey) -> Before {
    let (least, ts_offset) = without_route(local, key);
    let mtu = local.paths.passing(&local.snapshot, key.remote).map_or(least, |path| path.mtu);
    Before { mtu, ts_offset, known: false }
}

/// What every path carries.
fn least_mtu(key: &FlowKey) -> u32 {
    if key.is_v4() { 576 } else { 1_280 }
}

/// The millisecond that is `at_ms` when wrapped to 32 bits: not before `now`, and near it.
#[inline]
pub(crate) fn next_tick(now: Instant, at_ms: u32) -> u64 {
    let ahead = (at_ms.wrapping_sub(now.as_ms() as u32) as i32).max(0) as u64;
    now.as_ms() + ahead
}

/// Hands an IP packet to another lane, with a note. A full ring is a counted drop, and the answer is false.
pub(crate) fn mail_packet(local: &mut Local, to: usize, packet: &[u8], vouched: Vouched, note: Note) -> bool {
    let sent = match local.mail.to_lanes.get_mut(to) {
        Some(Some(ring)) => ring.push(packet, vouched.word() | note.word()),
        _ => false,
    };
    if !sent {
        local.counters.discard(Discard::SteerRingFull);
    }
    sent
}

#[cfg(test)]
mod tests;
