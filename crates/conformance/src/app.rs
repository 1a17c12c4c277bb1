//! Owns the application that a script plays: it does what the script's calls say, and writes down what it is told.

use crate::frame::pattern;
use laneway_proto::tcp::{CloseReason, KeepaliveTimes, State};
use laneway_stack::app::{App, ConnId, Context, ListenerId};
use laneway_wire::flow::Address;
use std::collections::HashMap;

/// What the application is to do in the next poll.
#[derive(Clone, Debug)]
pub enum Verb {
    /// Take a connection from a listener.
    Accept(ListenerId),
    /// Open one.
    Connect(Address, u16),
    /// Queue so many bytes.
    Write(ConnId, usize, Manner),
    /// Take so many bytes.
    Read(ConnId, usize),
    /// Take nothing by itself any more.
    Hold(ConnId),
    /// Close for writing.
    Shutdown(ConnId),
    /// Close both ways.
    Close(ConnId),
    /// Reset.
    Abort(ConnId),
    /// An option and its value.
    Set(ConnId, Sockopt, u32),
    /// The state's name.
    State(ConnId),
    /// The congestion window.
    Cwnd(ConnId),
    /// Bytes to the end of urgent data.
    Urgent(ConnId),
}

/// How bytes are queued.
#[derive(Clone, Copy, Debug)]
pub enum Manner {
    /// As they are.
    Plain,
    /// The last of them urgent (`MSG_OOB`).
    Urgent,
    /// More will follow (`MSG_MORE`).
    More,
}

/// Options of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Sockopt {
    /// `TCP_CORK`
    Cork,
    /// `SO_KEEPALIVE`
    KeepAlive,
    /// `TCP_KEEPIDLE`, in seconds
    KeepIdle,
    /// `TCP_KEEPINTVL`, in seconds
    KeepIntvl,
    /// `TCP_KEEPCNT`
    KeepCnt,
    /// `TCP_NODELAY`
    NoDelay,
    /// `TCP_NOTSENT_LOWAT`, in bytes
    NotsentLowat,
    /// `TCP_QUICKACK`
    QuickAck,
    /// `SO_RCVBUF`, in bytes of text
    RcvBuf,
    /// `SO_SNDBUF`, in bytes of text
    SndBuf,
    /// `TCP_USER_TIMEOUT`
    UserTimeout,
}

/// What a verb has answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// As a script writes it.
    Text(String),
    /// A new connection.
    Connection(ConnId),
}

/// One connection, as the application knows it.
#[derive(Default)]
pub struct Known {
    taken: Vec<u8>,
    read: usize,
    written: u32,
    holds: bool,
    peer_closed: bool,
    closed: Option<CloseReason>,
}

/// The application of a script.
#[derive(Default)]
pub struct Played {
    /// To be done in the next poll, in order.
    pub verbs: Vec<Verb>,
    /// What the verbs of the last poll have answered, in order.
    pub answers: Vec<Answer>,
    connections: HashMap<ConnId, Known>,
}

impl Played {
    fn known(&mut self, id: ConnId) -> &mut Known {
        self.connections.entry(id).or_default()
    }

    fn act(&mut self, cx: &mut Context<'_>, verb: Verb) -> Answer {
        let done = || Answer::Text("0".into());
        match verb {
            Verb::Accept(listener) => match cx.accept(listener) {
                Some(id) => Answer::Connection(id),
                None => Answer::Text("-1 EAGAIN".into()),
            },
            Verb::Connect(to, port) => match cx.connect(None, to, port, 0) {
                Ok(id) => Answer::Connection(id),
                Err(e) => Answer::Text(format!("-1 {e}")),
            },
            Verb::Write(id, len, manner) => {
                if let Some(reason) = self.known(id).closed {
                    return Answer::Text(error(reason).into());
                }
                let start = self.known(id).written;
                let bytes: Vec<u8> = (0..len as u32).map(|i| pattern(start.wrapping_add(i))).collect();
                let taken = match manner {
                    Manner::Plain => cx.send(id, &bytes),
                    Manner::Urgent => cx.send_urgent(id, &bytes),
                    Manner::More => cx.send_more(id, &bytes),
                };
                self.known(id).written += taken as u32;
                if taken == 0 && len > 0 && !cx.state(id).can_send() {
                    return Answer::Text("-1 EPIPE".into());
                }
                Answer::Text(taken.to_string())
            }
            Verb::Read(id, len) => self.read(cx, id, len),
            Verb::Hold(id) => {
                self.known(id).holds = true;
                done()
            }
            Verb::Shutdown(id) => {
                cx.shutdown(id);
                done()
            }
            Verb::Close(id) => {
                cx.close(id);
                done()
            }
            Verb::Abort(id) => {
                cx.abort(id);
                done()
            }
            Verb::Set(id, option, value) => {
                let unsaid = KeepaliveTimes::default();
                match option {
                    Sockopt::Cork => cx.set_cork(id, value != 0),
                    Sockopt::KeepAlive => cx.set_keepalive(id, value != 0),
                    Sockopt::KeepIdle => cx.set_keepalive_times(id, KeepaliveTimes { idle_s: value as u16, ..unsaid }),
                    Sockopt::KeepIntvl => {
                        cx.set_keepalive_times(id, KeepaliveTimes { interval_s: value as u16, ..unsaid });
                    }
                    Sockopt::KeepCnt => cx.set_keepalive_times(id, KeepaliveTimes { probes: value as u8, ..unsaid }),
                    Sockopt::NoDelay => cx.set_nodelay(id, value != 0),
                    Sockopt::NotsentLowat => cx.set_notsent_lowat(id, value),
                    Sockopt::QuickAck => cx.set_quickack(id, value != 0),
                    Sockopt::RcvBuf => cx.set_receive_buffer(id, value),
                    Sockopt::SndBuf => cx.set_send_buffer(id, value),
                    Sockopt::UserTimeout => cx.set_user_timeout_ms(id, value),
                }
                done()
            }
            Verb::State(id) => Answer::Text(name(cx.state(id)).into()),
            Verb::Cwnd(id) => Answer::Text(cx.inspect(id, |c| c.cwnd()).map_or("-1".into(), |n| n.to_string())),
            Verb::Urgent(id) => {
                Answer::Text(cx.inspect(id, |c| c.urgent_ahead().unwrap_or(0)).map_or("-1".into(), |n| n.to_string()))
            }
        }
    }

    fn read(&mut self, cx: &mut Context<'_>, id: ConnId, len: usize) -> Answer {
        let mut waiting = self.known(id).taken.len() - self.known(id).read;
        if self.known(id).holds && waiting < len {
            let mut bytes = vec![0; len - waiting];
            let n = cx.recv(id, &mut bytes);
            self.known(id).taken.extend(&bytes[..n]);
            waiting += n;
        }
        let known = self.known(id);
        let n = waiting.min(len);
        if n == 0 {
            let at_end = known.peer_closed || cx.inspect(id, |c| c.is_at_end()).unwrap_or(false);
            return Answer::Text(match (known.closed, at_end) {
                (Some(CloseReason::Normal), _) | (None, true) => "0".into(),
                (Some(reason), _) => error(reason).into(),
                (None, false) => "-1 EAGAIN".into(),
            });
        }
        let range = known.read..known.read + n;
        if let Some(at) = range.clone().find(|at| known.taken[*at] != pattern(*at as u32)) {
            return Answer::Text(format!("{n}, but byte {at} of the stream is wrong"));
        }
        known.read += n;
        Answer::Text(n.to_string())
    }
}

fn error(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Normal => "-1 EPIPE",
        CloseReason::Reset => "-1 ECONNRESET",
        CloseReason::Refused => "-1 ECONNREFUSED",
        CloseReason::NetworkUnreachable => "-1 ENETUNREACH",
        CloseReason::HostUnreachable => "-1 EHOSTUNREACH",
        CloseReason::Prohibited => "-1 EACCES",
        CloseReason::TimedOut => "-1 ETIMEDOUT",
        CloseReason::OutOfMemory => "-1 ENOMEM",
        CloseReason::Aborted => "-1 ECONNABORTED",
    }
}

fn name(state: State) -> &'static str {
    match state {
        State::Closed => "CLOSED",
        State::Listen => "LISTEN",
        State::SynSent => "SYN_SENT",
        State::SynReceived => "SYN_RECEIVED",
        State::Established => "ESTABLISHED",
        State::FinWait1 => "FIN_WAIT_1",
        State::FinWait2 => "FIN_WAIT_2",
        State::CloseWait => "CLOSE_WAIT",
        State::Closing => "CLOSING",
        State::LastAck => "LAST_ACK",
        State::TimeWait => "TIME_WAIT",
    }
}

impl App for Played {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        for verb in std::mem::take(&mut self.verbs) {
            let answer = self.act(cx, verb);
            self.answers.push(answer);
        }
    }

    // The script accepts when it says so.
    fn on_acceptable(&mut self, _: &mut Context<'_>, _: ListenerId) {}

    fn on_data(&mut self, _: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        let known = self.known(id);
        if known.holds {
            return 0;
        }
        known.taken.extend(data);
        data.len()
    }

    fn on_peer_closed(&mut self, _: &mut Context<'_>, id: ConnId) {
        self.known(id).peer_closed = true;
    }

    fn on_closed(&mut self, _: &mut Context<'_>, id: ConnId, _: u64, reason: CloseReason) {
        self.known(id).closed = Some(reason);
    }
}
