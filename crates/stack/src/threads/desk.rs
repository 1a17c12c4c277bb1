//! Owns what application threads have of a stack: how they reach its lanes.

use super::accept::{Acceptors, LaneAcceptor};
use super::company;
use super::datagram::{Datagrams, LaneDatagrams};
use super::patience::LOOK_US;
use super::poll::{Source, Watch, Watched};
use super::reach::{self, Unreachable};
use super::usual::Usual;
use super::words::{
    AppWords, CALLED_OFF, CONNECTED, Conversation, Fault, GONE, LEFT, LaneWords, NO_SLOT, Op, RESETS, SHUT_READ,
    SHUT_WRITE, Talk, TalkEnd, is_over, last_words,
};
use super::{NOTES_MAX, POOL, RING};
use crate::app::{ListenerId, UdpId};
use crate::clock::Clock;
use crate::config::Config;
use crate::control::BindId;
use crate::runtime::{Bells, cores};
use crate::snapshot::Snapshot;
use laneway_proto::ip::output::Marks;
use laneway_proto::tcp::Info;
use laneway_proto::time::Instant;
use laneway_sync::fork::Birth;
use laneway_sync::padded::Padded;
use laneway_sync::ring::bytes::{BlockPool, Notes, pipe};
use laneway_sync::wake::{Job, PushList, WakeList, Woken, look_fence, wake_list};
use laneway_wire::flow::Address;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock};

/// A UDP socket, for the wake list of the lane that sends for it.
pub type UdpTicket = Job<Arc<Datagrams>>;

/// What a lane is asked for beside what concerns one connection.
pub(super) enum Command {
    /// Open a connection. `tried` lanes could not.
    Connect { end: TalkEnd, opening: Opening, tried: usize },
    /// Hand connections of this listener to threads.
    Listen(LaneAcceptor),
    /// Stop that.
    Unlisten(ListenerId),
    /// There is room again for this listener's connections.
    Refill(ListenerId),
    /// Hand this socket's datagrams to threads.
    BindUdp(Box<LaneDatagrams>),
    /// Stop that.
    UnbindUdp(UdpId),
    /// Tell this one of a listener's news, too; `None`: one of those that are told is forgotten.
    WatchListener(ListenerId, Option<Arc<Watch>>),
    /// The same for a UDP socket.
    WatchUdp(UdpId, Option<Arc<Watch>>),
}

/// A connection that is to be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// Where it begins.
    pub from: Origin,
    /// Where it leads to.
    pub to: SocketAddr,
    /// Marks of its packets from its SYN on.
    pub marks: Marks,
}

impl Opening {
    /// Of one of which nothing is said but where it leads to.
    pub fn anywhere(to: SocketAddr) -> Self {
        Opening { from: Origin::Anywhere, to, marks: Marks::NONE }
    }
}

/// Where a connection begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// At the address that the route says, at any port.
    Anywhere,
    /// At this address, at any port.
    Address(Address),
    /// Where this socket is bound.
    Bound(BindId),
}

struct Post {
    commands: PushList<Command>,
    wake: WakeList<Conversation>,
    wake_udp: WakeList<UdpTicket>,
    pool: Arc<BlockPool>,
    /// The lane has ended: nobody takes what is said of a connection any more.
    ended: AtomicBool,
}

/// A stack's lanes, as application threads reach them.
pub struct Desk {
    /// Each by itself: what threads push to one lane does not take the next lane's list from those who read it.
    posts: Box<[Padded<Post>]>,
    bells: Bells,
    born: Birth,
    clock: Clock,
    /// How long a thread that waits looks before it sleeps, in microseconds.
    look_us: AtomicU32,
    usual: OnceLock<Usual>,
    /// Where datagrams can go; unknown until it was said.
    world: OnceLock<Snapshot>,
    /// Written by every connect, and so not beside the pointers above, which every wake-up reads.
    next: Padded<AtomicUsize>,
    stopped: AtomicBool,
}

/// What a lane's [`Server`](super::Server) takes work from.
pub(super) struct Inbox {
    pub(super) woken: Woken<Conversation>,
    pub(super) woken_udp: Woken<UdpTicket>,
}

impl Desk {
    /// A desk in front of as many lanes as there are bells, and each lane's side of it.
    pub fn new(lanes: usize, bells: Bells) -> (Arc<Desk>, Vec<super::Server>) {
        Self::with_pool(lanes, bells, POOL)
    }

    /// The same; of each size of blocks a lane's conversations may hold so many bytes, and a sixteenth as much for
    /// what has come, and again for what is written.
    pub fn with_pool(lanes: usize, bells: Bells, bytes: usize) -> (Arc<Desk>, Vec<super::Server>) {
        let mut inboxes = Vec::new();
        let posts = (0..lanes).map(|_| {
            let ((wake, woken), (wake_udp, woken_udp)) = (wake_list(), wake_list());
            inboxes.push(Inbox { woken, woken_udp });
            let pool = Arc::new(BlockPool::new(bytes));
            Padded(Post { commands: PushList::default(), wake, wake_udp, pool, ended: AtomicBool::new(false) })
        });
        let posts = posts.collect();
        let desk = Arc::new(Desk {
            posts,
            bells,
            born: Birth::here(),
            clock: Clock::start(),
            look_us: AtomicU32::new(if cores().len() > 1 { LOOK_US } else { 0 }),
            usual: OnceLock::new(),
            world: OnceLock::new(),
            next: Padded(AtomicUsize::new(0)),
            stopped: AtomicBool::new(false),
        });
        let servers =
            inboxes.into_iter().enumerate().map(|(lane, inbox)| super::Server::new(desk.clone(), lane, inbox));
        let servers = servers.collect();
        (desk, servers)
    }

    /// This process made it, and is not a child of the one that did.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.born.is_here()
    }

    /// The stack has ended, or is about to.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Acquire)
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> usize {
        self.posts.len()
    }

    /// A conversation of some lane that needs a block would get one, if only in reserve.
    pub(super) fn has_blocks(&self) -> bool {
        let has_some = |pool: &BlockPool| pool.has_some() || pool.has_reserve_to_write() || pool.has_reserve();
        self.posts.iter().any(|post| has_some(&post.pool))
    }

    /// Bytes of blocks that all conversations hold or have held.
    pub fn block_bytes(&self) -> usize {
        self.posts.iter().map(|post| post.pool.bytes()).sum()
    }

    /// Bytes of blocks that conversations hold. Walks lists, so for tests while nobody else uses the desk.
    pub fn block_bytes_in_use(&self) -> usize {
        self.posts.iter().map(|post| post.pool.in_use()).sum()
    }

    /// What stands on every line that a conversation's application and its lane share and that holds no data: its own three, the
    /// list's, the pool's, the bell's. Whoever compares two answers learns which of them were written between. For counting how
    /// often lines travel, while nobody else uses the desk.
    pub fn lines(&self, talk: &Conversation) -> Vec<u64> {
        let lane = talk.lane();
        let serves = usize::from(lane.lane.load(Acquire));
        let post = &self.posts[serves];
        let [first, second] = talk.lines();
        let words = u64::from(lane.status.load(Relaxed)) << 32 | u64::from(lane.event.now());
        let words = words ^ u64::from(lane.noted.load(Relaxed)).rotate_left(48);
        let mut lines = vec![first, second, words, post.wake.line()];
        lines.extend(post.pool.lines());
        lines.push(self.bells.line(serves));
        lines
    }

    /// Where the bytes of all conversations lie in memory, as addresses: see [`lines`](Self::lines).
    pub fn data_memory(&self) -> Vec<Range<usize>> {
        self.posts.iter().flat_map(|post| post.pool.memory()).collect()
    }

    /// Begins to open a connection to there.
    pub fn connect(&self, to: SocketAddr) -> Talk {
        let talk = self.open(Opening::anywhere(to));
        self.begin(&talk);
        talk
    }

    /// Leaves word that a connection is to be opened, with the next lane in turn; that one passes it on, if the answers would not come to it. The caller has
    /// it [begin](Self::begin).
    pub fn open(&self, opening: Opening) -> Talk {
        let lane = self.next.fetch_add(1, Relaxed) % self.posts.len();
        let (talk, end) = self.conversation(lane);
        talk.app().ttl.store(opening.marks.hop_limit, Relaxed);
        self.note_down(lane, Command::Connect { end, opening, tried: 0 });
        talk
    }

    /// Has the lane begin with a connection that it was to [open](Self::open).
    pub fn begin(&self, talk: &Talk) {
        self.tell_lane(usize::from(talk.lane().lane.load(Acquire)), talk.app().nonblocking.load(Relaxed));
    }

    pub(super) fn conversation(&self, lane: usize) -> (Talk, TalkEnd) {
        let made = pipe(&self.posts[lane].pool, RING, Notes::default(), AppWords::default(), LaneWords::new(lane));
        made.0.place().store(NO_SLOT, Relaxed);
        made
    }

    /// Has the lane look at a connection. Publish first what it is to find.
    #[inline]
    pub fn serve(&self, talk: &Talk) {
        let lane = usize::from(talk.lane().lane.load(Acquire));
        if self.posts[lane].wake.push(talk) {
            self.bells.ring(lane);
        }
    }

    /// As [`serve`](Self::serve), by a caller who is about to wait for what comes of it: if the lane sleeps, it does the lane's work.
    #[inline]
    pub fn attend(&self, talk: &Talk) {
        let lane = usize::from(talk.lane().lane.load(Acquire));
        if self.posts[lane].wake.push(talk) {
            self.bells.attend(lane);
        }
    }

    /// As [`serve`](Self::serve) by a thread whose calls do not wait, and which has [many others](company) to serve first; as [`attend`](Self::attend) by any other.
    #[inline]
    pub fn tell(&self, talk: &Talk) {
        let lane = usize::from(talk.lane().lane.load(Acquire));
        if self.posts[lane].wake.push(talk) {
            self.tell_lane(lane, talk.app().nonblocking.load(Relaxed));
        }
    }

    #[inline]
    fn tell_lane(&self, lane: usize, nonblocking: bool) {
        match nonblocking && company::is_many() {
            true => self.bells.ring(lane),
            false => self.bells.attend(lane),
        }
    }

    /// How long a thread that waits looks before it sleeps: see [`looks`](Self::looks). 0: it sleeps at once.
    pub fn set_look_us(&self, us: u32) {
        self.look_us.store(us, Relaxed);
    }

    /// What is so where a socket was told nothing else, which it tells whoever asks. Once.
    pub fn set_usual(&self, usual: Usual) {
        let _ = self.usual.set(usual);
    }

    /// What is so where a socket was told nothing else.
    pub fn usual(&self) -> &Usual {
        self.usual.get_or_init(|| Usual::of(&Config::default()))
    }

    /// What the stack was started with; its routes stay as they are.
    pub fn set_world(&self, world: Snapshot) {
        let _ = self.world.set(world);
    }

    /// Whether a socket can be bound to it.
    pub fn is_ours(&self, address: IpAddr) -> bool {
        let address = Address::from(address);
        self.world.get().is_none_or(|world| address.is_unspecified() || world.addresses.contains(&address))
    }

    /// Which address a socket that is bound to `bound` sends from to `to`; `to_all`: that may be a broadcast address.
    pub fn source(&self, bound: IpAddr, to: IpAddr, to_all: bool) -> Result<IpAddr, Unreachable> {
        self.world.get().map_or(Ok(bound), |world| reach::source(world, bound, to, to_all))
    }

    pub(super) fn look_us(&self) -> u32 {
        self.look_us.load(Relaxed)
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(super) fn mind(&self, lane: usize, enough: impl FnMut() -> bool) -> bool {
        self.bells.mind(lane, enough)
    }

    pub(super) fn is_awake(&self, lane: usize) -> bool {
        self.bells.is_awake(lane)
    }

    /// Asks for something behind the bytes sent so far. False: too much is asked already; the lane takes it with its next turns, whatever
    /// the peer does.
    pub fn note(&self, talk: &Talk, op: Op) -> bool {
        self.note_behind(talk, || {
            // What ends it, or one direction, is never refused: it comes once.
            let last = matches!(op, Op::Shutdown | Op::ShutRead | Op::Close | Op::Abort | Op::Watch(_));
            (last || takes_notes(talk)).then_some(op)
        })
    }

    /// Has the lane `tell` what is known about a connection, or drop it if there is none any more. False, and it is dropped: as [`note`](Self::note).
    pub fn inquire(&self, talk: &Talk, tell: Box<dyn FnOnce(Info) + Send>) -> bool {
        let noted = self.note(talk, Op::Info(tell));
        self.last_words_if_ended(talk);
        noted
    }

    /// What was said to a lane that has ended is said to nobody. Either the lane that ends finds it, or its end is seen here.
    fn last_words_if_ended(&self, talk: &Talk) {
        look_fence();
        if self.posts[usize::from(talk.lane().lane.load(Acquire))].ended.load(Acquire) {
            last_words(talk);
        }
    }

    /// Sets one of the bits of the application's side that stand for an option, or clears it, and asks for `op`, unless it is so already. False:
    /// as [`note`](Self::note). Where the bit changes is where the note stands, whoever else changes it.
    pub fn set(&self, talk: &Talk, bit: u8, on: bool, op: Op) -> bool {
        let mut done = true;
        self.note_behind(talk, || {
            let state = &talk.app().state;
            if (state.load(Relaxed) & bit != 0) == on {
                return None;
            }
            done = takes_notes(talk);
            if done {
                state.fetch_xor(bit, Relaxed);
            }
            done.then_some(op)
        });
        done
    }

    /// Shuts directions of the application's side: [`SHUT_WRITE`], [`SHUT_READ`]. Where the FIN stands is settled while nobody writes, and
    /// the bit is set there: whoever writes looks at it there, too, and no byte comes to stand behind the FIN.
    pub fn shut(&self, talk: &Talk, bits: u8) {
        self.note_behind(talk, || match bits & !talk.app().state.fetch_or(bits, Relaxed) {
            new if new & SHUT_WRITE != 0 => Some(Op::Shutdown),
            new if new & SHUT_READ != 0 => Some(Op::ShutRead),
            _ => None,
        });
    }

    /// Calls off a connection that is only begun; false: it is more than that, or over. For the application it is over at once, reset, and its
    /// lane hears of it: what comes of it meanwhile is nobody's.
    pub fn call_off(&self, talk: &Talk) -> bool {
        let words = talk.lane();
        let begun = |status| (status & (CONNECTED | GONE) == 0).then_some(status | GONE | CALLED_OFF);
        if words.status.fetch_update(AcqRel, Acquire, begun).is_err() {
            return false;
        }
        words.fail(Fault::Reset);
        is_over(talk, 0);
        self.note(talk, Op::Abort);
        true
    }

    /// Asks for what `ask` says, if it says something, behind the bytes sent so far. No byte is appended meanwhile.
    fn note_behind(&self, talk: &Talk, ask: impl FnOnce() -> Option<Op>) -> bool {
        let noted = talk.after(|at| {
            let Some(op) = ask() else { return false };
            talk.app().noted.fetch_add(1, Relaxed);
            talk.said().push((at, op));
            true
        });
        if noted {
            self.tell(talk);
        }
        noted
    }

    /// The application is gone; `resets`: it wants an RST. Its hold on the conversation goes to the lane with the same step that says so,
    /// and may be the last: the lane can use it for another connection.
    pub fn leave(&self, talk: Talk, resets: bool) {
        let lane = usize::from(talk.lane().lane.load(Acquire));
        let nonblocking = talk.app().nonblocking.load(Relaxed);
        if self.posts[lane].wake.push_last(talk, if resets { LEFT | RESETS } else { LEFT }) {
            self.tell_lane(lane, nonblocking);
        }
    }

    /// Has every lane hand the connections of a listener to threads.
    pub fn listen(&self, id: ListenerId, at: SocketAddr, backlog: usize) -> Arc<Acceptors> {
        let (acceptors, sides) = Acceptors::new(id, at, self.posts.len(), backlog);
        for (lane, side) in sides.into_iter().enumerate() {
            self.say(lane, Command::Listen(side));
        }
        acceptors
    }

    /// Stops that; connections that no thread has taken are reset.
    pub fn unlisten(&self, id: ListenerId) {
        (0..self.posts.len()).for_each(|lane| self.say(lane, Command::Unlisten(id)));
    }

    /// Tells a lane that there is room again for a listener's connections.
    pub fn refill(&self, lane: usize, id: ListenerId) {
        self.say(lane, Command::Refill(id));
    }

    /// Has every lane hand a socket's datagrams to threads.
    pub fn bind_udp(&self, id: UdpId, at: SocketAddr) -> Arc<UdpTicket> {
        let (shared, sides) = Datagrams::new(id, at, self.posts.len());
        for (lane, side) in sides.into_iter().enumerate() {
            self.say(lane, Command::BindUdp(Box::new(side)));
        }
        Arc::new(Job::new(shared))
    }

    /// Stops that.
    pub fn unbind_udp(&self, id: UdpId) {
        (0..self.posts.len()).for_each(|lane| self.say(lane, Command::UnbindUdp(id)));
    }

    /// Has the lane send what was queued. If it sleeps, a caller who will most likely wait for an answer does it.
    pub fn send_datagrams(&self, ticket: &Arc<UdpTicket>) {
        if ticket.has_much_to_say() {
            self.send_more_datagrams(ticket);
        } else if self.posts[ticket.lane].wake_udp.push(ticket) {
            self.tell_lane(ticket.lane, ticket.nonblocking.load(Relaxed));
        }
    }

    /// As [`send_datagrams`](Self::send_datagrams), by who waits for nothing: the lane itself, too.
    pub(super) fn send_more_datagrams(&self, ticket: &Arc<UdpTicket>) {
        if self.posts[ticket.lane].wake_udp.push(ticket) {
            self.bells.ring(ticket.lane);
        }
    }

    /// Tells `watch`, beside others, of its socket's news from now on.
    pub fn watch(&self, watch: &Arc<Watch>) {
        self.change_watches(&watch.source, Some(watch));
    }

    /// Has the lanes drop those that watch a socket and were [forgotten](super::poll::Watched::forget).
    pub fn unwatch(&self, source: &Source) {
        self.change_watches(source, None);
    }

    fn change_watches(&self, source: &Source, watch: Option<&Arc<Watch>>) {
        let all = 0..self.posts.len();
        match source {
            Source::Conversation(talk) => {
                self.note(talk, Op::Watch(watch.cloned()));
                self.last_words_if_ended(talk); // who watches it has it, and would be kept by it for ever
            }
            Source::Acceptors(a) => all.for_each(|lane| self.say(lane, Command::WatchListener(a.id, watch.cloned()))),
            Source::Datagrams(d) => all.for_each(|lane| self.say(lane, Command::WatchUdp(d.id, watch.cloned()))),
        }
    }

    pub(super) fn say(&self, lane: usize, command: Command) {
        self.note_down(lane, command);
        self.bells.ring(lane);
    }

    /// The same for a lane that somebody is about to wake, or to stand in for.
    fn note_down(&self, lane: usize, command: Command) {
        self.posts[lane].commands.push(command);
        // Either the lane that ends finds the command, or its end is seen here.
        look_fence();
        if self.is_stopped() {
            self.take_commands(lane).into_iter().for_each(refuse);
        }
    }

    pub(super) fn take_commands(&self, lane: usize) -> Vec<Command> {
        self.posts[lane].commands.take_all()
    }

    /// A lane looks at nothing any more but at what was said so far.
    pub(super) fn ends(&self, lane: usize) {
        self.stop();
        self.posts[lane].ended.store(true, Release);
        look_fence();
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, SeqCst);
        look_fence();
    }
}

/// There is room for one more note that could wait.
fn takes_notes(talk: &Talk) -> bool {
    talk.app().noted.load(Relaxed).wrapping_sub(talk.lane().noted.load(Acquire)) < NOTES_MAX
}

/// A command that no lane will ever look at.
pub(super) fn refuse(command: Command) {
    use super::words::{READ, WRITE, wake_those};
    match command {
        Command::Connect { end, .. } => {
            let talk = end.pipe();
            talk.lane().fail(Fault::Stopped);
            talk.place().store(NO_SLOT, Relaxed);
            is_over(talk, GONE);
            look_fence();
            wake_those(talk.flags(), &talk.lane().event, READ | WRITE);
            last_words(talk);
        }
        Command::Listen(side) => side.end(),
        Command::BindUdp(side) => side.end(),
        // Its lane does not know whom to tell that it is over, and may be yet to say so.
        Command::WatchListener(_, Some(watch)) | Command::WatchUdp(_, Some(watch)) => {
            watch.source.end();
            Watched::look(&watch);
        }
        Command::Unlisten(_)
        | Command::Refill(_)
        | Command::UnbindUdp(_)
        | Command::WatchListener(_, None)
        | Command::WatchUdp(_, None) => {}
    }
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("lanes", &self.posts.len()).finish_non_exhaustive()
    }
}
