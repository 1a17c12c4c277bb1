//! Property: a loss makes its sender slower, and is repaired as soon as enough speaks for it (RFC 5681, RFC 6675, RFC 6298 section 5).
//!
//! Judged by what the sender can know. What it may take for a mistake (RFC 3522, RFC 3708), or for the doing of a router, is not judged.

use laneway_proto::tcp::congestion::Algorithm;
use laneway_wire::tcp::SeqNum;

/// What one host does about the losses of what it says in one conversation.
#[derive(Clone, Debug, Default)]
pub struct Repair {
    /// Everything before this was sent when something was last sent again.
    recover: Option<SeqNum>,
    /// The timer has run out: what had been heard by then, and bytes sent since.
    timeout: Option<(u64, u32)>,
    slower: Option<Slower>,
    /// Acknowledgements in a row that moved nothing; where SACK was agreed, those with reports.
    duplicates: u32,
    /// Those of them without SACK that the host must have counted.
    counted: u32,
    /// What it was told of by what it cannot have dropped unread.
    told: Option<SeqNum>,
    /// When new text last left, and where that began.
    left: Option<(u64, SeqNum)>,
    /// The most that was in flight when it heard what may be enough of a loss that it has not repaired yet: its window became narrower then,
    /// and not when it sent again what a later acknowledgement had left of the hole.
    flight_then: u32,
    /// The most that was in flight in one of the last round trips, the most so far in the one that is, and where that ends.
    peak: u32,
    peak_now: u32,
    round_end: Option<SeqNum>,
    /// What was acknowledged since it last sent text: its window may be wider by as much, and be measured so if the same poll tells of a loss.
    opened: u32,
    /// It has known since then that what is oldest is lost, and has not sent it again.
    pub known_since_us: Option<u64>,
}

/// A window that a loss has made narrower.
#[derive(Clone, Copy, Debug)]
struct Slower {
    recover: SeqNum,
    flight: u32,
    most: u32,
    /// The timestamp of what was sent again first.
    ts: Option<u32>,
}

/// A segment with text or FIN that a host sends.
pub struct Sent {
    /// Its first number, and one past its last.
    pub seq: SeqNum,
    /// See `seq`.
    pub end: SeqNum,
    /// The oldest that is not acknowledged, and one past the last that was sent before, as the host can know.
    pub una: SeqNum,
    /// See `una`.
    pub top: SeqNum,
    /// Segments that the host has heard.
    pub heard: u64,
    /// The largest segment that the peer takes.
    pub mss: u32,
    /// Its timestamp.
    pub ts: Option<u32>,
    /// The timer has sent it.
    pub timed: bool,
    /// It only asks what became of what was sent last.
    pub probe: bool,
    /// A router may have asked for it.
    pub asked: bool,
    /// What acknowledges up to `una` came to another lane, and may not have been taken in yet.
    pub behind: bool,
}

/// An acknowledgement that reaches a host.
pub struct Heard {
    /// The oldest that is not acknowledged, after it and before it; and one past the last that was sent.
    pub una: SeqNum,
    /// See `una`.
    pub was: SeqNum,
    /// See `una`.
    pub top: SeqNum,
    /// It acknowledges this.
    pub ack: SeqNum,
    /// What it reports selectively, in bytes and in blocks; `None` if that was not agreed.
    pub sacked: Option<(u32, u32)>,
    /// It reports that what ends here has come twice.
    pub twice: Option<SeqNum>,
    /// It was acceptable: the host has not dropped it unread, with all that it says (RFC 9293 section 3.10.7.4, first).
    pub acceptable: bool,
    /// Neither text nor FIN, and the window as before.
    pub bare: bool,
    /// What it echoes.
    pub echo: Option<u32>,
    /// The largest segment that the peer takes.
    pub mss: u32,
}

impl Repair {
    /// Whether what was lost is being sent again, with this the oldest.
    pub fn is_under_way(&self, una: SeqNum) -> bool {
        self.recover.is_some_and(|recover| una.before(recover))
    }

    /// The host sends.
    pub fn on_sent(&mut self, sent: &Sent, now_us: u64, algorithm: Algorithm) -> Option<String> {
        let len = sent.end.offset_from(sent.seq) as u32;
        let again = sent.seq.before(sent.top);
        let opened = std::mem::take(&mut self.opened);
        if !again && self.left.is_none_or(|(at_us, _)| at_us != now_us) {
            self.left = Some((now_us, sent.seq));
        }
        if again && sent.seq == sent.una {
            self.known_since_us = None;
            let flight = std::mem::take(&mut self.flight_then).max(sent.top.offset_from(sent.una) as u32);
            let lately = flight.max(self.peak.max(self.peak_now) + opened);
            let settled = self.recover.is_none_or(|recover| sent.una.at_or_after(recover));
            // Another repair before the last is over, or for a router's sake, says nothing of the window.
            self.slower = None;
            if settled && !sent.asked {
                let most = reduced(lately, algorithm, sent.mss);
                self.slower = Some(Slower { recover: sent.top, flight, most, ts: sent.ts });
            }
        }
        if !again {
            self.peak_now = self.peak_now.max(sent.end.offset_from(sent.una) as u32);
            self.round_end.get_or_insert(sent.end);
        }
        if again && !sent.probe {
            self.recover = Some(self.recover.map_or(sent.top, |recover| recover.latest(sent.top)));
        }
        //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
        //# Furthermore, upon a timeout (as specified in [RFC2988]) cwnd MUST be
        //# set to no more than the loss window, LW, which equals 1 full-sized
        //# segment (regardless of the value of IW).
        if sent.timed {
            self.timeout = Some((sent.heard, 0));
        }
        if let Some((heard, bytes)) = &mut self.timeout
            && *heard == sent.heard
        {
            *bytes += len;
            if *bytes > sent.mss + 1 {
                return Some(format!("{bytes} bytes since the timer ran out, and nothing was heard"));
            }
        }
        let slower = self.slower.filter(|_| !again && !sent.asked && !sent.behind)?;
        let beyond = sent.una.offset_from(slower.recover);
        let flight = sent.end.offset_from(sent.una) as u32;
        if beyond < 0 {
            return None;
        }
        let most = slower.most + beyond as u32;
        if most > slower.flight {
            self.slower = None; // it says nothing any more
        } else if flight > most {
            return Some(format!("{flight} bytes in flight, after a loss with {} in flight", slower.flight));
        }
        None
    }

    /// An acknowledgement of something new says that something was marked, which counts for a loss; unless one is being repaired, or was lately.
    pub fn on_echo(&mut self, heard: &Heard, algorithm: Algorithm) {
        if self.slower.is_none() && !self.is_under_way(heard.una) {
            let flight = (heard.top.offset_from(heard.una) as u32).max(self.peak.max(self.peak_now) + self.opened);
            let most = reduced(flight, algorithm, heard.mss);
            self.slower = Some(Slower { recover: heard.top, flight, most, ts: None });
        }
    }

    /// An acknowledgement reaches the host. `orderly`: acknowledgements do not overtake each other, so that the host believes each.
    pub fn on_heard(&mut self, heard: &Heard, now_us: u64, orderly: bool) {
        let moved = heard.una.after(heard.was);
        if moved {
            self.known_since_us = None;
            self.duplicates = 0;
            self.opened += heard.una.offset_from(heard.was) as u32;
            if self.round_end.is_some_and(|end| heard.una.at_or_after(end)) {
                // Slower than the host forgets it, which may measure fewer round trips than there are.
                self.peak = std::mem::take(&mut self.peak_now).max(self.peak - self.peak / 16);
                self.round_end = None;
            }
        }
        let repeats = !moved && heard.ack == heard.una && heard.una != heard.top;
        self.duplicates += u32::from(repeats && heard.sacked.map_or(heard.bare, |(bytes, _)| bytes > 0));
        if heard.acceptable && self.told.is_none_or(|told| heard.ack.after(told)) {
            (self.told, self.counted) = (Some(heard.ack), 0);
        } else if heard.acceptable && repeats && heard.bare {
            // Where a round trip takes no time, this may be an answer to what has left at the same instant. The host takes it for older.
            let just_left = self.left.is_some_and(|(at_us, from)| at_us == now_us && from.at_or_before(heard.una));
            self.counted += u32::from(!just_left);
        }
        if let Some(slower) = self.slower {
            let mistaken = match (slower.ts, heard.echo) {
                (Some(ts), Some(echo)) => moved && (echo.wrapping_sub(ts) as i32) < 0,
                _ => false,
            };
            // A hole behind the repair: what is in flight can no longer be told from the numbers.
            let holes = self.duplicates >= 3 || heard.sacked.is_some_and(|(bytes, _)| bytes > 0);
            // Only of what it had sent by then can it have repeated anything.
            let twice = heard.twice.is_some_and(|end| end.at_or_before(slower.recover));
            if mistaken || twice || holes && heard.una.at_or_after(slower.recover) {
                self.slower = None;
            }
        }
        if heard.una == heard.top {
            self.flight_then = 0; // what seemed lost was not
        }
        if heard.ack != heard.una || heard.una == heard.top {
            return;
        }
        //= https://www.rfc-editor.org/rfc/rfc6675#section-4
        //# The routine returns true when either DupThresh discontiguous SACKed sequences have arrived above
        //# 'SeqNum' or more than (DupThresh - 1) * SMSS bytes with sequence numbers greater than 'SeqNum' have been SACKed.
        let smss = heard.mss.saturating_sub(if heard.echo.is_some() { 12 } else { 0 });
        let is_lost = |(bytes, blocks)| blocks >= 3 || bytes > 2 * smss;
        if self.duplicates >= 3 || heard.sacked.is_some_and(is_lost) {
            self.flight_then = self.flight_then.max(heard.top.offset_from(heard.una) as u32);
        }
        if !orderly || !heard.acceptable {
            return;
        }
        // With a segment more than that it must, whatever it has counted and forgotten.
        let enough = heard.sacked.map_or(self.counted >= 3, |(bytes, _)| bytes > 3 * heard.mss);
        // Not while another loss is repaired (RFC 6582 section 3.2, step 1): its window decides when.
        if enough && self.recover.is_none_or(|recover| heard.una.after(recover)) {
            self.known_since_us.get_or_insert(now_us);
        }
    }
}

/// The most that may be in flight after a reduction, of so much that lately was.
fn reduced(lately: u32, algorithm: Algorithm, mss: u32) -> u32 {
    let reduced = match algorithm {
        Algorithm::Reno => lately / 2,
        Algorithm::Cubic => (u64::from(lately) * 7 / 10) as u32,
    };
    // Two segments is the least that a window is reduced to; a few more may be on their way for what has left the network.
    reduced.max(2 * mss) + 3 * mss
}
