//! Owns what is left of a connection in TIME-WAIT: its record, from the connection's end until it is reaped, taken over or evicted (RFC 9293 section 3.4.1).

use super::{Handle, INDEX_MASK, Kind, Slot, Tables, Tcb};
use crate::config::Config;
use crate::counters::Mib;
use crate::ports::{Claim, PortChoice};
use arrayvec::ArrayVec;
use laneway_proto::tcp::{Cx, TimeWait, TimeWaitV4, TimeWaitV6};
use laneway_proto::time::Instant;
use laneway_table::{Fifo, HandleTable};
use laneway_wire::flow::FlowKey;
use laneway_wire::keyed_hash::HashKey;
use laneway_wire::tcp::Segment;

/// So many dead records in the queues are no reason to do anything.
const CROWDED: usize = 4_096;
/// Records that are reaped together: enough for their lines to come at once, and few enough to be there still.
const TOGETHER: usize = 16;

impl Tables {
    /// Turns a connection in TIME-WAIT into a record, in the same place of the index. At most `cap` records are kept.
    #[inline]
    pub fn retire(&mut self, index: u32, now: Instant, cap: usize) {
        let Tables { slots, flows, tw4, tw6, ports, pool, .. } = self;
        let retired = slots.forget_if(index, |slot| {
            let made = slot.leave_record(index, now, (flows, tw4, tw6), ports);
            if made {
                slot.release(pool);
            }
            made
        });
        if retired {
            self.count_record(cap);
        }
    }

    /// The same of one that the application has yet to read: it stays for that, and the flow is the record's.
    pub fn retire_unread(&mut self, index: u32, now: Instant, config: &Config) {
        let Tables { slots, flows, tw4, tw6, ports, pool, .. } = self;
        let Some(slot) = slots.get_mut(index) else { return };
        if !slot.leave_record(index, now, (flows, tw4, tw6), ports) {
            return;
        }
        slot.take_claim();
        if let Tcb::Synchronized(connection) = &mut slot.tcb {
            connection.end_unread(&mut Cx { now, config: &config.tcp, pool });
        }
        self.count_record(config.tcp_max_tw_buckets);
    }

    /// There is one more.
    #[inline]
    fn count_record(&mut self, cap: usize) {
        self.time_waits += 1;
        self.counters.count(Mib::TcpExtTW);
        if self.time_waits > cap {
            self.evict_time_wait();
        }
    }

    /// The flow of this record belongs to another connection now, and so does its port.
    fn kill_time_wait(&mut self, handle: Handle) {
        self.end_record(handle, /* port_too= */ false);
    }

    /// The flow of this record belongs to another connection now; whoever chose its port is told that it ends.
    #[inline]
    pub(super) fn end_time_wait(&mut self, handle: Handle) {
        self.end_record(handle, /* port_too= */ true);
    }

    #[inline]
    fn end_record(&mut self, handle: Handle, port_too: bool) {
        let ports: &mut dyn PortChoice = &mut *self.ports;
        let dead = match handle.kind() {
            Kind::TimeWaitV4 => {
                kill(&mut self.tw4, handle, port_too.then_some(ports));
                &mut self.dead[0]
            }
            Kind::TimeWaitV6 => {
                kill(&mut self.tw6, handle, port_too.then_some(ports));
                &mut self.dead[1]
            }
            Kind::Connection | Kind::HalfOpen => return,
        };
        *dead += 1;
        self.time_waits -= 1;
        self.counters.count(Mib::TcpExtTWRecycled);
    }

    /// 2·MSL of a record starts anew.
    pub fn restart_time_wait(&mut self, handle: Handle, now: Instant) {
        match handle.kind() {
            Kind::TimeWaitV4 => {
                let at = position(&self.tw4, handle);
                self.tw4.get_mut(at).into_iter().for_each(|tw| restart(tw, now, &mut *self.ports));
            }
            Kind::TimeWaitV6 => {
                let at = position(&self.tw6, handle);
                self.tw6.get_mut(at).into_iter().for_each(|tw| restart(tw, now, &mut *self.ports));
            }
            Kind::Connection | Kind::HalfOpen => {}
        }
    }

    /// Whether this is the record of a flow that has not been taken over.
    pub(crate) fn is_record_of(&self, handle: Handle, key: &FlowKey) -> bool {
        fn is_of<R: TimeWait>(queue: &Fifo<R>, handle: Handle, key: &FlowKey) -> bool {
            queue.get(position(queue, handle)).is_some_and(|tw| !tw.is_dead() && tw.is_of(key))
        }
        match handle.kind() {
            Kind::TimeWaitV4 => is_of(&self.tw4, handle, key),
            Kind::TimeWaitV6 => is_of(&self.tw6, handle, key),
            Kind::Connection | Kind::HalfOpen => false,
        }
    }

    /// Whether a connection may take a record's flow over that this ACK of a cookie begins.
    pub(crate) fn yields_to_cookie(&self, handle: Handle, segment: &Segment<'_>, ts_offset: u32) -> bool {
        fn yields<R: TimeWait>(queue: &Fifo<R>, handle: Handle, segment: &Segment<'_>, ts_offset: u32) -> bool {
            queue.get(position(queue, handle)).is_some_and(|tw| tw.yields_to_cookie(segment, ts_offset))
        }
        match handle.kind() {
            Kind::TimeWaitV4 => yields(&self.tw4, handle, segment, ts_offset),
            Kind::TimeWaitV6 => yields(&self.tw6, handle, segment, ts_offset),
            Kind::Connection | Kind::HalfOpen => false,
        }
    }

    /// Gives up a record for a flow that begins on another lane, or from a port that was chosen elsewhere.
    pub(crate) fn give_up(&mut self, hash: u64, handle: Handle) {
        self.end_time_wait(handle);
        self.flows.remove(hash, handle.raw());
    }

    /// Gives up a record of our own for a new active open (RFC 6191).
    pub(super) fn take_over(&mut self, hash: u64, handle: Handle) {
        self.kill_time_wait(handle);
        self.flows.remove(hash, handle.raw());
    }

    /// Over the cap: the oldest record goes before its time.
    fn evict_time_wait(&mut self) {
        let (mut gone, hash_key) = (false, self.hash_key.get());
        while !gone && (!self.tw4.is_empty() || !self.tw6.is_empty()) {
            let is_v6 = self.tw6.len() > self.tw4.len();
            gone = if is_v6 {
                pop(&mut self.tw6, Kind::TimeWaitV6, &mut self.flows, &hash_key, &mut *self.ports)
            } else {
                pop(&mut self.tw4, Kind::TimeWaitV4, &mut self.flows, &hash_key, &mut *self.ports)
            };
            self.dead[usize::from(is_v6)] -= usize::from(!gone);
        }
        if gone {
            self.time_waits -= 1;
            self.counters.count(Mib::TcpExtTCPTimeWaitOverflow);
        }
    }

    /// Reaps records whose wait is over, at most `budget` of them; says how many it looked at.
    #[inline]
    pub fn reap(&mut self, now: Instant, msl_us: u64, budget: usize) -> usize {
        let Tables { tw4, tw6, flows, hash_key, ports, dead: [dead4, dead6], .. } = self;
        let (ports, hash_key) = (&mut **ports, &hash_key.get());
        let (a, live4) = reap(tw4, Kind::TimeWaitV4, flows, hash_key, ports, now, msl_us, (budget, dead4));
        let (b, live6) = reap(tw6, Kind::TimeWaitV6, flows, hash_key, ports, now, msl_us, (budget - a, dead6));
        self.time_waits -= live4 + live6;
        self.counters.add(Mib::TcpExtTWKilled, (live4 + live6) as u64);
        a + b
    }

    /// Whether [`reap`](Self::reap) has something to do.
    pub fn has_expired(&self, now: Instant, msl_us: u64) -> bool {
        fn first<T: TimeWait>(queue: &Fifo<T>, dead: usize, now: Instant, msl_us: u64) -> bool {
            let over = |record: &T| record.is_dead() || record.is_expired(now, msl_us);
            is_crowded(queue, dead) || queue.front().is_some_and(|(_, record)| over(record))
        }
        first(&self.tw4, self.dead[0], now, msl_us) || first(&self.tw6, self.dead[1], now, msl_us)
    }
}

impl Slot {
    /// Lays a record of a connection in TIME-WAIT down, in its place of the index. False, with nothing done, if it is none.
    #[inline(always)]
    fn leave_record(
        &self,
        index: u32,
        now: Instant,
        (flows, tw4, tw6): (&mut HandleTable, &mut Fifo<TimeWaitV4>, &mut Fifo<TimeWaitV6>),
        ports: &mut Box<dyn PortChoice>,
    ) -> bool {
        let Tcb::Synchronized(connection) = &self.tcb else { return false };
        let key = connection.key();
        let parts = connection.time_wait(now, self.tag);
        let record = if key.is_v4() {
            Handle::new(Kind::TimeWaitV4, tw4.push(TimeWaitV4::from_parts(key, parts)))
        } else {
            Handle::new(Kind::TimeWaitV6, tw6.push(TimeWaitV6::from_parts(key, parts)))
        };
        flows.replace(self.hash, Handle::new(Kind::Connection, index).raw(), record.raw());
        let claim = self.claim();
        if claim != Claim::NONE {
            ports.waits(claim, key, parts.has_timestamps());
        }
        true
    }
}

/// A handle keeps 30 bits of a queue position; the rest follows from where the queue begins.
#[inline]
pub fn position<T: TimeWait>(queue: &Fifo<T>, handle: Handle) -> u32 {
    let head = queue.head();
    head.wrapping_add(handle.index().wrapping_sub(head) & INDEX_MASK)
}

/// Tells whoever chose the port of a record that the flow is gone.
#[inline]
fn release<T: TimeWait>(ports: &mut dyn PortChoice, record: &T) {
    let (claim, _) = Claim::unpack(record.tag());
    if claim != Claim::NONE {
        ports.released(claim, &record.key());
    }
}

/// A record only waits for its turn to be reaped from now on. `ports`: whoever chose its port, if they do not know yet.
#[inline]
fn kill<T: TimeWait>(queue: &mut Fifo<T>, handle: Handle, ports: Option<&mut dyn PortChoice>) {
    let at = position(queue, handle);
    let Some(record) = queue.get_mut(at) else { return };
    if let Some(ports) = ports {
        release(ports, record);
    }
    record.kill();
}

fn restart<T: TimeWait>(record: &mut T, now: Instant, ports: &mut dyn PortChoice) {
    record.restart(now);
    let (claim, _) = Claim::unpack(record.tag());
    if claim != Claim::NONE {
        ports.waits(claim, &record.key(), record.has_timestamps());
    }
}

/// Takes the oldest record out of queue and index; false if it was dead already.
fn pop<T: TimeWait>(
    queue: &mut Fifo<T>,
    kind: Kind,
    flows: &mut HandleTable,
    hash_key: &HashKey,
    ports: &mut dyn PortChoice,
) -> bool {
    let hash = queue.front().and_then(|(_, record)| hash_of(record, hash_key));
    pop_by(queue, kind, flows, ports, hash)
}

/// The same, `hash` being what [`hash_of`] says of the record.
#[inline]
fn pop_by<T: TimeWait>(
    queue: &mut Fifo<T>,
    kind: Kind,
    flows: &mut HandleTable,
    ports: &mut dyn PortChoice,
    hash: Option<u64>,
) -> bool {
    if let (Some(hash), Some((at, record))) = (hash, queue.front()) {
        flows.remove(hash, Handle::new(kind, at).raw());
        release(ports, record);
    }
    queue.pop_front();
    hash.is_some()
}

/// By what the index has a record, unless it is dead and not in it any more.
#[inline]
fn hash_of<T: TimeWait>(record: &T, hash_key: &HashKey) -> Option<u64> {
    (!record.is_dead()).then(|| record.key().hash(hash_key))
}

/// Records that were taken over wait for their turn in the queue. When they are most of it, the queue is turned: the dead fall out, the
/// living go to the end, where they are reaped late, which is safe. Of each queue by itself: none is turned for what lies in the other.
#[inline]
fn is_crowded<T: TimeWait>(queue: &Fifo<T>, dead: usize) -> bool {
    2 * dead > queue.len() + CROWDED
}

/// Reaps one queue; says how many records it looked at and how many of those were alive.
#[allow(clippy::too_many_arguments)] // the parts of `Tables` that it may touch beside the queue, one by one
fn reap<T: TimeWait>(
    queue: &mut Fifo<T>,
    kind: Kind,
    flows: &mut HandleTable,
    hash_key: &HashKey,
    ports: &mut dyn PortChoice,
    now: Instant,
    msl_us: u64,
    (budget, dead): (usize, &mut usize),
) -> (usize, usize) {
    let mut seen = 0;
    let mut live = 0;
    while seen < budget {
        let over = over(queue, flows, hash_key, now, msl_us, budget - seen);
        for hash in &over {
            let was_alive = pop_by(queue, kind, flows, ports, *hash);
            live += usize::from(was_alive);
            *dead -= usize::from(!was_alive);
        }
        seen += over.len();
        if !over.is_empty() {
            continue;
        }
        // Not yet: either the queue is young, or its first record was restarted and goes to the end, where it belongs.
        let Some((at, record)) = queue.front() else { break };
        let mut record = *record;
        if !record.take_restarted() && !is_crowded(queue, *dead) {
            break;
        }
        queue.pop_front();
        let moved = queue.push(record);
        let hash = record.key().hash(hash_key);
        flows.replace(hash, Handle::new(kind, at).raw(), Handle::new(kind, moved).raw());
        seen += 1;
    }
    (seen, live)
}

/// The next few records that go, each as [`hash_of`] has it. Their places in the index are asked for, so that the lines of all of them are
/// on their way before the first is needed: a record has waited so long that its line has left the cache.
#[inline]
fn over<T: TimeWait>(
    queue: &Fifo<T>,
    flows: &HandleTable,
    hash_key: &HashKey,
    now: Instant,
    msl_us: u64,
    most: usize,
) -> ArrayVec<Option<u64>, TOGETHER> {
    let positions = (0..most.min(TOGETHER)).map(|i| queue.head().wrapping_add(i as u32));
    let records = positions.map_while(|at| queue.get(at));
    let over = records.take_while(|record| record.is_dead() || record.is_expired(now, msl_us));
    over.map(|record| hash_of(record, hash_key).inspect(|hash| flows.prefetch(*hash))).collect()
}

#[cfg(test)]
mod tests;
