//! Owns active opens: from which address and port a connection begins, and whether it may.
//!
//! path: `… → tcp::input → tcp::state → [application] → tcp::output → …`

use super::{ConnId, Context};
use crate::control::BindId;
use crate::counters::Mib;
use crate::error::Error;
use crate::lane::Local;
use crate::paths::PathPlace;
use crate::ports::{Ask, Exhausted};
use crate::tables::{Opening, Slot, Tcb};
use laneway_proto::tcp::{Handshake, isn};
use laneway_wire::flow::{Address, FlowKey};
use std::net::SocketAddr;

/// The path between the two ends of an active open.
struct Ends {
    place: PathPlace,
    mtu: u32,
    ts_offset: u32,
}

impl Context<'_> {
    /// Starts an active open from a local address of the caller's choice, or the one that the route says. The port is
    /// chosen such that the replies come to this lane. [`App::on_connect`](super::App::on_connect) or [`App::on_closed`](super::App::on_closed) tells how it ended, unless the caller
    /// closes or aborts it before: then it is gone, and neither is called. Until it is established its other verbs do nothing, those that set
    /// an option among them, but for [`set_ttl`](Self::set_ttl) and [`set_tos`](Self::set_tos): `on_connect` is the place for these.
    ///
    /// [`Error::LaneExhausted`]: this lane has no port left towards that destination, and another lane may have. With one lane
    /// it is [`Error::PortsExhausted`] at once: all are taken.
    pub fn connect(&mut self, from: Option<Address>, to: Address, port: u16, token: u64) -> Result<ConnId, Error> {
        let is_given = from.is_some();
        let from = &self.source(from, to)?;
        let ends = self.check_ends((from, is_given), to)?;
        let random = self.local.jitter.next_u64();
        let ask = Ask {
            steering: &self.local.steering,
            lane: self.local.id,
            local: *from,
            remote: to,
            remote_port: port,
            random,
        };
        let opening = self.tables.allocate(&ask, self.local.now, self.local.config.tcp_tw_reuse_delay_ms);
        let opening = opening.map_err(|Exhausted| {
            let to = SocketAddr::new(to.to_ip(), port);
            if self.local.steering.lanes() == 1 { Error::PortsExhausted(to) } else { Error::LaneExhausted(to) }
        })?;
        let key = ask.flow(opening.grant.port);
        Ok(self.open(key, &ends, opening, token, /* reuse= */ 0))
    }

    /// As [`connect`](Self::connect), from the address and port of a bound socket. Towards different destinations one port serves
    /// any number of connections.
    ///
    /// [`Error::OtherLane`]: the replies would come to that lane, or (while their bucket moves) that lane alone knows whether there is
    /// such a connection already: so it is for that lane to connect. [`Error::FlowInUse`]: there
    /// is a connection between these two ends already.
    pub fn connect_from(&mut self, bound: BindId, to: Address, port: u16, token: u64) -> Result<ConnId, Error> {
        let not_bound = || Error::Invalid("no such socket is bound; call bind first".into());
        let (binding, local_port) = self.local.bound.get(bound.0).map(|b| (b.binding, b.port)).ok_or_else(not_bound)?;
        let from = (!binding.address.is_unspecified()).then_some(binding.address);
        let is_given = from.is_some();
        let from = &self.source(from, to)?;
        let ends = self.check_ends((from, is_given), to)?;
        if !binding.takes(from) {
            return Err(Error::NetworkUnreachable(to.to_ip()));
        }
        let key = FlowKey { local: *from, remote: to, local_port, remote_port: port };
        self.local.may_begin(&key).map_err(Error::OtherLane)?;
        let ask = Ask {
            steering: &self.local.steering,
            lane: self.local.id,
            local: *from,
            remote: to,
            remote_port: port,
            random: 0,
        };
        let opening = self.tables.adopt(&ask, local_port, self.local.now, self.local.config.tcp_tw_reuse_delay_ms);
        let named = || (SocketAddr::new(from.to_ip(), local_port), SocketAddr::new(to.to_ip(), port));
        let opening = opening.ok_or_else(|| Error::FlowInUse(named().0, named().1))?;
        Ok(self.open(key, &ends, opening, token, binding.options.bits()))
    }

    /// Where to connect from: `from`, or what the route says.
    #[inline(always)]
    fn source(&mut self, from: Option<Address>, to: Address) -> Result<Address, Error> {
        match from {
            Some(from) => Ok(from),
            None => self.routed_source(to),
        }
    }

    #[inline(never)]
    fn routed_source(&mut self, to: Address) -> Result<Address, Error> {
        let path = self.local.paths.get(&self.local.snapshot, to);
        path.and_then(|path| path.source).ok_or_else(|| Error::NetworkUnreachable(to.to_ip()))
    }

    /// Whether we can reach `to` from `from`, which must be ours if it was given, and what the path is like.
    #[inline(always)]
    fn check_ends(&mut self, (from, is_given): (&Address, bool), to: Address) -> Result<Ends, Error> {
        let place = PathPlace::between(from, &to);
        // Nearly always somebody has connected between these two before, and their path knows the answer.
        match self.local.paths.to_begin(place, &self.local.snapshot, from, &to) {
            Some(path) => Ok(Ends { place, mtu: path.mtu, ts_offset: path.ts_offset }),
            None => self.check_ends_closely((*from, is_given), to),
        }
    }

    #[inline(never)]
    fn check_ends_closely(&mut self, (from, is_given): (Address, bool), to: Address) -> Result<Ends, Error> {
        let Local { paths, snapshot, .. } = &mut *self.local;
        if from.is_v4() != to.is_v4() {
            return Err(Error::Invalid(format!(
                "cannot connect from {from} to {to}: both addresses must be of one family"
            )));
        }
        if !snapshot.addresses.can_be_remote(&to) {
            return Err(Error::NetworkUnreachable(to.to_ip()));
        }
        let place = PathPlace::between(&from, &to);
        let path = paths.at(place, snapshot, &from, &to).ok_or_else(|| Error::NetworkUnreachable(to.to_ip()))?;
        if is_given && !snapshot.addresses.contains(&from) {
            return Err(Error::AddressNotAvailable(from.to_ip()));
        }
        Ok(Ends { place, mtu: path.mtu, ts_offset: path.ts_offset })
    }

    /// Begins an active open of a flow that is ours.
    #[inline(always)]
    fn open(&mut self, key: FlowKey, ends: &Ends, opening: Opening, token: u64, reuse: u8) -> ConnId {
        let now = self.local.now;
        let Opening { grant, hash, beyond } = opening;
        let secret = self.local.secrets.get().isn;
        let iss = isn::isn_beyond(&secret, &key, now.as_us(), beyond);
        let tables = &mut *self.tables;
        let mss = announced_mss(ends.mtu, key.is_v4());
        let (tag, path) = (grant.claim.pack(reuse), ends.place);
        let id = tables.insert(&key, hash, || {
            let mut handshake = Handshake::connect(key, iss, ends.ts_offset, mss, now);
            handshake.token = token;
            let tcb = Tcb::Handshaking(handshake);
            Slot { tcb, hash, touched: true, accepted: true, tag, path }
        });
        self.local.touched.add(id.index());
        tables.counters.count(Mib::TcpActiveOpens);
        id
    }
}

/// The MSS that we announce on a path of `mtu`.
#[inline]
pub(crate) fn announced_mss(mtu: u32, v4: bool) -> u16 {
    mtu.saturating_sub(if v4 { 40 } else { 60 }).min(65_535) as u16
}
