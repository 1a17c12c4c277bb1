//! Owns the attacker who sees everything: he forges segments that are as close to right as they can be without being
//! right, and a connection must come out of each unmoved (RFC 5961, RFC 7323 section 5, RFC 1337).
//!
//! He is not a node of the list, because he looks into the victim: what he sends is judged by what the victim was at
//! that instant.

use crate::packet;
use crate::world::{World, address, link_header};
use laneway_proto::tcp::{CloseReason, State};
use laneway_stack::tables::{Slot, Tables, Tcb};
use laneway_wire::flow::FlowKey;
use laneway_wire::tcp::{Flags, Header, Options, SeqNum, Timestamps, UnscaledWindow};

/// The victim, as far as a forged segment must not move it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Standing {
    una: SeqNum,
    nxt: SeqNum,
    rcv: SeqNum,
    buffered: u32,
    state: State,
    reason: CloseReason,
}

/// Forges one segment for one connection of one host, if there is any.
pub fn strike(world: &mut World) {
    let host = world.dice.below(2) as usize;
    // What waits is taken in first, so that the victim is as it will be when the forgery comes.
    world.flush(host);
    for _ in 0..8 {
        world.turn_all(host);
    }
    let mut victims: Vec<(usize, FlowKey, Standing)> = Vec::new();
    let stack = &mut world.actors[host].host;
    for lane in 0..stack.lanes() {
        stack.tables(lane, &mut |tables| {
            for (_, slot) in tables.slots.iter() {
                if let Some(standing) = standing(slot) {
                    victims.push((lane, *slot.key(), standing));
                }
            }
        });
    }
    let victims: Vec<_> =
        victims.into_iter().filter(|(_, _, s)| s.state != State::Closed && s.state != State::TimeWait).collect();
    if victims.is_empty() {
        return;
    }
    let (lane, key, before) = world.dice.pick(&victims);
    let Some((what, header, payload)) = forge(world, host, &key, &before) else { return };
    let v4 = key.is_v4();
    let link = link_header(world.scenario.medium, host, v4);
    let frame = packet::tcp(&link, address(1 - host, v4), address(host, v4), &header, &payload);
    let medium = world.scenario.medium;
    world.trace(|| format!("{host} FORGED   {} ({what})", packet::describe(medium, &frame)));
    if let packet::Frame::Tcp(seen) = packet::look(medium, &frame) {
        world.rfc.on_forged(host, &seen);
    }
    if !world.put(host, &frame) {
        return;
    }
    world.flush(host);
    world.turn_all(host);
    let mut after = None;
    world.actors[host].host.tables(lane, &mut |tables| after = find(tables, &key));
    let moved = match after {
        None => Some("the connection is gone".to_owned()),
        Some(after) if after.state == State::Closed && after.reason == CloseReason::Reset => {
            Some("the connection is reset".into())
        }
        Some(after) if after.una != before.una || after.rcv != before.rcv => {
            Some(format!("{before:?} has become {after:?}"))
        }
        Some(_) => None,
    };
    if let Some(moved) = moved {
        let line = packet::describe(medium, &frame);
        world.find("rfc", format!("host {host} was sent a forged segment, {what}: {line}; {moved}"));
    }
}

fn standing(slot: &Slot) -> Option<Standing> {
    let Tcb::Synchronized(c) = &slot.tcb else { return None };
    let (una, nxt, rcv) = c.sequence();
    Some(Standing { una, nxt, rcv, buffered: c.buffered(), state: c.state(), reason: c.reason() })
}

fn find(tables: &Tables, key: &FlowKey) -> Option<Standing> {
    tables.slots.iter().find(|(_, slot)| slot.key() == key).and_then(|(_, slot)| standing(slot))
}

/// A segment that is wrong in one respect.
fn forge(world: &mut World, host: usize, key: &FlowKey, s: &Standing) -> Option<(&'static str, Header, Vec<u8>)> {
    let with_timestamps = world.rfc.uses_timestamps(host, key);
    let fresh = world.rfc.latest_timestamp(1 - host, &key.reversed());
    let dice = &mut world.dice;
    let near = |dice: &mut crate::dice::Dice| 1 + dice.below(2_000) as u32;
    let mut header = Header {
        src_port: key.remote_port,
        dst_port: key.local_port,
        seq: s.rcv,
        ack: s.una,
        flags: Flags::ACK,
        window: UnscaledWindow::new(dice.next() as u16),
        urgent: 0,
        options: Options::default(),
    };
    if with_timestamps {
        header.options.timestamps = Some(Timestamps { val: fresh?, echo: 0 });
    }
    let rubbish = vec![0xee; 1 + dice.below(40) as usize];
    Some(match dice.below(9) {
        0 => {
            header.flags = Flags::RST;
            header.seq = s.rcv + near(dice);
            ("an RST in the window but not at its edge", header, Vec::new())
        }
        1 => {
            header.flags = dice.pick(&[Flags::RST, Flags::RST | Flags::ACK]);
            header.seq = s.rcv - near(dice);
            ("an RST before the window", header, Vec::new())
        }
        2 => {
            header.flags = dice.pick(&[Flags::SYN, Flags::SYN | Flags::ACK]);
            let (before, beyond) = (s.rcv - near(dice), s.rcv + near(dice));
            header.seq = dice.pick(&[s.rcv, before, beyond]);
            ("a SYN", header, Vec::new())
        }
        3 => {
            header.ack = s.nxt + near(dice);
            ("an ACK of what was never sent", header, rubbish)
        }
        4 => {
            header.ack = s.una - (1 << 30);
            ("an ACK far too old", header, rubbish)
        }
        5 if with_timestamps => {
            let first = world.rfc.first_timestamp(1 - host, &key.reversed())?;
            header.options.timestamps = Some(Timestamps { val: first.wrapping_sub(near(&mut world.dice)), echo: 0 });
            ("text with a timestamp of long ago", header, rubbish)
        }
        6 if with_timestamps => {
            header.options.timestamps = None;
            ("text without the timestamp that was agreed", header, rubbish)
        }
        7 => {
            header.flags = Flags::FIN | Flags::PSH;
            ("FIN and text without ACK", header, rubbish)
        }
        _ => {
            header.flags = Flags::ACK | Flags::FIN;
            header.seq = s.rcv + (1 << 29);
            ("text far beyond the window", header, rubbish)
        }
    })
}
