//! Owns what lanes and the control thread say to each other. No lane ever waits for a lane: a full ring is a counted drop.

use crate::app::{ListenerId, UdpId};
use crate::binding::Binding;
use crate::counters::Counters;
use crate::listing::Page;
use crate::paths::Unverified;
use crate::port_set::PortSet;
use crate::snapshot::Snapshot;
use crate::steering::Table;
use crate::trace::Tap;
use laneway_proto::ip::output::Marks;
use laneway_proto::time::Instant;
use laneway_sync::ring::items::{ItemConsumer, ItemProducer, items};
use laneway_sync::ring::records::{RecordConsumer, RecordProducer, records};
use laneway_wire::flow::Address;
use std::collections::VecDeque;

/// From the control thread to a lane.
pub enum ToLane {
    /// A new state of the world.
    Snapshot(Box<Snapshot>),
    /// Somebody wants to bind this TCP port: keep it out of `connect`'s choice, and say whether a connection stands in the way.
    Reserve {
        /// The name, the same on every lane.
        id: u16,
        /// Bound address, and options.
        binding: Binding,
        /// Port.
        port: u16,
        /// An empty set, to be sent back with every port that this could not be bound to for connections of the lane: the caller
        /// may have any of them.
        census: Option<PortSet>,
    },
    /// It is not bound any more.
    Release(u16),
    /// Listen.
    Listen {
        /// The name, the same on every lane.
        id: ListenerId,
        /// Bound address, and options.
        binding: Binding,
        /// Port.
        port: u16,
        /// What `listen` asked for, over all lanes.
        backlog: usize,
        /// Of the packets to whoever calls it, from the first one on.
        marks: Marks,
    },
    /// Marks of the packets to whoever calls a listener from now on.
    Mark(ListenerId, Marks),
    /// Stop listening: what waits is reset.
    Unlisten(ListenerId),
    /// Bind a UDP socket.
    BindUdp {
        /// The name, the same on every lane.
        id: UdpId,
        /// Bound address, and options.
        binding: Binding,
        /// Port.
        port: u16,
    },
    /// Unbind it.
    UnbindUdp(UdpId),
    /// Send this frame, link header and all.
    Transmit(Vec<u8>),
    /// Another lane has learned a path's MTU.
    PathMtu(Address, u32),
    /// The same, for what nobody can verify.
    UnverifiedMtu(Unverified, Address, u32),
    /// Buckets move: go by this table, as soon as what was mailed by the old one has been taken in, and say so.
    Steer {
        /// Who owns what.
        table: Box<Table>,
        /// The device switches at once ([`Source::is_abrupt`](crate::steering::Source::is_abrupt)).
        is_abrupt: bool,
    },
    /// No source sends frames of this bucket to this lane's queue any more.
    Switched {
        /// The bucket.
        bucket: usize,
        /// The most frames that the queue holds.
        capacity: usize,
    },
    /// A bucket has come to this lane for good, and its former owner has sent cookies that are good until then.
    Cookies(Instant),
    /// Send a copy of the counters back.
    ReportCounters,
    /// Fill this page of a listing, and send it back.
    List(Box<Page>),
    /// Show packets to this tap from now on.
    Tap(Box<Tap>),
}

/// From a lane to the control thread.
pub enum ToControl {
    /// A frame of ARP or neighbour discovery, link header and all.
    Frame(Vec<u8>),
    /// A packet waits for this next hop's link address; or was sent there, and nothing says whether it is alive (RFC 4861 section 7.3.3).
    Used(Address),
    /// A connection makes progress through this next hop: it is reachable (RFC 4861 section 7.3.1).
    Confirmed(Address),
    /// A path's MTU, validated.
    PathMtu(Address, u32),
    /// A path's MTU for that of which nothing can be validated.
    UnverifiedMtu(Unverified, Address, u32),
    /// The answer to `Reserve`.
    Surveyed {
        /// The name.
        id: u16,
        /// A connection of this lane stands in the way.
        in_use: bool,
        /// The set that came with the question, filled.
        census: Option<PortSet>,
    },
    /// This lane listens: what arrives from now on meets the listener.
    Listening(ListenerId),
    /// This lane goes by the table of this version.
    GoesBy(u64),
    /// A bucket that was taken from this lane has no flow here any more.
    Drained {
        /// The bucket.
        bucket: usize,
        /// Cookies that were sent for it are good until then.
        cookies_until: Instant,
    },
    /// A copy of the counters, and the bytes that the tables hold.
    Counters(Box<Counters>, usize),
    /// The page that was asked for.
    Page(Box<Page>),
    /// The tap's reader has gone.
    TapDone(Box<Tap>),
    /// A snapshot that this lane has a newer one for. What is in it is counted where it was made, and not on a lane.
    Replaced(Box<Snapshot>),
}

/// Messages that may wait in each direction between a lane and the control thread.
const CONTROL_MAIL: usize = 1_024;
/// Of these, for whatever is no frame of ARP or neighbour discovery: anybody on the link can send so many of those that nothing else would
/// have room.
const RESERVED: usize = 256;
/// Bytes of mis-steered packets that may wait from one lane to another.
const FRAME_MAIL: usize = 1 << 20;

/// A lane's ends of every ring that it has.
pub struct LaneMail {
    /// Commands.
    pub from_control: ItemConsumer<ToLane>,
    /// Reports.
    pub to_control: ItemProducer<ToControl>,
    /// IP packets for other lanes, by lane; `None` for itself.
    pub to_lanes: Vec<Option<RecordProducer>>,
    /// IP packets from other lanes.
    pub from_lanes: Vec<RecordConsumer>,
    /// Reports that must not be lost, and for which there was no room.
    kept: VecDeque<ToControl>,
}

impl LaneMail {
    /// Hands a frame of ARP or neighbour discovery to the control thread. False: too many wait there already.
    pub fn pass_on(&mut self, frame: &[u8]) -> bool {
        self.to_control.has_room(RESERVED + 1) && self.to_control.push(ToControl::Frame(frame.to_vec())).is_ok()
    }

    /// Says what may as well be said later, and is left out where many others wait.
    pub fn mention(&mut self, report: ToControl) {
        if self.to_control.has_room(RESERVED + 1) {
            let _ = self.to_control.push(report);
        }
    }

    /// Sends a report that somebody waits for: where there is no room now, in a later poll.
    pub fn tell(&mut self, report: ToControl) {
        self.kept.push_back(report);
        self.tell_kept();
    }

    /// Sends what was kept, as far as there is room.
    pub fn tell_kept(&mut self) {
        send_kept(&mut self.kept, &mut self.to_control);
    }

    /// Some reports wait for room.
    #[inline]
    pub fn keeps(&self) -> bool {
        !self.kept.is_empty()
    }
}

/// The control thread's ends of one lane's rings.
pub struct ControlMail {
    /// Commands.
    pub to_lane: ItemProducer<ToLane>,
    /// Reports.
    pub from_lane: ItemConsumer<ToControl>,
    /// Commands that must not be lost, and for which there was no room.
    kept: VecDeque<ToLane>,
}

impl ControlMail {
    /// Sends a command that somebody waits for: where there is no room now, in a later turn, behind those that wait for room already.
    pub fn tell(&mut self, command: ToLane) {
        self.kept.push_back(command);
        self.tell_kept();
    }

    /// Sends what was kept, as far as there is room.
    pub fn tell_kept(&mut self) {
        send_kept(&mut self.kept, &mut self.to_lane);
    }

    /// Some commands wait for room.
    pub fn keeps(&self) -> bool {
        !self.kept.is_empty()
    }
}

fn send_kept<T: Send>(kept: &mut VecDeque<T>, ring: &mut ItemProducer<T>) {
    while let Some(oldest) = kept.pop_front() {
        if let Err(oldest) = ring.push(oldest) {
            return kept.push_front(oldest);
        }
    }
}

/// Rings between a control thread and `lanes` lanes, and between each two lanes.
pub fn exchange(lanes: usize) -> (Vec<ControlMail>, Vec<LaneMail>) {
    let mut control = Vec::new();
    let mut mail: Vec<LaneMail> = Vec::new();
    for _ in 0..lanes {
        let (to_lane, from_control) = items(CONTROL_MAIL);
        let (to_control, from_lane) = items(CONTROL_MAIL);
        control.push(ControlMail { to_lane, from_lane, kept: VecDeque::new() });
        let (to_lanes, from_lanes, kept) = (Vec::new(), Vec::new(), VecDeque::new());
        mail.push(LaneMail { from_control, to_control, to_lanes, from_lanes, kept });
    }
    for from in 0..lanes {
        for to in 0..lanes {
            if from == to {
                mail[from].to_lanes.push(None);
                continue;
            }
            let (producer, consumer) = records(FRAME_MAIL);
            mail[from].to_lanes.push(Some(producer));
            mail[to].from_lanes.push(consumer);
        }
    }
    (control, mail)
}

#[cfg(test)]
mod tests;
