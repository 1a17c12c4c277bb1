//! Owns what a seed decides: which calls, on whom, in which order. Whether a call can be made where it stands is for the stage to say.

use crate::call::{Act, Call, Story, UdpAct, Who, Whom};
use crate::dice::Dice;
use crate::world::{Duration, Family, Shutdown};
use laneway::{Interest, Mode};

/// The longest a story is.
const CALLS_MAX: usize = 32;

impl Story {
    pub fn from_seed(seed: u64) -> Story {
        let mut dice = Dice::new(seed);
        let family = if dice.one_in(6) { Family::V6 } else { Family::V4 };
        let (nagle, hasty, waits) = (dice.one_in(8), dice.one_in(2), dice.one_in(3));
        let is_udp = dice.one_in(3);
        // Between what comes to different lanes there is no order, so that there is but one connection at a time.
        let lanes = if !is_udp && dice.one_in(3) { 3 } else { 1 };
        let len = 4 + dice.below(CALLS_MAX - 3);
        let mut calls = Vec::new();
        match is_udp {
            true => udp(&mut dice, family, len, &mut calls),
            false => tcp(&mut dice, (lanes, nagle), len, &mut calls),
        }
        if dice.one_in(2) {
            calls = watched(&mut dice, is_udp, calls);
        }
        Story { family, lanes, nagle, hasty, waits, calls }
    }
}

/// Handles that a story has, as far as it knows: what is called on one that is not there says nothing.
#[derive(Default)]
struct Handles([[[bool; 2]; 2]; 2]);

impl Handles {
    fn of(&mut self, who: Who) -> &mut bool {
        &mut self.0[who.pair][who.end][who.handle]
    }

    fn open(&mut self, pair: usize, calls: &mut Vec<Call>) {
        if self.0[pair].as_flattened().iter().all(|is_there| !is_there) {
            self.0[pair] = [[true, false]; 2];
        }
        calls.extend([Call::Connect(pair), Call::Accept]);
    }

    fn pick(&self, dice: &mut Dice) -> Option<Who> {
        let tries = (0..20).map(|_| Who {
            pair: dice.weigh(&[(4, 0), (1, 1)]),
            end: dice.below(2),
            handle: dice.weigh(&[(3, 0), (1, 1)]),
        });
        tries.into_iter().find(|who| self.0[who.pair][who.end][who.handle])
    }
}

fn tcp(dice: &mut Dice, (lanes, nagle): (usize, bool), len: usize, calls: &mut Vec<Call>) {
    let mut handles = Handles::default();
    if !dice.one_in(8) {
        handles.open(0, calls);
    }
    while calls.len() < len {
        let pair = if lanes == 1 { dice.weigh(&[(3, 0), (1, 1)]) } else { 0 };
        match dice.below(100) {
            0..2 => calls.push(Call::Connect(pair)),
            2..4 => {
                *handles.of(Who { pair, end: 0, handle: 0 }) = true;
                calls.push(Call::Begin(pair));
            }
            4..6 => {
                *handles.of(Who { pair, end: 0, handle: 0 }) = true;
                calls.push(Call::BeginRefused(pair));
            }
            6 => calls.push(Call::ConnectRefused),
            7..9 => calls.push(Call::Accept),
            9 => calls.push(Call::ListenerReady),
            10 => calls.push(Call::Unlisten),
            11 => calls.push(Call::Listen),
            12 => handles.open(pair, calls),
            _ => {
                let Some(who) = handles.pick(dice) else {
                    handles.open(pair, calls);
                    continue;
                };
                let act = act(dice, nagle);
                if matches!(act, Act::Drop) && dice.one_in(3) {
                    calls.push(Call::Tcp(who, Act::Linger(Some(Duration::ZERO))));
                }
                calls.push(Call::Tcp(who, act));
                match act {
                    Act::Drop => *handles.of(who) = false,
                    Act::Clone => *handles.of(Who { handle: 1, ..who }) = true,
                    Act::Shutdown(_) if dice.one_in(4) => calls.push(Call::Tcp(who, act)),
                    _ => {}
                }
            }
        }
    }
}

fn act(dice: &mut Dice, nagle: bool) -> Act {
    let much = |dice: &mut Dice| dice.pick(&[0, 1, 1, 3, 10, 100, 1_460, 5_000]);
    let buf = |dice: &mut Dice| dice.pick(&[0, 1, 4, 64, 2_000, 65_536]);
    match dice.below(100) {
        0..18 => Act::Write(much(dice)),
        18..21 => Act::WritePieces(much(dice), much(dice)),
        21..24 => Act::ReadLater(buf(dice)),
        24..42 => Act::Read(buf(dice)),
        42..45 => Act::ReadPieces(buf(dice), buf(dice)),
        45..51 => Act::Peek(buf(dice)),
        51..59 => Act::Shutdown(dice.pick(&[Shutdown::Write, Shutdown::Write, Shutdown::Read, Shutdown::Both])),
        59..68 => Act::Drop,
        68..71 => Act::Clone,
        // Without `nagle` nothing is to wait for an ACK.
        71..74 => Act::Nodelay(!nagle || dice.one_in(2)),
        74..78 => Act::Nonblocking(dice.one_in(2)),
        78..81 => Act::Linger(dice.pick(&[Some(0), Some(0), Some(2), None]).map(Duration::from_secs)),
        81 => Act::Keepalive(dice.one_in(2)),
        82 => Act::UserTimeout(dice.pick(&[0, 60_000])),
        83..85 => Act::ReadTimeout(dice.pick(&[None, Some(0), Some(20), Some(40)]).map(Duration::from_millis)),
        85 => Act::Ttl(dice.pick(&[0, 64, 256])),
        86..91 => Act::TakeError,
        91..94 => Act::Peer,
        94..96 => Act::Local,
        _ => Act::Ready,
    }
}

/// The sockets of a host, and to whom it sends.
fn udp(dice: &mut Dice, family: Family, len: usize, calls: &mut Vec<Call>) {
    for (socket, peer) in [(2, 0), (0, 0), (3, 1), (1, 1)] {
        if dice.one_in(3) {
            calls.push(Call::Udp(socket, UdpAct::Connect(Whom::Socket(peer))));
        }
    }
    let mut sent_to = 0;
    while calls.len() < len {
        let receives = dice.one_in(2);
        let socket = if receives && !dice.one_in(4) { sent_to } else { dice.weigh(&[(3, 0), (1, 1), (3, 2), (2, 3)]) };
        let act = if receives { udp_receives(dice) } else { udp_act(dice, family) };
        if let UdpAct::SendTo(_, Whom::Socket(peer)) = act {
            sent_to = if socket < 2 { 2 + peer } else { peer };
        }
        calls.push(Call::Udp(socket, act));
    }
}

/// The same story of sockets that are watched: now and then it is looked what has happened to all of them.
fn watched(dice: &mut Dice, is_udp: bool, calls: Vec<Call>) -> Vec<Call> {
    let mut watched = Vec::new();
    for call in calls {
        watched.push(call);
        if dice.one_in(3) {
            watched.push(watch(dice, is_udp));
        }
        if dice.one_in(2) {
            watched.push(Call::Wait);
        }
    }
    watched
}

fn watch(dice: &mut Dice, is_udp: bool) -> Call {
    let mode = dice.pick(&[Mode::Level, Mode::Edge, Mode::Edge, Mode::Oneshot]);
    let mut interest = dice.pick(&[Interest::READABLE, Interest::READABLE, Interest::WRITABLE, Interest::BOTH]);
    let ends = dice.one_in(8);
    if is_udp {
        if mode == Mode::Edge {
            // Of room the kernel tells once more for each datagram that has left.
            interest = Interest::READABLE;
        }
        return Call::Udp(dice.below(4), if ends { UdpAct::Unwatch } else { UdpAct::Watch(interest, mode) });
    }
    if dice.one_in(6) {
        return Call::WatchListener(mode);
    }
    let who = Who { pair: dice.weigh(&[(4, 0), (1, 1)]), end: dice.below(2), handle: dice.weigh(&[(6, 0), (1, 1)]) };
    Call::Tcp(who, if ends { Act::Unwatch } else { Act::Watch(interest, mode) })
}

fn udp_receives(dice: &mut Dice) -> UdpAct {
    let buf = dice.pick(&[0, 1, 4, 64, 2_000, 65_536]);
    match dice.below(12) {
        0..3 => UdpAct::Recv(buf),
        3..6 => UdpAct::RecvFrom(buf),
        6 => UdpAct::Peek(buf),
        7 => UdpAct::PeekFrom(buf),
        8 => UdpAct::RecvLater(buf),
        9 => UdpAct::TakeError,
        _ => UdpAct::Ready,
    }
}

fn udp_act(dice: &mut Dice, family: Family) -> UdpAct {
    let much = |dice: &mut Dice| {
        dice.weigh(&[
            (6, 1),
            (6, 10),
            (3, 0),
            (3, 100),
            (3, 1_472),
            (3, 1_473),
            (3, 9_000),
            (1, 65_507),
            (1, 65_508),
            (1, 65_535),
            (1, 65_536),
        ])
    };
    let whom = |dice: &mut Dice| match dice.below(14) {
        0..2 => Whom::Closed,
        2 => Whom::PortZero,
        3 if family == Family::V4 => Whom::Everybody,
        4 if family == Family::V4 => Whom::WrongFamily,
        other => Whom::Socket(dice.weigh(&[(3, 0), (1, 1)]).min(other)),
    };
    match dice.below(100) {
        0..26 => UdpAct::Send(much(dice)),
        26..60 => UdpAct::SendTo(much(dice), whom(dice)),
        60..74 => UdpAct::Connect(whom(dice)),
        74..78 => UdpAct::Broadcast(!dice.one_in(4)),
        78..82 => UdpAct::Nonblocking(dice.one_in(2)),
        82..84 => UdpAct::ReadTimeout(dice.pick(&[None, Some(0), Some(20), Some(40)]).map(Duration::from_millis)),
        84 => UdpAct::Clone,
        85..88 => UdpAct::Drop,
        88..94 => UdpAct::Peer,
        94..98 => UdpAct::Local,
        _ => UdpAct::TakeError,
    }
}
