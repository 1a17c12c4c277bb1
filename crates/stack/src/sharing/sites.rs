//! Owns the names of the places that take locks: what a profile shows as `file:line (class)` is a line of this file.
//!
//! The places in the order of FreeBSD's table, which is sorted by the time that was waited there.

use super::Site;
use laneway_sync::profiled_lock::Site as Place;
use laneway_sync::site;

/// Who takes INFO.
pub(super) fn info(site: Site) -> &'static Place {
    match site {
        Site::Close => site!("close or shutdown: the FIN leaves (tcp_usr_shutdown, tcp_usr_close)"),
        Site::SynFinRst => site!("input: SYN, FIN or RST (tcp_input)"),
        Site::Accept => site!("accept (tcp_usr_accept)"),
        Site::NotEstablished => site!("input: not ESTABLISHED (tcp_input)"),
        Site::TimeWait => site!("TIME_WAIT: whose wait is over (tcp_tw_2msl_scan)"),
        Site::Input => site!("input: plain (tcp_input)"),
        Site::End => site!("the end of a connection, or TIME_WAIT (tcp_close, tcp_twstart)"),
        Site::Timers => site!("a timer has fired (tcp_timer_rexmt and kin)"),
        Site::Connect => site!("connect: the SYN leaves (tcp_usr_connect)"),
        Site::Output => site!("send (tcp_usr_send)"),
        Site::Verb => site!("the application's turn"),
        Site::Slow => site!("input: ICMP and UDP (tcp_ctlinput)"),
        Site::Control => site!("control: a listener, a listing, counters (tcp_usr_listen, tcp_pcblist)"),
        Site::Walk => site!("control: a walk over all connections (tcp_drain, in_pcbnotifyall)"),
        Site::Look => site!("when is something due"),
    }
}

/// The upgrade of INFO from reading to writing.
pub(super) fn upgrade() -> &'static Place {
    site!("input: not ESTABLISHED, upgraded at once (INP_INFO_TRY_UPGRADE)")
}

/// INFO, for the list of all connections alone, by who did not have it.
pub(super) fn info_for_list() -> &'static Place {
    site!("a connection more or less, outside INFO (in_pcballoc)")
}

/// Who takes a shard of connections.
pub(super) fn pcb(site: Site) -> &'static Place {
    match site {
        Site::Close => site!("connection: close or shutdown"),
        Site::SynFinRst => site!("connection: SYN, FIN or RST"),
        Site::Accept => site!("connection: accept"),
        Site::NotEstablished => site!("connection: not ESTABLISHED, looked up again"),
        Site::TimeWait => site!("connection: TIME_WAIT is over"),
        Site::Input => site!("connection: plain segment"),
        Site::End => site!("connection: the end, or TIME_WAIT"),
        Site::Timers => site!("connection: a timer has fired"),
        Site::Connect => site!("connection: connect"),
        Site::Output => site!("connection: send, or a look at what is to be sent"),
        Site::Verb => site!("connection: the application's turn"),
        Site::Slow => site!("connection: ICMP and UDP"),
        Site::Control => site!("connection: control"),
        Site::Walk => site!("connection: a walk"),
        Site::Look => site!("connection: when is something due"),
    }
}

/// Who takes what is known of all TIME_WAIT records.
pub(super) fn time_wait() -> &'static Place {
    site!("a TIME_WAIT record more or less (tcp_tw_2msl_reset, tcp_tw_2msl_stop)")
}

/// Who takes the list of all connections.
pub(super) fn list() -> &'static Place {
    site!("a connection more or less (in_pcballoc, in_pcbfree)")
}
