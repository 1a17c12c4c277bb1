//! Owns the answers to SYNs for which no entry is kept: sent as cookies, and taken back as connections.
//!
//! path: `device::rx → ingress → ethernet → ip::input → [demux] → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`

use super::opening::path_facts;
use super::{Arriving, Stage};
use crate::app::{ListenerId, announced_mss};
use crate::counters::Mib;
use crate::egress;
use crate::lane::Local;
use crate::paths::PathPlace;
use crate::ports::Claim;
use crate::tables::{Handle, Slot, Tcb};
use laneway_device::{Alarms, CookieAnswer, Tx};
use laneway_proto::discard::Discard;
use laneway_proto::ip::output::Marks;
use laneway_proto::tcp::connection::Agreed;
use laneway_proto::tcp::cookie::MSS_TABLE;
use laneway_proto::tcp::listen::Secrets;
use laneway_proto::tcp::{self, Config, Connection, listen};
use laneway_wire::flow::FlowKey;
use laneway_wire::tcp::Flags;

/// An ACK out of the blue may carry a cookie for this long after cookies were last sent.
const COOKIE_LIFE_US: u64 = 120_000_000;
/// So often a lane says to its device that an endpoint is overrun.
const OVERRUN_AGAIN_US: u64 = 50_000;
/// An endpoint is overrun if so many handshakes are refused within so long, by those who began them.
const REFUSALS_MANY: u32 = 256;
const REFUSALS_US: u64 = 50_000;

impl<T: Tx> Stage<'_, T> {
    #[cold]
    pub(super) fn send_cookie(&mut self, arriving: &Arriving<'_, '_>, listener: ListenerId) {
        if !self.local.config.tcp.tcp_syncookies {
            return self.too_many_half_open();
        }
        self.local.cookies_until = self.local.now.after_us(COOKIE_LIFE_US);
        self.tables.counters.count(Mib::TcpExtSyncookiesSent);
        let (Arriving { key, segment, .. }, pool) = (arriving, &mut self.tables.pool);
        let marks = self.tables.listeners.marks(listener);
        let _ = egress::marked_answer(self.local, self.tx, key, marks, |local, mtu| {
            let cx = tcp::Cx { now: local.now, config: &local.config.tcp, pool };
            listen::cookie_syn_ack(key, segment, announced_mss(mtu, key.is_v4()), &local.secrets.get(), &cx)
        });
        self.overrun(key, listener);
    }

    /// A handshake has been refused by who had begun it. Whoever floods us from where somebody answers has each of his refused: he takes no
    /// room, but as much time as he likes.
    #[cold]
    pub(super) fn refused(&mut self, key: &FlowKey, listener: ListenerId) {
        let (now, (count, since)) = (self.local.now, self.local.refusals);
        let (count, since) = if now.since_us(since) < REFUSALS_US { (count + 1, since) } else { (1, now) };
        self.local.refusals = (count, since);
        if count >= REFUSALS_MANY && self.local.config.tcp.tcp_syncookies {
            self.overrun(key, listener);
        }
    }

    /// The device may answer for a while, if it can: it is told how.
    #[inline]
    fn overrun(&mut self, key: &FlowKey, listener: ListenerId) {
        if self.local.alarms.is_some() && self.local.now >= self.local.overrun_again {
            self.local.overrun_again = self.local.now.after_us(OVERRUN_AGAIN_US);
            self.local.overrun = Some(self.answers_to(key, listener));
        }
    }

    /// They announce what the link carries: what is known of the path to one of those who call may not hold for the others.
    #[inline(never)]
    fn answers_to(&self, key: &FlowKey, listener: ListenerId) -> Box<CookieAnswer> {
        let (local, secrets) = (&*self.local, self.local.secrets.get());
        let mss = announced_mss(local.paths.mtu(), key.is_v4());
        let marks = match self.tables.listeners.marks(listener) {
            Marks { hop_limit: 0, dscp_ecn } => Marks { hop_limit: local.paths.hop_limit, dscp_ecn },
            marks => marks,
        };
        Box::new(answer(key, mss, &local.config.tcp, &secrets, (local.now.as_us(), marks)))
    }

    /// An ACK of what nobody has sent, unless that was a cookie lately. Without one it is reset, and counted as that.
    #[cold]
    pub(super) fn cookie_or_reset(&mut self, arriving: &Arriving<'_, '_>, half_open: Option<u32>, without: Discard) {
        let outcome =
            if self.local.cookies_may_come() { self.cookie(arriving, half_open, without) } else { Err(without) };
        if let Err(discard) = outcome {
            self.local.strangers.on_nothing();
            self.tables.counters.discard(discard);
            self.reset(arriving);
        }
    }

    /// An ACK that may be the answer to a cookie, and then takes the place of a half-open entry that there may be. If it is none, as what it is
    /// to be counted: `without` somebody who listens there.
    #[cold]
    fn cookie(&mut self, arriving: &Arriving<'_, '_>, half_open: Option<u32>, without: Discard) -> Result<(), Discard> {
        let Some(listener) = self.listener(arriving) else { return Err(without) };
        let Some(agreed) = self.agreed(arriving) else {
            self.tables.counters.count(Mib::TcpExtSyncookiesFailed);
            return Err(Discard::TcpCookieInvalid);
        };
        self.instead(arriving, listener, &agreed, half_open);
        Ok(())
    }

    /// In place of a half-open entry that there may be.
    fn instead(&mut self, arriving: &Arriving<'_, '_>, listener: ListenerId, agreed: &Agreed, half_open: Option<u32>) {
        if !self.tables.listeners.has_room(listener) {
            return self.accept_queue_full();
        }
        if let Some(index) = half_open {
            self.tables.remove_half_open(index);
        }
        self.redeem(arriving, listener, agreed, /* owes_ack= */ false);
    }

    /// The same for a flow in TIME_WAIT, of which the device that has answered its SYN did not know. False, with nothing done, if it bears no cookie of ours
    /// for this flow. If the connection cannot begin where the former one ended, the peer is told.
    #[cold]
    pub(super) fn cookie_over(&mut self, arriving: &Arriving<'_, '_>, record: Handle) -> bool {
        let Some(listener) = self.listener(arriving) else { return false };
        let Some(agreed) = self.agreed(arriving) else { return false };
        if !self.tables.listeners.has_room(listener) {
            self.accept_queue_full();
            return true;
        }
        if !self.tables.yields_to_cookie(record, arriving.segment, agreed.ts_offset) {
            self.tables.counters.discard(Discard::TcpTimeWait);
            self.reset(arriving);
            return true;
        }
        self.tables.give_up(arriving.hash, record);
        self.redeem(arriving, listener, &agreed, /* owes_ack= */ true);
        true
    }

    /// The same for a flow that has a half-open entry of another SYN, which the peer has forgotten. False, with nothing done, if it bears no cookie of ours.
    #[cold]
    pub(super) fn cookie_instead(&mut self, arriving: &Arriving<'_, '_>, half_open: u32) -> bool {
        let Some(listener) = self.listener(arriving) else { return false };
        let Some(agreed) = self.agreed(arriving) else { return false };
        self.instead(arriving, listener, &agreed, Some(half_open));
        true
    }

    /// The same for a flow that has a connection, which has just refused the segment. If it bears a cookie of ours, its sender has forgotten that connection and
    /// begun anew, and the device that has answered him did not know of it. He is told that his has not begun; and what the connection has to
    /// say of his segment, its challenge, he will refuse then, which ends it. (By itself the cookie may not: it is sooner guessed than what a RST must say.)
    #[cold]
    pub(super) fn cookie_beside(&mut self, arriving: &Arriving<'_, '_>) {
        let flags = arriving.segment.flags;
        let may_be_cookie = flags.ack() && !flags.intersects(Flags::SYN | Flags::RST);
        if may_be_cookie
            && self.local.cookies_may_come()
            && self.listener(arriving).is_some()
            && self.agreed(arriving).is_some()
        {
            self.reset(arriving);
        }
    }

    fn listener(&self, arriving: &Arriving<'_, '_>) -> Option<ListenerId> {
        self.tables.listeners.find(&arriving.key.local, arriving.key.local_port, arriving.hash)
    }

    fn agreed(&mut self, arriving: &Arriving<'_, '_>) -> Option<Agreed> {
        listen::on_cookie_ack(arriving.key, arriving.segment, &self.local.secrets.get(), &cx!(self))
    }

    /// Makes the connection.
    fn redeem(&mut self, arriving: &Arriving<'_, '_>, listener: ListenerId, agreed: &Agreed, owes_ack: bool) {
        self.tables.counters.count(Mib::TcpExtSyncookiesRecv);
        let path = PathPlace::of(arriving.key);
        let (mtu, _) = path_facts(self.local, arriving.key, path);
        let (config, now) = (&self.local.config.tcp, self.local.now);
        let (tag, hash) = (Claim::NONE.pack(self.tables.listeners.reuse(listener)), arriving.hash);
        let id = self.tables.insert(arriving.key, hash, || {
            let mut connection = Connection::accepted(agreed, mtu, config, now, listener.0);
            if owes_ack {
                connection.owe_ack();
            }
            if agreed.ecn {
                connection.use_ecn();
            }
            let tcb = Tcb::Synchronized(connection);
            Slot { tcb, hash, touched: false, accepted: false, tag, path }
        });
        self.local.began(arriving.key);
        self.welcome(listener, id, arriving.came);
    }
}

impl Local {
    /// Whether an ACK out of the blue may bear a cookie.
    #[cold]
    pub(crate) fn cookies_may_come(&mut self) -> bool {
        if self.alarms.as_mut().is_some_and(Alarms::heard) {
            self.cookies_until = self.cookies_until.max(self.now.after_us(COOKIE_LIFE_US));
        }
        self.cookies_until > self.now
    }
}

/// How SYNs to an endpoint are answered with cookies, for whoever does that instead of [`listen::cookie_syn_ack`].
fn answer(
    endpoint: &FlowKey,
    mss: u16,
    config: &Config,
    secrets: &Secrets,
    (now_us, marks): (u64, Marks),
) -> CookieAnswer {
    CookieAnswer {
        address: endpoint.local.to_ip(),
        port: endpoint.local_port,
        cookie_secret: secrets.cookie,
        timestamp_secret: secrets.timestamp,
        now_us,
        mss_table: MSS_TABLE,
        mss,
        window: config.initial_window(),
        window_scale: config.tcp_window_scaling.then(|| config.receive_scale()),
        timestamps: config.tcp_timestamps,
        sack: config.tcp_sack,
        ecn: config.tcp_ecn > 0,
        hop_limit: marks.hop_limit,
        traffic_class: marks.dscp_ecn,
    }
}

#[cfg(test)]
mod tests;
