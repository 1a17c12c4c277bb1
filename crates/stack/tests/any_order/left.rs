//! Owns the question what is left of two hosts' business when all have left: nothing.

use crate::side::{Side, TCP_PORTS, UDP_PORTS};
use laneway_proto::time::Instant;
use laneway_stack::app::App;
use laneway_stack::binding::BindOptions;
use laneway_stack::tables::{Tables, Tcb};
use std::net::SocketAddr;

/// Nothing may be left.
pub fn assert_nothing(side: &mut Side, now: Instant) {
    let who = side.number;
    for (lane, seat) in side.host.seats.iter_mut().enumerate() {
        let left = seat.lane.tables(left);
        assert!(left.is_empty(), "side {who}, lane {lane}: {left}");
        assert!(!seat.app.is_busy(), "side {who}, lane {lane} is busy with nothing");
    }
    assert_eq!(side.desk.block_bytes_in_use(), 0, "side {who}: bytes of blocks that conversations hold");
    let moves: Vec<_> = side.host.control.buckets().into_iter().filter(|bucket| bucket.from.is_some()).collect();
    assert!(moves.is_empty(), "side {who}: {moves:?} never come to their end");
    // Whoever comes next, and shares nothing with anybody, finds every port free.
    for port in TCP_PORTS {
        let listens = side.host.listen_with(SocketAddr::new(side.ip, port), 1, BindOptions::default(), now);
        assert!(listens.is_ok(), "side {who}: nobody listens on {port}, and {listens:?}");
    }
    for port in UDP_PORTS {
        let binds = side.host.control.bind_udp_with(SocketAddr::new(side.ip, port), BindOptions::default());
        assert!(binds.is_ok(), "side {who}: no socket is bound to {port}, and {binds:?}");
    }
}

/// What a lane's tables hold, in words.
fn left(tables: &mut Tables) -> String {
    let mut left = String::new();
    let mut note = |n: usize, what: &str| {
        if n > 0 {
            left += &format!("{n} {what}; ");
        }
    };
    note(tables.flows.len(), "flows");
    note(tables.half_open.len(), "half-open entries");
    note(tables.time_waits, "TIME_WAIT records");
    note(tables.tw4.len() + tables.tw6.len(), "of them in queues");
    note(tables.pool.lent(), "bytes of buffers");
    note(usize::from(tables.listeners.at_or_after(0).is_some()), "listener");
    note((0..tables.ports.slices_end()).filter(|at| tables.ports.slice(*at).is_some()).count(), "slices of ports");
    for (_, slot) in tables.slots.iter() {
        left += &match &slot.tcb {
            Tcb::Synchronized(c) => format!("a slot, {:?}, with {} bytes buffered; ", c.state(), c.buffered()),
            Tcb::Handshaking(h) => format!("a slot, {:?}; ", h.state()),
        };
    }
    left
}
