//! Owns a lane's part in the moving of steering buckets: who decides about a packet that finds nothing here, until when the
//! old owner goes on deciding, and when none of a bucket's flows is left with it.
//!
//! The rules, with their reasons, are in `docs/demux.md`, "When a bucket moves". In short, for a bucket that goes from lane
//! *O* to lane *N*:
//!
//! ```text
//!              O decides alone                     │ N decides, after O         │ N decides alone
//!   ───────────┬──────────────────┬────────────────┼────────────────────────────┼──────────────▶
//!         the table says N   every source has   O has read what was         O has no flow
//!         (N asks O)         switched to N      in its queue: handed over   of it left: drained
//! ```
//!
//! A lane that no bucket moves to or from has nothing of this but a branch a poll. What finds its flow never comes here.

use crate::counters::Mib;
use crate::lane::{Lane, Local};
use crate::mail::ToControl;
use crate::sharing::{Sharing, Site};
use crate::steering::{BUCKETS, Steering, Table};
use crate::tables::Tables;
use laneway_device::BATCH_MAX;
use laneway_proto::ip::input::Packet;
use laneway_proto::tcp::TimeWait;
use laneway_proto::time::Instant;
use laneway_table::Fifo;
use laneway_wire::flow::FlowKey;
use laneway_wire::tcp::SeqNum;
use std::collections::VecDeque;

/// A device that switches at once may still be putting a frame into the old queue that it chose that for a moment before.
/// The kernel does that without being interrupted, within microseconds; so long it is given, in microseconds.
const STRAGGLER_US: u64 = 1_000;
/// Longer than this after the switch a lane does not keep mail waiting for its own queue, in microseconds: then what may be
/// overtaken costs less than what waits.
const HOLD_MAX_US: u64 = 200_000;
/// Flows looked at in one poll to find those of a bucket.
const LOOKS_MAX: usize = 512;
/// A flow that the drain waits for is looked at again after so long, in microseconds.
const AGAIN_US: u64 = 1_000;

/// How a packet has come to this lane.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Via {
    /// From the device, or from a lane that is neither the owner of its bucket nor was.
    #[default]
    Direct,
    /// From the bucket's owner, which has nothing for it: does its former owner?
    Asked,
    /// From the former owner, which has nothing for it: the owner decides.
    Returned,
}

/// What a lane says to another of a packet that it hands over, beside what the device said.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Note {
    pub(crate) via: Via,
    /// Asked or returned: for so many whole seconds yet, the cookies are good that the lane that says it has sent or heard of.
    pub(crate) cookies_s: u8,
    /// Returned, and the flow was in TIME_WAIT with the former owner, which has given it up for this SYN: what takes it over
    /// must start beyond this.
    pub(crate) beyond: Option<SeqNum>,
    /// It went to a group, as the packet says: nobody is told of errors about it.
    pub(crate) group: bool,
}

impl Note {
    const VIA: u32 = 1;
    const BEYOND: u64 = 1 << 4;
    const GROUP: u64 = 1 << 5;
    const COOKIES_S: u32 = 6;

    /// Of a packet that goes to where it should have come.
    pub(crate) fn of_packet(packet: &Packet<'_>) -> Self {
        Note { group: packet.to_group, ..Note::default() }
    }

    /// Bits 1 to 13 and 32 to 63 of the word that goes with the packet.
    pub(crate) fn word(self) -> u64 {
        let beyond = self.beyond.map_or(0, |least| Self::BEYOND | u64::from(least.raw()) << 32);
        let group = if self.group { Self::GROUP } else { 0 };
        (self.via as u64) << Self::VIA | u64::from(self.cookies_s) << Self::COOKIES_S | group | beyond
    }

    /// The inverse of [`word`](Self::word).
    pub(crate) fn of(word: u64) -> Self {
        let via = match word >> Self::VIA & 3 {
            1 => Via::Asked,
            2 => Via::Returned,
            _ => Via::Direct,
        };
        let beyond = (word & Self::BEYOND != 0).then(|| SeqNum::new((word >> 32) as u32));
        Note { via, cookies_s: (word >> Self::COOKIES_S) as u8, beyond, group: word & Self::GROUP != 0 }
    }
}

/// Who decides about a packet that finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decider {
    /// This lane.
    Here,
    /// Another: it is to be mailed there, in this way.
    Lane(usize, Via),
}

/// A bucket that is being taken from this lane.
struct Leaving {
    bucket: usize,
    to: usize,
    /// The device switches at once: what the new owner mails waits until our own queue has been read.
    holds: bool,
    stage: Stage,
}

enum Stage {
    /// Its frames still come to our queue: we decide.
    Deciding,
    /// No source sends them to our queue any more. What was in it is yet to be read.
    Switched {
        since: Instant,
        /// At most so many frames of our queue may still be older than what the new owner mails.
        older: usize,
    },
    /// The new owner decides. The flows that are left are being looked for, not before the time.
    Handed(Walk, Instant),
    /// None is left, and the control plane has been told.
    Drained,
}

/// A new table, and the lanes whose rings must be read to their ends before this lane goes by it.
struct Next {
    table: Box<Table>,
    is_abrupt: bool,
    behind: Vec<usize>,
}

/// What one lane knows of moving buckets. Nearly always nothing.
#[derive(Default)]
pub(crate) struct Moving {
    next: Option<Next>,
    leaving: Vec<Leaving>,
    /// Buckets that we have handed over to their new owner, and that may still have flows here.
    handed: u128,
    /// Of those, the ones that have none.
    drained: u128,
    /// What the control plane has yet to be told.
    reports: VecDeque<ToControl>,
    /// What was noted of packets in the batch of mail at hand: the flow, and where it must start beyond.
    beyond: Vec<(FlowKey, SeqNum)>,
}

impl Moving {
    #[inline]
    pub(crate) fn is_under_way(&self) -> bool {
        !self.leaving.is_empty() || self.next.is_some() || !self.reports.is_empty()
    }

    /// Something is due although nothing arrives.
    pub(crate) fn deadline(&self, now: Instant, tables: &Tables, steering: &Steering) -> Instant {
        let soon = now.after_us(STRAGGLER_US);
        let due = |leaving: &Leaving| match &leaving.stage {
            Stage::Deciding | Stage::Drained => Instant::NEVER,
            Stage::Switched { .. } => soon,
            // A flow ends in a turn, after which this is asked again: while it is there, nobody need look.
            Stage::Handed(walk, _) if walk.stays(tables, |key| steering.bucket(key) == leaving.bucket) => {
                Instant::NEVER
            }
            Stage::Handed(_, again) => *again,
        };
        let first = self.leaving.iter().map(due).min().unwrap_or(Instant::NEVER);
        if self.next.is_some() || !self.reports.is_empty() { first.min(soon) } else { first }
    }

    /// Mail of this lane must wait: what is still in our own queue came before it.
    pub(crate) fn holds(&self, from: usize) -> bool {
        let before = |stage: &Stage| matches!(stage, Stage::Deciding | Stage::Switched { .. });
        self.leaving.iter().any(|leaving| leaving.holds && leaving.to == from && before(&leaving.stage))
    }

    pub(crate) fn note_beyond(&mut self, key: FlowKey, least: SeqNum) {
        self.beyond.push((key, least));
    }

    #[inline]
    pub(crate) fn take_beyond(&mut self, key: &FlowKey) -> Option<SeqNum> {
        let at = self.beyond.iter().position(|(noted, _)| noted == key)?;
        Some(self.beyond.swap_remove(at).1)
    }

    /// The batch of mail is over.
    #[inline]
    pub(crate) fn forget_beyond(&mut self) {
        if !self.beyond.is_empty() {
            self.beyond.clear();
        }
    }

    fn is_handed(&self, bucket: usize) -> bool {
        self.handed >> bucket & 1 != 0
    }

    fn is_drained(&self, bucket: usize) -> bool {
        self.drained >> bucket & 1 != 0
    }
}

impl Local {
    /// Who decides about a segment that finds nothing here. `begins`: it is a SYN, and begins something.
    #[inline]
    pub(crate) fn decider(&self, key: &FlowKey, via: Via, begins: bool) -> Decider {
        if self.steering.lanes() == 1 {
            return Decider::Here;
        }
        let (bucket, table) = (self.steering.bucket(key), self.steering.table());
        let (owner, previous) = (usize::from(table.owner[bucket]), usize::from(table.previous[bucket]));
        if owner == self.id {
            return if owner == previous || via == Via::Returned {
                Decider::Here
            } else {
                Decider::Lane(previous, Via::Asked)
            };
        }
        self.elsewhere(bucket, (owner, previous), via, begins)
    }

    /// The same, of a bucket that is not ours any more.
    #[inline(never)]
    fn elsewhere(&self, bucket: usize, (owner, previous): (usize, usize), via: Via, begins: bool) -> Decider {
        let was_ours = previous == self.id;
        if was_ours && !self.moving.is_handed(bucket) {
            return Decider::Here;
        }
        if via != Via::Asked {
            return Decider::Lane(owner, Via::Direct);
        }
        // The owner has nothing for it. What begins, begins there; the rest is answered here, once. Nothing new may come to a
        // bucket of which we have said that it is drained. If it has moved on since we were asked, that was by its former owner, which
        // decides yet, or knows that it does not.
        match (was_ours, begins || self.moving.is_drained(bucket)) {
            (true, false) => Decider::Here,
            (true, true) => Decider::Lane(owner, Via::Returned),
            (false, _) => Decider::Lane(previous, Via::Returned),
        }
    }

    /// For how many whole seconds yet an ACK out of the blue may carry a cookie. Rounded down: two lanes that go on telling each other
    /// do not make it last.
    pub(crate) fn cookies_s(&self) -> u8 {
        (self.cookies_until.since_us(self.now) / 1_000_000).min(u8::MAX.into()) as u8
    }

    /// The other lane of a bucket's move has sent cookies. Whichever of the two sent one, either may be the lane that the ACK for it is
    /// decided at.
    pub(crate) fn hear_of_cookies(&mut self, cookies_s: u8) {
        if cookies_s > 0 {
            self.cookies_until = self.cookies_until.max(self.now.after_us(u64::from(cookies_s) * 1_000_000));
        }
    }

    /// The lane for what has no flow that could be found: datagrams, and what quotes one.
    pub(crate) fn steers_to(&self, key: &FlowKey) -> usize {
        match self.decider(key, Via::Returned, /* begins= */ true) {
            Decider::Here => self.id,
            Decider::Lane(owner, _) => owner,
        }
    }

    /// The lane that may have a flow which this one, its owner, does not find.
    pub(crate) fn former(&self, key: &FlowKey) -> Option<usize> {
        match self.decider(key, Via::Direct, /* begins= */ false) {
            Decider::Lane(former, Via::Asked) => Some(former),
            _ => None,
        }
    }

    /// If the flow's bucket has been handed over: to whom.
    #[inline]
    pub(crate) fn successor(&self, key: &FlowKey) -> Option<usize> {
        if self.moving.handed == 0 {
            return None;
        }
        let bucket = self.steering.bucket(key);
        self.moving.is_handed(bucket).then(|| self.steering.table().owner[bucket].into())
    }

    /// Whether this lane may begin this flow, from a port that the application has bound; if not, which one may. While a
    /// bucket moves it is the former owner, which alone knows what there is between the two ends.
    pub(crate) fn may_begin(&mut self, key: &FlowKey) -> Result<(), usize> {
        let opener = self.steering.opener(key);
        if opener != self.id {
            return Err(opener);
        }
        if self.moving.handed != 0 && self.moving.is_drained(self.steering.bucket(key)) {
            return Err(self.steering.lane(key));
        }
        self.began(key);
        Ok(())
    }

    /// A flow of a bucket that was handed over has begun here all the same: whoever looks for what is left looks again.
    #[inline]
    pub(crate) fn began(&mut self, key: &FlowKey) {
        if self.moving.handed != 0 {
            let (bucket, now) = (self.steering.bucket(key), self.now);
            for leaving in self.moving.leaving.iter_mut().filter(|leaving| leaving.bucket == bucket) {
                if matches!(leaving.stage, Stage::Handed(..)) {
                    leaving.stage = Stage::Handed(Walk::default(), now);
                }
            }
        }
    }

    /// There is a newer table. It holds when what this lane has mailed by the old one has been taken in.
    pub(crate) fn on_table(&mut self, table: Box<Table>, is_abrupt: bool) {
        let (old, mut behind) = (self.steering.table(), Vec::new());
        for bucket in 0..BUCKETS {
            let (was, is) = (usize::from(old.owner[bucket]), usize::from(table.owner[bucket]));
            // What the old owner finds in its queue and what the new one asks takes one way before and after.
            if was != is && was != self.id && is != self.id && !behind.contains(&was) {
                behind.push(was);
            }
        }
        self.moving.next = Some(Next { table, is_abrupt, behind });
        self.adopt();
    }

    /// Goes by the newer table, if what was mailed by the old one has been taken in. To be asked before this poll mails more.
    pub(crate) fn adopt(&mut self) {
        let Some(next) = &mut self.moving.next else { return };
        let rings = &self.mail.to_lanes;
        next.behind.retain(|lane| matches!(rings.get(*lane), Some(Some(ring)) if !ring.is_drained()));
        if !next.behind.is_empty() {
            return;
        }
        let Some(Next { table, is_abrupt, .. }) = self.moving.next.take() else { return };
        let (id, moving) = (self.id, &mut self.moving);
        let leaves = |bucket: usize| usize::from(table.previous[bucket]) == id && table.is_moving(bucket);
        moving.leaving.retain(|leaving| leaves(leaving.bucket));
        for bucket in 0..BUCKETS {
            if !leaves(bucket) {
                moving.handed &= !(1 << bucket);
                moving.drained &= !(1 << bucket);
            } else if !moving.leaving.iter().any(|leaving| leaving.bucket == bucket) {
                let to = table.owner[bucket].into();
                moving.leaving.push(Leaving { bucket, to, holds: is_abrupt, stage: Stage::Deciding });
            }
        }
        moving.reports.push_back(ToControl::GoesBy(table.version));
        self.steering.set_table(&table);
    }

    /// No source sends frames of this bucket to our queue any more, which holds at most so many.
    pub(crate) fn on_switched(&mut self, bucket: usize, capacity: usize) {
        let now = self.now;
        for leaving in self.moving.leaving.iter_mut().filter(|leaving| leaving.bucket == bucket) {
            if matches!(leaving.stage, Stage::Deciding) {
                leaving.stage = Stage::Switched { since: now, older: capacity };
            }
        }
    }

    /// Counts how a packet goes to another lane.
    pub(crate) fn count_mailed(&mut self, via: Via) {
        self.counters.count(match via {
            Via::Direct => Mib::SteerMiss,
            Via::Asked => Mib::SteerAsked,
            Via::Returned => Mib::SteerReturned,
        });
    }
}

/// Goes on with what is under way, between the lane's own frames and the mail. `frames`: so many were taken from the lane's
/// queue, all that it had unless they are a batch or more. True if there is more to do at once.
#[cold]
pub(crate) fn go_on<S: Sharing>(lane: &mut Lane<S>, frames: usize) -> bool {
    let now = lane.local.now;
    let mut more = false;
    for at in 0..lane.local.moving.leaving.len() {
        let moving = &mut lane.local.moving;
        let Leaving { bucket, holds, stage, .. } = &mut moving.leaving[at];
        let bucket = *bucket;
        match stage {
            Stage::Switched { since, older } => {
                let passed_us = now.since_us(*since);
                if passed_us >= STRAGGLER_US {
                    // A lane with too much to do never sees its queue empty; but what was in it then goes first.
                    *older = if frames < BATCH_MAX { 0 } else { older.saturating_sub(frames) };
                }
                let settled = passed_us >= STRAGGLER_US && *older == 0;
                if !*holds || settled || passed_us >= HOLD_MAX_US {
                    *stage = Stage::Handed(Walk::default(), now);
                    moving.handed |= 1 << bucket;
                    more = true;
                }
            }
            Stage::Handed(walk, again) if now >= *again => {
                let steering = &lane.local.steering;
                let found = walk.go_on(&lane.shared.enter(Site::Walk), LOOKS_MAX, |key| steering.bucket(key) == bucket);
                match found {
                    Found::One => *again = now.after_us(AGAIN_US),
                    Found::NotYet => more = true,
                    Found::None => {
                        *stage = Stage::Drained;
                        moving.drained |= 1 << bucket;
                        let cookies_until = lane.local.cookies_until;
                        moving.reports.push_back(ToControl::Drained { bucket, cookies_until });
                    }
                }
            }
            _ => {}
        }
    }
    let local = &mut lane.local;
    while let Some(report) = local.moving.reports.pop_front() {
        if let Err(report) = local.mail.to_control.push(report) {
            local.moving.reports.push_front(report); // the ring is full: again in the next poll
            break;
        }
    }
    more
}

/// Looks for the flows of a bucket, in the order in which a flow grows through its shapes, and stays with the first that it
/// finds until that is gone. Nothing begins behind it; so when it comes to the end, there is none.
#[derive(Default)]
struct Walk {
    part: Part,
    /// Where it goes on in this part, once that has been begun.
    next: Option<u32>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    #[default]
    HalfOpen,
    Connections,
    TimeWaitV4,
    TimeWaitV6,
    End,
}

enum Found {
    /// One, which is stayed with.
    One,
    /// None in as many as may be looked at in one poll.
    NotYet,
    /// None at all.
    None,
}

impl Walk {
    fn go_on(&mut self, tables: &Tables, mut looks: usize, wanted: impl Fn(&FlowKey) -> bool) -> Found {
        while self.part != Part::End {
            let (part, found) = match self.part {
                Part::HalfOpen => {
                    let slab = &tables.half_open;
                    (
                        Part::Connections,
                        self.slots(slab.end(), &mut looks, |at| slab.get(at).map(|half| *half.key()), &wanted),
                    )
                }
                Part::Connections => {
                    let slab = &tables.slots;
                    (
                        Part::TimeWaitV4,
                        self.slots(
                            slab.end(),
                            &mut looks,
                            |at| slab.get(at).and_then(|slot| slot.flow().copied()),
                            &wanted,
                        ),
                    )
                }
                Part::TimeWaitV4 => (Part::TimeWaitV6, self.records(&tables.tw4, &mut looks, &wanted)),
                Part::TimeWaitV6 | Part::End => (Part::End, self.records(&tables.tw6, &mut looks, &wanted)),
            };
            match found {
                Found::None => *self = Walk { part, next: None },
                found => return found,
            }
        }
        Found::None
    }

    fn slots(
        &mut self,
        end: u32,
        looks: &mut usize,
        key: impl Fn(u32) -> Option<FlowKey>,
        wanted: &impl Fn(&FlowKey) -> bool,
    ) -> Found {
        for at in self.next.unwrap_or(0)..end {
            self.next = Some(at);
            if *looks == 0 {
                return Found::NotYet;
            }
            *looks -= 1;
            if key(at).is_some_and(|key| wanted(&key)) {
                return Found::One;
            }
        }
        Found::None
    }

    fn records<T: TimeWait>(
        &mut self,
        queue: &Fifo<T>,
        looks: &mut usize,
        wanted: &impl Fn(&FlowKey) -> bool,
    ) -> Found {
        let Some((head, _)) = queue.front() else { return Found::None };
        let mut at = self.next.unwrap_or(head);
        if at.wrapping_sub(head) as usize > queue.len() {
            at = head; // those in between have been reaped
        }
        while at != queue.end() {
            self.next = Some(at);
            if *looks == 0 {
                return Found::NotYet;
            }
            *looks -= 1;
            if queue.get(at).is_some_and(|record| !record.is_dead() && wanted(&record.key())) {
                return Found::One;
            }
            at = at.wrapping_add(1);
        }
        Found::None
    }

    /// A flow that is wanted is still where it has stopped.
    fn stays(&self, tables: &Tables, wanted: impl Fn(&FlowKey) -> bool) -> bool {
        fn record<T: TimeWait>(queue: &Fifo<T>, at: u32) -> Option<FlowKey> {
            queue.get(at).filter(|record| !record.is_dead()).map(|record| record.key())
        }
        let Some(at) = self.next else { return false };
        let key = match self.part {
            Part::HalfOpen => tables.half_open.get(at).map(|half| *half.key()),
            Part::Connections => tables.slots.get(at).and_then(|slot| slot.flow().copied()),
            Part::TimeWaitV4 => record(&tables.tw4, at),
            Part::TimeWaitV6 => record(&tables.tw6, at),
            Part::End => None,
        };
        key.is_some_and(|key| wanted(&key))
    }
}

#[cfg(test)]
mod tests;
