//! Stories of tasks that nobody thought of, on tokio's sockets and on ours: chance, out of a seed, says what is called on the two ends of a connection
//! and on their halves, and what each call says, when it is polled once, must be the same.
//!
//! ```text
//! LANEWAY_SEEDS=4711..4712 cargo test -p laneway --all-features --test any_task
//! ```

mod common;
#[allow(dead_code, reason = "any_story uses all of it")]
#[path = "any_story/dice.rs"]
mod dice;

use dice::Dice;
use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest, Ready};

/// Stories that are told at the same time: nearly all of them wait nearly always.
const TELLERS: usize = 32;
/// How long what is done takes, on a machine that has nothing else to do.
const QUICK: Duration = Duration::from_millis(2);
const ACTS_MAX: usize = 24;

/// What is done with an end, or with the half of it that can do it.
#[derive(Clone, Copy, Debug)]
enum Act {
    Read(usize),
    TryRead(usize),
    TryReadPieces(usize, usize),
    Peek(usize),
    Write(usize),
    WritePieces(usize, usize),
    TryWrite(usize),
    TryWritePieces(usize, usize),
    Flush,
    Shutdown,
    Ready(bool, bool),
    TakeError,
    Linger(Option<u64>),
    Nodelay(bool),
    Names,
    Split,
    Reunite,
    DropReader,
    DropWriter,
    ForgetWriter,
    Drop,
}

#[derive(Debug)]
struct Story {
    acts: Vec<(usize, Act)>,
}

impl Story {
    fn from_seed(seed: u64) -> Story {
        let mut dice = Dice::new(seed);
        let len = 2 + dice.below(ACTS_MAX);
        let acts = (0..len).map(|_| (dice.below(2), act(&mut dice))).collect();
        Story { acts }
    }
}

fn act(dice: &mut Dice) -> Act {
    let n = |dice: &mut Dice| dice.pick(&[0, 1, 2, 5, 100, 3_000]);
    match dice.below(66) {
        0..5 => Act::Read(n(dice)),
        5..10 => Act::TryRead(n(dice)),
        // Pieces without a byte ask nobody, where tokio would first have to know of something to read.
        10..12 => Act::TryReadPieces(n(dice), 1 + n(dice)),
        12..15 => Act::Peek(n(dice)),
        15..21 => Act::Write(n(dice)),
        21..24 => Act::WritePieces(n(dice), n(dice)),
        24..30 => Act::TryWrite(n(dice)),
        30..32 => Act::TryWritePieces(n(dice), n(dice)),
        32 => Act::Flush,
        33..37 => Act::Shutdown,
        37..45 => Act::Ready(dice.one_in(2), dice.one_in(2)),
        45..48 => Act::TakeError,
        48..50 => Act::Linger(dice.pick(&[None, Some(0), Some(0), Some(3)])),
        50 => Act::Nodelay(dice.one_in(2)),
        51..53 => Act::Names,
        53..57 => Act::Split,
        57..59 => Act::Reunite,
        59..61 => Act::DropReader,
        61..63 => Act::DropWriter,
        63 => Act::ForgetWriter,
        _ => Act::Drop,
    }
}

/// What a call said: compared word for word. Of readiness tokio may remember more than is still so, until a call finds nothing; so what only we
/// call ready is wrong, and what only tokio does is not.
#[derive(Clone, PartialEq, Debug)]
struct Line {
    said: String,
    is_pending: bool,
    ready: (bool, bool),
}

fn line<T: std::fmt::Debug>(done: Option<io::Result<T>>) -> Line {
    let is_pending = done.is_none();
    let said = match done {
        None => "pending".to_owned(),
        Some(Ok(value)) => format!("{value:?}"),
        Some(Err(error)) => format!("error: {:?}", error.kind()),
    };
    Line { said, is_pending, ready: (false, false) }
}

fn of_ready(done: Option<io::Result<Ready>>) -> Line {
    let Some(Ok(ready)) = done else { return line(done.map(|done| done.map(drop))) };
    let said = format!("closed to read {}, to write {}", ready.is_read_closed(), ready.is_write_closed());
    Line { said, is_pending: false, ready: (ready.is_readable(), ready.is_writable()) }
}

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|at| (at % 251) as u8).collect()
}

/// What was read, in few words.
fn heard(buf: &[u8], done: Option<io::Result<usize>>) -> Line {
    line(
        done.map(|done| {
            done.map(|n| (n, buf[..n].iter().fold(0u32, |sum, byte| sum.wrapping_mul(31) + u32::from(*byte))))
        }),
    )
}

fn once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

fn interest(reads: bool, writes: bool) -> Interest {
    match (reads, writes) {
        (true, false) => Interest::READABLE,
        (false, true) => Interest::WRITABLE,
        _ => Interest::READABLE | Interest::WRITABLE,
    }
}

/// An end in one of the two worlds, whose sockets have the same methods and no trait.
macro_rules! world {
    ($world:ident, $stream:path, $reader:path, $writer:path) => {
        mod $world {
            use super::*;
            use $reader as OwnedReadHalf;
            use $stream as TcpStream;
            use $writer as OwnedWriteHalf;

            enum End {
                Whole(TcpStream),
                Halves(Option<OwnedReadHalf>, Option<OwnedWriteHalf>),
                Gone,
            }

            /// Does something with the stream, or with the half that can do it.
            macro_rules! with {
                ($end:expr, reader $on:ident => $act:expr) => {
                    match $end {
                        End::Whole($on) => $act,
                        End::Halves(Some($on), _) => $act,
                        _ => return None,
                    }
                };
                ($end:expr, writer $on:ident => $act:expr) => {
                    match $end {
                        End::Whole($on) => $act,
                        End::Halves(_, Some($on)) => $act,
                        _ => return None,
                    }
                };
                ($end:expr, stream $on:ident => $act:expr) => {
                    match $end {
                        End::Whole($on) => $act,
                        End::Halves(Some(half), _) => {
                            let $on: &TcpStream = half.as_ref();
                            $act
                        }
                        End::Halves(_, Some(half)) => {
                            let $on: &TcpStream = half.as_ref();
                            $act
                        }
                        _ => return None,
                    }
                };
            }

            impl End {
                /// What it says. `None`: nobody is there who could do it.
                fn act(&mut self, act: Act) -> Option<Line> {
                    let done = || line(Some(Ok(())));
                    Some(match act {
                        Act::Read(n) => {
                            let mut buf = vec![0; n];
                            let done = with!(self, reader on => once(on.read(&mut buf)));
                            heard(&buf, done)
                        }
                        Act::TryRead(n) => {
                            let mut buf = vec![0; n];
                            let done = with!(self, reader on => on.try_read(&mut buf));
                            heard(&buf, Some(done))
                        }
                        Act::TryReadPieces(n, m) => {
                            let (mut one, mut two) = (vec![0; n], vec![0; m]);
                            let mut pieces = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
                            let done = with!(self, reader on => on.try_read_vectored(&mut pieces));
                            heard(&[one, two].concat(), Some(done))
                        }
                        Act::Peek(n) => {
                            let mut buf = vec![0; n];
                            let done = with!(self, reader on => once(on.peek(&mut buf)));
                            heard(&buf, done)
                        }
                        Act::Write(n) => line(with!(self, writer on => once(on.write(&bytes(n))))),
                        Act::WritePieces(n, m) => {
                            let (one, two) = (bytes(n), bytes(m));
                            let pieces = [IoSlice::new(&one), IoSlice::new(&two)];
                            line(with!(self, writer on => once(on.write_vectored(&pieces))))
                        }
                        Act::TryWrite(n) => line(Some(with!(self, writer on => on.try_write(&bytes(n))))),
                        Act::TryWritePieces(n, m) => {
                            let (one, two) = (bytes(n), bytes(m));
                            let pieces = [IoSlice::new(&one), IoSlice::new(&two)];
                            line(Some(with!(self, writer on => on.try_write_vectored(&pieces))))
                        }
                        Act::Flush => line(with!(self, writer on => once(on.flush()))),
                        Act::Shutdown => line(with!(self, writer on => once(on.shutdown()))),
                        Act::Ready(reads, writes) => {
                            of_ready(with!(self, stream on => once(on.ready(interest(reads, writes)))))
                        }
                        Act::TakeError => {
                            let taken = with!(self, stream on => on.take_error());
                            line(Some(taken.map(|error| error.map(|error| error.kind()))))
                        }
                        #[allow(deprecated, reason = "with zero it blocks nobody")]
                        Act::Linger(seconds) => {
                            let time = seconds.map(Duration::from_secs);
                            line(Some(with!(self, stream on => on.set_linger(time).and_then(|()| on.linger()))))
                        }
                        Act::Nodelay(is) => {
                            line(Some(with!(self, stream on => on.set_nodelay(is).and_then(|()| on.nodelay()))))
                        }
                        Act::Names => {
                            let names = with!(self, stream on => (on.peer_addr(), on.local_addr()));
                            let kinds = [names.0, names.1].map(|name| name.map(drop).map_err(|error| error.kind()));
                            line(Some(Ok(kinds)))
                        }
                        Act::Split => {
                            if !matches!(self, End::Whole(_)) {
                                return None;
                            }
                            let End::Whole(stream) = std::mem::replace(self, End::Gone) else { unreachable!() };
                            let (reader, writer) = stream.into_split();
                            *self = End::Halves(Some(reader), Some(writer));
                            done()
                        }
                        Act::Reunite => match std::mem::replace(self, End::Gone) {
                            End::Halves(Some(reader), Some(writer)) => {
                                *self = End::Whole(reader.reunite(writer).expect("they are of one"));
                                done()
                            }
                            other => {
                                *self = other;
                                return None;
                            }
                        },
                        Act::DropReader => match self {
                            End::Halves(reader @ Some(_), _) => {
                                *reader = None;
                                done()
                            }
                            _ => return None,
                        },
                        // With the reader gone, that would be a FIN and at once the end, which may be a reset. Ours then sends no FIN
                        // (docs/using.md).
                        Act::DropWriter => match self {
                            End::Halves(Some(_), writer @ Some(_)) => {
                                *writer = None;
                                done()
                            }
                            _ => return None,
                        },
                        Act::ForgetWriter => match self {
                            End::Halves(_, writer @ Some(_)) => {
                                writer.take().expect("it is there").forget();
                                done()
                            }
                            _ => return None,
                        },
                        Act::Drop => match std::mem::replace(self, End::Gone) {
                            End::Gone | End::Halves(None, None) => return None,
                            End::Halves(_, Some(writer)) => {
                                writer.forget();
                                done()
                            }
                            End::Whole(_) | End::Halves(..) => done(),
                        },
                    })
                }
            }

            /// What the story's calls say; `moment`: how long what is done takes to reach everybody.
            pub async fn tell(ends: [TcpStream; 2], story: &Story, moment: Duration) -> Vec<Line> {
                let (mut ends, mut lines) = (ends.map(End::Whole), Vec::new());
                tokio::time::sleep(moment).await;
                for (end, act) in &story.acts {
                    if let Some(line) = ends[*end].act(*act) {
                        lines.push(Line { said: format!("{} {act:?}: {}", ["near", "far"][*end], line.said), ..line });
                        tokio::time::sleep(moment).await;
                    }
                }
                lines
            }
        }
    };
}

world!(kernels, tokio::net::TcpStream, tokio::net::tcp::OwnedReadHalf, tokio::net::tcp::OwnedWriteHalf);
world!(ours, laneway::tokio::TcpStream, laneway::tokio::OwnedReadHalf, laneway::tokio::OwnedWriteHalf);

/// What the kernel's have said, and what ours have.
async fn told(story: &Story, moment: Duration) -> io::Result<[Vec<Line>; 2]> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let near = tokio::net::TcpStream::connect(listener.local_addr()?).await?;
    let of_kernels = kernels::tell([near, listener.accept().await?.0], story, moment);
    let (server, client) = common::stacks();
    let listener = laneway::tokio::TcpListener::bind_on(&server, "10.0.0.1:0").await?;
    let near = laneway::tokio::TcpStream::connect_on(&client, listener.local_addr()?).await?;
    let of_ours = ours::tell([near, listener.accept().await?.0], story, moment);
    Ok(tokio::join!(of_kernels, of_ours).into())
}

/// What is different first, if anything is.
fn difference([kernels, ours]: &[Vec<Line>; 2]) -> Option<String> {
    let is_same = |kernel: &Line, ours: &Line| {
        let has_more = (ours.ready.0 && !kernel.ready.0) || (ours.ready.1 && !kernel.ready.1);
        let is_less = kernel.ready != (false, false) && ours.ready == (false, false) && ours.is_pending;
        is_less || kernel.said == ours.said && !has_more
    };
    let at = kernels.iter().zip(ours).take_while(|(kernel, ours)| is_same(kernel, ours)).count();
    if at == kernels.len() && at == ours.len() {
        return None;
    }
    let before: Vec<_> = ours[..at].iter().map(|line| line.said.as_str()).collect();
    Some(format!("both: {before:#?}\nkernel: {:?}\nours:   {:?}", kernels.get(at), ours.get(at)))
}

#[test]
fn any_story_of_tasks_is_the_same_in_both_worlds() {
    common::try_seeds(0..200, TELLERS, Story::from_seed, |story| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let differs = |moment| difference(&runtime.block_on(told(story, moment)).unwrap());
        // On a machine that is busy something may come late. Told with patience it is the same, or is different.
        let found = [QUICK, 10 * QUICK, 50 * QUICK].into_iter().map(differs).try_fold(String::new(), |_, found| found);
        assert_eq!(found, None);
    });
}
