//! Owns what the application threads do: serve, and ask.

use super::super::latency::Stopwatch;
use super::super::options::Unit;
use super::net::{Net, Ready};
use super::{Floor, Job, MEASURING};
use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Bytes that are read or written in one call of a stream.
const CHUNK: usize = 65_536;
/// Connections that a thread begins before it looks how they get on.
const BEGIN_MAX: usize = 256;
const LISTENER: usize = usize::MAX;

/// A thread that serves.
pub struct Serve<'a, N: Net> {
    pub net: &'a N,
    pub job: &'a Job,
    pub floor: &'a Floor,
    pub pair: usize,
}

/// A thread that asks.
pub struct Ask<'a, N: Net> {
    pub net: &'a N,
    pub job: &'a Job,
    pub floor: &'a Floor,
    pub pair: usize,
    pub stopwatch: Stopwatch,
}

/// A connection, and how many bytes of the message that it waits for have come.
struct Open<S> {
    stream: S,
    seen: usize,
    asked: bool,
    started: u64,
}

/// Whether an error only says that nothing is there.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl<N: Net> Serve<'_, N> {
    fn count(&self, n: u64) {
        let done = &self.floor.done[self.pair];
        done.store(done.load(Relaxed) + n, Relaxed); // nobody else writes it
    }

    /// Until the round is over.
    pub fn run(&self, listener: &N::Listener) -> io::Result<()> {
        if self.job.is_blocking() { self.run_blocking(listener) } else { self.run_polling(listener) }
    }

    fn run_blocking(&self, listener: &N::Listener) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK];
        if self.job.share(self.pair) == 0 {
            return Ok(());
        }
        loop {
            let stream = self.net.accept(listener)?;
            self.net.prepare(&stream, false, false)?;
            let mut seen = 0;
            loop {
                let n = match self.net.read(&stream, &mut buffer) {
                    Ok(n) => n,
                    Err(_) if self.floor.is_over() => 0, // its client has left with a reset
                    Err(error) => return Err(error),
                };
                if n == 0 {
                    break;
                }
                if self.job.unit == Unit::Stream {
                    self.count(n as u64);
                    continue;
                }
                seen += n;
                if seen == self.job.request.len() {
                    seen = 0;
                    self.net.write(&stream, &self.job.response)?;
                    if self.job.unit == Unit::Crr {
                        break;
                    }
                }
            }
            // The client says goodbye to a server that waits in `accept` by one more connection.
            if self.floor.is_over() {
                return Ok(());
            }
        }
    }

    fn run_polling(&self, listener: &N::Listener) -> io::Result<()> {
        let mut poller = self.net.poller()?;
        self.net.accept_without_waiting(listener)?;
        self.net.watch_listener(&poller, listener, LISTENER)?;
        let mut open: Vec<Option<Open<N::Stream>>> = Vec::new();
        let (mut free, mut ready) = (Vec::new(), Vec::new());
        let mut buffer = vec![0; CHUNK];
        while !self.floor.is_over() {
            ready.clear();
            self.net.wait(&mut poller, &mut ready)?;
            for &Ready { key, .. } in &ready {
                if key == LISTENER {
                    while let Ok(stream) = self.net.accept(listener) {
                        self.net.prepare(&stream, true, false)?;
                        let mut one = Open { stream, seen: 0, asked: true, started: 0 };
                        // Often the request is there already; then nothing needs to be watched.
                        if !self.serve(&mut one, &mut buffer) {
                            continue;
                        }
                        let key = free.pop().unwrap_or_else(|| {
                            open.push(None);
                            open.len() - 1
                        });
                        self.net.watch(&poller, &one.stream, key, false)?;
                        open[key] = Some(one);
                    }
                } else if let Some(one) = open.get_mut(key).and_then(Option::as_mut)
                    && !self.serve(one, &mut buffer)
                {
                    self.net.forget(&poller, &one.stream, key)?;
                    open[key] = None;
                    free.push(key);
                }
            }
        }
        Ok(())
    }

    /// Reads, and answers what is whole. False: to be closed.
    fn serve(&self, one: &mut Open<N::Stream>, buffer: &mut [u8]) -> bool {
        loop {
            let n = match self.net.read(&one.stream, buffer) {
                Ok(0) => return false,
                Ok(n) => n,
                Err(error) => return is_nothing(&error),
            };
            if self.job.unit == Unit::Stream {
                self.count(n as u64);
            } else {
                one.seen += n;
                if one.seen >= self.job.request.len() {
                    one.seen = 0;
                    let sent = self.net.write(&one.stream, &self.job.response);
                    if !sent.is_ok_and(|n| n == self.job.response.len()) || self.job.unit == Unit::Crr {
                        return false;
                    }
                }
            }
            if n < buffer.len() {
                return true; // it was all that there was
            }
        }
    }
}

impl<N: Net> Ask<'_, N> {
    fn count(&self) {
        let done = &self.floor.done[self.pair];
        done.store(done.load(Relaxed) + 1, Relaxed); // nobody else writes it
    }

    /// Until the round is over.
    pub fn run(&mut self) -> io::Result<()> {
        if self.job.share(self.pair) == 0 {
            return Ok(());
        }
        let done = if self.job.is_blocking() { self.run_blocking() } else { self.run_polling() };
        // Behind the end of the round it is the server that has left, with a reset where it left bytes unread.
        if self.floor.is_over() { Ok(()) } else { done }
    }

    fn run_blocking(&mut self) -> io::Result<()> {
        let (mut buffer, mut number, mut is_measured) = (vec![b's'; CHUNK], 0, false);
        let connect = |number| {
            let stream = self.net.connect(self.pair, number)?;
            self.net.prepare(&stream, false, self.job.unit != Unit::Crr)?;
            io::Result::Ok(stream)
        };
        let mut stream = connect(number)?;
        self.floor.established.fetch_add(1, Release);
        while !self.floor.is_over() {
            if !is_measured && self.floor.phase() == MEASURING {
                is_measured = true;
                self.stopwatch.take();
            }
            if self.job.unit == Unit::Stream {
                self.net.write(&stream, &buffer)?;
                continue;
            }
            let started = self.stopwatch.start();
            if self.job.unit == Unit::Crr && number > 0 {
                stream = connect(number)?;
            }
            number += 1;
            self.net.write(&stream, &self.job.request)?;
            let mut seen = 0;
            while seen < self.job.response.len() || self.job.unit == Unit::Crr {
                match self.net.read(&stream, &mut buffer)? {
                    0 if seen == self.job.response.len() => break,
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    n => seen += n,
                }
            }
            self.stopwatch.stop(started);
            self.count();
        }
        drop(stream);
        if self.job.unit == Unit::Crr {
            let _ = self.net.connect(self.pair, number); // for a server that waits for one; it may have left
        }
        Ok(())
    }

    fn run_polling(&mut self) -> io::Result<()> {
        let mut poller = self.net.poller()?;
        let share = self.job.share(self.pair);
        let mut open: Vec<Open<N::Stream>> = Vec::with_capacity(share);
        let (mut ready, mut buffer) = (Vec::new(), vec![b's'; CHUNK]);
        let (mut is_measured, mut established) = (false, 0);
        while !self.floor.is_over() {
            while open.len() < share && open.len() < established + BEGIN_MAX {
                let one = self.begin(&poller, open.len(), open.len())?;
                open.push(one);
            }
            ready.clear();
            self.net.wait(&mut poller, &mut ready)?;
            if !is_measured && self.floor.phase() == MEASURING {
                is_measured = true;
                self.stopwatch.take();
            }
            for &Ready { key, writable } in &ready {
                let Some(one) = open.get_mut(key) else { continue };
                if !one.asked {
                    if !writable {
                        self.floor.failed.fetch_add(1, Relaxed);
                        continue;
                    }
                    one.asked = true;
                    established += 1;
                    self.floor.established.fetch_add(1, Release);
                    if self.job.unit != Unit::Stream {
                        self.net.watch_reads(&poller, &one.stream, key)?;
                        self.net.write(&one.stream, &self.job.request)?;
                    }
                }
                if self.job.unit == Unit::Stream {
                    self.fill(one, &buffer)?;
                } else if !self.hear(one, &mut buffer)? {
                    // The server has closed.
                    let number = established + key;
                    let next = self.begin_again(&poller, &open[key].stream, key, number)?;
                    open[key] = next;
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, poller: &N::Poller, key: usize, number: usize) -> io::Result<Open<N::Stream>> {
        let started = self.stopwatch.start();
        let stream = self.net.begin(self.pair, number)?;
        self.net.prepare(&stream, true, self.job.unit != Unit::Crr)?;
        self.net.watch(poller, &stream, key, true)?;
        Ok(Open { stream, seen: 0, asked: false, started })
    }

    fn begin_again(
        &mut self,
        poller: &N::Poller,
        old: &N::Stream,
        key: usize,
        number: usize,
    ) -> io::Result<Open<N::Stream>> {
        self.net.forget(poller, old, key)?;
        self.begin(poller, key, number)
    }

    fn fill(&self, one: &Open<N::Stream>, buffer: &[u8]) -> io::Result<()> {
        loop {
            match self.net.write(&one.stream, buffer) {
                Ok(n) if n == buffer.len() && !self.floor.is_over() => {}
                Ok(_) => return Ok(()),
                Err(error) if is_nothing(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads what there is, and asks again. False: the connection is over.
    fn hear(&mut self, one: &mut Open<N::Stream>, buffer: &mut [u8]) -> io::Result<bool> {
        let whole = self.job.response.len();
        loop {
            match self.net.read(&one.stream, buffer) {
                Ok(0) => break,
                Ok(n) => one.seen += n,
                Err(error) if is_nothing(&error) => return Ok(true),
                Err(_) => {
                    one.seen = 0;
                    break;
                }
            }
            if one.seen >= whole && self.job.unit == Unit::Rr {
                self.stopwatch.stop(one.started);
                self.count();
                one.seen = 0;
                one.started = self.stopwatch.start();
                self.net.write(&one.stream, &self.job.request)?;
                return Ok(true);
            }
        }
        if one.seen == whole && self.job.unit == Unit::Crr {
            self.stopwatch.stop(one.started);
            self.count();
        } else if !self.floor.is_over() {
            // Behind the end of the round it is the server that has left, as it should.
            self.floor.failed.fetch_add(1, Relaxed);
        }
        Ok(false)
    }
}
