//! Owns V0, `global`: one lock, INFO, that is no data protection but a critical section for all of TCP (FreeBSD 9.2 and 10.0).
//!
//! | site | INFO | in FreeBSD 9.2 |
//! |---|---|---|
//! | input: SYN, FIN, RST | write | tcp_input.c:775 |
//! | input: not ESTABLISHED | read, then upgrade, or drop, write, and look up again | tcp_input.c:1019 |
//! | input: plain | read | tcp_input.c:775 |
//! | accept | write | tcp_usrreq.c:635 |
//! | close, shutdown, connect: what they send | write | tcp_usrreq.c:728, 984 |
//! | the end, and the entry to TIME_WAIT | write | under tcp_input's |
//! | a timer has fired | write | tcp_timer.c |
//! | TIME_WAIT is over | write, for all records of all lanes at once | tcp_input.c:962, tcp_slowtimo |
//! | send, and other verbs | no | tcp_usr_send took the connection's lock |

use super::Site;
use super::locked::{Expiry, Locked, Mode, Rules, Watched};

/// `global`: INFO around nearly everything.
pub type Global<K = Watched> = Locked<GlobalRules, K>;

/// Where `global` takes INFO.
pub struct GlobalRules;

impl Rules for GlobalRules {
    const NAME: &'static str = "global";
    const EXPIRY: Expiry = Expiry::Scan;
    const TIME_WAIT_APART: bool = false;
    const LIST_APART: bool = false;
    const EPOCH: bool = false;

    fn info(site: Site) -> Mode {
        match site {
            Site::Input | Site::Slow => Mode::Read,
            Site::Verb | Site::Output | Site::Look => Mode::None,
            _ => Mode::Write,
        }
    }
}
