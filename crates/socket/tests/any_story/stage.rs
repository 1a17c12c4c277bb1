//! Owns a story while it is told: the sockets that it speaks of, and what their calls said.
//!
//! A call on a socket that is not there is passed over, so that a story without one of its calls is a story, too. What the two worlds do
//! differently on purpose is passed over where it would be seen: each such place says what that is.

use crate::call::{Call, Story, Who};
use crate::poller::Watcher;
use crate::sockets::{Listener, Stream, Teller};
use crate::tcp::Pair;
use crate::udp::Socket;
use crate::waiting::Waiter;
use crate::world::*;
use laneway::Interest;

/// How long a call waits, where calls wait.
pub const WAIT: Duration = Duration::from_millis(15);

/// Who has done something that others do not know yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    End(usize, usize),
    Udp(usize),
    Host,
}

pub struct Stage<'a, W: Teller> {
    pub world: &'a W,
    pub story: &'a Story,
    pub moment: Duration,
    listener: Option<W::Listener>,
    /// Of the last one.
    listens_at: Option<SocketAddr>,
    pub pairs: [Pair<W::Stream>; 2],
    pub sockets: [Socket<W::Udp>; 4],
    pub polled: Watcher<W::Poller>,
    /// What has not settled yet.
    pending: Option<Origin>,
    pub lines: Vec<String>,
    pub call: Option<Call>,
    pub waiters: Vec<Waiter<W>>,
}

/// What the story's calls say in this world; `moment`: how long what is done takes to reach everybody.
pub fn tell<W: Teller>(world: &W, story: &Story, moment: Duration) -> Vec<String> {
    let mut stage = Stage {
        world,
        story,
        moment,
        listener: None,
        listens_at: None,
        pairs: Default::default(),
        sockets: Default::default(),
        polled: Watcher::new(W::poller()),
        pending: None,
        lines: Vec::new(),
        call: None,
        waiters: Vec::new(),
    };
    for call in &story.calls {
        stage.call = Some(*call);
        stage.play(*call);
        stage.look_at_waiters();
    }
    stage.wake_waiters();
    stage.lines
}

/// What a call said.
pub fn said<T: std::fmt::Debug>(result: io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => failed(&error),
    }
}

/// What `take_error` says.
pub fn taken(result: io::Result<Option<io::Error>>) -> String {
    said(result.map(|error| error.map(|error| failed(&error))))
}

/// What was read, in few words.
pub fn read(buf: &[u8], result: io::Result<usize>) -> String {
    said(result.map(|n| match &buf[..n] {
        few if n <= 8 => format!("{few:?}"),
        many => format!("{n} bytes, {} to {}, of sum {}", many[0], many[n - 1], sum(many)),
    }))
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()))
}

impl<W: Teller> Stage<'_, W> {
    fn play(&mut self, call: Call) {
        match call {
            Call::Listen => {
                self.settle();
                self.listen();
            }
            Call::Unlisten => {
                self.settle();
                if self.listener.take().is_some() {
                    self.polled.has_gone(Origin::Host);
                    self.say("");
                    self.pairs.iter_mut().for_each(Pair::listener_has_gone);
                    self.has_done(Origin::Host);
                }
            }
            Call::ListenerReady => {
                self.settle();
                if let Some(listener) = &self.listener {
                    let ready = listener.ready();
                    self.say(&format!("{ready:?}"));
                }
            }
            Call::Accept => self.accept(),
            Call::Connect(pair) => self.connect(pair),
            Call::Begin(pair) => self.begin(pair),
            Call::BeginRefused(pair) => self.begin_refused(pair),
            Call::ConnectRefused => {
                let result = self.world.connect(self.world.closed()).map(drop);
                self.say(&said(result));
            }
            Call::WatchListener(mode) => {
                self.settle();
                if let Some(listener) = &self.listener {
                    let said = self.polled.watch(Origin::Host, (0, listener), Interest::READABLE, mode);
                    self.has_done(Origin::Host);
                    self.say(&said);
                }
            }
            Call::Wait => self.wait_for_all(),
            Call::Tcp(who, act) => self.act(who, act),
            Call::Udp(socket, act) => self.udp_act(socket, act),
        }
    }

    pub fn say(&mut self, said: &str) {
        let call = self.call.expect("it is of a call");
        self.lines.push(format!("{call:?}: {said}"));
    }

    /// Waits until everybody knows what was done.
    pub fn settle(&mut self) {
        if self.pending.take().is_some() {
            self.world.settle_for(self.moment);
        }
    }

    /// The same before somebody does something, unless it was he himself, and he does not wait for what comes of it.
    pub fn settle_before(&mut self, origin: Origin, hastens: bool) {
        if !(hastens && self.story.hasty && self.pending == Some(origin)) {
            self.settle();
        }
    }

    pub fn has_done(&mut self, origin: Origin) {
        self.pending = Some(origin);
    }

    fn listen(&mut self) {
        if self.listener.is_some() {
            return;
        }
        let listener = self.world.listen();
        listener.set_nonblocking(true).unwrap();
        self.listens_at = Some(listener.local_addr().unwrap());
        self.listener = Some(listener);
    }

    fn accept(&mut self) {
        self.settle();
        let Some(listener) = &self.listener else { return };
        match listener.accept() {
            Ok((stream, from)) => {
                self.prepare(&stream);
                let whose = self.pairs.iter().position(|pair| pair.expects(from));
                self.say(&format!("of {whose:?}"));
                match whose {
                    Some(pair) => self.pairs[pair].accepted(stream, self.story.waits),
                    None => self.has_done(Origin::Host), // it is dropped
                }
            }
            Err(error) => self.say(&failed(&error)),
        }
    }

    /// A stream that begins.
    fn prepare(&self, stream: &W::Stream) {
        stream.set_nonblocking(!self.story.waits).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        if !self.story.nagle {
            stream.set_nodelay(true).unwrap();
        }
    }

    /// Somebody has an end of it still.
    fn is_used(&self, pair: usize) -> bool {
        self.pairs[pair].is_used() || (0..2).any(|end| self.waits(Origin::End(pair, end)))
    }

    fn connect(&mut self, pair: usize) {
        if self.is_used(pair) {
            return;
        }
        self.settle();
        if self.listens_at.is_none() {
            self.listen();
        }
        let result = self.world.connect(self.listens_at.expect("one listened"));
        self.say(&said(result.as_ref().map(drop).map_err(again)));
        if let Ok(stream) = result {
            self.prepare(&stream);
            self.pairs[pair] = Pair::begun(stream, self.story.waits);
            self.has_done(Origin::Host);
        }
    }

    fn begin(&mut self, pair: usize) {
        if self.is_used(pair) {
            return;
        }
        self.settle();
        if self.listens_at.is_none() {
            self.listen();
        }
        let stream = self.world.begin_connect(self.listens_at.expect("one listened"));
        self.begun(pair, stream);
    }

    fn begin_refused(&mut self, pair: usize) {
        if self.is_used(pair) {
            return;
        }
        self.settle();
        let stream = self.world.begin_connect(self.world.closed());
        self.begun(pair, stream);
    }

    fn begun(&mut self, pair: usize, stream: W::Stream) {
        // What is done with it before it is connected, or has failed, depends on how fast that goes.
        self.world.settle_for(self.moment);
        self.prepare(&stream);
        self.say("");
        self.pairs[pair] = Pair::begun(stream, self.story.waits);
    }
}

/// An error as it was.
fn again(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or(error.kind().into(), io::Error::from_raw_os_error)
}

impl Who {
    pub fn peer(self) -> (usize, usize) {
        (self.pair, 1 - self.end)
    }
}
