//! Owns the closed loop: each connection asks, waits for the answer, looks whether it is right, and asks again.

use super::{KEYS, key, value};
use crate::bench::crew::{Client, Load};
use laneway_proto::tcp::CloseReason;
use laneway_stack::app::{App, ConnId, Context};
use std::collections::HashMap;

/// A question and its answer.
struct Exchange {
    question: Vec<u8>,
    answer: Vec<u8>,
}

/// One lane's clients.
pub struct KvClient {
    load: Load,
    /// Reads for every write.
    gets: u64,
    asked: u64,
    /// By number of the key.
    reads: Vec<Exchange>,
    writes: Vec<Exchange>,
    /// Answers that came in pieces.
    pieces: HashMap<ConnId, Vec<u8>>,
}

impl KvClient {
    /// With what it is to keep up.
    pub fn new(load: Load, gets: u64) -> Self {
        let read = |n| {
            let (key, value) = (key(n), value(n));
            let answer = format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len());
            Exchange { question: format!("get {key}\r\n").into(), answer: answer.into() }
        };
        let write = |n| {
            let (key, value) = (key(n), value(n));
            Exchange {
                question: format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()).into(),
                answer: b"STORED\r\n".to_vec(),
            }
        };
        let (reads, writes) = ((0..KEYS).map(read).collect(), (0..KEYS).map(write).collect());
        KvClient { load, gets, asked: 0, reads, writes, pieces: HashMap::new() }
    }

    /// Which exchange a token stands for: the number of the key, and one more bit for a write.
    fn exchange(&self, token: u64) -> &Exchange {
        let number = (token >> 1) as usize;
        if token & 1 == 1 { &self.writes[number] } else { &self.reads[number] }
    }

    fn ask(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.asked += 1;
        let is_write = self.asked.is_multiple_of(self.gets + 1);
        let token = (self.asked.wrapping_mul(7_919) % KEYS) << 1 | u64::from(is_write);
        cx.set_token(id, token);
        cx.send(id, &self.exchange(token).question);
    }
}

impl Client for KvClient {
    fn load(&mut self) -> &mut Load {
        &mut self.load
    }
}

impl App for KvClient {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        self.load.open_missing(cx);
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.load.established += 1;
        self.ask(cx, id);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        let token = cx.token(id);
        let expected = &self.exchange(token).answer;
        let right = if data == expected.as_slice() && self.pieces.is_empty() {
            true
        } else {
            let so_far = self.pieces.entry(id).or_default();
            so_far.extend_from_slice(data);
            if so_far.len() < self.exchange(token).answer.len() {
                return data.len();
            }
            let whole = self.pieces.remove(&id).unwrap_or_default();
            whole == self.exchange(token).answer
        };
        if right {
            self.load.ops += 1;
            self.ask(cx, id);
        } else {
            self.load.failed += 1;
            cx.abort(id);
        }
        data.len()
    }
    fn on_closed(&mut self, _: &mut Context<'_>, id: ConnId, _: u64, _: CloseReason) {
        // It was meant to stay open.
        self.pieces.remove(&id);
        self.load.running -= 1;
        self.load.failed += 1;
    }
}
