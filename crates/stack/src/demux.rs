//! Owns who a segment is for: one look-up finds the connection, the half-open entry, the TIME_WAIT record or the listener.
//!
//! path: `device::rx → ingress → ethernet → ip::input → [demux] → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`

use crate::app::App;
use crate::counters::Mib;
use crate::egress;
use crate::ingress::{self, Vouched};
use crate::lane::Local;
use crate::moving::Note;
use crate::tables::{Kind, Slot, Tables, Tcb};
use laneway_device::Tx;
use laneway_proto::discard::Discard;
use laneway_proto::tcp::nagle::Segmentation;
use laneway_proto::tcp::reset;
use laneway_wire::flow::FlowKey;
use laneway_wire::tcp::{Segment, View};
use std::hint::cold_path;

/// What TCP may use of the lane that a segment is on.
macro_rules! cx {
    ($stage:expr) => {
        laneway_proto::tcp::Cx {
            now: $stage.local.now,
            config: &$stage.local.config.tcp,
            pool: &mut $stage.tables.pool,
        }
    };
}

mod cookies;
mod nobody;
mod opening;
mod synchronized;

pub(crate) use opening::next_tick;

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
                let index = handle.index();
                self.tables.recent.note(came.mix, handle);
                // Mostly it is as nearly all are here, too: another flow took its place where flows were found last.
                let fate = match self.usual(index, came) {
                    Fate::Elsewhere => self.connection(index, came),
                    fate => fate,
                };
                return Some((index, fate));
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

    /// Answers with RST (RFC 9293 section 3.10.7.1), unless it was one.
    #[cold]
    fn reset(&mut self, arriving: &Arriving<'_, '_>) -> bool {
        let Some(header) = reset::answer(arriving.segment) else { return false };
        self.tables.counters.count(Mib::TcpOutRsts);
        let _ = egress::answer(self.local, self.tx, arriving.key, |_, _| header);
        true
    }
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
pub(crate) mod tests;
