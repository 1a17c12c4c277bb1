//! What the watcher keeps of a flow: what each host has said on it, and what of that has been heard.

use super::ecn::Ecn;
use crate::check::loss::Repair;
use crate::check::silly::Told;
use laneway_wire::tcp::{Segment, SeqNum};
use std::collections::{BTreeMap, VecDeque};

/// What a SYN offered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offer {
    pub(super) mss: u32,
    pub(super) scale: Option<u8>,
    pub(super) sack: bool,
    pub(super) timestamps: bool,
}

/// Bytes of a stream that have reached the other host, as offsets from the SYN.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrived {
    /// Everything below has.
    pub(super) contiguous: u32,
    /// Beyond that: start to end, disjoint and not adjacent.
    pub(super) early: BTreeMap<u32, u32>,
}

impl Arrived {
    pub(super) fn add(&mut self, mut start: u32, mut end: u32) {
        while let Some((&s, &e)) = self.early.range(..=end).next_back()
            && e >= start
        {
            self.early.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        if start <= self.contiguous {
            self.contiguous = self.contiguous.max(end);
            while let Some((&s, &e)) = self.early.first_key_value()
                && s <= self.contiguous
            {
                self.contiguous = self.contiguous.max(e);
                self.early.remove(&s);
            }
        } else {
            self.early.insert(start, end);
        }
    }

    /// What of this has arrived.
    pub(super) fn of(&self, start: u32, end: u32) -> Vec<(u32, u32)> {
        let all = std::iter::once((0, self.contiguous)).chain(self.early.iter().map(|(s, e)| (*s, *e)));
        all.map(|(s, e)| (s.max(start), e.min(end))).filter(|(s, e)| s < e).collect()
    }

    pub(super) fn has(&self, start: u32, end: u32) -> bool {
        end <= self.contiguous || self.early.range(..=start).next_back().is_some_and(|(_, e)| *e >= end)
    }
}

/// What one host has said on a flow, and what of it has been heard.
#[derive(Clone, Debug)]
pub(super) struct Half {
    pub(super) iss: SeqNum,
    pub(super) offer: Offer,
    /// What it says of marks.
    pub(super) ecn: Ecn,
    /// One past the last sequence number sent.
    pub(super) top: SeqNum,
    /// When it sent something last; and what was sent before that may have been lost unseen.
    pub(super) said_us: u64,
    /// And before that: what has waited for a neighbour leaves at one time, and says nothing of what was lost before it.
    pub(super) said_before_us: u64,
    /// See `said_us`.
    pub(super) unsaid: bool,
    /// Where the FIN is.
    pub(super) fin: Option<SeqNum>,
    /// Highest right edge that it has advertised.
    pub(super) edge: Option<SeqNum>,
    /// Highest acknowledgement that it has sent.
    pub(super) acked: Option<SeqNum>,
    /// Latest timestamp that it has sent, and the latest that has reached the other.
    pub(super) ts_sent: Option<u32>,
    pub(super) ts_first: Option<u32>,
    pub(super) ts_arrived: Option<u32>,
    /// What has reached the other, and what has twice.
    pub(super) arrived: Arrived,
    pub(super) repeated: Arrived,
    /// In how many segments some of it did.
    pub(super) repeats: u64,
    /// Text that somebody else has sent in its name, and of which nothing has arrived yet.
    pub(super) forged: Vec<(u32, u32)>,
    /// How many ACKs without text it has sent that report what came twice.
    pub(super) reports: u64,
    /// Right edge and acknowledgement, as far as this host can know of the other's.
    pub(super) may_send_to: Option<SeqNum>,
    pub(super) una: SeqNum,
    /// When that moved last.
    pub(super) una_us: u64,
    /// How many segments have reached it that acknowledge this, and when the last three of them that say nothing else.
    pub(super) says_una: u32,
    pub(super) repeats_us: [Option<u64>; 3],
    /// Right edge by the last that it heard: it may have been taken back, or seem so to who hears an old segment last.
    pub(super) last_edge: Option<SeqNum>,
    /// Right edges that it has lately heard of, in whatever order it takes them in.
    pub(super) edges: VecDeque<SeqNum>,
    /// Segments of this flow that have reached this host.
    pub(super) heard: u64,
    /// When the last of them has.
    pub(super) heard_us: u64,
    /// It has sent something without SYN.
    pub(super) talks: bool,
    /// Its SYN-ACK has reached the opener, who believes in the first one.
    pub(super) answered: bool,
    /// Another SYN-ACK that has reached the opener, whose lanes may hand on to each other what comes first, and so see it last.
    pub(super) rival: Option<Box<Half>>,
    /// Its SYN-ACK was a cookie, which a late ACK has brought back after the flow was taken again.
    pub(super) revived: bool,
    /// It owes an acknowledgement since then.
    pub(super) owes_since_us: Option<u64>,
    /// When new text last left.
    pub(super) left_us: u64,
    /// A tail loss probe was sent that ended here.
    pub(super) probed: Option<SeqNum>,
    /// The last retransmission of what is oldest: which, when, how long after the one before, what was heard by then.
    pub(super) again: Option<Again>,
    /// When it first acknowledged the peer's FIN: it is in TIME_WAIT then, or will be.
    pub(super) fin_heard_us: Option<u64>,
    /// Segments heard when the first text was sent.
    pub(super) heard_at_first: Option<u64>,
    /// It has sent an RST.
    pub(super) reset: bool,
    /// An RST has reached it.
    pub(super) ended: bool,
    /// Its FIN went out before the peer's was acknowledged: it will keep TIME_WAIT.
    pub(super) closes_first: bool,
    /// The largest text that it has sent in a segment, with the options.
    pub(super) widest: u32,
    /// What it does about losses.
    pub(super) repair: Repair,
    /// What it tells of its window.
    pub(super) told: Told,
    /// The other's TS.Recent (RFC 7323 section 4.3), up to when it acknowledges the FIN.
    pub(super) ts_recent: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    pub(super) seq: SeqNum,
    pub(super) at_us: u64,
    /// The timer was started with it: it was the first in flight, or it was the timer that sent it.
    pub(super) timed: bool,
    /// Since the one before, which the timer had sent too.
    pub(super) gap_us: Option<u64>,
    /// That one was not a repetition: a tail loss probe may have gone out between the two, and the timer has begun with that.
    pub(super) since_first: bool,
    pub(super) heard: u64,
}

impl Half {
    pub(super) fn new(seg: &Segment<'_>, v4: bool) -> Self {
        let options = &seg.options;
        Half {
            iss: seg.seq,
            offer: Offer {
                mss: options.mss.map_or(if v4 { 536 } else { 1_220 }, u32::from),
                scale: options.window_scale.map(|s| s.get()),
                sack: options.sack_permitted,
                timestamps: options.timestamps.is_some(),
            },
            ecn: Ecn::new(seg),
            top: seg.seq + 1,
            said_us: 0,
            said_before_us: 0,
            unsaid: false,
            fin: None,
            edge: None,
            acked: None,
            ts_sent: None,
            ts_first: options.timestamps.map(|ts| ts.val),
            ts_arrived: None,
            arrived: Arrived::default(),
            repeated: Arrived::default(),
            repeats: 0,
            forged: Vec::new(),
            reports: 0,
            may_send_to: None,
            una: seg.seq,
            una_us: 0,
            says_una: 0,
            repeats_us: [None; 3],
            last_edge: None,
            edges: VecDeque::new(),
            heard: 0,
            heard_us: 0,
            talks: false,
            answered: false,
            rival: None,
            revived: false,
            owes_since_us: None,
            left_us: 0,
            probed: None,
            again: None,
            fin_heard_us: None,
            heard_at_first: None,
            reset: false,
            ended: false,
            closes_first: false,
            widest: 0,
            repair: Repair::default(),
            told: Told::new(seg),
            ts_recent: options.timestamps.map(|ts| ts.val),
        }
    }

    /// What was forged has come twice once the peer's own is there, in whatever order.
    pub(super) fn count_forged(&mut self) {
        let Half { forged, arrived, repeats, repeated, .. } = self;
        forged.retain(|(start, end)| {
            let again = arrived.of(*start, *end);
            *repeats += u64::from(!again.is_empty());
            again.iter().for_each(|(start, end)| repeated.add(*start, *end));
            again.is_empty()
        });
    }

    /// A sequence number of this stream as an offset from the SYN; `None` if it cannot be of it.
    pub(super) fn offset(&self, seq: SeqNum) -> Option<u32> {
        let offset = seq.offset_from(self.iss);
        (offset >= 0 && seq.at_or_before(self.top)).then_some(offset as u32)
    }

    pub(super) fn arrived_to(&self) -> SeqNum {
        self.iss + self.arrived.contiguous
    }
}

pub(super) type Halves = [Option<Half>; 2];

/// One 4-tuple.
#[derive(Default)]
pub(super) struct Flow {
    pub(super) now: Halves,
    pub(super) before: Halves,
    /// The conversations that these are.
    pub(super) talk_now: Option<usize>,
    pub(super) talk_before: Option<usize>,
    /// A half-open entry that an old duplicate of a SYN has made at this host, and nobody will ever complete; or a connection that a late cookie
    /// has made.
    pub(super) ghost: [Option<SeqNum>; 2],
    /// What has lately reached each host: acknowledgement, and end, as a reset would have to quote them.
    pub(super) lately: [VecDeque<(Option<SeqNum>, SeqNum)>; 2],
}

pub(super) fn both(halves: &Halves) -> Option<(&Half, &Half)> {
    Some((halves[0].as_ref()?, halves[1].as_ref()?))
}
