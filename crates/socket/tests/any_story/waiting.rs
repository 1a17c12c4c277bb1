//! Owns threads that wait in a call while the story goes on.

use crate::call::Call;
use crate::sockets::{Stream, Teller, Udp};
use crate::stage::{Origin, Stage, WAIT, read};
use crate::world::*;
use std::sync::mpsc::channel;
use std::thread::{JoinHandle, sleep, spawn};

/// Longer than any story takes.
const LONG: Duration = Duration::from_secs(60);

/// One thread.
pub struct Waiter<W: World> {
    whose: Origin,
    call: Call,
    /// A handle of what it waits for.
    kept: Kept<W>,
    /// How much it got, and what was said.
    thread: JoinHandle<(usize, String)>,
}

enum Kept<W: World> {
    Stream(W::Stream),
    Udp(W::Udp),
}

impl<W: Teller> Stage<'_, W> {
    pub fn waits(&self, whose: Origin) -> bool {
        self.waiters.iter().any(|waiter| waiter.whose == whose)
    }

    pub fn read_later(&mut self, whose: Origin, stream: W::Stream, waits: bool, n: usize) {
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_nonblocking(false).unwrap();
        let clone = stream.try_clone().unwrap();
        let thread = self.thread(n, move |buf| clone.read(buf));
        stream.set_nonblocking(!waits).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        self.wait(whose, Kept::Stream(stream), thread);
    }

    pub fn recv_later(&mut self, whose: Origin, socket: W::Udp, waits: bool, n: usize) {
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket.set_nonblocking(false).unwrap();
        let clone = socket.try_clone().unwrap();
        let thread = self.thread(n, move |buf| clone.recv(buf));
        socket.set_nonblocking(!waits).unwrap();
        socket.set_read_timeout(Some(WAIT)).unwrap();
        self.wait(whose, Kept::Udp(socket), thread);
    }

    fn thread(
        &self,
        n: usize,
        act: impl FnOnce(&mut [u8]) -> io::Result<usize> + Send + 'static,
    ) -> JoinHandle<(usize, String)> {
        let (begins, has_begun) = channel();
        let thread = spawn(move || {
            let mut buf = vec![0; n];
            begins.send(()).unwrap();
            let result = act(&mut buf);
            (*result.as_ref().unwrap_or(&0), read(&buf, result))
        });
        has_begun.recv().unwrap();
        sleep(self.moment);
        thread
    }

    fn wait(&mut self, whose: Origin, kept: Kept<W>, thread: JoinHandle<(usize, String)>) {
        self.say("waits");
        self.waiters.push(Waiter { whose, call: self.call.expect("it is of a call"), kept, thread });
    }

    /// Behind each call: who waits no more.
    pub fn look_at_waiters(&mut self) {
        if self.waiters.is_empty() {
            return;
        }
        self.settle();
        while let Some(at) = self.waiters.iter().position(|waiter| waiter.thread.is_finished()) {
            self.has_waited(at);
        }
    }

    /// Those who still wait at the end are told something.
    pub fn wake_waiters(&mut self) {
        while let Some(waiter) = self.waiters.first() {
            match &waiter.kept {
                Kept::Stream(stream) => _ = stream.shutdown(Shutdown::Read),
                Kept::Udp(socket) => {
                    let is_server = matches!(waiter.whose, Origin::Udp(0 | 1));
                    let peer = if is_server { self.world.udp_client() } else { self.world.udp_server() };
                    socket.connect(peer.local_addr().unwrap()).unwrap();
                    peer.send_to(b"end", socket.local_addr().unwrap()).unwrap();
                }
            }
            self.has_waited(0);
        }
    }

    fn has_waited(&mut self, at: usize) {
        let Waiter { whose, call, thread, .. } = self.waiters.remove(at);
        let (n, said) = thread.join().unwrap();
        self.lines.push(format!("{call:?} is over: {said}"));
        if let Origin::End(pair, end) = whose {
            self.pairs[pair].has_read(end, n);
        }
        // It may have been the last handle that went.
        self.has_done(Origin::Host);
        self.settle();
    }
}
