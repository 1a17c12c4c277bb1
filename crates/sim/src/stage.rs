//! Owns what is going on between applications: every conversation, from both ends, as the applications themselves see it.

use crate::check::byte_stream;
use crate::pattern::Pattern;
use crate::scenario::{ListenPlan, Scenario, TalkPlan};
use laneway_proto::tcp::CloseReason;
use laneway_stack::{ConnId, ListenerId};
use laneway_wire::flow::FlowKey;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::rc::Rc;

/// Something that must not be.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The property that was violated.
    pub check: &'static str,
    /// What was seen.
    pub what: String,
    /// When, in virtual microseconds since the beginning.
    pub at_us: u64,
}

/// One end of a conversation.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// Its connection, once it has one.
    pub id: Option<ConnId>,
    /// The lane that it lives on.
    pub lane: usize,
    /// It may send.
    pub open: bool,
    /// Bytes that the stack took from it.
    pub said: u64,
    /// Bytes that it took from the stack.
    pub heard: u64,
    /// It was told that the peer has ended.
    pub eof: bool,
    /// It has ended its own side, in whatever way.
    pub ended: bool,
    /// It has closed both ways: what comes now, nobody hears.
    pub deaf: bool,
    /// How it came to its end.
    pub over: Option<CloseReason>,
    /// It was told of its buffers.
    pub told: bool,
    /// It reads nothing before this time.
    pub reads_at_us: u64,
    /// It has made its one long pause.
    pub stalled: bool,
    /// It says nothing before this time.
    pub speaks_at_us: u64,
    /// It was refused memory, and tries again then.
    pub retries_at_us: u64,
    /// The connection was told to go, and its end may not be told of.
    pub gone: bool,
    /// When it was told that its connection is there, and that it is over, in microseconds.
    pub began_us: Option<u64>,
    /// See `began_us`.
    pub over_us: Option<u64>,
}

/// A conversation.
#[derive(Clone, Debug)]
pub struct Talk {
    /// What was meant to happen.
    pub plan: TalkPlan,
    /// The flow as the opener sees it.
    pub flow: Option<FlowKey>,
    /// Opener and acceptor.
    pub ends: [End; 2],
    /// Streams of the pattern that the two say.
    pub keys: [u32; 2],
    /// Somebody has behaved such that a reset is an answer to be expected.
    pub rude: bool,
    /// Its flow was reset before, and taken again: no TIME-WAIT follows a reset (RFC 9293 section 3.5.3), so segments of its former
    /// use may still be under way, and if it was fast nothing tells them from the new ones.
    pub haunted: bool,
    /// What its SYN was answered with came from a device, and what its host says after that cannot be judged.
    pub blind: bool,
    /// It came from a device, though the flow was used before.
    pub used_before: bool,
    /// When it was opened, in microseconds.
    pub opened_us: u64,
    /// When the clock of sequence numbers, one in 4 µs (RFC 6528), comes to the end of what was said in the flow's former uses.
    pub spent_us: u64,
    /// How many SYNs were sent for it, and how many of them have reached the acceptor's host.
    pub syns: [u32; 2],
    /// When the first SYN has reached the acceptor's host, and when the first of what followed, in microseconds.
    pub arrived_us: [Option<u64>; 2],
    /// What was sent for it found the listener's queue full.
    pub overflowed: bool,
    /// What was sent for it was answered with a cookie.
    pub cookie: bool,
}

impl Talk {
    /// Which end is at `host`.
    pub fn end_at(&self, host: usize) -> usize {
        (self.plan.from != host) as usize
    }

    /// Both ends are over, or the acceptor never heard of it.
    pub fn is_over(&self) -> bool {
        let [opener, acceptor] = &self.ends;
        opener.over.is_some() && (acceptor.id.is_none() || acceptor.over.is_some())
    }
}

/// What an application will do later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Action {
    /// Open a conversation.
    Open(usize),
    /// Say more.
    Speak(usize),
    /// Read on.
    Read(usize),
    /// Accept what waits.
    Accept(u16),
}

type Agenda = BinaryHeap<Reverse<(u64, u64, Action)>>;

/// The conversations of a world.
pub struct Stage {
    /// Microseconds since the beginning.
    pub now_us: u64,
    /// Every conversation.
    pub talks: Vec<Talk>,
    /// The latest conversation of a flow, as its opener sees it.
    pub by_flow: HashMap<FlowKey, usize>,
    /// Conversations by flow and initial sequence number of their openers: what an acceptor must go by.
    pub by_iss: HashMap<(FlowKey, u32), usize>,
    /// Listeners by what the stacks call them, for each host.
    pub listeners: [HashMap<ListenerId, ListenPlan>; 2],
    /// What was found.
    pub findings: Vec<Finding>,
    /// What is said.
    pub pattern: Rc<Pattern>,
    /// Two openers meet in the middle.
    pub crossing: bool,
    /// Memory is short: a stack may take nothing, and not say when it would.
    pub poor: bool,
    /// What a flow's former use has said may arrive again, and bears no time by which it could be told.
    pub echoes: bool,
    /// Conversations of which a host has read something since its windows were judged.
    pub readers: [Vec<usize>; 2],
    agendas: [Vec<Agenda>; 2],
    count: u64,
}

impl Stage {
    /// The stage of a scenario.
    pub fn new(scenario: &Scenario, pattern: Rc<Pattern>) -> Self {
        let agenda = |host: usize| scenario.hosts[host].lanes;
        let mut stage = Stage {
            now_us: 0,
            talks: Vec::new(),
            by_flow: HashMap::new(),
            by_iss: HashMap::new(),
            listeners: Default::default(),
            findings: Vec::new(),
            pattern,
            crossing: scenario.crossing,
            poor: scenario.kind == "memory",
            echoes: (scenario.path.reorder > 0 || scenario.path.duplicate > 0)
                && !scenario.hosts.iter().all(|host| host.config.tcp.tcp_timestamps),
            readers: Default::default(),
            agendas: [0, 1].map(|host| (0..agenda(host)).map(|_| Agenda::new()).collect()),
            count: 0,
        };
        for (i, plan) in scenario.talks.iter().enumerate() {
            let lane = plan.lane % scenario.hosts[plan.from].lanes;
            stage.at(plan.at_us, plan.from, lane, Action::Open(i));
            let key = |end: usize| (i as u32 * 2 + end as u32).wrapping_mul(2_654_435_761) ^ scenario.seed as u32;
            stage.talks.push(Talk {
                plan: plan.clone(),
                flow: None,
                ends: Default::default(),
                keys: [key(0), key(1)],
                rude: false,
                haunted: false,
                blind: false,
                used_before: false,
                opened_us: 0,
                spent_us: 0,
                syns: [0; 2],
                arrived_us: [None; 2],
                overflowed: false,
                cookie: false,
            });
        }
        stage
    }

    /// Puts something on a lane's agenda.
    pub fn at(&mut self, at_us: u64, host: usize, lane: usize, action: Action) {
        self.count += 1;
        self.agendas[host][lane].push(Reverse((at_us, self.count, action)));
    }

    /// What a lane has to do now.
    pub fn due(&mut self, host: usize, lane: usize) -> Option<Action> {
        let agenda = &mut self.agendas[host][lane];
        let Reverse((at, _, _)) = agenda.peek()?;
        if *at > self.now_us {
            return None;
        }
        agenda.pop().map(|Reverse((_, _, action))| action)
    }

    /// When some application of a host wants to act.
    pub fn due_us(&self, host: usize) -> Option<u64> {
        self.agendas[host].iter().filter_map(|a| a.peek().map(|Reverse((at, _, _))| *at)).min()
    }

    /// Notes something that must not be.
    pub fn find(&mut self, check: &'static str, what: String) {
        self.findings.push(Finding { check, what, at_us: self.now_us });
    }

    /// `host` is shown bytes of a conversation, and takes `take` of them.
    pub fn hear(&mut self, talk: usize, host: usize, data: &[u8], take: usize) {
        let what = byte_stream::on_data(&self.talks[talk], self.talks[talk].end_at(host), data, &self.pattern);
        if let Some(what) = what {
            self.find("byte_stream", format!("talk {talk}: {what}"));
        }
        let end = self.talks[talk].end_at(host);
        self.talks[talk].ends[end].heard += take as u64;
        if take > 0 && self.readers[host].last() != Some(&talk) {
            self.readers[host].push(talk);
        }
    }
}
