//! What both ends do while buckets move.

use laneway_proto::tcp::CloseReason;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::control::BindId;
use laneway_stack::error::Error;
use laneway_wire::flow::Address;
use std::collections::HashMap;

/// Bytes of a round trip on a stream: so many segments that a lane which is behind has more in its queue than it takes in one poll,
/// and there is something to overtake.
pub const ROUND: usize = 30_000;
pub const STREAM: u64 = 1;
pub const SHORT: u64 = 2;
pub const SERVER: [u8; 4] = [10, 0, 0, 1];
pub const CLIENT: [u8; 4] = [10, 0, 0, 2];

pub fn pattern(at: usize) -> u8 {
    (at * 7 + at / 251) as u8
}

/// Server: sends everything back, and on port 80 closes after 100 bytes. Client: streams that say something and wait until all of
/// it has come back, and short connections one after the other.
#[derive(Default)]
pub struct Load {
    pub is_server: bool,
    pub streams: usize,
    /// Short connections to make, and how many at a time.
    pub short: usize,
    pub at_once: usize,
    pub running: usize,
    /// Streams go on, until they are told to pause or to end after the round.
    pub pausing: bool,
    pub ending: bool,
    /// So many bytes more are said at once on each stream.
    pub burst: usize,
    /// One active open from a bound port.
    pub from: Option<BindId>,
    pub refused: Option<Error>,
    pub seen: HashMap<ConnId, usize>,
    pub to_send: HashMap<ConnId, (usize, usize)>,
    pub open: Vec<ConnId>,
    pub rounds: usize,
    pub done: usize,
    pub wrong: Vec<String>,
}

impl Load {
    /// Sends on; of a stream what is still missing of the round.
    pub fn send(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let Some((at, until)) = self.to_send.get_mut(&id) else { return };
        while at < until {
            let bytes: Vec<u8> = (*at..*until).map(pattern).collect();
            match cx.send(id, &bytes) {
                0 => return,
                sent => *at += sent,
            }
        }
    }
}

impl App for Load {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        let server = Address::from_v4(SERVER);
        while self.streams > 0 {
            cx.connect(None, server, 7, STREAM).expect("there are ports");
            self.streams -= 1;
        }
        while self.short > 0 && self.running < self.at_once {
            match cx.connect(None, server, 80, SHORT) {
                Ok(_) => (self.short, self.running) = (self.short - 1, self.running + 1),
                Err(Error::LaneExhausted(_)) => break,
                Err(other) => panic!("{other}"),
            }
        }
        if let Some(bound) = self.from.take() {
            self.refused = cx.connect_from(bound, server, 7, STREAM).err();
        }
        for id in if self.burst > 0 { self.open.clone() } else { Vec::new() } {
            self.to_send.entry(id).and_modify(|(_, until)| *until += self.burst);
            self.send(cx, id);
        }
        self.burst = 0;
        if self.ending && self.pausing {
            self.ending = false;
            self.open.clone().into_iter().for_each(|id| cx.close(id));
        }
    }
    fn on_accept(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let port = cx.flow(id).expect("it is there").local_port;
        cx.set_token(id, if port == 80 { SHORT } else { STREAM });
        self.to_send.insert(id, (0, 0));
        self.open.push(id);
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let first = if cx.token(id) == SHORT { 100 } else { ROUND };
        self.to_send.insert(id, (0, first));
        self.open.push(id);
        self.send(cx, id);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        let seen = self.seen.entry(id).or_default();
        if let Some(at) = data.iter().enumerate().position(|(i, byte)| *byte != pattern(*seen + i)) {
            self.wrong.push(format!("byte {} of {id:?} is wrong", *seen + at));
        }
        *seen += data.len();
        let (seen, short) = (*seen, cx.token(id) == SHORT);
        let Some((_, until)) = self.to_send.get_mut(&id) else { return data.len() };
        if self.is_server {
            *until = seen;
        } else if !short && seen == *until {
            self.rounds += 1;
            if self.ending {
                cx.close(id);
            } else if !self.pausing {
                *until += ROUND;
            }
        }
        self.send(cx, id);
        if self.is_server && short && seen == 100 {
            cx.close(id);
        }
        data.len()
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.send(cx, id);
    }
    fn on_closed(&mut self, _: &mut Context<'_>, id: ConnId, token: u64, reason: CloseReason) {
        let seen = self.seen.remove(&id).unwrap_or(0);
        self.to_send.remove(&id);
        self.open.retain(|open| *open != id);
        if reason != CloseReason::Normal || (token == SHORT && seen != 100) {
            self.wrong.push(format!("{id:?} ended with {reason:?} after {seen} bytes"));
        }
        if token == SHORT {
            self.done += 1;
            self.running = self.running.saturating_sub(1);
        }
    }
}
