//! Owns the moving of steering buckets from lane to lane, as the control plane sees it: who is told what, and in which order.
//!
//! ```text
//! Announced ── every lane goes by the new table ──▶ Switching ── every source goes by it ──▶ Draining ── no flow is left ──▶ (settled)
//! ```
//!
//! What lanes do meanwhile is in [`crate::moving`]. Nothing here waits: each turn does what has become possible. A bucket
//! that moves cannot be moved again before it has settled, because a lane knows of one former owner and not of two: what is
//! asked for meanwhile is done then. And one move is announced at a time. A lane goes by a new table when the owners of what
//! moves between others have read its mail; an owner reads no mail of the new one before all go by the table. With two moves in one step the two
//! may wait for each other.

use super::Control;
use crate::error::Error;
use crate::mail::ToLane;
use crate::steering::{BUCKETS, Source, Table};
use laneway_proto::time::Instant;

/// How often a device is asked whether it has switched, and a lane told that had no room for mail, in microseconds.
const AGAIN_US: u64 = 1_000;

/// How far a move has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Lanes have been told, by the table of this version.
    Announced(u64),
    /// The device has been told.
    Switching,
    /// The former owner has been told that all sources have switched.
    Draining,
    /// It has no flow left. Its cookies are good until then, which the new owner is yet to be told.
    Drained(Instant),
}

struct Move {
    bucket: usize,
    stage: Stage,
}

/// A steering bucket, and what is under way about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// The lane of the flows that begin now.
    pub lane: usize,
    /// While it moves: the lane that it was taken from, and that may still have flows of it.
    pub from: Option<usize>,
    /// The lane that it shall move to when it has settled.
    pub then: Option<usize>,
}

pub(super) struct Moves {
    table: Table,
    lanes: usize,
    /// The version that each lane goes by.
    goes_by: Vec<u64>,
    /// Lanes that could not be told yet.
    untold: Vec<bool>,
    moves: Vec<Move>,
    /// What is asked for of buckets that move, or that cannot begin to yet: at most one lane for each.
    then: [Option<u8>; BUCKETS],
    /// What the device goes by, or will.
    steered: [u8; BUCKETS],
    source: Option<Box<dyn Source>>,
    /// The device has refused.
    refusal: Option<String>,
}

impl Moves {
    pub(super) fn new(lanes: usize) -> Self {
        let table = Table::even(lanes.max(1));
        Moves {
            table,
            lanes,
            goes_by: vec![table.version; lanes],
            untold: vec![false; lanes],
            moves: Vec::new(),
            then: [None; BUCKETS],
            steered: table.owner,
            source: None,
            refusal: None,
        }
    }

    /// Some bucket moves, or shall, or has just settled.
    pub(super) fn is_under_way(&self) -> bool {
        !self.moves.is_empty() || self.untold.contains(&true) || self.then.iter().any(Option::is_some)
    }

    /// Every lane goes by the newest table: another may be made.
    fn is_known(&self) -> bool {
        self.goes_by.iter().all(|version| *version == self.table.version)
    }

    /// Begins the next of the moves that have waited, if one can.
    fn begin_next(&mut self) {
        if !self.is_known() {
            return;
        }
        let ready = |bucket: &usize| self.then[*bucket].is_some() && !self.table.is_moving(*bucket);
        if let Some(bucket) = (0..BUCKETS).find(ready)
            && let Some(lane) = self.then[bucket].take()
        {
            self.begin(bucket, lane);
        }
    }

    /// When there is something to do although no lane says anything: devices do not say that they have switched.
    pub(super) fn due(&self, now: Instant) -> Instant {
        let asks = |one: &Move| matches!(one.stage, Stage::Switching | Stage::Drained(_));
        let behind = self.untold.contains(&true) || self.moves.iter().any(asks);
        if behind { now.after_us(AGAIN_US) } else { Instant::NEVER }
    }

    fn begin(&mut self, bucket: usize, lane: u8) {
        if self.table.owner[bucket] == lane {
            return;
        }
        self.table.previous[bucket] = self.table.owner[bucket];
        self.table.owner[bucket] = lane;
        self.publish();
        self.moves.push(Move { bucket, stage: Stage::Announced(self.table.version) });
    }

    fn publish(&mut self) {
        self.table.version += 1;
        self.untold.fill(true);
    }
}

impl Control {
    /// Says what steers frames to lanes, so that it can be told when buckets move. Without it they come as they come, and lanes
    /// pass on what is not theirs.
    pub fn set_source(&mut self, source: Box<dyn Source>) {
        self.moves.source = Some(source);
    }

    /// Gives the flows of a bucket that begin from now on to this lane. Those that exist stay where they are. If the bucket is moving
    /// already, it does so when that has settled: when its former owner has none of its flows left. If another bucket has just begun to
    /// move, it does so when every lane knows of that.
    ///
    /// [`Error::Invalid`]: there is no such bucket or lane, or the device has refused.
    pub fn move_bucket(&mut self, bucket: usize, lane: usize) -> Result<(), Error> {
        let moves = &mut self.moves;
        if bucket >= BUCKETS {
            let last = BUCKETS - 1;
            return Err(Error::Invalid(format!("there is no bucket {bucket}: buckets are numbered from 0 to {last}")));
        }
        if lane >= moves.lanes {
            let last = moves.lanes.saturating_sub(1);
            return Err(Error::Invalid(format!("there is no lane {lane}: this stack's are numbered from 0 to {last}")));
        }
        if let Some(why) = &moves.refusal {
            return Err(Error::Invalid(format!("no bucket can be moved, because the device goes on as before: {why}")));
        }
        moves.then[bucket] = (usize::from(moves.table.owner[bucket]) != lane).then_some(lane as u8);
        self.move_on();
        Ok(())
    }

    /// Every bucket, by number.
    pub fn buckets(&self) -> Vec<Bucket> {
        let Moves { table, then, .. } = &self.moves;
        let bucket = |bucket: usize| Bucket {
            lane: table.owner[bucket].into(),
            from: table.is_moving(bucket).then(|| table.previous[bucket].into()),
            then: then[bucket].map(usize::from),
        };
        (0..BUCKETS).map(bucket).collect()
    }

    pub(super) fn on_goes_by(&mut self, lane: usize, version: u64) {
        self.moves.goes_by[lane] = version;
    }

    pub(super) fn on_drained(&mut self, lane: usize, bucket: usize, cookies_until: Instant) {
        let moves = &mut self.moves;
        for one in moves.moves.iter_mut().filter(|one| one.bucket == bucket) {
            if one.stage == Stage::Draining && usize::from(moves.table.previous[bucket]) == lane {
                one.stage = Stage::Drained(cookies_until);
            }
        }
    }

    /// Does what has become possible.
    pub(super) fn move_on(&mut self) {
        let moves = &mut self.moves;
        // First those that have settled, so that what they have waited for is told with them.
        let mut settled = Vec::new();
        moves.moves.retain(|one| {
            let Stage::Drained(cookies_until) = one.stage else { return true };
            let mail = &mut self.mail[usize::from(moves.table.owner[one.bucket])];
            let told = mail.to_lane.push(ToLane::Cookies(cookies_until)).is_ok();
            if told {
                settled.push(one.bucket);
            }
            !told
        });
        for bucket in settled {
            moves.table.previous[bucket] = moves.table.owner[bucket];
            moves.publish();
        }
        moves.begin_next();
        let is_abrupt = moves.source.as_ref().is_some_and(|source| source.is_abrupt());
        for (mail, untold) in self.mail.iter_mut().zip(&mut moves.untold) {
            if *untold {
                let table = Box::new(moves.table);
                *untold = mail.to_lane.push(ToLane::Steer { table, is_abrupt }).is_err();
            }
        }
        self.switch();
        let moves = &mut self.moves;
        for one in &mut moves.moves {
            let has_switched = |source: &mut Box<dyn Source>| source.has_switched(one.bucket);
            if one.stage == Stage::Switching && moves.source.as_mut().is_none_or(has_switched) {
                let mail = &mut self.mail[usize::from(moves.table.previous[one.bucket])];
                let capacity = moves.source.as_ref().map_or(0, |source| source.capacity());
                if mail.to_lane.push(ToLane::Switched { bucket: one.bucket, capacity }).is_ok() {
                    one.stage = Stage::Draining;
                }
            }
        }
    }

    /// Tells the device of the moves that every lane knows of.
    fn switch(&mut self) {
        let moves = &mut self.moves;
        let oldest = moves.goes_by.iter().min().copied().unwrap_or(0);
        let known = |one: &Move| matches!(one.stage, Stage::Announced(version) if version <= oldest);
        if !moves.moves.iter().any(known) {
            return;
        }
        for one in moves.moves.iter_mut().filter(|one| known(one)) {
            one.stage = Stage::Switching;
            moves.steered[one.bucket] = moves.table.owner[one.bucket];
        }
        // If it refuses, frames go on as they went, and the new owner gets its own by mail. That is right, and slower.
        if let Some(source) = &mut moves.source
            && let Err(why) = source.steer(&moves.steered)
        {
            moves.refusal = Some(why);
            moves.source = None;
        }
    }
}
