//! Owns the work unit RR: request and response on connections that stay open.

use super::crew::{Client, Load, Server, Work};
use super::crr;
use laneway_proto::tcp::CloseReason;
use laneway_stack::app::{App, ConnId, Context};
use std::sync::Arc;

/// Request and response on open connections.
#[derive(Clone)]
pub struct Rr {
    request: Arc<[u8]>,
    response: Arc<[u8]>,
}

impl Rr {
    /// Of the sizes that CRR has, or of one other size both ways.
    pub fn new(message: Option<usize>) -> Self {
        match message {
            None => Rr { request: Arc::from(crr::REQUEST), response: Arc::from(crr::RESPONSE) },
            Some(bytes) => Rr { request: vec![b'q'; bytes].into(), response: vec![b'r'; bytes].into() },
        }
    }

    /// What is asked, and what is answered.
    pub fn messages(&self) -> (Vec<u8>, Vec<u8>) {
        (self.request.to_vec(), self.response.to_vec())
    }

    /// Payload bytes of a request and its response.
    pub fn bytes(&self) -> usize {
        self.request.len() + self.response.len()
    }
}

impl Work for Rr {
    type Server = RrServer;
    type Client = RrClient;

    fn server(&self) -> RrServer {
        RrServer { request: self.request.len(), response: Arc::clone(&self.response) }
    }
    fn client(&self, load: Load) -> RrClient {
        RrClient { load, request: Arc::clone(&self.request), response: self.response.len(), timed: None }
    }
}

/// Counts what has come of a message on a connection. True when `len` more bytes make it whole.
///
/// A message that comes in one piece, as short ones do, needs nothing to be remembered.
#[inline]
fn is_whole(cx: &mut Context<'_>, id: ConnId, len: usize, whole: usize) -> bool {
    if len == whole {
        return true;
    }
    let seen = cx.token(id) + len as u64;
    let done = seen >= whole as u64;
    cx.set_token(id, if done { 0 } else { seen });
    done
}

/// Answers.
pub struct RrServer {
    request: usize,
    response: Arc<[u8]>,
}

impl Server for RrServer {}

impl App for RrServer {
    #[inline]
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        if is_whole(cx, id, data.len(), self.request) {
            cx.send(id, &self.response);
        }
        data.len()
    }
}

/// Asks again and again.
pub struct RrClient {
    load: Load,
    request: Arc<[u8]>,
    response: usize,
    /// The request that is being timed.
    timed: Option<(ConnId, u64)>,
}

impl RrClient {
    #[inline]
    fn ask(&mut self, cx: &mut Context<'_>, id: ConnId) {
        cx.send(id, &self.request);
        let started = self.load.stopwatch.start();
        if started != 0 && self.timed.is_none() {
            self.timed = Some((id, started));
        }
    }
}

impl Client for RrClient {
    fn load(&mut self) -> &mut Load {
        &mut self.load
    }
}

impl App for RrClient {
    #[inline]
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        self.load.open_missing(cx);
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.load.established += 1;
        cx.set_token(id, 0);
        self.ask(cx, id);
    }
    #[inline]
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        if is_whole(cx, id, data.len(), self.response) {
            if let Some((_, started)) = self.timed.take_if(|(timed, _)| *timed == id) {
                self.load.stopwatch.stop(started);
            }
            self.load.ops += 1;
            self.ask(cx, id);
        }
        data.len()
    }
    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, _: u64, _: CloseReason) {
        // It was meant to stay open.
        self.load.running -= 1;
        self.load.failed += 1;
    }
}
