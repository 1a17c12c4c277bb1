//! Owns the words of the control socket: questions, rows, and how they look as JSON.
//!
//! A question is one line, `{"v":1,"ask":"ss",…}`. The answer is one line per row, then `{"end":true,…}`; or, at any
//! point, `{"error":"a sentence"}`, which ends it. These two lines, and `{"pcapng":true}` before a trace, begin with their key, so that a
//! reader of a million rows can tell them by their first bytes. Rows may gain members within a version; a question with a member that the
//! stack does not know is refused, because ignoring it would answer another question.

use laneway_stack::control::Bucket;
use laneway_stack::counters::{Counters, Mib};
use laneway_stack::listing::{Row, States, What};
use laneway_stack::ports::Slice;
use laneway_stack::proto::tcp::State;
use laneway_stack::proto::time::Instant;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

/// The version of the protocol.
pub const VERSION: u64 = 1;

/// The longest question, in bytes.
pub(super) const QUESTION_MAX: usize = 4_096;

/// A question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase", deny_unknown_fields)]
pub enum Ask {
    /// Who are you? One row: [`Hello`].
    Hello {},
    /// Listeners and connections. Rows: [`SsRow`].
    Ss {
        /// Only in these states, by the names of [`states_by_name`]; all if empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        states: Vec<String>,
    },
    /// What is used of each lane's local ports, destination by destination. Rows: [`PortsRow`].
    Ports {},
    /// The steering buckets: whose each is, and how many flows it has. Rows: [`SteerRow`].
    Steer {},
    /// Give the flows of a bucket that begin from now on to a lane. One row: the [`SteerRow`] of that bucket, flows not counted.
    Move {
        /// The bucket, from 0 to 127.
        bucket: usize,
        /// The lane.
        lane: usize,
    },
    /// Every counter, zeroes included. Rows: [`Counter`].
    Nstat {},
    /// What each lane has done with its time, and what it has met. Rows: [`LaneRow`].
    Lanes {},
    /// What each place in the source that takes a lock has cost. Rows: [`LockRow`], none if the lanes share nothing.
    Locks {},
    /// Which place has waited for which. Rows: [`MeetingRow`].
    Meetings {},
    /// Packets. After the line `{"pcapng":true}` the rest of the stream is pcapng, until the client shuts down its
    /// sending side.
    Trace {
        /// Only from or to this address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<IpAddr>,
        /// Only from or to this port.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        /// Only this IP protocol, by number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        protocol: Option<u8>,
        /// Keep so many bytes of each packet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snaplen: Option<u32>,
    },
}

impl Ask {
    /// The question as a line.
    pub(super) fn line(&self) -> String {
        let mut question = serde_json::to_value(self).unwrap_or_default();
        question["v"] = VERSION.into();
        format!("{question}\n")
    }

    /// Back from a line. The error is a sentence.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let right = r#"a question is a line such as {"v":1,"ask":"ss"}"#;
        let mut question: Value =
            serde_json::from_slice(line).map_err(|error| format!("that is not JSON ({error}): {right}"))?;
        let members = question.as_object_mut().ok_or_else(|| format!("that is not an object: {right}"))?;
        match members.remove("v").map(|v| v.as_u64()) {
            Some(Some(VERSION)) => {}
            Some(Some(other)) => {
                return Err(format!(
                    "this stack speaks version {VERSION} of the protocol and was asked in version {other}: ask with the `laneway` that belongs to it"
                ));
            }
            _ => return Err(format!("the question has no version: {right}")),
        }
        serde_json::from_value(question).map_err(|error| format!("that is no question: {error}; {right}"))
    }
}

/// A line that is not a row.
#[derive(Serialize, Deserialize, Default, Debug)]
#[serde(default)]
pub(super) struct Last {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pcapng: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rows: Option<u64>,
}

impl Last {
    /// Whether this line is one: they begin with their key.
    pub(super) fn is(line: &[u8]) -> bool {
        [&b"{\"error\":"[..], b"{\"end\":", b"{\"pcapng\":"].iter().any(|start| line.starts_with(start))
    }

    pub(super) fn error(what: impl Into<String>) -> Self {
        Last { error: Some(what.into()), ..Last::default() }
    }

    pub(super) fn end(rows: u64) -> Self {
        Last { end: Some(true), rows: Some(rows), ..Last::default() }
    }
}

/// What a stack says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the program.
    pub laneway: String,
    /// Version of the protocol.
    pub protocol: u64,
    /// Its process.
    pub pid: u32,
    /// The device, in words.
    pub device: String,
    /// Lanes.
    pub lanes: usize,
    /// How long it has been running, in milliseconds.
    pub uptime_ms: u64,
    /// How its lanes share connections: `lane`, or a variant with locks.
    #[serde(default)]
    pub sharing: String,
}

/// What a lane has done since the stack began. Whoever wants rates asks twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LaneRow {
    /// Its number.
    pub lane: usize,
    /// Microseconds of polls that did something.
    pub busy_us: u64,
    /// Microseconds of polls that found nothing, and of sleep.
    pub idle_us: u64,
    /// Of those, microseconds of sleep: the core was free for others.
    pub sleep_us: u64,
    /// Polls that did something.
    pub polls_busy: u64,
    /// Polls that found nothing.
    pub polls_idle: u64,
    /// IP packets that came in by its queue, super-packets as one.
    pub packets_in: u64,
    /// IP packets that were to go out by it, super-packets as one, and so what leaves in fragments.
    pub packets_out: u64,
    /// Frames that other lanes found in their queues and handed over.
    pub mailed: u64,
    /// Locks that its thread found held.
    pub contended: u64,
    /// Compare-exchanges of its thread that another thread's came before.
    pub retries: u64,
}

impl LaneRow {
    pub(super) fn from_counters(lane: usize, counters: &Counters) -> Self {
        LaneRow {
            lane,
            busy_us: counters.get(Mib::LaneBusyUs),
            idle_us: counters.get(Mib::LaneIdleUs),
            sleep_us: counters.get(Mib::LaneSleepUs),
            polls_busy: counters.get(Mib::PollsBusy),
            polls_idle: counters.get(Mib::PollsIdle),
            packets_in: counters.get(Mib::IpInReceives),
            packets_out: counters.get(Mib::IpOutRequests),
            mailed: counters.get(Mib::SteerMailed),
            contended: counters.get(Mib::LocksContended),
            retries: counters.get(Mib::CasRetries),
        }
    }
}

/// What one place that takes locks has cost: the nine columns of FreeBSD's `debug.lock.prof.stats`, in their order, times in
/// microseconds. Of all stacks in the process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LockRow {
    /// The longest time that it was held.
    pub max: f64,
    /// The longest time that it was waited for.
    pub wait_max: f64,
    /// The time that it was held, in all.
    pub total: f64,
    /// The time that it was waited for, in all.
    pub wait_total: f64,
    /// How often it was taken.
    pub count: u64,
    /// `total` by `count`.
    pub avg: f64,
    /// `wait_total` by `count`.
    pub wait_avg: f64,
    /// How often somebody else came while it was held.
    pub cnt_hold: u64,
    /// How often it was held when it was wanted.
    pub cnt_lock: u64,
    /// `file:line (class)`.
    pub name: String,
    /// Why it is taken there.
    pub why: String,
}

impl LockRow {
    pub(super) fn from_row(row: &laneway_stack::sharing::profile::Row) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        LockRow {
            max: us(row.max_ns),
            wait_max: us(row.wait_max_ns),
            total: us(row.total_ns),
            wait_total: us(row.wait_total_ns),
            count: row.count,
            avg: us(row.avg_ns()),
            wait_avg: us(row.wait_avg_ns()),
            cnt_hold: row.cnt_hold,
            cnt_lock: row.cnt_lock,
            name: row.name.clone(),
            why: row.why.into(),
        }
    }
}

/// That one place found a lock in the hands of another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MeetingRow {
    /// Who waited: as [`LockRow::name`].
    pub waiter: String,
    /// For whom.
    pub holder: String,
    /// How often.
    pub count: u64,
    /// For how long in all, in microseconds.
    pub wait_total: f64,
}

/// A counter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counter {
    /// Its name, the kernel's where the kernel has one.
    pub name: String,
    /// Its value since the stack began.
    pub value: u64,
}

/// One destination as one lane sees it: of the ports whose replies come to that lane, how many are used toward it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PortsRow {
    /// The lane.
    pub lane: usize,
    /// Our address.
    pub local: IpAddr,
    /// The destination.
    pub peer: SocketAddr,
    /// Ports of the range whose replies come to this lane.
    pub owned: usize,
    /// Of those, in use by connections.
    pub in_use: usize,
    /// Of those, in TIME_WAIT.
    pub time_wait: usize,
    /// Of those, kept out by `bind`.
    pub reserved: usize,
    /// There is an index of the free ones.
    pub indexed: bool,
}

impl PortsRow {
    pub(super) fn from_slice(slice: &Slice) -> Self {
        PortsRow {
            lane: slice.lane,
            local: slice.local.to_ip(),
            peer: SocketAddr::new(slice.remote.to_ip(), slice.remote_port),
            owned: slice.owned,
            in_use: slice.in_use,
            time_wait: slice.time_wait,
            reserved: slice.reserved,
            indexed: slice.indexed,
        }
    }
}

/// A steering bucket: the unit in which flows are given to lanes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SteerRow {
    /// Its number, from 0 to 127.
    pub bucket: usize,
    /// The lane of the flows that begin now.
    pub lane: usize,
    /// Flows of it on that lane: connections, half-open ones and TIME_WAIT included.
    pub flows: u64,
    /// While it moves: the lane that it was taken from …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<usize>,
    /// … and how many flows of it are left there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
    /// The lane that it will move to when it has settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<usize>,
}

impl SteerRow {
    /// `flows`: by lane.
    pub(super) fn of(number: usize, bucket: &Bucket, flows: &[u64]) -> Self {
        let on = |lane: usize| flows.get(lane).copied().unwrap_or(0);
        let Bucket { lane, from, then } = *bucket;
        SteerRow { bucket: number, lane, flows: on(lane), from, left: from.map(on), then }
    }
}

/// A listener or a connection, with the columns of `ss -tian`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SsRow {
    /// The state, as `ss` names it: `ESTAB`, `TIME-WAIT`, ….
    pub state: Cow<'static, str>,
    /// Bytes that the application has not read; for a listener, connections that wait to be accepted.
    pub recv_q: u64,
    /// Bytes that the peer has not acknowledged; for a listener, how many connections may wait.
    pub send_q: u64,
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's; none for a listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// The lane that owns it; none for a listener, which is on every lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<u16>,
    /// The timer that is due next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer: Option<SsTimer>,
    /// More, of a synchronized connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info: Option<SsInfo>,
}

/// A timer, as `ss -o` shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SsTimer {
    /// `on` (retransmission), `persist`, `keepalive` or `timewait`.
    pub name: Cow<'static, str>,
    /// Milliseconds until it is due.
    pub due_ms: u64,
    /// How often it has fired in a row.
    pub retries: u8,
}

/// What `ss -i` shows of a connection. Microseconds and bytes, unless the name says otherwise.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are those of the kernel's `tcp_info`, and of the getters of `proto::tcp::Info`
pub struct SsInfo {
    pub ts: bool,
    pub sack: bool,
    #[serde(default)]
    pub ecn: bool,
    pub nodelay: bool,
    pub congestion: Cow<'static, str>,
    pub phase: Cow<'static, str>,
    pub snd_wscale: u8,
    pub rcv_wscale: u8,
    pub rto_us: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<u32>,
    pub rttvar_us: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minrtt_us: Option<u32>,
    pub mss: u16,
    pub rcvmss: u16,
    pub cwnd_bytes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssthresh_bytes: Option<u32>,
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub segs_out: u32,
    pub segs_in: u32,
    pub retrans: u32,
    /// What was asked has not said it before.
    #[serde(default)]
    pub retrans_out: u32,
    pub unacked_bytes: u32,
    /// What was asked has not said it before, either.
    #[serde(default)]
    pub notsent_bytes: u32,
    pub snd_wnd: u32,
    pub rcv_space: u32,
    pub lastack_ms: u32,
    pub lastrcv_ms: u32,
}

/// A state's name in `ss`.
pub const fn state_name(state: State) -> &'static str {
    match state {
        State::Closed => "UNCONN",
        State::Listen => "LISTEN",
        State::SynSent => "SYN-SENT",
        State::SynReceived => "SYN-RECV",
        State::Established => "ESTAB",
        State::FinWait1 => "FIN-WAIT-1",
        State::FinWait2 => "FIN-WAIT-2",
        State::CloseWait => "CLOSE-WAIT",
        State::Closing => "CLOSING",
        State::LastAck => "LAST-ACK",
        State::TimeWait => "TIME-WAIT",
    }
}

/// The names by which states can be asked for: those of `ss`'s filter, and the groups that it knows.
pub const STATE_FILTERS: &[&str] = &[
    "established",
    "syn-sent",
    "syn-recv",
    "fin-wait-1",
    "fin-wait-2",
    "time-wait",
    "closed",
    "close-wait",
    "last-ack",
    "listening",
    "closing",
    "all",
    "connected",
    "synchronized",
    "bucket",
    "big",
];

/// The states of such a name.
pub fn states_by_name(name: &str) -> Option<States> {
    let connected = States::ALL.without(State::Closed).without(State::Listen);
    Some(match name {
        "established" => States::NONE.with(State::Established),
        "syn-sent" => States::NONE.with(State::SynSent),
        "syn-recv" => States::NONE.with(State::SynReceived),
        "fin-wait-1" => States::NONE.with(State::FinWait1),
        "fin-wait-2" => States::NONE.with(State::FinWait2),
        "time-wait" => States::NONE.with(State::TimeWait),
        "closed" => States::NONE.with(State::Closed),
        "close-wait" => States::NONE.with(State::CloseWait),
        "last-ack" => States::NONE.with(State::LastAck),
        "listening" => States::NONE.with(State::Listen),
        "closing" => States::NONE.with(State::Closing),
        "all" => States::ALL,
        "connected" => connected,
        "synchronized" => connected.without(State::SynSent),
        "bucket" => States::NONE.with(State::SynReceived).with(State::TimeWait),
        "big" => States::ALL.without(State::SynReceived).without(State::TimeWait),
        _ => return None,
    })
}

impl SsRow {
    /// A lane's row, as it goes over the socket.
    pub(super) fn from_row(row: &Row, now: Instant) -> Self {
        let flow = &row.flow;
        let mut said = SsRow {
            state: Cow::Borrowed(""),
            recv_q: 0,
            send_q: 0,
            local: SocketAddr::new(flow.local.to_ip(), flow.local_port),
            peer: Some(SocketAddr::new(flow.remote.to_ip(), flow.remote_port)),
            lane: Some(row.lane),
            timer: None,
            info: None,
        };
        let timer =
            |name, due_ms: u32, retries| Some(SsTimer { name: Cow::Borrowed(name), due_ms: due_ms.into(), retries });
        let state = match &row.what {
            What::Listener { queued, backlog, .. } => {
                (said.peer, said.lane) = (None, None);
                (said.recv_q, said.send_q) = ((*queued).into(), (*backlog).into());
                State::Listen
            }
            What::HalfOpen { retries, due_ms } => {
                said.timer = timer("on", *due_ms, *retries);
                State::SynReceived
            }
            What::Handshaking { state, retries, due_ms } => {
                said.timer = timer("on", *due_ms, *retries);
                *state
            }
            What::TimeWait { left_ms } => {
                said.timer = timer("timewait", *left_ms, 0);
                State::TimeWait
            }
            What::Synchronized(info) => {
                (said.recv_q, said.send_q) = (info.unread.into(), info.queued.into());
                said.timer = info.timer.map(|(name, at)| SsTimer {
                    name: Cow::Borrowed(name),
                    due_ms: at.since_us(now) / 1_000,
                    retries: info.retries,
                });
                said.info = Some(SsInfo::from_info(info));
                info.state
            }
        };
        said.state = Cow::Borrowed(state_name(state));
        said
    }
}

impl SsInfo {
    fn from_info(info: &laneway_stack::proto::tcp::Info) -> Self {
        use laneway_stack::proto::tcp::connection::Phase;
        SsInfo {
            ts: info.timestamps,
            sack: info.sack,
            ecn: info.ecn,
            nodelay: info.nodelay,
            congestion: Cow::Borrowed(info.congestion),
            phase: Cow::Borrowed(match info.phase {
                Phase::Open => "open",
                Phase::Tail => "tail",
                Phase::Recovery => "recovery",
                Phase::Loss => "loss",
            }),
            snd_wscale: info.wscale.0,
            rcv_wscale: info.wscale.1,
            rto_us: info.rto_us,
            rtt_us: info.srtt_us,
            rttvar_us: info.rttvar_us,
            minrtt_us: info.min_rtt_us,
            mss: info.mss,
            rcvmss: info.rcv_mss,
            cwnd_bytes: info.cwnd,
            ssthresh_bytes: (info.ssthresh != u32::MAX).then_some(info.ssthresh),
            bytes_sent: info.bytes_sent,
            bytes_retrans: info.bytes_retrans,
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
            segs_out: info.segs_out,
            segs_in: info.segs_in,
            retrans: info.retransmitted,
            retrans_out: info.repeats_out,
            unacked_bytes: info.flight,
            notsent_bytes: info.notsent_bytes,
            snd_wnd: info.snd_wnd,
            rcv_space: info.rcv_space,
            lastack_ms: info.last_progress_ms,
            lastrcv_ms: info.last_heard_ms,
        }
    }
}
