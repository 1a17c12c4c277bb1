//! Owns the server's side of each connection: what has come of a command so far, and what has not gone out of an answer.

use super::protocol::{self, Step};
use super::store::Store;
use crate::bench::crew::Server;
use laneway_proto::tcp::CloseReason;
use laneway_stack::app::{App, ConnId, Context};
use std::collections::HashMap;
use std::sync::Arc;

/// Answers are sent when they have grown to this, in bytes.
const SEND_AT: usize = 1 << 16;

/// What is unfinished on a connection.
#[derive(Default)]
struct Talk {
    /// A command that is not yet whole: at most a line and the longest value.
    inbox: Vec<u8>,
    /// What did not fit the send buffer: nothing more is taken in before it is gone.
    outbox: Vec<u8>,
    /// Bytes still to be passed over.
    swallow: usize,
    closing: bool,
    /// The client has said all, and still listens.
    heard_out: bool,
}

/// One lane's server.
pub struct KvServer {
    store: Arc<Store>,
    /// Connections on which something is unfinished. Most have nothing, and no place here.
    talks: HashMap<ConnId, Talk>,
    answer: Vec<u8>,
}

impl KvServer {
    /// Over a store.
    pub fn new(store: Arc<Store>) -> Self {
        KvServer { store, talks: HashMap::new(), answer: Vec::new() }
    }

    /// Does what is there whole; says how much that was.
    fn commands(&mut self, cx: &mut Context<'_>, id: ConnId, input: &[u8], talk: &mut Talk) -> usize {
        let mut at = 0;
        while at < input.len() && talk.outbox.is_empty() && !talk.closing {
            if talk.swallow > 0 {
                let passed = talk.swallow.min(input.len() - at);
                (at, talk.swallow) = (at + passed, talk.swallow - passed);
                continue;
            }
            match protocol::step(&input[at..], &self.store, &mut self.answer) {
                Step::Done(n) => at += n,
                Step::Swallow(n) => talk.swallow = n,
                Step::More => break,
                Step::Close => talk.closing = true,
            }
            if self.answer.len() >= SEND_AT {
                self.send(cx, id, talk);
            }
        }
        self.send(cx, id, talk);
        at
    }

    fn send(&mut self, cx: &mut Context<'_>, id: ConnId, talk: &mut Talk) {
        if self.answer.is_empty() {
            return;
        }
        let sent = cx.send(id, &self.answer);
        talk.outbox.extend_from_slice(&self.answer[sent..]);
        self.answer.clear();
    }

    fn put_back(&mut self, cx: &mut Context<'_>, id: ConnId, talk: Talk) {
        if (talk.closing || talk.heard_out) && talk.outbox.is_empty() {
            cx.close(id);
        } else if talk.closing || talk.swallow > 0 || !talk.inbox.is_empty() || !talk.outbox.is_empty() {
            self.talks.insert(id, talk);
        }
    }
}

impl Server for KvServer {}

impl App for KvServer {
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        let mut talk = if self.talks.is_empty() { Talk::default() } else { self.talks.remove(&id).unwrap_or_default() };
        if !talk.outbox.is_empty() || talk.closing {
            // A client that does not read is not listened to either; of one that was told to go nothing is wanted.
            let taken = if talk.closing { data.len() } else { 0 };
            self.talks.insert(id, talk);
            return taken;
        }
        let mut taken = data.len();
        if talk.inbox.is_empty() {
            let done = self.commands(cx, id, data, &mut talk);
            if talk.outbox.is_empty() && !talk.closing {
                talk.inbox.extend_from_slice(&data[done..]);
            } else if !talk.closing {
                // What is left unread by a close would make it a reset, and the answers would be lost.
                taken = done;
            }
        } else {
            let mut inbox = std::mem::take(&mut talk.inbox);
            inbox.extend_from_slice(data);
            let done = self.commands(cx, id, &inbox, &mut talk);
            inbox.drain(..done);
            talk.inbox = inbox;
        }
        self.put_back(cx, id, talk);
        taken
    }

    fn on_writable(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let Some(mut talk) = self.talks.remove(&id) else { return };
        let sent = cx.send(id, &talk.outbox);
        talk.outbox.drain(..sent);
        if talk.outbox.is_empty() && !talk.closing {
            let inbox = std::mem::take(&mut talk.inbox);
            let done = self.commands(cx, id, &inbox, &mut talk);
            talk.inbox = inbox[done..].to_vec();
            cx.resume(id);
        }
        self.put_back(cx, id, talk);
    }

    fn on_peer_closed(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let mut talk = self.talks.remove(&id).unwrap_or_default();
        talk.heard_out = true;
        self.put_back(cx, id, talk);
    }

    fn on_closed(&mut self, _: &mut Context<'_>, id: ConnId, _: u64, _: CloseReason) {
        self.talks.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway::{Device, TcpStream, on_lane};
    use std::io::{Read, Write};
    use std::net::Shutdown;

    /// What a server closes over is a reset, and takes the answers before it away.
    #[test]
    fn who_says_goodbye_has_his_answers_first() {
        let (here, there) = Device::memory_pair(/* lanes of each */ 1).expect("a link");
        let store = Arc::new(Store::new(1 << 21));
        let server = on_lane::Stack::builder(here).address("10.0.0.1/24").expect("an address");
        let server = server.start(move |_| KvServer::new(store.clone())).expect("a stack");
        server.listen("10.0.0.1:11211".parse().expect("an address"), 16).expect("nobody else listens");
        let client = laneway::Stack::builder(there).address("10.0.0.2/24").expect("an address").start();
        let client = client.expect("a stack");
        for (asked, answered) in [
            ("set a 0 0 5\r\nhello\r\nget a\r\nquit\r\n", "STORED\r\nVALUE a 0 5\r\nhello\r\nEND\r\n"),
            ("quit\r\nget a\r\n", ""),
            (&*"x".repeat(2_048), "CLIENT_ERROR line too long\r\n"),
        ] {
            let mut stream = TcpStream::connect_on(&client, "10.0.0.1:11211").expect("a server");
            stream.write_all(asked.as_bytes()).expect("it is taken");
            let mut said = String::new();
            let end = stream.read_to_string(&mut said).map_err(|error| error.kind());
            assert_eq!((end, &*said), (Ok(answered.len()), answered), "{asked}");
        }
        // Whoever has said all that he will may still listen, for longer than the send buffer holds.
        let mut stream = TcpStream::connect_on(&client, "10.0.0.1:11211").expect("a server");
        let value = "x".repeat(1_000_000);
        let asked = format!("set a 0 0 1000000\r\n{value}\r\n{}get b\r\n", "get a a a\r\n".repeat(3));
        stream.write_all(asked.as_bytes()).expect("it is taken");
        stream.shutdown(Shutdown::Write).expect("nobody has yet");
        let mut said = String::new();
        let end = stream.read_to_string(&mut said).map_err(|error| error.kind());
        let item = format!("VALUE a 0 1000000\r\n{value}\r\n");
        let answered = format!("STORED\r\n{}END\r\n", format!("{}END\r\n", item.repeat(3)).repeat(3));
        assert_eq!(end, Ok(answered.len()));
        assert!(said == answered, "it begins {:?}", &said[..40]);
    }
}
