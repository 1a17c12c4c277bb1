//! Property: everything comes to an end in bounded virtual time, and only for a reason that the network or a peer has given.

use crate::scenario::Scenario;
use crate::stage::Talk;
use laneway_proto::tcp::CloseReason;

/// Turns at one instant after which the clock moves anyway.
pub const SPINS_FREE: u32 = 64;
/// Steps of a world after which it is said to make no progress; few need a tenth of that.
pub const STEPS_MAX: u64 = 1_000_000;
/// Turns in a row, without anything to wait for, after which the world is said to spin.
pub const SPINS_MAX: u32 = 300_000;

/// What excuses an end that is not normal.
pub struct Excuses {
    /// A listener was full or not there, at some time.
    pub refusals: bool,
}

/// Judges how the two ends of a conversation came to their ends.
pub fn judge(scenario: &Scenario, talk: &Talk, excuses: &Excuses) -> Option<String> {
    // What is left of a former use may reset it, or be all that one of its ends ever talks to.
    if talk.haunted {
        return None;
    }
    let path = &scenario.path;
    let timed_out = talk.ends.iter().any(|e| e.over == Some(CloseReason::TimedOut));
    // The peer's path can fail, or ours back from it. A SYN is sent few times, data many.
    let hopeless = path.blackout.is_some() || path.bottleneck.is_some() || path.loss() >= 100;
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
        if i == 0 && end.over == Some(CloseReason::Reset) && end.said == 0 && peer.id.is_none() && path.loss() > 0 {
            continue;
        }
        // Five answers in a row do get lost; nine do not.
        let config = &scenario.hosts[if i == 0 { talk.plan.from } else { 1 - talk.plan.from }].config;
        let probed_in_vain = talk.plan.ends[i].keepalive && config.tcp.tcp_keepalive_probes < 9 && path.loss() > 0;
        // Without timestamps a SYN that begins before the end of the flow's former use is not believed as long as that is in TIME-WAIT,
        // and what was said then may have been faster than the clock that numbers begin at.
        let timestamps = scenario.hosts.iter().all(|host| host.config.tcp.tcp_timestamps);
        let in_vain = i == 0 && !end.open && talk.opened_us < talk.spent_us && !timestamps;
        let what = match end.over {
            Some(CloseReason::TimedOut) if in_vain => continue,
            Some(CloseReason::TimedOut) if !hopeless && !excuses.refusals && !talk.rude && !probed_in_vain => {
                "timed out on a network that works"
            }
            Some(CloseReason::Reset) if !talk.rude && !timed_out && !excuses.refusals && !hopeless => {
                "was reset, and nobody had a reason to"
            }
            Some(CloseReason::Refused) if !excuses.refusals && !talk.rude && !scenario.crossing => {
                "was refused, and somebody listened all the time"
            }
            _ => continue,
        };
        return Some(format!("end {i} {what}: {:?} and {:?}", talk.ends[0], talk.ends[1]));
    }
    None
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
