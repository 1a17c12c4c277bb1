//! Owns one end of a connection: it says what it has to say, hears the other out, and looks at each byte.

use crate::dice::Dice;
use crate::plan::{Manner, Pair};
use crate::tasks;
use crate::turns::{Step, steps};
use laneway::{Interest, Mode, Poller, TcpStream};
use rustix::net::{SendFlags, send};
use std::fmt::Debug;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// Nothing that happens here takes so long, however much is lost: who has waited for a SYN-ACK that was repeated waits three seconds for the ACK of
/// his first text, and twice as long each time.
pub const LONG: Duration = Duration::from_secs(120);
/// The longest piece.
const PIECE_MAX: usize = 100_000;

/// What is read from, beside reading.
pub trait Source {
    fn peek(&self, buf: &mut [u8]) -> io::Result<usize>;
}

/// What is written to, beside writing.
pub trait Sink {
    fn shut_write(&self) -> io::Result<()>;
    /// Writes something whose last byte is urgent.
    fn urge(&self, _: &[u8]) -> io::Result<usize> {
        Err(ErrorKind::Unsupported.into())
    }
}

/// A stream that a call waits for.
pub trait Waits: Source + Sink + Sync + Debug {
    fn set_timeouts(&self, timeout: Duration);
}

macro_rules! waits {
    ($($stream:ty { $($more:item)* })+) => {
        $(
            impl Source for $stream {
                fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
                    self.peek(buf)
                }
            }
            impl Sink for $stream {
                fn shut_write(&self) -> io::Result<()> {
                    self.shutdown(Shutdown::Write)
                }
                $($more)*
            }
            impl Waits for $stream {
                fn set_timeouts(&self, timeout: Duration) {
                    self.set_read_timeout(Some(timeout)).unwrap();
                    self.set_write_timeout(Some(timeout)).unwrap();
                }
            }
        )+
    };
}
waits! {
    laneway::TcpStream {}
    std::net::TcpStream {
        fn urge(&self, bytes: &[u8]) -> io::Result<usize> {
            Ok(send(self, bytes, SendFlags::OOB)?)
        }
    }
}

pub struct End<S> {
    pub stream: S,
    manner: Manner,
    /// What is done, and in which order, where the two speak in turns.
    pub steps: Option<Vec<Step>>,
    pub mouth: Mouth,
    pub ear: Ear,
}

/// What it says.
pub struct Mouth {
    pub dice: Dice,
    /// Which stream it is, of all.
    key: usize,
    pub said: usize,
    /// What it may say for now.
    pub upto: usize,
    all: usize,
    /// The other may leave before it was all said.
    may_fail: bool,
    /// Some of it is urgent.
    urges: bool,
}

/// What it hears.
pub struct Ear {
    pub dice: Dice,
    key: usize,
    pub heard: usize,
    all: usize,
    /// Hears no more after so many.
    leaves_at: usize,
    /// The other may leave with what it has not heard, and then nobody hears the rest of what it has said.
    may_fail: bool,
    buf: Vec<u8>,
}

/// What became of a call that may not wait.
#[derive(PartialEq, Eq)]
pub enum Came {
    Something,
    Nothing,
    TheEnd,
}

/// What stands at a place of a stream.
fn byte(key: usize, at: usize) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 8).wrapping_mul(7) ^ key.wrapping_mul(101)) as u8
}

impl<S: Waits> End<S>
where
    for<'a> &'a S: Read + Write,
{
    pub fn new(stream: S, pair: &Pair, (number, side): (usize, usize)) -> Self {
        let (key, their_key) = (2 * number + side, 2 * number + 1 - side);
        let dice = |of: usize| Dice::new(pair.seed ^ of as u64);
        let may_fail = pair.leaves.is_some_and(|(leaver, _)| leaver != side);
        let leaves_at = pair.leaves.filter(|(leaver, _)| *leaver == side).map_or(usize::MAX, |(_, at)| at);
        let [says, hears] = [side, 1 - side].map(|side| pair.says[side]);
        let (mouth, ear) = (dice(2 * side), dice(2 * side + 1));
        End {
            stream,
            manner: pair.manners[side],
            steps: pair.rounds.map(|rounds| steps(rounds, side)),
            mouth: Mouth { dice: mouth, key, said: 0, upto: says, all: says, may_fail, urges: false },
            ear: Ear { dice: ear, key: their_key, heard: 0, all: hears, leaves_at, may_fail, buf: Vec::new() },
        }
    }

    /// Some of what it says is urgent, or nothing is.
    pub fn urging(mut self, urges: bool) -> Self {
        self.mouth.urges = urges;
        self
    }

    /// In one thread, which does one thing after the other, and where that comes to nothing what is given.
    fn in_turns(self, steps: &[Step], mut waits: impl FnMut(&S, Interest)) {
        let End { stream, mut mouth, mut ear, .. } = self;
        let mut goes_on = |came, interest| {
            if came == Came::Nothing {
                waits(&stream, interest);
            }
            came != Came::TheEnd
        };
        for step in steps {
            match *step {
                Step::Say(upto) => {
                    mouth.upto = upto;
                    while mouth.said < upto && goes_on(mouth.speak(&stream), Interest::WRITABLE) {}
                }
                Step::Hear(upto) => while ear.heard < upto && goes_on(ear.listen(&stream), Interest::READABLE) {},
            }
        }
        while goes_on(mouth.speak(&stream), Interest::WRITABLE) {}
        while goes_on(ear.listen(&stream), Interest::READABLE) {}
    }

    /// In threads that wait in their calls.
    pub fn in_threads(mut self, time: Option<Duration>) {
        self.stream.set_timeouts(time.unwrap_or(LONG));
        let until = Instant::now() + LONG;
        if let Some(steps) = self.steps.take() {
            let waits = |stream: &S, _| {
                assert!(Instant::now() < until && time.is_some(), "it takes for ever, {stream:?}");
            };
            return self.in_turns(&steps, waits);
        }
        let stream = &self.stream;
        let go_on = |came| {
            assert!(
                Instant::now() < until && (came != Came::Nothing || time.is_some()),
                "it takes for ever, {stream:?}"
            );
            came != Came::TheEnd
        };
        scope(|scope| {
            scope.spawn(|| while go_on(self.mouth.speak(stream)) {});
            while go_on(self.ear.listen(stream)) {}
        });
    }
}

impl End<TcpStream> {
    pub fn run(self) {
        match self.manner {
            Manner::Tasks if self.steps.is_none() => tasks::run_in_two(self),
            Manner::Task | Manner::Tasks => tasks::run_in_one(self),
            Manner::Blocking => self.in_threads(None),
            Manner::Impatient(time) => self.in_threads(Some(time)),
            Manner::Edge => self.with_a_poller(Mode::Edge),
            Manner::Level => self.with_a_poller(Mode::Level),
        }
    }

    fn with_a_poller(mut self, mode: Mode) {
        let stream = &self.stream;
        stream.set_nonblocking(true).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(stream, 0, Interest::BOTH, mode).unwrap();
        if let Some(steps) = self.steps.take() {
            let mut events = Vec::new();
            let waits = |_: &TcpStream, interest| {
                if mode == Mode::Level {
                    poller.modify(0, interest, mode).unwrap();
                }
                events.clear();
                let n = poller.wait(&mut events, Some(LONG)).unwrap();
                assert_eq!(n, 1, "one socket is watched, and this came: {events:?}");
            };
            return self.in_turns(&steps, waits);
        }
        let (mut speaks, mut listens) = (true, true);
        let mut events = Vec::new();
        while speaks || listens {
            if mode == Mode::Level {
                poller.modify(0, Interest { readable: listens, writable: speaks }, mode).unwrap();
            }
            events.clear();
            poller.wait(&mut events, Some(LONG)).unwrap();
            let [event] = events[..] else { panic!("one socket is watched, and this came: {events:?}") };
            // Whoever is told of edges goes on for as long as there is something; others as they like.
            while speaks && event.writable {
                let came = self.mouth.speak(stream);
                speaks = came != Came::TheEnd;
                if came == Came::Nothing || mode == Mode::Level && self.mouth.dice.one_in(2) {
                    break;
                }
            }
            while listens && event.readable {
                let came = self.ear.listen(stream);
                listens = came != Came::TheEnd;
                if came == Came::Nothing || mode == Mode::Level && self.ear.dice.one_in(2) {
                    break;
                }
            }
        }
    }
}

impl Mouth {
    pub fn speak<S: Sink>(&mut self, mut stream: &S) -> Came
    where
        for<'a> &'a S: Write,
    {
        pause(&mut self.dice);
        if self.said == self.all {
            let result = stream.shut_write();
            assert!(result.is_ok() || self.may_fail, "{result:?}");
            return Came::TheEnd;
        }
        let len = piece(&mut self.dice).min(self.upto - self.said);
        let bytes: Vec<u8> = (self.said..self.said + len).map(|at| byte(self.key, at)).collect();
        let result = if self.urges && self.dice.one_in(8) {
            stream.urge(&bytes)
        } else if self.dice.one_in(4) {
            let (one, two) = bytes.split_at(self.dice.below(len + 1));
            stream.write_vectored(&[one, two].map(IoSlice::new))
        } else {
            stream.write(&bytes)
        };
        let n = match done(result, self.may_fail) {
            Ok(n) => n,
            Err(came) => return came,
        };
        assert!((1..=len).contains(&n), "of {len} bytes it has taken {n}");
        self.said += n;
        Came::Something
    }
}

impl Ear {
    pub fn listen<S: Source>(&mut self, mut stream: &S) -> Came
    where
        for<'a> &'a S: Read,
    {
        pause(&mut self.dice);
        if self.heard >= self.leaves_at {
            return Came::TheEnd;
        }
        let len = piece(&mut self.dice);
        self.buf.resize(len, 0);
        let peeks = self.dice.one_in(8);
        let result = if peeks {
            stream.peek(&mut self.buf)
        } else if self.dice.one_in(4) {
            let (one, two) = self.buf.split_at_mut(self.dice.below(len + 1));
            stream.read_vectored(&mut [one, two].map(IoSliceMut::new))
        } else {
            stream.read(&mut self.buf)
        };
        let n = match done(result, self.may_fail) {
            Ok(n) => n,
            Err(came) => return came,
        };
        let wrong = (0..n).find(|at| self.buf[*at] != byte(self.key, self.heard + at));
        assert_eq!(wrong, None, "of the {n} bytes behind {} this is not what was said", self.heard);
        if peeks {
            return Came::Something;
        }
        self.heard += n;
        if n > 0 {
            return Came::Something;
        }
        // Of several threads one is told of the reset, and the others of the end.
        assert!(self.heard == self.all || self.may_fail, "the end comes behind {} bytes of {}", self.heard, self.all);
        Came::TheEnd
    }
}

fn piece(dice: &mut Dice) -> usize {
    let most = dice.pick(&[4, 100, 1_500, 20_000, PIECE_MAX]);
    1 + dice.below(most)
}

fn pause(dice: &mut Dice) {
    if dice.one_in(20) {
        sleep(Duration::from_micros(dice.below(3_000) as u64));
    }
}

/// How much a call has done, or what it comes to.
fn done(result: io::Result<usize>, may_fail: bool) -> Result<usize, Came> {
    result.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => Came::Nothing,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe if may_fail => Came::TheEnd,
        _ => panic!("{error}"),
    })
}
