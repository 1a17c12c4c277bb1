//! Owns the stories of a connection: its two ends, whole or in halves.

use super::*;
use std::io::{IoSlice, IoSliceMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What is done with an end, or with the half of it that can do it.
#[derive(Clone, Copy, Debug)]
pub enum Act {
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

pub fn act(dice: &mut Dice) -> Act {
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
            pub async fn tell(ends: [TcpStream; 2], story: &Story<Act>, moment: Duration) -> Vec<Line> {
                let (mut ends, mut lines) = (ends.map(End::Whole), Vec::new());
                tokio::time::sleep(moment).await;
                for (end, act) in &story.acts {
                    if let Some(line) = ends[*end].act(*act) {
                        lines.push(line.of(*end, act));
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
pub async fn told(story: &Story<Act>, moment: Duration) -> io::Result<[Vec<Line>; 2]> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let near = tokio::net::TcpStream::connect(listener.local_addr()?).await?;
    let of_kernels = kernels::tell([near, listener.accept().await?.0], story, moment);
    let (server, client) = common::stacks();
    let listener = laneway::tokio::TcpListener::bind_on(&server, "10.0.0.1:0").await?;
    let near = laneway::tokio::TcpStream::connect_on(&client, listener.local_addr()?).await?;
    let of_ours = ours::tell([near, listener.accept().await?.0], story, moment);
    Ok(tokio::join!(of_kernels, of_ours).into())
}
