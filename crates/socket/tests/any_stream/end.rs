//! Owns one end of a connection: it says what it has to say, hears the other out, and looks at each byte.

use crate::dice::Dice;
use crate::plan::{Manner, Pair};
use laneway::{Interest, Mode, Poller, TcpStream};
use rustix::net::{SendFlags, send};
use std::fmt::Debug;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// Nothing that happens here takes so long, however much is lost: who has waited for a SYN-ACK that was repeated waits three seconds for the ACK of
/// his first text, and twice as long each time.
const LONG: Duration = Duration::from_secs(120);
/// The longest piece.
const PIECE_MAX: usize = 100_000;

/// What it needs of a stream of either kind beside reading and writing.
pub trait Line: Sync + Debug {
    fn peek(&self, buf: &mut [u8]) -> io::Result<usize>;
    fn shut_write(&self) -> io::Result<()>;
    fn set_timeouts(&self, timeout: Duration);
    /// Writes something whose last byte is urgent.
    fn urge(&self, _: &[u8]) -> io::Result<usize> {
        Err(ErrorKind::Unsupported.into())
    }
}

macro_rules! line {
    ($($stream:ty { $($more:item)* })+) => {
        $(
            impl Line for $stream {
                fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
                    self.peek(buf)
                }
                fn shut_write(&self) -> io::Result<()> {
                    self.shutdown(Shutdown::Write)
                }
                fn set_timeouts(&self, timeout: Duration) {
                    self.set_read_timeout(Some(timeout)).unwrap();
                    self.set_write_timeout(Some(timeout)).unwrap();
                }
                $($more)*
            }
        )+
    };
}
line! {
    laneway::TcpStream {}
    std::net::TcpStream {
        fn urge(&self, bytes: &[u8]) -> io::Result<usize> {
            Ok(send(self, bytes, SendFlags::OOB)?)
        }
    }
}

pub struct End<S> {
    stream: S,
    manner: Manner,
    mouth: Mouth,
    ear: Ear,
}

/// What it says.
struct Mouth {
    dice: Dice,
    /// Which stream it is, of all.
    key: usize,
    said: usize,
    all: usize,
    /// The other may leave before it was all said.
    may_fail: bool,
    /// Some of it is urgent.
    urges: bool,
}

/// What it hears.
struct Ear {
    dice: Dice,
    key: usize,
    heard: usize,
    all: usize,
    /// Hears no more after so many.
    leaves_at: usize,
    /// The other may leave with what it has not heard, and then nobody hears the rest of what it has said.
    may_fail: bool,
    buf: Vec<u8>,
}

/// What became of a call that may not wait.
#[derive(PartialEq, Eq)]
enum Came {
    Something,
    Nothing,
    TheEnd,
}

/// What stands at a place of a stream.
fn byte(key: usize, at: usize) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 8).wrapping_mul(7) ^ key.wrapping_mul(101)) as u8
}

impl<S: Line> End<S>
where
    for<'a> &'a S: Read + Write,
{
    pub fn new(stream: S, pair: &Pair, (number, side): (usize, usize)) -> Self {
        let (key, their_key) = (2 * number + side, 2 * number + 1 - side);
        let dice = |of: usize| Dice::new(pair.seed ^ of as u64);
        let may_fail = pair.leaves.is_some_and(|(leaver, _)| leaver != side);
        let leaves_at = pair.leaves.filter(|(leaver, _)| *leaver == side).map_or(usize::MAX, |(_, at)| at);
        let all = pair.says[1 - side];
        End {
            stream,
            manner: pair.manners[side],
            mouth: Mouth { dice: dice(2 * side), key, said: 0, all: pair.says[side], may_fail, urges: false },
            ear: Ear { dice: dice(2 * side + 1), key: their_key, heard: 0, all, leaves_at, may_fail, buf: Vec::new() },
        }
    }

    /// Some of what it says is urgent, or nothing is.
    pub fn urging(mut self, urges: bool) -> Self {
        self.mouth.urges = urges;
        self
    }

    /// In two threads, which wait in their calls.
    pub fn in_two_threads(mut self, time: Option<Duration>) {
        let stream = &self.stream;
        stream.set_timeouts(time.unwrap_or(LONG));
        let until = Instant::now() + LONG;
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
            Manner::Blocking => self.in_two_threads(None),
            Manner::Impatient(time) => self.in_two_threads(Some(time)),
            Manner::Edge => self.with_a_poller(Mode::Edge),
            Manner::Level => self.with_a_poller(Mode::Level),
        }
    }

    fn with_a_poller(mut self, mode: Mode) {
        let stream = &self.stream;
        stream.set_nonblocking(true).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(stream, 0, Interest::BOTH, mode).unwrap();
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
    fn speak<S: Line>(&mut self, mut stream: &S) -> Came
    where
        for<'a> &'a S: Write,
    {
        pause(&mut self.dice);
        if self.said == self.all {
            let result = stream.shut_write();
            assert!(result.is_ok() || self.may_fail, "{result:?}");
            return Came::TheEnd;
        }
        let len = piece(&mut self.dice).min(self.all - self.said);
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
    fn listen<S: Line>(&mut self, mut stream: &S) -> Came
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
