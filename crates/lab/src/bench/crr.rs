//! Owns the work unit CRR: connect, request, response, close; the server closes first.

use super::crew::{Client, Load, Server, Work};
use laneway_proto::tcp::CloseReason;
use laneway_stack::app::{App, ConnId, Context};

/// Bytes of a request.
pub const REQUEST: [u8; 92] = [b'q'; 92];
/// Bytes of a response.
pub const RESPONSE: [u8; 206] = [b'r'; 206];

/// Connect, request, response, close.
#[derive(Clone)]
pub struct Crr;

impl Work for Crr {
    type Server = CrrServer;
    type Client = CrrClient;

    fn server(&self) -> CrrServer {
        CrrServer
    }
    fn client(&self, load: Load) -> CrrClient {
        CrrClient { load }
    }
}

/// Answers, and closes. It needs to remember nothing.
pub struct CrrServer;

impl Server for CrrServer {}

impl App for CrrServer {
    #[inline]
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        if data.len() < REQUEST.len() {
            return 0; // shown again, whole, when the rest is there
        }
        cx.send(id, &RESPONSE);
        cx.close(id);
        data.len()
    }
}

/// Keeps a number of connections under way.
pub struct CrrClient {
    load: Load,
}

impl Client for CrrClient {
    fn load(&mut self) -> &mut Load {
        &mut self.load
    }
}

impl App for CrrClient {
    #[inline]
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        self.load.open_missing(cx);
    }
    #[inline]
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.load.established += 1;
        cx.send(id, &REQUEST);
    }
    #[inline]
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        if data.len() < RESPONSE.len() {
            return 0;
        }
        data.len()
    }
    #[inline]
    fn on_closed(&mut self, cx: &mut Context<'_>, _: ConnId, token: u64, reason: CloseReason) {
        self.load.stopwatch.stop(token);
        self.load.closed(reason);
        // The next one begins in the same poll.
        self.load.open_missing(cx);
    }
}
