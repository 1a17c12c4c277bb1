//! Property: everything comes to an end in bounded virtual time, and only for a reason that the network or a peer has given.

use crate::scenario::{ListenPlan, MS, SECOND, Scenario};
use crate::stage::Talk;
use laneway_device::Medium;
use laneway_proto::tcp::CloseReason;

/// Turns at one instant after which the clock moves anyway.
pub const SPINS_FREE: u32 = 64;
/// Steps of a world after which it is said to make no progress; few need a tenth of that.
pub const STEPS_MAX: u64 = 1_000_000;
/// Turns in a row, without anything to wait for, after which the world is said to spin.
pub const SPINS_MAX: u32 = 300_000;

/// A handshake of which something was lost leaves a connection that waits at least so long before it repeats what it says first (RFC 6298
/// section 5.7), and one that took long leaves one that waits for three times that (section 2.2): three and a half when the next round trips
/// are short, for what varies grows before the mean falls. Within that a user timeout may end it with a single loss.
const RTO_AFTER_LOSS_US: u64 = 3 * SECOND;

/// Judges how the two ends of a conversation came to their ends. What excuses one is what happened to it, and not to its neighbours.
pub fn judge(scenario: &Scenario, talk: &Talk) -> Option<String> {
    // What is left of a former use may reset it, or be all that one of its ends ever talks to.
    if talk.haunted {
        return None;
    }
    let path = &scenario.path;
    let timed_out = talk.ends.iter().any(|e| matches!(e.over, Some(CloseReason::TimedOut | CloseReason::OutOfMemory)));
    // The peer's path can fail, or ours back from it. A SYN is sent few times, data many.
    let hopeless = path.loss() >= 100 || is_cut_off(scenario, talk);
    let refused = is_refused(scenario, talk);
    for (i, end) in talk.ends.iter().enumerate() {
        // A peer that has closed waits for our end in FIN-WAIT-2 only so long, and then knows nothing of us.
        let peer = &talk.ends[1 - i];
        if end.over == Some(CloseReason::Reset) && peer.deaf && peer.over == Some(CloseReason::Normal) && !end.ended {
            continue;
        }
        // The last acknowledgement did not come, and what the peer kept in TIME-WAIT has made room for others meanwhile: it has heard all, and
        // cannot say so any more.
        let heard_all = peer.over == Some(CloseReason::Normal) && peer.heard == end.said && end.ended;
        if end.over == Some(CloseReason::Reset) && heard_all {
            continue;
        }
        // The acceptor heard no answer to its SYN-ACKs and gave up; whoever has nothing to say learns of that much later.
        let unheard =
            i == 0 && peer.id.is_none() && (hopeless || path.loss() > 0 && (end.said == 0 || is_late(scenario, talk)));
        // Five answers in a row do get lost; nine do not.
        let config = &scenario.hosts[if i == 0 { talk.plan.from } else { 1 - talk.plan.from }].config;
        let probed_in_vain = talk.plan.ends[i].keepalive && config.tcp.tcp_keepalive_probes < 9 && path.loss() > 0;
        // Four transmissions do.
        let hurried = talk.plan.ends[i].user_timeout_ms > 0 && path.loss() > 0 && transmissions(talk, i) <= 4;
        // Until it is known what does not get through.
        let hurried = hurried || talk.plan.ends[i].user_timeout_ms > 0 && path.silent;
        // Without timestamps a SYN that begins before the end of the flow's former use is not believed as long as that is in TIME-WAIT,
        // and what was said then may have been faster than the clock that numbers begin at.
        let timestamps = scenario.hosts.iter().all(|host| host.config.tcp.tcp_timestamps);
        let in_vain = i == 0 && !end.open && talk.opened_us < talk.spent_us && !timestamps;
        // The few SYNs that are sent do all get lost, now and then.
        let all_lost =
            i == 0 && path.loss() > 0 && talk.syns[0] > config.tcp.tcp_syn_retries.into() && talk.syns[1] == 0;
        let what = match end.over {
            Some(CloseReason::TimedOut) if in_vain || all_lost => continue,
            Some(CloseReason::TimedOut) if !hopeless && !refused && !talk.rude && !probed_in_vain && !hurried => {
                "timed out on a network that works"
            }
            Some(CloseReason::Reset) if !talk.rude && !timed_out && !refused && !unheard => {
                "was reset, and nobody had a reason to"
            }
            Some(CloseReason::HostUnreachable) if path.loss() == 0 && !hopeless && !is_unfound(scenario, talk) => {
                "was told that nobody answers, on a network that works"
            }
            Some(CloseReason::Refused) if !refused && !talk.rude && !scenario.crossing => {
                "was refused, and somebody listened all the time"
            }
            _ => continue,
        };
        return Some(format!("end {i} {what}: {:?} and {:?}", talk.ends[0], talk.ends[1]));
    }
    None
}

/// Whether what follows the opener's SYN has reached the acceptor's host only when that had sent its last SYN-ACK in vain.
fn is_late(scenario: &Scenario, talk: &Talk) -> bool {
    let [syn_us, next_us] = talk.arrived_us;
    let retries = scenario.hosts[1 - talk.plan.from].config.tcp.tcp_synack_retries;
    let patience_us = (SECOND << (retries + 1)) - SECOND;
    syn_us.is_some_and(|syn_us| next_us.is_none_or(|at| at >= syn_us + patience_us))
}

/// Whether the acceptor's host had a reason not to let it in, or to forget it.
fn is_refused(scenario: &Scenario, talk: &Talk) -> bool {
    let acceptor = &talk.ends[1];
    let host = 1 - talk.plan.from;
    let until_us = acceptor.began_us.unwrap_or(u64::MAX);
    let listens = |l: &ListenPlan| {
        (l.host, l.port) == (host, talk.plan.port) && l.from_us < talk.opened_us.max(1) && until_us <= l.until_us
    };
    let unheard_of = !scenario.crossing && !scenario.listeners.iter().any(listens);
    // What follows a cookie may overtake the ACK that brings it back, or outlive it, and is refused.
    let cookie = talk.cookie && !(scenario.path.is_orderly() && scenario.is_steered());
    // A cookie over a record in TIME-WAIT may not begin where that one ended, and without timestamps nothing else tells them apart.
    let over_a_record = talk.used_before && !scenario.hosts.iter().all(|host| host.config.tcp.tcp_timestamps);
    unheard_of || cookie || (talk.overflowed || over_a_record) && acceptor.id.is_none()
}

/// Whether nothing passed for longer than its ends need to despair.
fn is_cut_off(scenario: &Scenario, talk: &Talk) -> bool {
    let path = &scenario.path;
    let (Some(dark_us), Some((from_us, _))) = (dark_us(scenario, talk), path.blackout) else { return false };
    let under_way = talk.ends.iter().any(|end| end.began_us.is_none_or(|at| at > from_us));
    let patience = |end: usize| {
        let plan = &talk.plan.ends[end];
        let tcp = &scenario.hosts[if end == 0 { talk.plan.from } else { 1 - talk.plan.from }].config.tcp;
        let doubling = |first_us: u64, retries: u8| (first_us << retries) - first_us;
        let syn = if end == 0 { tcp.tcp_syn_retries } else { tcp.tcp_synack_retries };
        let never = |applies: bool, us: u64| if applies { us } else { u64::MAX };
        // Who has closed both ways is not worth as many.
        let orphan = if talk.ends[end].deaf { tcp.tcp_orphan_retries } else { u8::MAX };
        // Each retransmission comes after twice as long as the one before: the last may be sent when half of the user timeout is over, and a
        // little less.
        let user_timeout_us = u64::from(plan.user_timeout_ms) * MS;
        let rto_us = longest_rto_us(talk);
        // From the first that is lost to the last.
        [
            never(under_way, doubling(SECOND, syn)),
            never(plan.keepalive, u64::from(tcp.tcp_keepalive_probes - 1) * tcp.tcp_keepalive_intvl_us),
            never(plan.user_timeout_ms > 0, user_timeout_us.saturating_sub(rto_us) / 2),
            doubling(200 * MS, tcp.tcp_retries2.min(orphan)),
        ]
        .into_iter()
        .min()
        .unwrap_or(0)
    };
    // Chance may add to it at either end, and each time it does, what remains to be lost is half as long.
    let luck = if path.loss() > 0 { 8 } else { 1 };
    dark_us >= patience(0).min(patience(1)) / luck
}

/// How long no answer came while somebody waited for one, at the most.
fn dark_us(scenario: &Scenario, talk: &Talk) -> Option<u64> {
    let path = &scenario.path;
    let (from_us, until_us) = path.blackout?;
    let over_us = talk.ends.iter().filter_map(|end| end.over_us).max().unwrap_or(u64::MAX);
    let round_trip_us = 2 * (path.delay_us + path.jitter_us + path.reorder_us);
    (talk.opened_us <= until_us && over_us >= from_us).then_some(until_us - from_us + round_trip_us)
}

/// Whether all three questions for a link address may have been lost, a second apart, from the first to the last.
fn is_unfound(scenario: &Scenario, talk: &Talk) -> bool {
    scenario.medium == Medium::Ethernet && dark_us(scenario, talk).is_some_and(|dark_us| dark_us >= 2 * SECOND)
}

/// The longest that an end may wait before it repeats what it says first.
fn longest_rto_us(talk: &Talk) -> u64 {
    RTO_AFTER_LOSS_US.max(handshake_us(talk) * 36 / 10)
}

fn handshake_us(talk: &Talk) -> u64 {
    talk.ends[0].began_us.map_or(0, |at| at.saturating_sub(talk.opened_us))
}

/// How often an end sends something, at least, until its user timeout is over: each time after twice as long. Of a handshake that took less than the
/// second after which a SYN is sent again, nothing was lost.
fn transmissions(talk: &Talk, end: usize) -> u32 {
    let user_timeout_us = u64::from(talk.plan.ends[end].user_timeout_ms) * MS;
    let rto_us =
        if handshake_us(talk) < SECOND { SECOND.max(handshake_us(talk) * 36 / 10) } else { longest_rto_us(talk) };
    (user_timeout_us / rto_us + 1).ilog2() + 1
}

/// What still goes on when it should not: for the report of a stall.
pub fn describe_stall(talks: &[Talk]) -> String {
    let mut text = String::new();
    for (i, talk) in talks.iter().enumerate().filter(|(_, t)| !t.is_over()).take(3) {
        text +=
            &format!("\n  talk {i}: {:?}\n    opener {:?}\n    acceptor {:?}", talk.plan, talk.ends[0], talk.ends[1]);
    }
    text
}
