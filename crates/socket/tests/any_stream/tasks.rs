//! Owns an end that lives in tasks of tokio's. What would wait wakes its task, or is tried until it comes to something; and waiting is given up at any
//! time, and begun again, be it in another runtime.

use crate::dice::Dice;
use crate::end::{Came, Ear, End, LONG, Mouth, Sink, Source};
use crate::turns::Step;
use laneway::tokio::TcpStream;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// A half in the hands of its task. With a context what would wait has the task woken; without one it is tried, and no more.
struct Held<'a, 'c, H> {
    half: RefCell<&'a mut H>,
    cx: Option<RefCell<&'a mut Context<'c>>>,
}

impl<'a, 'c, H> Held<'a, 'c, H> {
    fn new(half: &'a mut H, cx: Option<&'a mut Context<'c>>) -> Self {
        Held { half: RefCell::new(half), cx: cx.map(RefCell::new) }
    }
}

/// What a call that waits for nothing would say of this.
fn at_once<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(done) => done,
        Poll::Pending => Err(ErrorKind::WouldBlock.into()),
    }
}

impl<H: AsyncRead + AsRef<TcpStream> + Unpin> Read for &Held<'_, '_, H> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let half = &mut **self.half.borrow_mut();
        let Some(cx) = &self.cx else { return half.as_ref().try_read(buf) };
        let mut room = ReadBuf::new(buf);
        at_once(Pin::new(half).poll_read(&mut cx.borrow_mut(), &mut room)).map(|()| room.filled().len())
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.cx.is_none() {
            return (**self.half.borrow()).as_ref().try_read_vectored(bufs);
        }
        let first = bufs.iter_mut().find(|buf| !buf.is_empty()).expect("a piece has a byte");
        self.read(first)
    }
}

impl<H: AsRef<TcpStream>> Source for Held<'_, '_, H> {
    fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let half = self.half.borrow();
        let mut nobody = Context::from_waker(Waker::noop());
        let mut room = ReadBuf::new(buf);
        at_once(match &self.cx {
            Some(cx) => (**half).as_ref().poll_peek(&mut cx.borrow_mut(), &mut room),
            None => (**half).as_ref().poll_peek(&mut nobody, &mut room),
        })
    }
}

impl<H: AsyncWrite + AsRef<TcpStream> + Unpin> Write for &Held<'_, '_, H> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let half = &mut **self.half.borrow_mut();
        match &self.cx {
            Some(cx) => at_once(Pin::new(half).poll_write(&mut cx.borrow_mut(), buf)),
            None => half.as_ref().try_write(buf),
        }
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let half = &mut **self.half.borrow_mut();
        match &self.cx {
            Some(cx) => at_once(Pin::new(half).poll_write_vectored(&mut cx.borrow_mut(), bufs)),
            None => half.as_ref().try_write_vectored(bufs),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<H: AsyncWrite + Unpin> Sink for Held<'_, '_, H> {
    fn shut_write(&self) -> io::Result<()> {
        let mut nobody = Context::from_waker(Waker::noop());
        at_once(Pin::new(&mut **self.half.borrow_mut()).poll_shutdown(&mut nobody))
    }
}

/// Does something: has itself woken when it is possible, or tries, and if that comes to nothing waits until the stream is said to be ready. Is cut
/// short now and then, and has come to nothing.
macro_rules! come_to_something {
    ($side:ident.$act:ident($half:ident), $ready:ident) => {{
        let dice = &mut $side.dice;
        let patience = if dice.one_in(8) { Duration::from_micros(dice.below(2_000) as u64) } else { LONG };
        let tries = dice.one_in(2);
        let something = async {
            if !tries {
                let polled = |cx: &mut Context<'_>| match $side.$act(&Held::new($half, Some(cx))) {
                    Came::Nothing => Poll::Pending,
                    came => Poll::Ready(came),
                };
                return poll_fn(polled).await;
            }
            let came = $side.$act(&Held::new($half, None));
            if came == Came::Nothing {
                (*$half).as_ref().$ready().await.unwrap();
            }
            came
        };
        timeout(patience, something).await.unwrap_or_else(|_| {
            assert_ne!(patience, LONG, "it takes for ever");
            Came::Nothing
        })
    }};
}

async fn speak<H: AsyncWrite + AsRef<TcpStream> + Unpin>(mouth: &mut Mouth, half: &mut H) -> Came {
    come_to_something!(mouth.speak(half), writable)
}

async fn listen<H: AsyncRead + AsRef<TcpStream> + Unpin>(ear: &mut Ear, half: &mut H) -> Came {
    come_to_something!(ear.listen(half), readable)
}

fn runtime(dice: &mut Dice) -> Runtime {
    let mut builder = if dice.one_in(2) { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// An end in two tasks, each with a half of its own.
pub fn run_in_two(end: End<laneway::TcpStream>) {
    let End { stream, mut mouth, mut ear, .. } = end;
    runtime(&mut mouth.dice).block_on(async {
        let (mut reader, mut writer) = TcpStream::from_std(stream).unwrap().into_split();
        let speaker = tokio::spawn(async move {
            while speak(&mut mouth, &mut writer).await != Came::TheEnd {}
            writer
        });
        while listen(&mut ear, &mut reader).await != Came::TheEnd {}
        reader.reunite(speaker.await.unwrap()).unwrap();
    });
}

/// An end in one task, which goes from runtime to runtime.
pub fn run_in_one(end: End<laneway::TcpStream>) {
    let End { mut stream, mut mouth, mut ear, steps, .. } = end;
    let until = Instant::now() + LONG;
    let (mut speaks, mut listens) = (true, true);
    let mut steps = steps.unwrap_or_default().into_iter().peekable();
    while speaks || listens {
        assert!(Instant::now() < until, "it takes for ever, {stream:?}");
        let stay = mouth.dice.pick(&[Duration::from_millis(1), Duration::from_millis(30), LONG]);
        stream = runtime(&mut mouth.dice).block_on(async {
            let mut here = TcpStream::from_std(stream).unwrap();
            let (mut reader, mut writer) = here.split();
            let all = async {
                while let Some(step) = steps.peek() {
                    match *step {
                        Step::Say(upto) => {
                            mouth.upto = upto;
                            while mouth.said < upto {
                                speak(&mut mouth, &mut writer).await;
                            }
                        }
                        Step::Hear(upto) => {
                            while ear.heard < upto {
                                listen(&mut ear, &mut reader).await;
                            }
                        }
                    }
                    steps.next();
                }
                let speaker = async {
                    while speaks {
                        speaks = speak(&mut mouth, &mut writer).await != Came::TheEnd;
                    }
                };
                let listener = async {
                    while listens {
                        listens = listen(&mut ear, &mut reader).await != Came::TheEnd;
                    }
                };
                tokio::join!(speaker, listener)
            };
            let _moves_on = timeout(stay, all).await;
            here.into_std().unwrap()
        });
    }
}
