//! Owns what a lane knows of bound ports: those it keeps out of `connect`'s choice, and whether its own connections stand in the
//! way of a new one.
//!
//! The latter is a walk over all connections and TIME_WAIT records, for which nothing is kept on their path: a few thousand a
//! poll, so that no `bind` holds a lane up.

use crate::binding::{BindOptions, Binding};
use crate::lane::Local;
use crate::mail::ToControl;
use crate::port_set::PortSet;
use crate::ports::Claim;
use crate::tables::Tables;
use laneway_proto::tcp::TimeWait;
use laneway_table::Fifo;
use laneway_wire::flow::FlowKey;
use std::collections::{BTreeMap, VecDeque};

/// Connections and records looked at in one poll.
const SURVEY_MAX: usize = 2_048;

/// A port that somebody has bound.
pub(crate) struct Bound {
    /// Address and options.
    pub(crate) binding: Binding,
    pub(crate) port: u16,
}

/// A question of the control plane that is being looked into.
struct Survey {
    id: u16,
    binding: Binding,
    port: u16,
    slot: u32,
    /// Next positions in the queues of records, once they have been begun.
    records: [Option<u32>; 2],
    in_use: bool,
    /// All ports in whose way a connection stands are wanted, and not only whether one stands in the way of `port`.
    census: Option<PortSet>,
}

/// The bound ports of one lane.
#[derive(Default)]
pub(crate) struct BoundPorts {
    /// By name: there may be tens of thousands.
    all: BTreeMap<u16, Bound>,
    /// How many there are on each port.
    on_port: BTreeMap<u16, usize>,
    surveys: VecDeque<Survey>,
}

impl BoundPorts {
    /// A bound socket.
    pub(crate) fn get(&self, id: u16) -> Option<&Bound> {
        self.all.get(&id)
    }

    /// Some question is still open.
    pub(crate) fn is_surveying(&self) -> bool {
        !self.surveys.is_empty()
    }
}

/// From now on the port is bound, and whether that can be is looked into.
pub(crate) fn reserve(
    tables: &mut Tables,
    local: &mut Local,
    id: u16,
    binding: Binding,
    port: u16,
    census: Option<PortSet>,
) {
    tables.ports.reserve(port);
    local.bound.all.insert(id, Bound { binding, port });
    *local.bound.on_port.entry(port).or_default() += 1;
    local.bound.surveys.push_back(Survey { id, binding, port, slot: 0, records: [None; 2], in_use: false, census });
}

/// It is not bound any more.
pub(crate) fn release(tables: &mut Tables, local: &mut Local, id: u16) {
    let Some(Bound { port, .. }) = local.bound.all.remove(&id) else { return };
    if let Some(others) = local.bound.on_port.get_mut(&port) {
        *others -= 1;
        if *others > 0 {
            return;
        }
    }
    local.bound.on_port.remove(&port);
    tables.unreserve(port);
}

/// Goes on with the questions, and answers those that are settled.
pub(crate) fn survey(tables: &mut Tables, local: &mut Local) {
    let mut budget = SURVEY_MAX;
    while let Some(survey) = local.bound.surveys.front_mut() {
        if !survey.go_on(tables, &mut budget) {
            return;
        }
        let answer = ToControl::Surveyed { id: survey.id, in_use: survey.in_use, census: survey.census.take() };
        if let Err(ToControl::Surveyed { census, .. }) = local.mail.to_control.push(answer) {
            survey.census = census;
            return; // the ring is full: again in the next poll
        }
        local.bound.surveys.pop_front();
    }
}

impl Survey {
    /// True once the answer is known.
    fn go_on(&mut self, tables: &Tables, budget: &mut usize) -> bool {
        while !self.is_settled() && self.slot < tables.slots.end() {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            if let Some(slot) = tables.slots.get(self.slot)
                && let Some(flow) = slot.flow()
            {
                self.look_at(flow, slot.reuse());
            }
            self.slot += 1;
        }
        self.records(0, &tables.tw4, budget) && self.records(1, &tables.tw6, budget)
    }

    fn records<T: TimeWait>(&mut self, which: usize, queue: &Fifo<T>, budget: &mut usize) -> bool {
        let Some((head, _)) = queue.front() else { return true };
        let mut at = self.records[which].unwrap_or(head);
        if at.wrapping_sub(head) as usize > queue.len() {
            at = head; // those in between have been reaped
        }
        while !self.is_settled() && at != queue.end() {
            if *budget == 0 {
                self.records[which] = Some(at);
                return false;
            }
            *budget -= 1;
            if let Some(record) = queue.get(at)
                && !record.is_dead()
            {
                self.look_at(&record.key(), Claim::unpack(record.tag()).1);
            }
            at = at.wrapping_add(1);
        }
        self.records[which] = Some(at);
        true
    }

    /// Nothing that is still to be looked at could change the answer.
    fn is_settled(&self) -> bool {
        self.in_use && self.census.is_none()
    }

    fn look_at(&mut self, flow: &FlowKey, reuse: u8) {
        if flow.local_port != self.port && self.census.is_none() {
            return;
        }
        let options = BindOptions::from_bits(reuse);
        if self.binding.conflicts(&Binding { address: flow.local, options, listens: false }) {
            self.in_use |= flow.local_port == self.port;
            if let Some(census) = &mut self.census {
                census.insert(flow.local_port);
            }
        }
    }
}
