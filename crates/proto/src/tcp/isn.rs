//! Owns the numbers that a stranger must not guess: initial sequence numbers (RFC 6528) and timestamp offsets
//! (RFC 7323 section 5.4). Pure: the secret and the time are arguments.

use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::keyed_hash::HashKey;
use laneway_wire::tcp::SeqNum;

/// What a hash is for. It goes into the hash, so that one secret serves all and no output tells of another.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(super) enum Purpose {
    InitialSequence = 1,
    TimestampOffset = 2,
    CookieBase = 3,
    CookieBody = 4,
}

/// The initial sequence number of a connection that starts `now_us` microseconds after the process's base:
/// `ISN = M + F(localip, localport, remoteip, remoteport, secretkey)` (RFC 6528 section 3).
///
/// M ticks every 4 µs, so the numbers of one four-tuple only move forward, as RFC 9293 section 3.4.1 wants, and whoever
/// sees those of one four-tuple learns nothing about another's.
#[inline(always)]
pub fn isn(secret: &[u64; 2], key: &FlowKey, now_us: u64) -> SeqNum {
    let clock = (now_us / 4) as u32;
    SeqNum::new(clock.wrapping_add(hash_flow(secret, Purpose::InitialSequence, key) as u32))
}

/// Beyond the last sequence number of the flow's former use, if that is in TIME_WAIT, by so much: more than a window without a scale.
const BEYOND: u32 = 65_536 + 2;

/// As [`isn`], for a flow whose former use may still have segments in the network, up to `last`: the new one starts beyond that (RFC 6191), even
/// where the clock has not come so far.
#[inline(always)]
pub fn isn_beyond(secret: &[u64; 2], key: &FlowKey, now_us: u64, last: Option<SeqNum>) -> SeqNum {
    let isn = isn(secret, key, now_us);
    match last {
        Some(last) if !isn.after(last) => last + BEYOND,
        _ => isn,
    }
}

/// What is added to the clock to make the timestamps of connections between these two addresses. One for all ports, so
/// that timestamps still order the connections of one pair (PAWS, TIME_WAIT reuse by RFC 6191); another for every
/// pair, so that they tell neither uptime nor who shares a host.
#[inline(always)]
pub fn ts_offset(secret: &[u64; 2], local: &Address, remote: &Address) -> u32 {
    let pair = FlowKey { local: *local, remote: *remote, local_port: 0, remote_port: 0 };
    hash_flow(secret, Purpose::TimestampOffset, &pair) as u32
}

/// Keyed hash of a flow. The purpose stands behind the ports: over IPv4 in the block that the length ends.
#[inline(always)]
pub(super) fn hash_flow(secret: &[u64; 2], purpose: Purpose, key: &FlowKey) -> u64 {
    match key.hash_words_v4() {
        Some((ends, ports)) => {
            HashKey::new(secret[0], secret[1]).sip13_tail(&[ends], ports | (purpose as u64) << 32, 5)
        }
        None => hash_v6(secret, purpose, key, 0),
    }
}

/// The same, of a flow and 64 bits more.
#[inline(always)]
pub(super) fn hash_flow_and(secret: &[u64; 2], purpose: Purpose, key: &FlowKey, more: u64) -> u64 {
    match key.hash_words_v4() {
        Some((ends, ports)) => {
            HashKey::new(secret[0], secret[1]).sip13_tail(&[ends, more], ports | (purpose as u64) << 32, 5)
        }
        None => hash_v6(secret, purpose, key, more),
    }
}

#[inline(never)]
fn hash_v6(secret: &[u64; 2], purpose: Purpose, key: &FlowKey, more: u64) -> u64 {
    let (mut words, _) = key.hash_words();
    words[4] |= (purpose as u64) << 56;
    let [a, b, c, d, e] = words;
    HashKey::new(secret[0], secret[1]).sip13(&[a, b, c, d, e, more])
}

#[cfg(test)]
mod tests;
