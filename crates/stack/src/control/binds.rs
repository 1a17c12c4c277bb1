//! Owns `bind` and `listen`: the reservation of a port, in two phases.
//!
//! First the reservation, which decides between bindings; it is pending, and keeps others out. Then every lane is asked by mail: from
//! that message on it keeps the port out of `connect`'s choice, and it answers whether a connection that it still has stands in
//! the way. When all have answered, the reservation is committed or rolled back. Nobody waits but the caller; `connect` never does.
//!
//! Of a port that was left to us, the first choice is a guess. If it was wrong, lanes are asked with the next one for a census of all
//! ports that their connections use, and the third is none of those. So the caller waits for three rounds of the lanes, and for one
//! more each time that a `connect` takes the very port in between, however many ports are in use.
//!
//! UDP has no connections that lanes could keep, so there the first phase is all.

use super::Control;
use crate::app::{ListenerId, UdpId};
use crate::binding::{BindOptions, Binding, Transport};
use crate::entropy::KeptKey;
use crate::error::Error;
use crate::mail::ToLane;
use crate::port_set::PortSet;
use laneway_proto::ip::output::Marks;
use laneway_table::ReservationTable;
use laneway_table::reservation_table::Conflict;
use laneway_wire::flow::Address;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// The name of a bound TCP socket. Once it listens, the listener has the same number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct BindId(pub u16);

/// From where `bind` to port 0 chooses.
#[derive(Clone, Debug)]
pub struct PortRange {
    /// `ip_local_port_range`: first and last.
    pub range: (u16, u16),
    /// `ip_local_reserved_ports`.
    pub reserved: Arc<[u16]>,
    /// The secret that makes the choice unpredictable.
    pub key: KeptKey,
}

#[derive(PartialEq, Debug)]
enum State {
    /// Lanes have been asked about their connections.
    Asking,
    /// Nobody objects.
    Bound,
    /// Lanes have been told to listen.
    Listening,
    /// It did not succeed, and somebody shall be told.
    Failed(Error),
    /// Given up; only answers are still to come.
    Gone,
}

pub(super) struct Held {
    id: u16,
    transport: Transport,
    at: SocketAddr,
    binding: Binding,
    state: State,
    /// Lanes that have not answered the last question.
    missing: usize,
    in_use: bool,
    /// `listen` with this backlog, once it is bound.
    then_listen: Option<usize>,
    /// The port was left to us: ports still to be tried after this one.
    others: Option<u32>,
    /// Ports of those that connections have used since the first try.
    census: Option<PortSet>,
}

pub(super) struct Binds {
    table: ReservationTable<(Transport, u16), Binding>,
    /// By name: there may be tens of thousands.
    held: BTreeMap<u16, Held>,
    ports: PortRange,
    chosen: u64,
    next_id: u16,
    free_ids: VecDeque<u16>,
}

impl Binds {
    pub(super) fn new(ports: PortRange) -> Self {
        let key = ports.key.clone();
        let hash = move |(transport, port): &(Transport, u16)| {
            key.get().sip13_words(&[(*transport as u64) << 16 | u64::from(*port), u64::from_le_bytes(*b"reserved")])
        };
        Binds {
            table: ReservationTable::with_buckets(256, hash),
            held: BTreeMap::new(),
            ports,
            chosen: 0,
            next_id: 0,
            free_ids: VecDeque::new(),
        }
    }

    fn take_id(&mut self) -> Result<u16, Error> {
        // Names that were never used come first, so that one that somebody still remembers means nobody else for long. The last
        // value means "none" on the lanes.
        if self.next_id < u16::MAX - 1 {
            self.next_id += 1;
            return Ok(self.next_id - 1);
        }
        self.free_ids.pop_front().ok_or_else(|| {
            Error::Invalid("65,534 sockets are bound, which is all that a stack can have; unbind some".into())
        })
    }

    fn get(&mut self, id: u16) -> Option<&mut Held> {
        self.held.get_mut(&id)
    }

    fn first_port(&mut self) -> u16 {
        let (first, last) = self.ports.range;
        let count = u64::from(last.max(first) - first) + 1;
        self.chosen += 1;
        let random = self.ports.key.get().sip13_words(&[self.chosen, u64::from_le_bytes(*b"bind 0\0\0")]);
        first + (random % count) as u16
    }

    fn next_port(&self, port: u16) -> u16 {
        let (first, last) = self.ports.range;
        if port >= last { first } else { port + 1 }
    }

    /// Notes the reservation. Of a port that was left to us, tries on from `held.at` as long as there are others.
    fn reserve(&mut self, held: &mut Held) -> Result<(), Error> {
        loop {
            let port = held.at.port();
            let binding = held.binding;
            let reserved = held.others.is_some()
                && (held.census.as_ref().is_some_and(|census| census.contains(port))
                    || self.ports.reserved.contains(&port)
                    || self.table.is_reserved(&(held.transport, port)));
            if !reserved {
                let done = self
                    .table
                    .reserve((held.transport, port), held.id.into(), binding, |other| binding.conflicts(&other.value));
                if done.is_ok() {
                    return Ok(());
                }
            }
            match &mut held.others {
                Some(others) if *others > 0 => {
                    *others -= 1;
                    held.at.set_port(self.next_port(port));
                }
                Some(_) => return Err(Error::AddressInUse(SocketAddr::new(held.at.ip(), 0))),
                None => return Err(Error::AddressInUse(held.at)),
            }
        }
    }
}

impl Control {
    /// Reserves an address and port. [`outcome`](Self::outcome) tells when the lanes agree, and which port it is if `at` had port 0.
    pub fn bind(&mut self, at: SocketAddr, options: BindOptions) -> Result<BindId, Error> {
        self.begin(Transport::Tcp, at, options, None).map(BindId)
    }

    /// Binds, with `reuse_address` as servers do, and listens: every lane is told. [`is_listening`](Self::is_listening) is true
    /// once all have answered, and from then on no SYN can miss it.
    pub fn listen(&mut self, at: SocketAddr, backlog: usize) -> Result<ListenerId, Error> {
        self.listen_with(at, backlog, BindOptions { reuse_address: true, ..BindOptions::default() })
    }

    /// Binds and listens with options.
    pub fn listen_with(&mut self, at: SocketAddr, backlog: usize, options: BindOptions) -> Result<ListenerId, Error> {
        self.begin(Transport::Tcp, at, options, Some(backlog)).map(ListenerId)
    }

    /// Makes a bound socket listen, and answer with these marks. Those beside which it could be *bound* may stand in the way of that.
    pub fn listen_on(&mut self, bound: BindId, backlog: usize, marks: Marks) -> Result<ListenerId, Error> {
        let not_bound = || Error::Invalid("only a socket that is bound can listen; call bind first".into());
        let held = self.binds.get(bound.0).filter(|held| held.state == State::Bound).ok_or_else(not_bound)?;
        let (binding, at) = (held.binding, held.at);
        let listens = self.binds.table.change(
            &(Transport::Tcp, at.port()),
            bound.0.into(),
            |other| binding.conflicts(&other.value),
            |mine| mine.listens = true,
        );
        if let Err(Conflict(_)) = listens {
            return Err(Error::AddressInUse(at));
        }
        self.tell_to_listen(bound.0, backlog, marks)?;
        Ok(ListenerId(bound.0))
    }

    /// Gives a bound socket up. Connections from it go on.
    pub fn unbind(&mut self, bound: BindId) {
        self.give_up(bound.0);
    }

    /// How `bind` or `listen` ended; nothing before all lanes have answered. A failure is told once.
    pub fn outcome(&mut self, id: u16) -> Option<Result<SocketAddr, Error>> {
        let held = self.binds.get(id)?;
        match &held.state {
            State::Asking => None,
            State::Listening if held.missing > 0 => None,
            State::Bound | State::Listening => Some(Ok(held.at)),
            State::Failed(error) => {
                let error = error.clone();
                held.state = State::Gone;
                self.forget(id);
                Some(Err(error))
            }
            State::Gone => Some(Err(Error::Closed)),
        }
    }

    /// Every lane listens.
    pub fn is_listening(&self, id: ListenerId) -> bool {
        self.binds.held.get(&id.0).is_some_and(|held| held.state == State::Listening && held.missing == 0)
    }

    /// Marks of the packets with which every lane answers whoever calls a listener from now on: no SYN that is sent later is answered without.
    pub fn mark(&mut self, id: ListenerId, marks: Marks) {
        if self.binds.get(id.0).is_some_and(|held| held.state == State::Listening) {
            self.mail.iter_mut().for_each(|mail| mail.tell(ToLane::Mark(id, marks)));
        }
    }

    /// Stops listening. What waits in the lanes' queues is reset.
    pub fn unlisten(&mut self, id: ListenerId) {
        self.give_up(id.0);
    }

    /// Stops listening everywhere.
    pub fn unlisten_all(&mut self) {
        let tcp = |held: &&Held| held.transport == Transport::Tcp;
        let all: Vec<u16> = self.binds.held.values().filter(tcp).map(|held| held.id).collect();
        all.into_iter().for_each(|id| self.give_up(id));
    }

    /// Binds a UDP socket on every lane.
    pub fn bind_udp(&mut self, at: SocketAddr) -> Result<UdpId, Error> {
        self.bind_udp_with(at, BindOptions::default()).map(|(id, _)| id)
    }

    /// Binds a UDP socket with options; the answer tells the port, if `at` had port 0. At a broadcast address, 255.255.255.255 or that of a network
    /// of ours, it hears what is sent to all, and sends from an address of ours.
    pub fn bind_udp_with(&mut self, at: SocketAddr, options: BindOptions) -> Result<(UdpId, SocketAddr), Error> {
        let id = self.begin(Transport::Udp, at, options, None)?;
        let held = self.binds.get(id).ok_or(Error::Closed)?;
        Ok((UdpId(id), held.at))
    }

    /// Gives a UDP socket up.
    pub fn unbind_udp(&mut self, id: UdpId) {
        self.give_up(id.0);
    }

    fn begin(
        &mut self,
        transport: Transport,
        at: SocketAddr,
        options: BindOptions,
        then_listen: Option<usize>,
    ) -> Result<u16, Error> {
        let address = Address::from(at.ip());
        if options.only_v6 && address.is_v4() {
            return Err(Error::Invalid(format!(
                "{} is an IPv4 address, which a socket with IPV6_V6ONLY cannot have; unset it, or bind to an IPv6 address",
                at.ip()
            )));
        }
        // Who is bound to a broadcast address hears what is sent there.
        let hears_all = transport == Transport::Udp && self.snapshot.addresses.means_all(&address);
        if !address.is_unspecified() && !hears_all && !self.snapshot.addresses.contains(&address) {
            return Err(Error::AddressNotAvailable(at.ip()));
        }
        let id = self.binds.take_id()?;
        // Without flow label and zone, if the caller's has them: neither is a part of a socket's name, with which others are compared.
        let (mut at, mut others) = (SocketAddr::new(at.ip(), at.port()), None);
        if at.port() == 0 {
            let (first, last) = self.binds.ports.range;
            others = Some(u32::from(last.max(first) - first));
            at.set_port(self.binds.first_port());
        }
        let binding = Binding { address, options, listens: then_listen.is_some() };
        let state = if transport == Transport::Tcp { State::Asking } else { State::Bound };
        let (missing, in_use, census) = (0, false, None);
        let mut held = Held { id, transport, at, binding, state, missing, in_use, then_listen, others, census };
        if let Err(error) = self.binds.reserve(&mut held) {
            self.binds.free_ids.push_back(id);
            return Err(error);
        }
        let port = held.at.port();
        match transport {
            Transport::Tcp => held.missing = self.ask_lanes(&held),
            Transport::Udp => {
                self.binds.table.commit(&(transport, port), id.into());
                for mail in &mut self.mail {
                    mail.tell(ToLane::BindUdp { id: UdpId(id), binding, port });
                }
            }
        }
        self.binds.held.insert(id, held);
        Ok(id)
    }

    /// The second phase begins. The answer is how many answers there will be.
    fn ask_lanes(&mut self, held: &Held) -> usize {
        let ask = || ToLane::Reserve {
            id: held.id,
            binding: held.binding,
            port: held.at.port(),
            census: held.census.is_some().then(PortSet::new),
        };
        self.mail.iter_mut().for_each(|mail| mail.tell(ask()));
        self.mail.len()
    }

    fn tell_to_listen(&mut self, id: u16, backlog: usize, marks: Marks) -> Result<(), Error> {
        let held = self.binds.get(id).ok_or(Error::Closed)?;
        (held.state, held.binding.listens) = (State::Listening, true);
        let (binding, port) = (held.binding, held.at.port());
        let listen = || ToLane::Listen { id: ListenerId(id), binding, port, backlog, marks };
        self.mail.iter_mut().for_each(|mail| mail.tell(listen()));
        self.binds.get(id).ok_or(Error::Closed)?.missing = self.mail.len();
        Ok(())
    }

    /// A lane has answered the question of the second phase.
    pub(super) fn on_surveyed(&mut self, id: u16, in_use: bool, census: Option<PortSet>) {
        let Some(held) = self.binds.get(id) else { return };
        held.missing = held.missing.saturating_sub(1);
        held.in_use |= in_use;
        if let (Some(all), Some(some)) = (&mut held.census, &census) {
            all.merge(some);
        }
        if held.missing > 0 {
            return;
        }
        if held.state == State::Gone {
            return self.forget(id);
        }
        if held.in_use {
            return self.roll_back(id);
        }
        held.state = State::Bound;
        let (port, then_listen) = (held.at.port(), held.then_listen);
        self.binds.table.commit(&(Transport::Tcp, port), id.into());
        if let Some(backlog) = then_listen {
            let _ = self.tell_to_listen(id, backlog, Marks::NONE);
        }
    }

    /// A lane listens.
    pub(super) fn on_listening(&mut self, id: u16) {
        let Some(held) = self.binds.get(id) else { return };
        held.missing = held.missing.saturating_sub(1);
        if held.missing == 0 && held.state == State::Gone {
            self.forget(id);
        }
    }

    /// Some lane objects. If the port was left to us, the next one is tried.
    fn roll_back(&mut self, id: u16) {
        let Some(mut held) = self.binds.held.remove(&id) else { return };
        self.release(&held);
        held.in_use = false;
        let refused = held.at;
        let again = match &mut held.others {
            Some(others) if *others > 0 => {
                *others -= 1;
                held.census.get_or_insert_default();
                held.at.set_port(self.binds.next_port(refused.port()));
                self.binds.reserve(&mut held)
            }
            Some(_) => Err(Error::AddressInUse(SocketAddr::new(refused.ip(), 0))),
            None => Err(Error::AddressInUse(refused)),
        };
        match again {
            Ok(()) => held.missing = self.ask_lanes(&held),
            Err(error) => held.state = State::Failed(error),
        }
        self.binds.held.insert(id, held);
    }

    /// The reservation goes, and lanes may choose the port again.
    fn release(&mut self, held: &Held) {
        if self.binds.table.release(&(held.transport, held.at.port()), held.id.into()).is_none() {
            return;
        }
        for mail in &mut self.mail {
            mail.tell(match held.transport {
                Transport::Tcp => ToLane::Release(held.id),
                Transport::Udp => ToLane::UnbindUdp(UdpId(held.id)),
            });
        }
    }

    fn give_up(&mut self, id: u16) {
        let Some(mut held) = self.binds.held.remove(&id) else { return };
        if held.state == State::Listening {
            for mail in &mut self.mail {
                mail.tell(ToLane::Unlisten(ListenerId(id)));
            }
        }
        self.release(&held);
        held.state = State::Gone;
        self.binds.held.insert(id, held);
        self.forget(id);
    }

    /// Frees the name of one that is gone, once no answer about it can come any more.
    fn forget(&mut self, id: u16) {
        let gone = |held: &mut Held| held.state == State::Gone && held.missing == 0;
        if self.binds.get(id).is_some_and(gone) {
            self.binds.held.remove(&id);
            self.binds.free_ids.push_back(id);
        }
    }
}
