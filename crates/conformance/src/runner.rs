//! Owns the run of a script: a real host with one lane, its peer and its application played by the script, in virtual time.

use crate::app::{Answer, Manner, Played, Sockopt, Verb};
use crate::frame::{self, Ends, Flow, Live, pattern};
use crate::packet::{IcmpKind, Packet, TcpOption, TcpPacket};
use crate::script::{Action, Call, Event, Script, Setting, When};
use laneway_proto::tcp::congestion::Algorithm;
use laneway_proto::time::Instant;
use laneway_stack::app::{ConnId, ListenerId};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::device::memory::{self, LinkConfig, LinkQueue, LinkRx, LinkTx};
use laneway_stack::device::{Rx, Tx};
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_wire::flow::Address;
use laneway_wire::tcp::SeqNum;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

/// The port that scripts listen on.
const LOCAL_PORT: u16 = 8080;
/// The peer's port of the first connection of a passive open; `#2` adds 2.
const REMOTE_PORT: u16 = 50_000;
/// The peer's port of the first active open.
const SERVER_PORT: u16 = 80;
/// The virtual clock at a script's time 0.
const START_US: u64 = 3_600_000_000;
/// Where the peer's numbers start, so that every script that carries data crosses zero.
const REMOTE_BASE: u32 = u32::MAX - 700;
/// The longest that `*` waits.
const PATIENCE_US: u64 = 600_000_000;
/// After the last line nothing more may come for so long: a delayed ACK would have, a retransmission would not yet.
const AFTERMATH_US: u64 = 150_000;
/// Polls at one point in time before the runner says that the stack never comes to rest.
const TURNS_MAX: usize = 10_000;
/// Lines of the packet trace that a failure shows.
const TRACE_LINES: usize = 12;

type TestHost = Host<LinkRx, LinkTx, Played>;

enum Descriptor {
    Fresh,
    Listener(ListenerId),
    Connection(ConnId),
}

struct Sent {
    at: u64,
    live: Live,
}

/// Less than this is believed of no path over IPv4 (the kernel's `net.ipv4.route.min_pmtu`).
const PATH_LEAST: u32 = 552;

struct Runner<'s> {
    script: &'s Script,
    host: TestHost,
    peer: LinkQueue,
    ends: Ends,
    /// A router has said that the path carries less than is believed of any.
    is_cut: bool,
    remote_base: u32,
    tolerance_us: u64,
    /// Microseconds since the start of the script.
    now: u64,
    /// When the event before happened.
    last: u64,
    flows: BTreeMap<u16, Flow>,
    descriptors: BTreeMap<i64, Descriptor>,
    /// Segments of ours that no line has claimed yet.
    sent: VecDeque<Sent>,
    trace: Vec<String>,
    anew: bool,
}

/// Runs a script. The error says where it failed, what was expected and what came instead.
pub fn run(script: &Script) -> Result<(), String> {
    let mut runner = Runner::new(script)?;
    let mut at = 0;
    while at < script.events.len() {
        // What happens in the same poll goes in together.
        let mut end = at + 1;
        while script.events.get(end).is_some_and(|e| e.when == When::SamePoll) {
            end += 1;
        }
        runner.step(&script.events[at..end])?;
        at = end;
    }
    runner.finish()
}

fn fail(script: &Script, line: usize, text: &str) -> String {
    format!("{}:{line}: {text}", script.name)
}

impl<'s> Runner<'s> {
    fn new(script: &'s Script) -> Result<Self, String> {
        let mut config = Config { connections: 16, ..Config::default() };
        let mut link = LinkConfig::default();
        let (mut v6, mut tolerance_us, mut remote_base) = (false, 2_000, REMOTE_BASE);
        for setting in &script.settings {
            let wrong = |e: String| fail(script, setting.line, &e);
            match setting.name.as_str() {
                "ip_version" => {
                    v6 = match setting.value.as_str() {
                        "ipv4" => false,
                        "ipv6" => true,
                        other => return Err(wrong(format!("there is no IP version '{other}': ipv4 or ipv6"))),
                    }
                }
                "tolerance_usecs" => tolerance_us = value(setting).map_err(wrong)?,
                "mtu" => link.mtu = value(setting).map_err(wrong)?,
                "remote_isn" => remote_base = value(setting).map_err(wrong)?,
                _ => configure(&mut config, setting).map_err(wrong)?,
            }
        }
        let (network, ends) =
            if v6 { ("fd00::1/64", ["fd00::1", "fd00::2"]) } else { ("192.0.2.1/24", ["192.0.2.1", "192.0.2.2"]) };
        let address = |text: &str| text.parse::<std::net::IpAddr>().map(Address::from).map_err(|e| e.to_string());
        let ends = Ends { local: address(ends[0])?, remote: address(ends[1])? };
        let network = Network { addresses: vec![network.parse()?], gateways: vec![] };
        let (ours, mut theirs) = memory::link(link);
        let peer = theirs.pop().ok_or("a link has two ends")?;
        let secrets = BootSecrets::from_seed(0x006c_616e_6577_6179);
        let host = Host::new(config, &network, &secrets, ours, Instant::from_us(START_US), |_| Played::default())
            .map_err(|e| e.to_string())?;
        Ok(Runner {
            script,
            host,
            peer,
            ends,
            is_cut: false,
            remote_base,
            tolerance_us,
            now: 0,
            last: 0,
            flows: BTreeMap::new(),
            descriptors: BTreeMap::new(),
            sent: VecDeque::new(),
            trace: Vec::new(),
            anew: false,
        })
    }

    fn clock(&self) -> Instant {
        Instant::from_us(START_US + self.now)
    }

    fn fail(&self, event: &Event, text: &str) -> String {
        let mut message = fail(self.script, event.line, text);
        let _ = write!(message, "\n  in       {}", event.text);
        let from = self.trace.len().saturating_sub(TRACE_LINES);
        for line in &self.trace[from..] {
            let _ = write!(message, "\n  seen     {line}");
        }
        message
    }

    // Time ------------------------------------------------------------------------------------------------------

    /// One poll, and what came out of it.
    fn turn(&mut self) -> Result<(bool, u64), String> {
        let turn = self.host.turn(self.clock());
        let frames = self.peer.rx.poll(64);
        for i in 0..frames {
            let live = frame::decode(self.peer.rx.frame(i).bytes, &self.ends, self.is_cut)
                .map_err(|e| format!("{}: at {}: {e}", self.script.name, time(self.now)))?;
            let flow = self.flow_of(&live);
            let shown = match self.flows.get(&flow) {
                Some(known) => known.in_script(&live, flow),
                None => live.packet.clone(),
            };
            self.trace.push(format!("{} > {shown}", time(self.now)));
            self.sent.push_back(Sent { at: self.now, live });
        }
        self.peer.rx.release();
        Ok((turn.busy || frames > 0, turn.deadline.as_us().saturating_sub(START_US)))
    }

    /// Polls until nothing moves any more; the answer is when something will by itself.
    fn rest(&mut self) -> Result<u64, String> {
        for _ in 0..TURNS_MAX {
            let (busy, deadline) = self.turn()?;
            if !busy {
                return Ok(deadline);
            }
        }
        Err(format!("{}: at {} the stack never came to rest", self.script.name, time(self.now)))
    }

    /// Lets time pass until `to`, or until something of ours waits to be looked at.
    fn advance(&mut self, to: u64, stop_at_packet: bool) -> Result<(), String> {
        loop {
            let deadline = self.rest()?;
            if self.now >= to || (stop_at_packet && !self.sent.is_empty()) {
                return Ok(());
            }
            self.now = deadline.clamp(self.now + 1, to);
        }
    }

    // Events ----------------------------------------------------------------------------------------------------

    fn step(&mut self, events: &[Event]) -> Result<(), String> {
        let first = &events[0];
        let (from, to) = match first.when {
            When::At(from, to) => (from, to),
            When::After(from, to) => (self.last + from, self.last + to),
            When::Any => (self.now, self.now + PATIENCE_US),
            When::SamePoll => (self.now, self.now),
        };
        if let Action::Outbound(expected) = &first.action {
            let Packet::Tcp(expected) = expected else {
                return Err(self.fail(first, "only TCP segments of ours can be expected"));
            };
            return self.expect(first, expected, from, to);
        }
        if from > self.now {
            self.advance_silently(first, from)?;
        } else if from + self.tolerance_us < self.now {
            return Err(self.fail(first, &format!("it is {} already", time(self.now))));
        }
        self.last = self.now;
        self.act(events)
    }

    /// Lets time pass. Everything that has been sent must have been expected.
    fn advance_silently(&mut self, event: &Event, to: u64) -> Result<(), String> {
        self.rest()?;
        self.nothing_unexpected(event)?;
        self.advance(to - 1, true)?;
        self.nothing_unexpected(event)?;
        self.now = to;
        Ok(())
    }

    fn nothing_unexpected(&self, event: &Event) -> Result<(), String> {
        let Some(sent) = self.sent.front() else { return Ok(()) };
        let got = self.show(&sent.live);
        Err(self.fail(
            event,
            &format!(
                "before this line something was sent that was not expected\n  expected nothing\n  got      {} > {got}",
                time(sent.at)
            ),
        ))
    }

    fn show(&self, live: &Live) -> TcpPacket {
        let id = self.flow_of(live);
        self.flows.get(&id).map_or_else(|| live.packet.clone(), |flow| flow.in_script(live, id))
    }

    /// What the peer and the application do in one poll.
    fn act(&mut self, events: &[Event]) -> Result<(), String> {
        let mut waiting = Vec::new();
        for event in events {
            match &event.action {
                Action::Inbound(packet) => self.inject(event, packet)?,
                Action::Call(call) => {
                    if let Some(verb) = self.verb(event, call)? {
                        self.host.seats[0].app.verbs.push(verb);
                        waiting.push((event, call));
                    }
                }
                Action::Outbound(_) => {}
            }
        }
        self.peer.tx.flush();
        self.turn()?;
        let answers = std::mem::take(&mut self.host.seats[0].app.answers);
        if let Some((event, _)) = waiting.get(answers.len()) {
            return Err(self.fail(event, "the application was not asked"));
        }
        for ((event, call), answer) in waiting.into_iter().zip(answers) {
            self.answered(event, call, answer)?;
        }
        self.rest()?;
        Ok(())
    }

    fn flow_of(&self, live: &Live) -> u16 {
        let same = |flow: &Flow| {
            flow.remote_port == live.remote_port && (flow.local_port == live.local_port || flow.local_port == 0)
        };
        self.flows.iter().find(|(_, flow)| same(flow)).map_or(u16::MAX, |(id, _)| *id)
    }

    fn flow(&mut self, id: u16) -> &mut Flow {
        let remote_base = self.remote_base;
        self.flows.entry(id).or_insert(Flow {
            local_port: LOCAL_PORT,
            remote_port: REMOTE_PORT + id,
            local_base: None,
            remote_base,
            timestamp_base: None,
            iss: 0,
            irs: None,
        })
    }

    fn inject(&mut self, event: &Event, packet: &Packet) -> Result<(), String> {
        let ends = self.ends;
        let bytes = match packet {
            Packet::Tcp(tcp) => {
                let flow = self.flow(tcp.flow);
                if tcp.flags.syn() && flow.irs.is_none() {
                    flow.irs = Some(tcp.seq);
                }
                flow.encode(tcp, &ends)
            }
            Packet::Icmp(icmp) => {
                self.is_cut |= matches!(icmp.kind, IcmpKind::TooBig(1..PATH_LEAST));
                self.flow(icmp.flow).encode_icmp(icmp, &ends)
            }
        };
        self.trace.push(format!("{} < {packet}", time(self.now)));
        if bytes.len() > self.peer.tx.capabilities().mtu {
            return Err(self.fail(event, &format!("a packet of {} bytes is larger than the link's MTU", bytes.len())));
        }
        let Some(buf) = self.peer.tx.reserve(bytes.len()) else { return Err(self.fail(event, "the link is full")) };
        buf.copy_from_slice(&bytes);
        self.peer.tx.commit(bytes.len(), Default::default());
        Ok(())
    }

    fn expect(&mut self, event: &Event, expected: &TcpPacket, from: u64, to: u64) -> Result<(), String> {
        let latest = to + self.tolerance_us;
        if self.sent.is_empty() {
            self.advance(latest.max(self.now), true)?;
        }
        let Some(sent) = self.sent.pop_front() else {
            let text = format!(
                "nothing was sent\n  expected {} > {expected}\n  got      nothing until {}",
                time(from),
                time(self.now)
            );
            return Err(self.fail(event, &text));
        };
        let id = self.flow_of(&sent.live);
        let newly = self.anchor(event, expected, id, &sent.live)?;
        let got = self.show(&sent.live);
        let slack = (self.tolerance_us / 1_000) as u32;
        let mut wrong = expected.difference(&got, slack);
        if sent.at + self.tolerance_us < from || sent.at > latest {
            let when = if from == to { time(from) } else { format!("{} to {}", time(from), time(to)) };
            wrong = Some(format!("time, which should be {when}{}", wrong.map_or(String::new(), |w| format!(", {w}"))));
        }
        if let Some(wrong) = wrong {
            let text =
                format!("wrong: {wrong}\n  expected {} > {expected}\n  got      {} > {got}", time(from), time(sent.at));
            return Err(self.fail(event, &text));
        }
        if let Some(flow) = self.flows.get(&id) {
            let start = flow.stream_offset(got.seq.wrapping_add(u32::from(got.flags.syn())));
            // A keepalive or a probe may repeat what is long gone; its one byte is compared all the same.
            if let Some(at) = sent
                .live
                .payload
                .iter()
                .zip(0u32..)
                .find_map(|(byte, i)| (*byte != pattern(start.wrapping_add(i))).then_some(i))
            {
                return Err(self.fail(event, &format!("payload byte {at} of {got} is not what the application wrote")));
            }
        }
        if newly {
            self.anew = false;
        }
        self.last = sent.at;
        Ok(())
    }

    /// The first SYN of ours tells where our numbers lie, the first expected timestamp where our clock does.
    fn anchor(&mut self, event: &Event, expected: &TcpPacket, id: u16, live: &Live) -> Result<bool, String> {
        let anew = self.anew;
        let mut newly = false;
        let mut step = None;
        if let Some(flow) = self.flows.get_mut(&id) {
            if live.packet.flags.syn() && expected.flags.syn() {
                flow.local_port = live.local_port;
                let base = live.packet.seq.wrapping_sub(expected.seq);
                if let Some(old) = flow.local_base.filter(|_| anew) {
                    step = Some(SeqNum::new(base).offset_from(SeqNum::new(old)));
                }
                if flow.local_base.is_none() || anew {
                    flow.local_base = Some(base);
                    flow.iss = expected.seq;
                    newly = true;
                }
                if live.packet.flags.ack() {
                    flow.irs = Some(live.packet.ack.wrapping_sub(flow.remote_base).wrapping_sub(1));
                }
            }
            let wanted = expected
                .options
                .iter()
                .flatten()
                .find_map(|o| if let TcpOption::Timestamps(val, _) = o { Some(*val) } else { None });
            let came = live
                .packet
                .options
                .iter()
                .flatten()
                .find_map(|o| if let TcpOption::Timestamps(val, _) = o { Some(*val) } else { None });
            if let (None, Some(wanted), Some(came)) = (flow.timestamp_base, wanted, came) {
                flow.timestamp_base = Some(came.wrapping_sub(wanted));
            }
        }
        if let Some(step) = step
            && step <= 0
        {
            return Err(self.fail(
                event,
                &format!(
                    "the new sequence space must lie beyond the old one, but begins {} before it",
                    -i64::from(step)
                ),
            ));
        }
        Ok(newly)
    }

    fn finish(mut self) -> Result<(), String> {
        self.rest()?;
        self.advance(self.now + AFTERMATH_US, true)?;
        match self.script.events.last() {
            Some(last) if !self.sent.is_empty() => {
                let got = self.show(&self.sent[0].live);
                Err(self.fail(last, &format!("after the last line something was sent that was not expected\n  expected nothing\n  got      {} > {got}", time(self.sent[0].at))))
            }
            _ => Ok(()),
        }
    }

    // Calls -----------------------------------------------------------------------------------------------------

    /// Does what the runner can do itself; what the application must do comes back.
    fn verb(&mut self, event: &Event, call: &Call) -> Result<Option<Verb>, String> {
        let int = |at: usize| {
            let arg = call.args.get(at).map(|arg| arg.trim_matches(['[', ']'])).unwrap_or_default();
            arg.parse::<i64>().map_err(|_| self.fail(event, &format!("argument {} should be a number", at + 1)))
        };
        let answer = match call.verb.as_str() {
            "socket" => {
                let fd = call
                    .result
                    .as_ref()
                    .and_then(|r| r.parse().ok())
                    .ok_or_else(|| self.fail(event, "socket() = N names the descriptor"))?;
                self.descriptors.insert(fd, Descriptor::Fresh);
                return Ok(None);
            }
            "bind" | "idle" => "0".to_owned(),
            "anew" => {
                self.anew = true;
                for flow in self.flows.values_mut() {
                    flow.irs = None;
                }
                "0".to_owned()
            }
            "listen" => {
                let (fd, backlog) = (int(0)?, int(1)?);
                let any = if self.ends.local.is_v4() { "0.0.0.0" } else { "[::]" };
                let at = format!("{any}:{LOCAL_PORT}").parse().map_err(|_| "an address".to_owned())?;
                let id = self
                    .host
                    .listen(at, backlog.max(0) as usize, self.clock())
                    .map_err(|e| self.fail(event, &e.to_string()))?;
                self.descriptors.insert(fd, Descriptor::Listener(id));
                "0".to_owned()
            }
            "counter" => {
                let name = call.args.first().cloned().unwrap_or_default();
                let count = self.host.counters().all().find(|(n, _)| *n == name).map(|(_, count)| count);
                count.ok_or_else(|| self.fail(event, &format!("there is no counter '{name}'")))?.to_string()
            }
            "half_open" => self.host.seats[0].lane.tables(|t| t.half_open.len()).to_string(),
            "time_waits" => self.host.seats[0].lane.tables(|t| t.time_waits).to_string(),
            "connections" => self.host.seats[0].lane.tables(|t| t.slots.len()).to_string(),
            "lent" => self.host.seats[0].lane.tables(|t| t.pool.lent()).to_string(),
            "accept" => {
                let Some(Descriptor::Listener(id)) = self.descriptors.get(&int(0)?) else {
                    return Err(self.fail(event, "that is no listener"));
                };
                return Ok(Some(Verb::Accept(*id)));
            }
            "connect" => {
                let number = call.args.get(1).and_then(|a| a.strip_prefix('#')).map_or(Ok(0), str::parse::<u16>);
                let number = number.map_err(|e| self.fail(event, &e.to_string()))?;
                let flow = self.flow(number);
                (flow.local_port, flow.remote_port) = (0, SERVER_PORT + number);
                return Ok(Some(Verb::Connect(self.ends.remote, SERVER_PORT + number)));
            }
            verb => {
                let fd = int(0)?;
                let Some(Descriptor::Connection(id)) = self.descriptors.get(&fd) else {
                    return Err(self.fail(event, &format!("{fd} is no connection")));
                };
                let id = *id;
                return Ok(Some(match verb {
                    "write" | "send" => {
                        let manner = match call.args.get(3).map(String::as_str) {
                            Some("MSG_OOB") => Manner::Urgent,
                            Some("MSG_MORE") => Manner::More,
                            Some("0") | None => Manner::Plain,
                            Some(_) => return Err(self.fail(event, "the flags are MSG_OOB and MSG_MORE, or 0")),
                        };
                        Verb::Write(id, int(2)?.max(0) as usize, manner)
                    }
                    "read" | "recv" => Verb::Read(id, int(2)?.max(0) as usize),
                    "hold" => Verb::Hold(id),
                    "shutdown" if call.args.get(1).is_some_and(|how| how == "SHUT_WR") => Verb::Shutdown(id),
                    "close" => Verb::Close(id),
                    "abort" => Verb::Abort(id),
                    "state" => Verb::State(id),
                    "cwnd" => Verb::Cwnd(id),
                    "urgent" => Verb::Urgent(id),
                    "setsockopt" => {
                        let option = match call.args.get(2).map(String::as_str) {
                            Some("SO_KEEPALIVE") => Sockopt::KeepAlive,
                            Some("SO_RCVBUF") => Sockopt::RcvBuf,
                            Some("SO_SNDBUF") => Sockopt::SndBuf,
                            Some("TCP_CORK") => Sockopt::Cork,
                            Some("TCP_KEEPCNT") => Sockopt::KeepCnt,
                            Some("TCP_KEEPIDLE") => Sockopt::KeepIdle,
                            Some("TCP_KEEPINTVL") => Sockopt::KeepIntvl,
                            Some("TCP_NODELAY") => Sockopt::NoDelay,
                            Some("TCP_NOTSENT_LOWAT") => Sockopt::NotsentLowat,
                            Some("TCP_QUICKACK") => Sockopt::QuickAck,
                            Some("TCP_USER_TIMEOUT") => Sockopt::UserTimeout,
                            _ => {
                                return Err(self.fail(
                                    event,
                                    "the options are SO_KEEPALIVE, SO_RCVBUF, SO_SNDBUF, TCP_CORK, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, \
                                     TCP_NODELAY, TCP_NOTSENT_LOWAT, TCP_QUICKACK and TCP_USER_TIMEOUT",
                                ));
                            }
                        };
                        Verb::Set(id, option, int(3)?.max(0) as u32)
                    }
                    other => return Err(self.fail(event, &format!("there is no call '{other}' here"))),
                }));
            }
        };
        self.compare(event, call, &answer)?;
        Ok(None)
    }

    fn answered(&mut self, event: &Event, call: &Call, answer: Answer) -> Result<(), String> {
        match answer {
            Answer::Connection(id) if call.verb == "connect" => {
                // One that is under way is what a call that does not wait calls a success.
                if let Some(other) = call.result.as_ref().filter(|r| !matches!(r.as_str(), "0" | "-1 EINPROGRESS")) {
                    return Err(self.fail(event, &format!("wrong answer\n  expected {other}\n  got      a connection")));
                }
                let fd = call
                    .args
                    .first()
                    .and_then(|fd| fd.parse().ok())
                    .ok_or_else(|| self.fail(event, "connect(N, ...) needs a descriptor"))?;
                self.descriptors.insert(fd, Descriptor::Connection(id));
                Ok(())
            }
            Answer::Connection(id) => {
                let fd = call.result.as_ref().and_then(|fd| fd.parse::<i64>().ok()).filter(|fd| *fd >= 0);
                let fd = fd.ok_or_else(|| self.fail(event, "a connection was accepted"))?;
                self.descriptors.insert(fd, Descriptor::Connection(id));
                Ok(())
            }
            Answer::Text(text) => self.compare(event, call, &text),
        }
    }

    fn compare(&self, event: &Event, call: &Call, answer: &str) -> Result<(), String> {
        match &call.result {
            Some(expected) if expected != answer => {
                Err(self.fail(event, &format!("wrong answer\n  expected {expected}\n  got      {answer}")))
            }
            _ => Ok(()),
        }
    }
}

fn time(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

fn value<T: std::str::FromStr>(setting: &Setting) -> Result<T, String> {
    setting.value.parse().map_err(|_| format!("'{}' is no value for --{}", setting.value, setting.name))
}

fn configure(config: &mut Config, setting: &Setting) -> Result<(), String> {
    let on = || value::<u8>(setting).map(|v| v != 0);
    let tcp = &mut config.tcp;
    match setting.name.as_str() {
        "msl_us" => tcp.msl_us = value(setting)?,
        "tcp_syn_retries" => tcp.tcp_syn_retries = value(setting)?,
        "tcp_synack_retries" => tcp.tcp_synack_retries = value(setting)?,
        "tcp_ecn" => tcp.tcp_ecn = value(setting)?,
        "tcp_retries1" => tcp.tcp_retries1 = value(setting)?,
        "tcp_mtu_probing" => tcp.tcp_mtu_probing = on()?,
        "tcp_retries2" => tcp.tcp_retries2 = value(setting)?,
        "tcp_orphan_retries" => tcp.tcp_orphan_retries = value(setting)?,
        "tcp_fin_timeout_us" => tcp.tcp_fin_timeout_us = value(setting)?,
        "tcp_keepalive_time_us" => tcp.tcp_keepalive_time_us = value(setting)?,
        "tcp_keepalive_intvl_us" => tcp.tcp_keepalive_intvl_us = value(setting)?,
        "tcp_keepalive_probes" => tcp.tcp_keepalive_probes = value(setting)?,
        // The buffer's first size. It may grow no further, and the window's scale is what this needs, if the next does not say otherwise.
        "tcp_rmem" => tcp.tcp_rmem = (value(setting)?, value(setting)?),
        "tcp_rmem_max" => tcp.tcp_rmem.1 = value(setting)?,
        "tcp_wmem" => tcp.tcp_wmem = value(setting)?,
        "delayed_ack_us" => tcp.delayed_ack_us = value(setting)?,
        "quick_acks" => tcp.quick_acks = value(setting)?,
        "tcp_congestion_control" => {
            tcp.tcp_congestion_control = match setting.value.as_str() {
                "reno" => Algorithm::Reno,
                "cubic" => Algorithm::Cubic,
                other => return Err(format!("there is no congestion control '{other}'")),
            }
        }
        "tcp_window_scaling" => tcp.tcp_window_scaling = on()?,
        "tcp_timestamps" => tcp.tcp_timestamps = on()?,
        "tcp_sack" => tcp.tcp_sack = on()?,
        "tcp_syncookies" => tcp.tcp_syncookies = on()?,
        "tcp_invalid_ratelimit_us" => tcp.tcp_invalid_ratelimit_us = value(setting)?,
        "tcp_max_syn_backlog" => config.tcp_max_syn_backlog = value(setting)?,
        "lane_mem" => config.lane_mem = value(setting)?,
        "tcp_max_tw_buckets" => config.tcp_max_tw_buckets = value(setting)?,
        other => return Err(format!("there is no setting --{other}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
