//! Owns the work unit stream: bulk data from client to server. An operation is a mebibyte received.

use super::crew::{Client, Load, Server, Work};
use laneway_proto::tcp::CloseReason;
use laneway_stack::app::{App, ConnId, Context};

/// Bytes of one operation.
pub const MEBIBYTE: u64 = 1 << 20;
/// Bytes that are offered to a connection at once.
const CHUNK: usize = 65_536;

/// Bulk data one way.
#[derive(Clone)]
pub struct Stream;

impl Work for Stream {
    type Server = StreamServer;
    type Client = StreamClient;

    fn server(&self) -> StreamServer {
        StreamServer { received: 0 }
    }
    fn client(&self, load: Load) -> StreamClient {
        StreamClient { load, chunk: vec![b's'; CHUNK].into() }
    }
}

/// Reads and forgets.
pub struct StreamServer {
    received: u64,
}

impl Server for StreamServer {
    fn ops(&self) -> u64 {
        self.received / MEBIBYTE
    }
}

impl App for StreamServer {
    #[inline]
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        self.received += data.len() as u64;
        data.len()
    }
}

/// Sends for ever.
pub struct StreamClient {
    load: Load,
    chunk: Box<[u8]>,
}

impl StreamClient {
    #[inline]
    fn fill(&mut self, cx: &mut Context<'_>, id: ConnId) {
        while cx.send(id, &self.chunk) == self.chunk.len() {}
    }
}

impl Client for StreamClient {
    fn load(&mut self) -> &mut Load {
        &mut self.load
    }
}

impl App for StreamClient {
    #[inline]
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        self.load.open_missing(cx);
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.load.established += 1;
        self.fill(cx, id);
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
    #[inline]
    fn on_writable(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.fill(cx, id);
    }
    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, _: u64, _: CloseReason) {
        self.load.running -= 1;
        self.load.failed += 1;
    }
}
