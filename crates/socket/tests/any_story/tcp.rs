//! Owns pairs of streams: what is known of each end, and what is done with it.

use crate::call::{Act, Who};
use crate::sockets::{Stream, Teller};
use crate::stage::{Origin, Stage, WAIT, read, said, taken};
use crate::world::*;
use std::io::{IoSlice, IoSliceMut};

/// Nobody is sent more than he has room for.
const UNREAD_MAX: usize = 30_000;

/// One end of a connection.
pub struct End<S> {
    /// It, and a clone.
    handles: [Option<S>; 2],
    shut_read: bool,
    shut_write: bool,
    lingers_zero: bool,
    /// Calls wait.
    waits: bool,
    /// Bytes that it was sent and did not read.
    unread: usize,
    /// All that it was sent, ever: what a byte is says where it stands.
    sent: usize,
}

impl<S> Default for End<S> {
    fn default() -> Self {
        End {
            handles: [None, None],
            shut_read: false,
            shut_write: false,
            lingers_zero: false,
            waits: false,
            unread: 0,
            sent: 0,
        }
    }
}

impl<S> End<S> {
    fn is_there(&self) -> bool {
        self.handles.iter().any(Option::is_some)
    }

    /// It answers nothing but with ACKs.
    fn is_quiet(&self) -> bool {
        self.is_there() && !self.shut_read && !self.shut_write
    }
}

/// A connection.
pub struct Pair<S> {
    ends: [End<S>; 2],
    /// The name of the first end, until the second is accepted.
    expected: Option<SocketAddr>,
}

impl<S> Default for Pair<S> {
    fn default() -> Self {
        Pair { ends: Default::default(), expected: None }
    }
}

impl<S: Stream> Pair<S> {
    pub fn begun(stream: S, waits: bool) -> Self {
        let expected = stream.local_addr().ok();
        let first = End { handles: [Some(stream), None], waits, ..End::default() };
        Pair { ends: [first, End::default()], expected }
    }

    /// It, or what waits for `accept`, is there.
    pub fn is_used(&self) -> bool {
        self.expected.is_some() || self.ends.iter().any(End::is_there)
    }

    pub fn expects(&self, from: SocketAddr) -> bool {
        self.expected == Some(from)
    }

    pub fn accepted(&mut self, stream: S, waits: bool) {
        self.expected = None;
        self.ends[1].waits = waits;
        self.ends[1].handles[0] = Some(stream);
    }

    /// One of its threads.
    pub fn has_read(&mut self, end: usize, n: usize) {
        self.ends[end].unread -= n;
    }

    pub fn listener_has_gone(&mut self) {
        self.expected = None;
    }
}

/// What the next `n` bytes are to one who was sent `sent`.
fn bytes(sent: usize, n: usize) -> Vec<u8> {
    (sent..sent + n).map(|at| (at % 251) as u8).collect()
}

impl<W: Teller> Stage<'_, W> {
    pub fn act(&mut self, who: Who, act: Act) {
        let (pair, peer) = who.peer();
        let [me, other] = [who.end, peer].map(|end| &self.pairs[pair].ends[end]);
        if me.handles[who.handle].is_none() || self.is_apart(who, act) {
            return;
        }
        // What was sent just before a drop that resets may go, or may be lost (docs/using.md).
        let hastens = other.is_quiet() && !(matches!(act, Act::Drop) && me.resets());
        self.settle_before(Origin::End(pair, who.end), hastens);
        if let Act::ReadLater(n) = act {
            self.settle();
            let me = &self.pairs[pair].ends[who.end];
            let clone = me.handles[who.handle].as_ref().map(Stream::try_clone).expect("it was looked for");
            return self.read_later(Origin::End(pair, who.end), clone.unwrap(), me.waits, n);
        }
        let origin = Origin::End(pair, who.end);
        match act {
            Act::Watch(..) | Act::Unwatch => {
                self.settle();
                return self.watch_end(who, act);
            }
            Act::Drop => {
                self.drop_watched(who);
                self.polled.ends(pair, who.end);
            }
            Act::Shutdown(_) => self.polled.ends(pair, who.end),
            _ => {}
        }
        let (said, is_heard) = self.do_it(who, act);
        if is_heard {
            self.has_done(origin);
        }
        self.say(&said);
    }

    /// A handle that is watched is to be dropped. Where others stay, the kernel goes on watching, and nobody has a name for it.
    fn drop_watched(&mut self, who: Who) {
        let origin = Origin::End(who.pair, who.end);
        if !self.polled.is_watched_by(origin, who.handle) {
            return;
        }
        let handles = &self.pairs[who.pair].ends[who.end].handles;
        let stream = handles[who.handle].as_ref().expect("it is to be dropped");
        if handles[1 - who.handle].is_some() || self.waits(origin) {
            self.polled.unwatch(origin, stream);
        }
        self.polled.has_gone(origin);
    }

    fn watch_end(&mut self, who: Who, act: Act) {
        let origin = Origin::End(who.pair, who.end);
        let stream = self.pairs[who.pair].ends[who.end].handles[who.handle].as_ref().expect("it was looked for");
        let said = match act {
            Act::Watch(interest, mode) => self.polled.watch(origin, (who.handle, stream), interest, mode),
            _ if self.polled.is_watched_by(origin, who.handle) => self.polled.unwatch(origin, stream),
            _ => return,
        };
        self.has_done(origin); // the lane looks once more when it begins to watch, as if something had happened
        self.say(&said);
    }

    /// What is not done, because it is too much, or because it is known to be different.
    fn is_apart(&self, who: Who, act: Act) -> bool {
        let (pair, peer) = who.peer();
        let other = &self.pairs[pair].ends[peer];
        let n = match act {
            Act::Write(n) => n,
            Act::WritePieces(n, m) => n + m,
            // Who of several that wait has what comes?
            Act::Read(_) | Act::ReadPieces(..) | Act::Peek(_) | Act::ReadLater(_) => {
                return self.waits(Origin::End(pair, who.end));
            }
            _ => return false,
        };
        // After `shutdown` of both directions what still comes can be read; the kernel answers it with a reset (docs/using.md).
        let is_there = other.is_there() || self.waits(Origin::End(pair, peer));
        let is_kept = n > 0 && is_there && other.shut_read && other.shut_write;
        is_kept || other.unread + n > UNREAD_MAX
    }

    /// What it says, and whether others hear of it.
    fn do_it(&mut self, who: Who, act: Act) -> (String, bool) {
        let ends = &mut self.pairs[who.pair].ends;
        let (first, second) = ends.split_at_mut(1);
        let (me, other) = if who.end == 0 { (&mut first[0], &mut second[0]) } else { (&mut second[0], &mut first[0]) };
        let stream = me.handles[who.handle].as_ref().expect("it was looked for");
        let (sent_before, mut sent) = (other.sent, 0);
        let done = match act {
            Act::Write(n) => {
                let result = stream.write(&bytes(sent_before, n));
                sent = *result.as_ref().unwrap_or(&0);
                (said(result), true)
            }
            Act::WritePieces(n, m) => {
                let (one, two) = (bytes(sent_before, n), bytes(sent_before + n, m));
                let result = stream.write_pieces(&[IoSlice::new(&one), IoSlice::new(&two)]);
                sent = *result.as_ref().unwrap_or(&0);
                (said(result), true)
            }
            Act::Read(n) => {
                let mut buf = vec![0; n];
                let result = stream.read(&mut buf);
                me.unread -= result.as_ref().unwrap_or(&0);
                (read(&buf, result), false)
            }
            Act::ReadPieces(n, m) => {
                let (mut one, mut two) = (vec![0; n], vec![0; m]);
                let result = stream.read_pieces(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)]);
                me.unread -= result.as_ref().unwrap_or(&0);
                (read(&[one, two].concat(), result), false)
            }
            Act::ReadLater(_) => unreachable!("a thread does it"),
            Act::Watch(..) | Act::Unwatch => unreachable!("the poller does it"),
            Act::Peek(n) => {
                let mut buf = vec![0; n];
                let result = stream.peek(&mut buf);
                (read(&buf, result), false)
            }
            Act::Shutdown(how) => {
                let result = stream.shutdown(how);
                me.shut_read |= how != Shutdown::Write;
                me.shut_write |= how != Shutdown::Read;
                (said(result), true)
            }
            Act::Drop => {
                me.handles[who.handle] = None;
                (String::new(), true)
            }
            Act::Clone => {
                let result = stream.try_clone();
                let said = said(result.as_ref().map(drop).map_err(|error| error.kind().into()));
                if let (Ok(clone), None) = (result, &me.handles[1]) {
                    me.handles[1] = Some(clone);
                }
                (said, false)
            }
            Act::Nodelay(on) => (said(stream.set_nodelay(on).and_then(|()| stream.nodelay())), true),
            Act::Nonblocking(on) => {
                me.waits = !on;
                (said(stream.set_nonblocking(on)), false)
            }
            Act::Linger(linger) => {
                me.lingers_zero = linger == Some(Duration::ZERO);
                (said(stream.set_lingers(linger).and_then(|()| stream.lingers())), false)
            }
            Act::Keepalive(on) => (said(stream.set_keeps_alive(on).and_then(|()| stream.keeps_alive())), false),
            Act::UserTimeout(ms) => (said(stream.set_gives_up_after(ms).and_then(|()| stream.gives_up_after())), false),
            Act::ReadTimeout(timeout) => {
                let result = stream.set_read_timeout(timeout).and_then(|()| stream.read_timeout());
                stream.set_read_timeout(Some(WAIT)).unwrap();
                (said(result), false)
            }
            Act::Ttl(ttl) => (said(stream.set_ttl(ttl).and_then(|()| stream.ttl())), false),
            Act::TakeError => (taken(stream.take_error()), false),
            Act::Peer => (said(stream.peer_addr().map(drop)), false),
            Act::Local => (said(stream.local_addr().map(|at| (at.ip().is_unspecified(), at.port() != 0))), false),
            Act::Ready => (format!("{:?}", stream.ready()), false),
        };
        (other.sent, other.unread) = (other.sent + sent, other.unread + sent);
        done
    }
}

impl<S> End<S> {
    /// Its drop is an RST.
    fn resets(&self) -> bool {
        self.lingers_zero || self.unread > 0
    }
}
