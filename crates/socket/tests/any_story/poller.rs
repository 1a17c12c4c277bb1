//! Owns one poller that watches sockets of a story for as long as they are there, and what it tells of them.

use crate::sockets::Teller;
use crate::stage::{Origin, Stage, said};
use crate::world::*;
use laneway::{Interest, Mode, Source};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::os::fd::{AsFd, OwnedFd};

/// Who waits for several sockets.
pub trait Waits: AsFd {
    /// What has happened: to whom, and whether one can read, and write.
    fn wait(&self) -> Vec<(usize, bool, bool)>;
}

/// What can wait for such a socket.
pub trait Watches<S>: Waits {
    fn add(&self, socket: &S, key: usize, interest: Interest, mode: Mode) -> io::Result<()>;
    fn modify(&self, socket: &S, key: usize, interest: Interest, mode: Mode) -> io::Result<()>;
    fn delete(&self, socket: &S, key: usize) -> io::Result<()>;
}

/// A world that has one.
pub trait Polls: World {
    type Poller: Watches<Self::Stream> + Watches<Self::Listener> + Watches<Self::Udp>;
    fn poller() -> Self::Poller;
}

impl Polls for Kernel {
    type Poller = OwnedFd;
    fn poller() -> OwnedFd {
        epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()
    }
}

impl Polls for Ours {
    type Poller = laneway::Poller;
    fn poller() -> laneway::Poller {
        laneway::Poller::new().unwrap()
    }
}

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Bits of a key: what is watched for, since the kernel tells of an error and of the end whatever that is.
const READS: u64 = 1 << 32;
const WRITES: u64 = 1 << 33;

fn word(key: usize, interest: Interest, mode: Mode) -> (epoll::EventData, epoll::EventFlags) {
    let bit = |is, bit| if is { bit } else { 0 };
    let data = key as u64 | bit(interest.readable, READS) | bit(interest.writable, WRITES);
    let mut flags = match mode {
        Mode::Level => epoll::EventFlags::empty(),
        Mode::Edge => epoll::EventFlags::ET,
        Mode::Oneshot => epoll::EventFlags::ONESHOT,
    };
    flags.set(epoll::EventFlags::IN, interest.readable);
    flags.set(epoll::EventFlags::OUT, interest.writable);
    (epoll::EventData::new_u64(data), flags)
}

impl Waits for OwnedFd {
    fn wait(&self) -> Vec<(usize, bool, bool)> {
        let mut events = Vec::with_capacity(16);
        epoll::wait(self, rustix::buffer::spare_capacity(&mut events), Some(&AT_ONCE)).unwrap();
        let told = |event: epoll::Event| {
            let (data, flags) = (event.data.u64(), event.flags);
            let ends = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
            let is = |wanted, flag| data & wanted != 0 && flags.intersects(ends | flag);
            (data as u32 as usize, is(READS, epoll::EventFlags::IN), is(WRITES, epoll::EventFlags::OUT))
        };
        events.into_iter().map(told).collect()
    }
}

impl<S: AsFd> Watches<S> for OwnedFd {
    fn add(&self, socket: &S, key: usize, interest: Interest, mode: Mode) -> io::Result<()> {
        let (data, flags) = word(key, interest, mode);
        Ok(epoll::add(self, socket, data, flags)?)
    }
    fn modify(&self, socket: &S, key: usize, interest: Interest, mode: Mode) -> io::Result<()> {
        let (data, flags) = word(key, interest, mode);
        Ok(epoll::modify(self, socket, data, flags)?)
    }
    fn delete(&self, socket: &S, _: usize) -> io::Result<()> {
        Ok(epoll::delete(self, socket)?)
    }
}

impl Waits for laneway::Poller {
    fn wait(&self) -> Vec<(usize, bool, bool)> {
        let mut events = Vec::new();
        laneway::Poller::wait(self, &mut events, Some(Duration::ZERO)).unwrap();
        events.into_iter().map(|event| (event.key, event.readable, event.writable)).collect()
    }
}

impl<S: Source> Watches<S> for laneway::Poller {
    fn add(&self, socket: &S, key: usize, interest: Interest, mode: Mode) -> io::Result<()> {
        laneway::Poller::add(self, socket, key, interest, mode)
    }
    fn modify(&self, _: &S, key: usize, interest: Interest, mode: Mode) -> io::Result<()> {
        laneway::Poller::modify(self, key, interest, mode)
    }
    fn delete(&self, socket: &S, key: usize) -> io::Result<()> {
        laneway::Poller::delete(self, socket, key)
    }
}

/// How something is watched.
#[derive(Clone, Copy)]
pub struct Watch {
    /// By which handle: the kernel knows no other.
    handle: usize,
    is_edge: bool,
    reads: bool,
    /// Of what has happened since it was last waited for, the kernel tells more than there is to tell.
    stirred: bool,
}

/// A poller, and what it watches, by key.
pub struct Watcher<P> {
    poller: P,
    watched: [Option<Watch>; KEYS],
    /// It was told of nothing.
    waits: bool,
}

/// Four ends, the listener, and four UDP sockets.
const KEYS: usize = 9;
const LISTENER: usize = 4;

fn key(origin: Origin) -> usize {
    match origin {
        Origin::End(pair, end) => 2 * pair + end,
        Origin::Host => LISTENER,
        Origin::Udp(number) => LISTENER + 1 + number,
    }
}

impl<P> Watcher<P> {
    pub fn new(poller: P) -> Self {
        Watcher { poller, watched: [None; KEYS], waits: false }
    }

    /// A FIN leaves. The kernel tells who waits for edges of his own, and once more when it has arrived; and of the other's also who waits for room
    /// alone.
    pub fn ends(&mut self, pair: usize, end: usize) {
        let of = |end| key(Origin::End(pair, end));
        self.watched[of(end)].iter_mut().for_each(|watch| watch.stirred = true);
        self.watched[of(1 - end)].iter_mut().for_each(|watch| watch.stirred |= !watch.reads);
    }

    pub fn is_watched_by(&self, origin: Origin, handle: usize) -> bool {
        self.watched[key(origin)].is_some_and(|watch| watch.handle == handle)
    }

    /// It is gone, and with it what the poller knew of it.
    pub fn has_gone(&mut self, origin: Origin) {
        self.watched[key(origin)] = None;
    }

    /// Watches it, or from now on in another way.
    pub fn watch<S>(&mut self, origin: Origin, (handle, socket): (usize, &S), interest: Interest, mode: Mode) -> String
    where
        P: Watches<S>,
    {
        let key = key(origin);
        let result = match self.watched[key] {
            Some(watch) if watch.handle != handle => return "by another handle".into(),
            Some(_) => self.poller.modify(socket, key, interest, mode),
            None => self.poller.add(socket, key, interest, mode),
        };
        if result.is_ok() {
            self.watched[key] =
                Some(Watch { handle, is_edge: mode == Mode::Edge, reads: interest.readable, stirred: false });
        }
        said(result)
    }

    pub fn unwatch<S>(&mut self, origin: Origin, socket: &S) -> String
    where
        P: Watches<S>,
    {
        self.has_gone(origin);
        said(self.poller.delete(socket, key(origin)))
    }

    /// Who was told of what.
    fn wait(&mut self) -> String
    where
        P: Waits,
    {
        let mut asked = [PollFd::new(&self.poller, PollFlags::IN)];
        poll(&mut asked, Some(&AT_ONCE)).unwrap();
        let announced = asked[0].revents().contains(PollFlags::IN);
        let mut events = self.poller.wait();
        // The descriptor tells whoever was told of nothing last.
        let silent = self.waits && !announced && !events.is_empty();
        self.waits = events.is_empty();
        events.sort_unstable();
        let is_news = |key: usize| !self.watched[key].is_some_and(|watch| watch.is_edge && watch.stirred);
        let told = events.into_iter().filter(|(key, ..)| is_news(*key)).map(|(key, reads, writes)| {
            let who = ["a0", "b0", "a1", "b1", "the listener", "u0", "u1", "u2", "u3"][key];
            format!("{who}{}{}", if reads { " reads" } else { "" }, if writes { " writes" } else { "" })
        });
        let mut told = told.collect::<Vec<_>>().join(", ");
        if silent {
            told.push_str("; and the descriptor said nothing");
        }
        self.watched.iter_mut().flatten().for_each(|watch| watch.stirred = false);
        told
    }
}

impl<W: Teller> Stage<'_, W> {
    pub fn wait_for_all(&mut self) {
        self.settle();
        let told = self.polled.wait();
        self.say(&told);
    }
}
