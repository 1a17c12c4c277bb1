//! Owns the answers to SYNs for which no entry is kept: sent as cookies, and taken back as connections.
//!
//! path: `device::rx → ingress → ethernet → ip::input → [demux] → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`

use super::opening::path_facts;
use super::{Arriving, Stage};
use crate::app::announced_mss;
use crate::counters::Mib;
use crate::egress;
use crate::paths::PathPlace;
use crate::ports::Claim;
use crate::tables::{Slot, Tcb};
use laneway_device::Tx;
use laneway_proto::discard::Discard;
use laneway_proto::tcp::{self, Connection, listen};

/// An ACK out of the blue may carry a cookie for this long after cookies were last sent.
const COOKIE_LIFE_US: u64 = 120_000_000;

impl<T: Tx> Stage<'_, T> {
    #[cold]
    pub(super) fn send_cookie(&mut self, arriving: &Arriving<'_, '_>) {
        if !self.local.config.tcp.tcp_syncookies {
            return self.too_many_half_open();
        }
        self.local.cookies_until = self.local.now.after_us(COOKIE_LIFE_US);
        self.tables.counters.count(Mib::TcpExtSyncookiesSent);
        let (Arriving { key, segment, .. }, pool) = (arriving, &mut self.tables.pool);
        let _ = egress::answer(self.local, self.tx, key, |local, mtu| {
            let cx = tcp::Cx { now: local.now, config: &local.config.tcp, pool };
            listen::cookie_syn_ack(key, segment, announced_mss(mtu, key.is_v4()), &local.secrets.get(), &cx)
        });
    }

    /// An ACK of what nobody has sent, unless that was a cookie lately. Without one it is reset, and counted as that.
    #[cold]
    pub(super) fn cookie_or_reset(&mut self, arriving: &Arriving<'_, '_>, half_open: Option<u32>, without: Discard) {
        let is_asked = self.local.cookies_until > self.local.now;
        let outcome = if is_asked { self.cookie(arriving, half_open, without) } else { Err(without) };
        if let Err(discard) = outcome {
            self.tables.counters.discard(discard);
            self.reset(arriving);
        }
    }

    /// An ACK that may be the answer to a cookie, and then takes the place of a half-open entry that there may be. If it is none, as what it is
    /// to be counted: `without` somebody who listens there.
    #[cold]
    fn cookie(&mut self, arriving: &Arriving<'_, '_>, half_open: Option<u32>, without: Discard) -> Result<(), Discard> {
        let Some(listener) = self.tables.listeners.find(&arriving.key.local, arriving.key.local_port, arriving.hash)
        else {
            return Err(without);
        };
        let cx = cx!(self);
        let Some(agreed) = listen::on_cookie_ack(arriving.key, arriving.segment, &self.local.secrets.get(), &cx) else {
            self.tables.counters.count(Mib::TcpExtSyncookiesFailed);
            return Err(Discard::TcpCookieInvalid);
        };
        if !self.tables.listeners.has_room(listener) {
            self.accept_queue_full();
            return Ok(());
        }
        self.tables.counters.count(Mib::TcpExtSyncookiesRecv);
        if let Some(index) = half_open {
            self.tables.remove_half_open(index);
        }
        let path = PathPlace::of(arriving.key);
        let (mtu, _) = path_facts(self.local, arriving.key, path);
        let (config, now) = (&self.local.config.tcp, self.local.now);
        let (tag, hash) = (Claim::NONE.pack(self.tables.listeners.reuse(listener)), arriving.hash);
        let id = self.tables.insert(arriving.key, hash, || {
            let tcb = Tcb::Synchronized(Connection::accepted(&agreed, mtu, config, now, listener.0.into()));
            Slot { tcb, hash, touched: false, accepted: false, tag, path }
        });
        self.local.began(arriving.key);
        self.welcome(listener, id, arriving.came);
        Ok(())
    }
}
