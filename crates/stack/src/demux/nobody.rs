//! Owns segments of flows that have no connection, nor are about to: a record in TIME_WAIT at the most.
//!
//! path: `device::rx → ingress → ethernet → ip::input → [demux] → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`

use super::{Stage, mail, read};
use crate::egress;
use crate::ingress;
use crate::moving::{Decider, Note, Via};
use crate::tables::{Handle, Kind, position};
use laneway_device::Tx;
use laneway_proto::discard::Discard;
use laneway_proto::tcp::{TimeWait, isn, timewait};
use laneway_wire::tcp::{Flags, Segment, SeqNum};
use std::hint::cold_path;

/// A SYN may begin a connection. It must start beyond this sequence number, if its flow was in TIME_WAIT, here or where its bucket was before.
struct Begins {
    beyond: Option<SeqNum>,
}

/// What was found is the record of another flow, or none any more.
struct AnotherFlows;

impl<T: Tx> Stage<'_, T> {
    /// For a flow that has no connection, nor is about to: at the most it has a record. False, with nothing done, if that is another flow's.
    #[inline(never)]
    pub(super) fn no_connection(&mut self, record: Option<Handle>, came: &ingress::Arriving<'_>) -> bool {
        let segment = match Segment::usual_syn(came.tcp) {
            Some(segment) => segment,
            None => match read(came, self.local) {
                Some(segment) => segment,
                None => return true,
            },
        };
        let hash = came.hash(&self.local.hash_key);
        let begins = match record {
            Some(record) if self.bears_cookie(record, (came, hash), &segment) => None,
            Some(record) => match self.time_wait(record, came, &segment) {
                Ok(begins) => begins,
                Err(AnotherFlows) => {
                    cold_path();
                    return false;
                }
            },
            None => self.nobody((came, hash), &segment),
        };
        if let Some(Begins { beyond }) = begins {
            self.local.strangers.on_nothing();
            self.syn((came, hash), &segment, record, beyond);
        }
        true
    }

    /// For a flow in TIME_WAIT, if this is its record; nothing more is to be done unless a SYN takes it over.
    #[inline(always)]
    fn time_wait(
        &mut self,
        handle: Handle,
        came: &ingress::Arriving<'_>,
        segment: &Segment<'_>,
    ) -> Result<Option<Begins>, AnotherFlows> {
        let now = self.local.now;
        let (key, secrets, config) = (&came.key, &self.local.secrets, &self.local.config.tcp);
        let ts_offset = || isn::ts_offset(&secrets.get().timestamp, &key.local, &key.remote);
        let tables = &mut *self.tables;
        let outcome = if handle.kind() == Kind::TimeWaitV4 {
            let at = position(&tables.tw4, handle);
            let record = tables.tw4.get_mut(at).filter(|tw| !tw.is_dead() && tw.is_of(key));
            record.map(|tw| tw.on_segment(segment, ts_offset, config, now))
        } else {
            let at = position(&tables.tw6, handle);
            let record = tables.tw6.get_mut(at).filter(|tw| !tw.is_dead() && tw.is_of(key));
            record.map(|tw| tw.on_segment(segment, ts_offset, config, now))
        };
        match outcome {
            Some(timewait::Outcome::Reuse(least)) => match self.local.successor(key) {
                Some(owner) => self.give_back(handle, least, owner, came),
                None => return Ok(Some(Begins { beyond: Some(least) })),
            },
            Some(timewait::Outcome::Answer { header, restart }) => {
                if restart {
                    tables.restart_time_wait(handle, now);
                }
                tables.counters.discard(Discard::TcpTimeWait);
                let _ = egress::header(self.local, self.tx, key, &header);
            }
            Some(timewait::Outcome::Ignore(discard)) => tables.counters.discard(discard),
            None => return Err(AnotherFlows),
        }
        Ok(None)
    }

    /// Whether a segment for a flow in TIME_WAIT, if this is its record, was the ACK of a cookie. Then all is done.
    #[inline(always)]
    fn bears_cookie(
        &mut self,
        record: Handle,
        (came, hash): (&ingress::Arriving<'_>, u64),
        segment: &Segment<'_>,
    ) -> bool {
        if segment.flags.intersects(Flags::SYN | Flags::RST) || !segment.flags.ack() {
            return false;
        }
        cold_path();
        self.local.cookies_may_come()
            && self.tables.is_record_of(record, &came.key)
            && self.laid_down(came, hash, |stage, arriving| stage.cookie_over(arriving, record))
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
            if may_be_cookie {
                return stage.cookie_or_reset(arriving, None, Discard::TcpNoConnection);
            }
            stage.local.strangers.on_nothing();
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
}
