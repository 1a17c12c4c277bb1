//! Owns the handshakes, of those who open and of those who are asked: from the SYN to the connection.
//!
//! path: `device::rx → ingress → ethernet → ip::input → [demux] → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`

use super::{Fate, Stage, read};
use crate::app::{ConnId, Context, ListenerId, announced_mss};
use crate::counters::Mib;
use crate::egress;
use crate::ingress;
use crate::lane::Local;
use crate::paths::PathPlace;
use crate::tables::{Handle, Kind, Tcb, prefetch_far_line, prefetch_ring};
use laneway_device::Tx;
use laneway_proto::discard::Discard;
use laneway_proto::ip::output::Marks;
use laneway_proto::tcp::{self, Connection, HalfOpen, handshake, isn, listen};
use laneway_proto::time::Instant;
use laneway_wire::flow::FlowKey;
use laneway_wire::tcp::{Flags, Segment, SeqNum};
use std::hint::cold_path;

/// So many handshakes more at least may those begin who are no strangers, however few others may, and those who take over flows in TIME_WAIT.
const KNOWN_MIN: usize = 64;

impl<T: Tx> Stage<'_, T> {
    /// A SYN. `over`: it takes over a flow in TIME_WAIT; `least`: it must start beyond this sequence number, because it takes
    /// over one, here or where its bucket was before.
    #[inline(always)]
    pub(super) fn syn(
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
            let more = most.max(KNOWN_MIN);
            if least.is_none() {
                // Whoever has completed a handshake lately would lose by a cookie what it cannot say. So he has as many entries again, which a flood
                // of strangers cannot take from him.
                // Where none are kept at all, none are of his, either.
                let is_full = most == 0 || under_way >= most.saturating_add(more);
                if is_full || !self.local.paths.lead(&key.local, &key.remote) {
                    return self.laid_down(came, hash, |stage, whole| stage.send_cookie(whole, listener));
                }
            } else if under_way >= most.saturating_add(2 * more) {
                // A cookie cannot promise to begin beyond the flow's former use. So whoever comes back to a flow has as many more, which nobody
                // else can take; beyond them the record stays, and he has to ask once more.
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
        if !self.tables.listeners.marks(listener).is_none() {
            return self.send_syn_ack(index);
        }
        let sent = if known {
            egress::syn_at(self.local, self.tx, key, path, header)
        } else {
            egress::in_passing(self.local, self.tx, key, Marks::NONE, |_, _| header)
        };
        if sent == egress::Sent::Full {
            return self.answer_later(index);
        }
        self.tables.counters.count(Mib::TcpOutSegs);
    }

    /// For a passive open under way. False, with nothing done, if it is another flow's.
    #[inline(never)]
    pub(super) fn half_open(&mut self, handle: Handle, came: &ingress::Arriving<'_>) -> bool {
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
                let listener = ListenerId(half.listener);
                let Some(reuse) = self.tables.listeners.room(listener) else {
                    // The peer will send it again, and by then somebody may have accepted.
                    self.accept_queue_full();
                    return true;
                };
                prefetch_ring(&self.tables.pool, 1);
                let path = PathPlace::of(&came.key);
                let (mtu, _) = path_facts(self.local, &came.key, path);
                let (config, now) = (&self.local.config.tcp, self.local.now);
                let make = || Connection::accepted(&agreed, mtu, config, now, listener.0);
                let id = self.tables.promote((hash, came.mix), index, path, reuse, make);
                if agreed.ecn {
                    cold_path();
                    self.tables.connection(id).into_iter().for_each(Connection::use_ecn);
                }
                self.welcome(listener, id, came);
            }
            listen::Outcome::Repeat => {
                cold_path();
                half.note_repeat(segment.flags, segment.options.timestamps);
                self.send_syn_ack(index);
            }
            listen::Outcome::Challenge | listen::Outcome::Ignore(_)
                if self.bears_cookie_of_another_syn(index, (came, hash), &segment) => {}
            listen::Outcome::Challenge => {
                cold_path();
                let cx = cx!(self);
                let Some(half) = self.tables.half_open.get_mut(index) else { return true };
                if let Some(header) = half.challenge(&cx) {
                    self.tables.counters.count(Mib::TcpExtTCPChallengeACK);
                    let marks = self.tables.listeners.marks(ListenerId(half.listener));
                    let _ = egress::marked_answer(self.local, self.tx, &came.key, marks, |_, _| header);
                }
            }
            listen::Outcome::Reset => {
                cold_path();
                self.tables.counters.count(Mib::TcpAttemptFails);
                self.tables.counters.count(Mib::TcpExtEmbryonicRsts);
                let listener = self.tables.half_open.get(index).map(|half| ListenerId(half.listener));
                self.tables.remove_half_open(index);
                listener.into_iter().for_each(|listener| self.refused(&came.key, listener));
            }
            // The SYN may have come twice, and the peer believes in the first answer, which was a cookie.
            listen::Outcome::Unacceptable => self.laid_down(came, hash, |stage, whole| {
                stage.cookie_or_reset(whole, Some(index), Discard::TcpAckInvalid);
            }),
            listen::Outcome::Ignore(discard) => self.tables.counters.discard(discard),
        }
        true
    }

    /// Whether a segment for a half-open entry is the ACK of a cookie for another SYN of the flow, of which the device did not tell us. Then all is done. One that was sent
    /// before the SYN is of a former connection, which may have begun with a cookie, too.
    #[cold]
    fn bears_cookie_of_another_syn(
        &mut self,
        index: u32,
        (came, hash): (&ingress::Arriving<'_>, u64),
        segment: &Segment<'_>,
    ) -> bool {
        self.tables.half_open.get(index).is_some_and(|half| !half.is_after(segment))
            && segment.flags.ack()
            && !segment.flags.intersects(Flags::SYN | Flags::RST)
            && self.local.cookies_may_come()
            && self.laid_down(came, hash, |stage, arriving| stage.cookie_instead(arriving, index))
    }

    /// A connection is complete: it is queued, offered, and shown the segment that completed it.
    #[inline]
    pub(super) fn welcome(&mut self, listener: ListenerId, id: ConnId, came: &ingress::Arriving<'_>) {
        self.tables.counters.count(Mib::TcpPassiveOpens);
        self.local.strangers.on_welcome();
        let marks = self.tables.listeners.push(listener, id);
        if !marks.is_none() {
            cold_path();
            self.tables.connection(id).into_iter().for_each(|connection| connection.set_marks(marks));
        }
        self.app.on_acceptable(&mut Context { tables: self.tables, local: self.local }, listener);
        if self.usual(id.index(), came) == Fate::Elsewhere {
            self.connection(id.index(), came);
        }
    }

    /// For an active open under way, if this is its flow.
    #[inline(never)]
    pub(super) fn handshaking(&mut self, index: u32, came: &ingress::Arriving<'_>) -> Fate {
        let id = self.tables.id(index);
        let Some(slot) = self.tables.slots.get_mut(index) else { return Fate::Elsewhere };
        prefetch_far_line(slot);
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
                prefetch_ring(&self.tables.pool, 1);
                let (mtu, _) = path_facts(self.local, &came.key, slot.path);
                let config = &self.local.config.tcp;
                let mut connection = Connection::new(&agreed, mtu, config, self.local.now);
                connection.token = handshake.token;
                let marks = handshake.marks;
                if segment.flags.syn() {
                    connection.owe_ack();
                }
                slot.establish(connection);
                // Only there: one that is lent before would be laid down elsewhere first.
                if (agreed.ecn || !marks.is_none())
                    && let Tcb::Synchronized(connection) = &mut slot.tcb
                {
                    cold_path();
                    connection.set_marks(marks);
                    if agreed.ecn {
                        connection.use_ecn();
                    }
                }
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
            handshake::Outcome::Unacceptable => {
                cold_path();
                self.tables.counters.discard(Discard::TcpAckInvalid);
                self.laid_down(came, 0, Self::reset);
                self.touch(id);
            }
        }
        Fate::Alone
    }

    /// A SYN, or what ends a handshake, goes no further because nobody accepts those that wait. As in the kernel, the drops of a
    /// listener are all that it drops, and the overflows those for this reason.
    #[cold]
    pub(super) fn accept_queue_full(&mut self) {
        self.tables.counters.count(Mib::TcpExtListenOverflows);
        self.tables.counters.count(Mib::TcpExtListenDrops);
        self.tables.counters.discard(Discard::TcpListenOverflow);
    }

    /// A SYN goes no further because too many handshakes are under way.
    #[cold]
    pub(super) fn too_many_half_open(&mut self) {
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

    /// Sends the SYN-ACK of a half-open entry, or sends it again. If the device is full, it waits.
    pub fn send_syn_ack(&mut self, index: u32) {
        if !self.try_syn_ack(index) {
            self.answer_later(index);
        }
    }

    /// Sends the SYN-ACK of a half-open entry, if there still is one; false if the device is full.
    pub fn try_syn_ack(&mut self, index: u32) -> bool {
        let Some(half) = self.tables.half_open.get(index) else { return true };
        let (key, pool) = (half.key(), &mut self.tables.pool);
        let marks = self.tables.listeners.marks(ListenerId(half.listener));
        let sent = egress::in_passing(self.local, self.tx, key, marks, |local, mtu| {
            let cx = tcp::Cx { now: local.now, config: &local.config.tcp, pool };
            half.syn_ack(announced_mss(mtu, key.is_v4()), &cx)
        });
        if sent == egress::Sent::Full {
            return false;
        }
        self.tables.counters.count(if half.is_repeated() { Mib::TcpRetransSegs } else { Mib::TcpOutSegs });
        true
    }
}

/// The MTU of the path to a flow's peer, and the offset of timestamps on it. Without a route the former is the least that
/// every path carries.
#[inline(always)]
pub(super) fn path_facts(local: &mut Local, key: &FlowKey, path: PathPlace) -> (u32, u32) {
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
