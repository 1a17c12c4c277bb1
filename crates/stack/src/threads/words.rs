//! Owns what an application and a lane say to each other about one connection, beside its bytes.

use super::patience::Patience;
use super::poll::Watch;
use super::watches::Watches;
use laneway_proto::tcp::congestion::Algorithm;
use laneway_proto::tcp::{Info, KeepaliveTimes};
use laneway_sync::ring::bytes::{AppEnd, LaneEnd, Notes, Pipe};
use laneway_sync::wake::Flags;
use laneway_wire::flow::FlowKey;
use rustix::thread::futex;
use rustix::time::Timespec;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU16, AtomicU32, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// One connection, as application threads see it.
pub type Conversation = Pipe<Notes<Op>, AppWords, LaneWords>;
/// What keeps it for them.
pub type Talk = AppEnd<Notes<Op>, AppWords, LaneWords>;
/// Its lane's end.
pub(super) type TalkEnd = LaneEnd<Notes<Op>, AppWords, LaneWords>;

/// Wants: bytes, or the end of them.
pub const READ: u32 = 1;
/// Wants: room to send.
pub const WRITE: u32 = 2;
/// Has looked for room to send and found too little, and is told by a poller; nobody sleeps for it in a call. Of UDP sockets, too.
pub const ROOM: u32 = 4;
/// The lane, and not the application, waits: it has bytes that found no room in the ring. Of the flags as the ones before, because
/// the application has them at hand when it has read.
pub const FULL: u32 = 8;
/// The lane has said that the connection is over, or that it failed: see [`LaneWords`] for which. Here, so that nobody need look there
/// as long as nothing is wrong.
pub const OVER: u32 = 16;
/// The application is gone: a FIN behind its bytes, or an RST if it left some unread. It is said with the last thing that it does, so
/// that no note and no number of bytes is needed.
pub const LEFT: u32 = 32;
/// With [`LEFT`]: an RST, at once.
pub const RESETS: u32 = 64;

/// The connection is established.
pub const CONNECTED: u32 = 1;
/// The peer has closed, and all that it sent is in the ring.
pub const ENDED: u32 = 2;
/// The connection is over: said with every failure, and behind all that has come.
pub const GONE: u32 = 4;
/// With [`GONE`]: the application has [called it off](super::desk::Desk::call_off) before it was connected.
pub const CALLED_OFF: u32 = 8;

/// The caller's side has been shut: for sending, …
pub const SHUT_WRITE: u8 = 1;
/// … for receiving.
pub const SHUT_READ: u8 = 2;
/// `TCP_NODELAY` was asked for.
pub const NODELAY: u8 = 4;
/// `SO_KEEPALIVE` was asked for.
pub const KEEPALIVE: u8 = 8;
/// `TCP_CORK` was asked for.
pub const CORK: u8 = 32;
/// Of `TCP_QUICKACK` the contrary was.
pub const DELAYS_ACKS: u8 = 64;
/// It was begun to be opened, and no write has found yet what came of it.
pub const OPENING: u8 = 16;

/// What is asked of a lane beside the bytes.
pub enum Op {
    /// `TCP_NODELAY`.
    Nodelay(bool),
    /// `SO_KEEPALIVE`.
    Keepalive(bool),
    /// `TCP_KEEPIDLE`, `TCP_KEEPINTVL` and `TCP_KEEPCNT`.
    KeepaliveTimes(KeepaliveTimes),
    /// `TCP_USER_TIMEOUT` in milliseconds: at once, whatever bytes wait.
    UserTimeout(u32),
    /// `IP_TTL`.
    Ttl(u8),
    /// `IP_TOS`, if its packets are of IPv4, or `IPV6_TCLASS`, if they are not.
    Tos {
        /// The former.
        v4: bool,
        /// Its value.
        tos: u8,
    },
    /// `TCP_CORK`.
    Cork(bool),
    /// `TCP_QUICKACK`.
    Quickack(bool),
    /// `TCP_CONGESTION`.
    Congestion(Algorithm),
    /// `SO_SNDBUF`, in bytes of text: at once, whatever bytes wait.
    SendBuffer(u32),
    /// `SO_RCVBUF`, the same.
    ReceiveBuffer(u32),
    /// `TCP_NOTSENT_LOWAT`, of what its connection holds: at once, too.
    NotsentLowat(u32),
    /// `TCP_INFO`: at once. Who is not told has had no connection any more; what is given here is dropped then.
    Info(Box<dyn FnOnce(Info) + Send>),
    /// A FIN behind the bytes.
    Shutdown,
    /// Nobody will read any more: the peer is told nothing, and who watches is to look.
    ShutRead,
    /// A FIN behind the bytes, or an RST if some were left unread, by who does not [leave](LEFT): the stack, which ends.
    Close,
    /// An RST, at once.
    Abort,
    /// Tell this one, too, what happens from now on; `None`: one of those that are told is [forgotten](super::poll::Watched::forget).
    Watch(Option<Arc<Watch>>),
}

/// What the application's threads keep among themselves. The lane has no business here.
pub struct AppWords {
    /// How long a read waits, in milliseconds; `u32::MAX`: for ever.
    pub read_timeout_ms: AtomicU32,
    /// The same for writes.
    pub write_timeout_ms: AtomicU32,
    /// `SO_LINGER` in seconds; negative: not set.
    pub linger_s: AtomicI32,
    /// Notes pushed so far, modulo 2¹⁶.
    pub noted: AtomicU16,
    /// Calls return at once.
    pub nonblocking: AtomicBool,
    /// What was shut or asked for: [`SHUT_WRITE`] and its neighbours.
    pub state: AtomicU8,
    /// What looking before sleeping has been worth: see [`Desk::looks`](super::desk::Desk::looks).
    pub(super) patience: Patience,
    /// `IP_TTL` that was asked for; 0: as the host's.
    pub ttl: AtomicU8,
    /// `TCP_USER_TIMEOUT` that was asked for.
    pub user_timeout_ms: AtomicU32,
    /// How many handles the application has; the last one closes.
    pub handles: AtomicU32,
    /// How many watch it.
    pub(super) watches: AtomicU16,
}

impl Default for AppWords {
    /// Of a conversation that begins.
    fn default() -> Self {
        AppWords {
            read_timeout_ms: AtomicU32::new(u32::MAX),
            write_timeout_ms: AtomicU32::new(u32::MAX),
            linger_s: AtomicI32::new(-1),
            noted: AtomicU16::new(0),
            nonblocking: AtomicBool::new(false),
            state: AtomicU8::new(0),
            patience: Patience::default(),
            ttl: AtomicU8::new(0),
            user_timeout_ms: AtomicU32::new(0),
            handles: AtomicU32::new(1),
            watches: AtomicU16::new(0),
        }
    }
}

impl AppWords {
    /// For whoever takes a conversation that the lane has made or renewed: as of one that begins.
    pub(super) fn begin(&self) {
        let AppWords { read_timeout_ms, write_timeout_ms, linger_s, noted: _, nonblocking, .. } = self;
        let AppWords { state, patience, ttl, user_timeout_ms, handles, watches: _, .. } = self;
        read_timeout_ms.store(u32::MAX, Relaxed);
        write_timeout_ms.store(u32::MAX, Relaxed);
        linger_s.store(-1, Relaxed);
        nonblocking.store(false, Relaxed);
        state.store(0, Relaxed);
        patience.renew();
        ttl.store(0, Relaxed);
        user_timeout_ms.store(0, Relaxed);
        handles.store(1, Relaxed);
    }
}

/// What an application has asked for, and is told when it asks what that was. 0: nothing, and it is as the configuration has it.
#[derive(Default)]
pub struct Asked {
    /// `TCP_KEEPIDLE`, `TCP_KEEPINTVL` and `TCP_KEEPCNT`.
    keepalive: [AtomicU16; 3],
    /// `IP_TOS`.
    pub tos: AtomicU8,
    /// `IPV6_TCLASS`.
    pub tclass: AtomicU8,
    /// `TCP_CONGESTION`: the place of its algorithm among [all](Algorithm::ALL), plus one.
    pub congestion: AtomicU8,
    /// `SO_SNDBUF` and `SO_RCVBUF`, in bytes of text.
    pub send_buffer: AtomicU32,
    /// The latter.
    pub receive_buffer: AtomicU32,
    /// `TCP_NOTSENT_LOWAT`, in bytes.
    pub notsent_lowat: AtomicU32,
}

impl Asked {
    /// What stands there already is not written again.
    fn renew(&mut self) {
        let Asked { keepalive: [idle, interval, probes], tos, tclass, congestion, .. } = self;
        let Asked { send_buffer, receive_buffer, notsent_lowat, .. } = self;
        for asked in [idle, interval, probes] {
            if *asked.get_mut() != 0 {
                *asked.get_mut() = 0;
            }
        }
        for asked in [tos, tclass, congestion] {
            if *asked.get_mut() != 0 {
                *asked.get_mut() = 0;
            }
        }
        for asked in [send_buffer, receive_buffer, notsent_lowat] {
            if *asked.get_mut() != 0 {
                *asked.get_mut() = 0;
            }
        }
    }

    /// The times of keepalive.
    pub fn keepalive_times(&self) -> KeepaliveTimes {
        let [idle_s, interval_s, probes] = self.keepalive.each_ref().map(|asked| asked.load(Relaxed));
        KeepaliveTimes { idle_s, interval_s, probes: probes as u8 }
    }

    /// Notes them.
    pub fn set_keepalive_times(&self, times: KeepaliveTimes) {
        let KeepaliveTimes { idle_s, interval_s, probes } = times;
        for (asked, says) in self.keepalive.iter().zip([idle_s, interval_s, probes.into()]) {
            asked.store(says, Relaxed);
        }
    }
}

/// What the lane says; that a connect is [called off](super::desk::Desk::call_off), and what was asked for, the application says itself. What stands before the flow
/// changes only when something happens to the connection; the flow is another with each, and on a line that nobody needs to read.
#[repr(C)]
pub struct LaneWords {
    /// What sleepers sleep on.
    pub event: Event,
    /// [`CONNECTED`] and its neighbours.
    pub status: AtomicU32,
    /// Why it failed; whoever is told takes it.
    error: AtomicU16,
    /// Notes taken so far, modulo 2¹⁶.
    pub noted: AtomicU16,
    /// The lane that serves it.
    pub(super) lane: AtomicU16,
    /// No word of the lane's, but the application's own line is full.
    pub asked: Asked,
    _apart: u32,
    flow: OnceLock<FlowKey>,
}

/// No slot: what [`Conversation::place`](laneway_sync::ring::bytes::Pipe::place) says of one that its lane does not keep.
pub(super) const NO_SLOT: u32 = u32::MAX;

impl LaneWords {
    pub(super) fn new(lane: usize) -> Self {
        LaneWords {
            event: Event::default(),
            status: AtomicU32::new(0),
            error: AtomicU16::new(0),
            noted: AtomicU16::new(0),
            lane: AtomicU16::new(lane as u16),
            asked: Asked::default(),
            _apart: 0,
            flow: OnceLock::new(),
        }
    }

    /// As of another connection, that is established. What stands there already is not written again. Notes are counted on.
    pub(super) fn renew(&mut self, flow: FlowKey) {
        if *self.status.get_mut() != CONNECTED {
            *self.status.get_mut() = CONNECTED;
        }
        if *self.error.get_mut() != 0 {
            *self.error.get_mut() = 0;
        }
        self.asked.renew();
        self.flow = OnceLock::from(flow);
    }

    /// The flow, once its lane has begun to open it.
    pub fn flow(&self) -> Option<&FlowKey> {
        self.flow.get()
    }

    pub(super) fn set_flow(&self, flow: FlowKey) {
        let _ = self.flow.set(flow);
    }

    /// Why it failed, for the first who asks.
    pub fn take_error(&self) -> Option<Fault> {
        match self.error.load(Relaxed) {
            0 => None,
            _ => Fault::from_code(self.error.swap(0, AcqRel)),
        }
    }

    /// Has it failed, and nobody asked yet?
    pub fn has_error(&self) -> bool {
        self.error.load(Acquire) != 0
    }

    pub(super) fn fail(&self, fault: Fault) {
        let _ = self.error.compare_exchange(0, fault as u16, AcqRel, Relaxed);
    }
}

/// Why something failed, of all that a lane can find out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Fault {
    /// The peer answered a SYN with RST.
    Refused = 1,
    /// The peer sent RST.
    Reset,
    /// The peer sent RST after its FIN.
    BrokenPipe,
    /// The peer is silent.
    TimedOut,
    /// No route leads there, of ours or of a router's on the way.
    NetworkUnreachable,
    /// Nobody answers there who has the address.
    HostUnreachable,
    /// A filter said no.
    Prohibited,
    /// The address is none of ours, or no local port is left on any lane.
    AddressNotAvailable,
    /// The address and port are taken.
    AddressInUse,
    /// The addresses do not fit together.
    Invalid,
    /// The stack has ended.
    Stopped,
}

impl Fault {
    pub(super) fn from_code(code: u16) -> Option<Fault> {
        use Fault::*;
        let unreachable = [NetworkUnreachable, HostUnreachable, Prohibited];
        [Refused, Reset, BrokenPipe, TimedOut, AddressNotAvailable, AddressInUse, Invalid, Stopped]
            .into_iter()
            .chain(unreachable)
            .find(|fault| *fault as u16 == code)
    }
}

/// What threads sleep on: a counter that grows with every wake-up.
#[derive(Default)]
pub struct Event(AtomicU32);

impl Event {
    /// To be read before one looks for the last time.
    pub fn now(&self) -> u32 {
        self.0.load(Acquire)
    }

    /// Wakes everyone.
    pub fn wake(&self) {
        self.0.fetch_add(1, Release);
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    /// Sleeps until it is woken, unless that has happened since `seen`; for as long as `left` at the most.
    pub fn sleep(&self, seen: u32, left: Option<Duration>) {
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        // Woken, already changed, interrupted, or late: the caller looks.
        let _ = futex::wait(&self.0, futex::Flags::PRIVATE, seen, left.as_ref());
    }
}

/// Wakes whoever waits for one of `bits`. The caller's work is visible and fenced.
pub(super) fn wake_those(flags: &Flags, event: &Event, bits: u32) {
    if flags.take(bits) != 0 {
        event.wake();
    }
}

/// What of `bits` is news to a poller. That there is room is news only to whoever has found too little of it: else each
/// small write would wake the poller when its bytes leave. The caller's work is visible and fenced.
pub(super) fn poll_news(flags: &Flags, bits: u32) -> u32 {
    if bits & WRITE != 0 && flags.take(ROOM) == 0 { bits & !WRITE } else { bits }
}

/// The connection is over for the lane, or failed; whoever has it is told where he looks first.
pub(super) fn is_over(talk: &Conversation, status: u32) {
    if status != 0 {
        talk.lane().status.fetch_or(status, Release);
    }
    talk.flags().set(OVER);
}

/// What was said of one that is over, and that nobody will act upon any more, counts as heard. Those that were to be told of it, if that
/// was said so late, look now.
pub(super) fn last_words(talk: &Conversation) {
    let notes = talk.said().take_all();
    if notes.is_empty() {
        return;
    }
    talk.lane().noted.fetch_add(notes.len() as u16, Release);
    let mut late = Watches::default();
    for (_, op) in notes {
        if let Op::Watch(watch) = op {
            late.change(watch);
        }
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Conversation>() == 320, "an idle conversation is five lines");
    // Behind a pointer and the limits.
    assert!(offset_of!(LaneWords, flow) + 20 == 64, "what is another with each connection has a line of its own");
};

#[cfg(test)]
mod tests {
    use super::*;

    /// One whose code is not known again is an error that nobody is told of.
    #[test]
    fn every_fault_is_told_as_what_it_is_and_once() {
        use Fault::*;
        let named = [Refused, Reset, BrokenPipe, TimedOut, NetworkUnreachable, HostUnreachable, Prohibited];
        let asked = [AddressNotAvailable, AddressInUse, Invalid, Stopped];
        for fault in named.into_iter().chain(asked) {
            let words = LaneWords::new(0);
            assert_eq!(words.take_error(), None);
            words.fail(fault);
            words.fail(if fault == Reset { TimedOut } else { Reset });
            assert!(words.has_error());
            assert_eq!((words.take_error(), words.take_error()), (Some(fault), None), "the first, and once");
            assert!(!words.has_error());
        }
    }
}
