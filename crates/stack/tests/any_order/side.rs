//! Owns one of the two hosts with its threads, and what they can do.

use crate::acts::{self, Act};
use crate::dice::Dice;
use crate::ledger::Ledger;
use crate::party::Party;
use crate::tally::Tally;
use laneway_device::memory::{LinkRx, LinkTx};
use laneway_proto::ip::output::Marks;
use laneway_proto::time::Instant;
use laneway_stack::app::UdpId;
use laneway_stack::binding::BindOptions;
use laneway_stack::host::Host;
use laneway_stack::steering::BUCKETS;
use laneway_stack::threads::Server;
use laneway_stack::threads::accept::Acceptors;
use laneway_stack::threads::desk::{Desk, UdpTicket};
use laneway_stack::threads::words::{SHUT_READ, SHUT_WRITE};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Where there may be listeners, and UDP sockets.
pub const TCP_PORTS: [u16; 4] = [80, 81, 82, 83];
pub const UDP_PORTS: [u16; 4] = [500, 501, 502, 503];
/// So many at once.
const PARTIES_MAX: usize = 100;
const LISTENERS_MAX: usize = 4;
const SOCKETS_MAX: usize = 4;
/// So many connect to one port together.
const CROWD: usize = 40;
/// The last that is said on each connection.
const LAST_WORD: usize = 100;

pub struct Side {
    pub host: Host<LinkRx, LinkTx, Server>,
    pub desk: Arc<Desk>,
    pub ip: IpAddr,
    pub number: usize,
    pub backlog: usize,
    pub parties: Vec<Party>,
    pub tally: Tally,
    listeners: Vec<Arc<Acceptors>>,
    sockets: Vec<(usize, Arc<UdpTicket>)>,
    /// Nothing new begins; what there is goes on to its end.
    ends: bool,
}

impl Side {
    pub fn new(host: Host<LinkRx, LinkTx, Server>, desk: Arc<Desk>, ip: IpAddr, number: usize, backlog: usize) -> Side {
        let (parties, listeners, sockets) = (Vec::new(), Vec::new(), Vec::new());
        Side { host, desk, ip, number, backlog, parties, tally: Tally::default(), listeners, sockets, ends: false }
    }

    /// Some thread does something, if there is something to do it with.
    pub fn act(&mut self, dice: &mut Dice, ledger: &mut Ledger, other: IpAddr, now: Instant) {
        match acts::pick(dice) {
            Act::Listen => self.listen(dice, now),
            Act::Unlisten => {
                if let Some(at) = any(dice, &self.listeners) {
                    let gone = self.listeners.swap_remove(at);
                    self.unlisten(gone, /* lanes_first= */ dice.one_in(2));
                }
            }
            Act::Connect => self.connect(dice, ledger, other, 1),
            Act::Crowd => self.connect(dice, ledger, other, CROWD),
            Act::Accept => {
                if let Some(at) = any(dice, &self.listeners) {
                    let most = dice.below(5);
                    self.accept(at, ledger, most);
                }
            }
            Act::Say => {
                let len = dice.pick(&[1, 3, 100, 5_000, 65_000]);
                if let Some(at) = any(dice, &self.parties) {
                    let party = &mut self.parties[at];
                    if party.to_say == 0 {
                        party.to_say = len;
                    }
                    party.say(&self.desk, ledger);
                    self.tally.waits += u64::from(party.to_say > 0);
                }
            }
            Act::Hear => {
                for party in &mut self.parties {
                    let most = dice.pick(&[usize::MAX, 1_000, 10]);
                    self.tally.heard += party.hear(&self.desk, ledger, most) as u64;
                }
                self.receive(ledger);
            }
            Act::Shut => {
                let bits = dice.pick(&[SHUT_WRITE, SHUT_READ, SHUT_READ | SHUT_WRITE]);
                if let Some(at) = any(dice, &self.parties) {
                    self.parties[at].shut(&self.desk, bits);
                }
            }
            Act::Nodelay => {
                if let Some(at) = any(dice, &self.parties) {
                    self.parties[at].sets_nodelay(&self.desk, dice.one_in(2));
                }
            }
            Act::Buffers => {
                let [send, receive] = [(); 2].map(|()| dice.pick(&[2_304, 5_000, 20_000, 1 << 20]));
                if let Some(at) = any(dice, &self.parties) {
                    self.parties[at].sets_buffers(&self.desk, send, receive);
                    self.tally.limits += 1;
                }
            }
            Act::Mark => {
                let marks = Marks { hop_limit: dice.pick(&[0, 1, 255]), dscp_ecn: dice.pick(&[0, 0xb8]) };
                if let Some(at) = any(dice, &self.listeners) {
                    let acceptors = &self.listeners[at];
                    acceptors.set_marks(marks);
                    self.host.control.mark(acceptors.id, marks);
                }
            }
            Act::CallOff => {
                let called_off = self.parties.iter().filter(|party| self.desk.call_off(&party.talk)).count();
                self.tally.called_off += called_off as u64;
            }
            Act::Leave => {
                if let Some(at) = any(dice, &self.parties) {
                    self.leaves(at, ledger, /* resets= */ dice.one_in(4));
                }
            }
            Act::Move => {
                for _ in 0..dice.below(20) {
                    let lane = dice.below(self.host.seats.len());
                    let moves = self.host.control.move_bucket(dice.below(BUCKETS), lane);
                    self.tally.moves += u64::from(moves.is_ok());
                }
            }
            Act::Bind => self.bind(dice, ledger),
            Act::Unbind => {
                if let Some(at) = any(dice, &self.sockets) {
                    let (_, gone) = self.sockets.swap_remove(at);
                    self.unbind(gone.id);
                }
            }
            Act::Tell => {
                if let Some(at) = any(dice, &self.sockets) {
                    let (number, socket) = &self.sockets[at];
                    let to = SocketAddr::new(other, dice.pick(&UDP_PORTS));
                    socket.send(to, &ledger.datagram(*number, to.port(), dice.pick(&[10, 300, 1_400, 5_000])));
                    self.desk.send_datagrams(socket);
                }
            }
        }
    }

    /// What every thread does when nothing new begins: it takes what there is, and says what it has to say. True if there was something.
    pub fn attend(&mut self, ledger: &mut Ledger) -> bool {
        let mut acted = false;
        for at in 0..self.listeners.len() {
            acted |= self.accept(at, ledger, usize::MAX);
        }
        for party in &mut self.parties {
            let (said, heard) = (party.say(&self.desk, ledger), party.hear(&self.desk, ledger, usize::MAX));
            self.tally.heard += heard as u64;
            acted |= said + heard > 0;
        }
        acted | self.receive(ledger)
    }

    /// Nothing new begins, and everybody says a last word. Who does not hear it leaves, and with him the memory that he holds.
    pub fn end(&mut self, ledger: &mut Ledger) {
        self.ends = true;
        for at in (0..self.parties.len()).rev() {
            let party = &mut self.parties[at];
            party.to_say = party.to_say.max(LAST_WORD);
            if party.deaf {
                self.leaves(at, ledger, /* resets= */ false);
            }
        }
    }

    /// All leave.
    pub fn leave(&mut self, ledger: &mut Ledger) {
        for at in (0..self.parties.len()).rev() {
            self.leaves(at, ledger, /* resets= */ false);
        }
        for gone in std::mem::take(&mut self.listeners) {
            self.unlisten(gone, /* lanes_first= */ false);
        }
        for (_, gone) in std::mem::take(&mut self.sockets) {
            self.unbind(gone.id);
        }
    }

    fn listen(&mut self, dice: &mut Dice, now: Instant) {
        let at = SocketAddr::new(self.ip, dice.pick(&TCP_PORTS));
        let options = BindOptions { reuse_address: true, reuse_port: dice.one_in(2), ..BindOptions::default() };
        if self.listeners.len() < LISTENERS_MAX
            && let Ok((id, at)) = self.host.listen_with(at, self.backlog, options, now)
        {
            self.listeners.push(self.desk.listen(id, at, self.backlog));
        }
    }

    /// In the order in which the two hear of it, which is chance.
    fn unlisten(&mut self, gone: Arc<Acceptors>, lanes_first: bool) {
        self.tally.untaken += u64::from(gone.is_ready());
        let id = gone.id;
        if lanes_first {
            self.desk.unlisten(id);
        }
        self.host.control.unlisten(id);
        if !lanes_first {
            self.desk.unlisten(id);
        }
    }

    /// So many threads connect to one port.
    fn connect(&mut self, dice: &mut Dice, ledger: &mut Ledger, other: IpAddr, crowd: usize) {
        let to = SocketAddr::new(other, dice.pick(&TCP_PORTS));
        for _ in 0..crowd.min(PARTIES_MAX.saturating_sub(self.parties.len())) {
            let talk = self.desk.connect(to);
            self.tally.connects += 1;
            self.joins(Party::new(talk, ledger.begins(self.number)));
        }
    }

    /// Accepts so many from a listener, if there are. True if there was one.
    fn accept(&mut self, at: usize, ledger: &mut Ledger, most: usize) -> bool {
        let mut taken = 0;
        while taken < most
            && let Some((newcomer, starved)) = self.listeners[at].take()
        {
            if let Some(lane) = starved {
                self.tally.starved += 1;
                self.desk.refill(lane, self.listeners[at].id);
            }
            taken += 1;
            self.joins(Party::new(newcomer.talk, ledger.begins(self.number)));
        }
        self.tally.accepts += taken as u64;
        taken > 0
    }

    fn joins(&mut self, mut party: Party) {
        party.to_say = if self.ends { LAST_WORD } else { 0 };
        // Nobody waits in a call, and so nobody does a lane's work in its stead.
        party.talk.app().nonblocking.store(true, Relaxed);
        self.parties.push(party);
    }

    fn leaves(&mut self, at: usize, ledger: &mut Ledger, resets: bool) {
        let party = self.parties.swap_remove(at);
        ledger.voices[party.voice].left = true;
        self.desk.leave(party.talk, resets);
    }

    fn bind(&mut self, dice: &mut Dice, ledger: &mut Ledger) {
        let at = SocketAddr::new(self.ip, dice.pick(&UDP_PORTS));
        if self.sockets.len() < SOCKETS_MAX
            && let Ok((id, at)) = self.host.control.bind_udp_with(at, BindOptions::default())
        {
            self.sockets.push((ledger.binds(), self.desk.bind_udp(id, at)));
        }
    }

    fn unbind(&mut self, id: UdpId) {
        self.desk.unbind_udp(id);
        self.host.control.unbind_udp(id);
    }

    /// Takes all datagrams that there are.
    fn receive(&mut self, ledger: &mut Ledger) -> bool {
        let mut came = 0;
        for (_, socket) in &self.sockets {
            let port = socket.at.port();
            while socket.receive(/* peek= */ false, |_, bytes| ledger.comes(port, bytes)).is_some() {
                came += 1;
            }
        }
        self.tally.datagrams += came;
        came > 0
    }
}

/// The place of one of them, if there is one.
fn any<T>(dice: &mut Dice, of: &[T]) -> Option<usize> {
    (!of.is_empty()).then(|| dice.below(of.len()))
}
