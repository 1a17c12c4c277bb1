//! Owns a stack of a world behind a vtable: with the product's way of sharing connections, or with any of those that it is compared
//! with, and of those only one is compiled for all.

use crate::puppet::Puppet;
use laneway_device::memory::{LinkRx, LinkTx};
use laneway_device::{Alarms, CookieAnswer, Queue};
use laneway_proto::time::Instant;
use laneway_stack::Config;
use laneway_stack::control::{Control, Network};
use laneway_stack::counters::Counters;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::sharing::{Chosen, NAMES, Plain, Product, Sharing};
use laneway_stack::tables::Tables;
use laneway_stack::worker::Turn;

/// How the lanes of each host share their connections, by name: one of [`NAMES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharingName(&'static str);

impl SharingName {
    /// The product's.
    pub const LANE: SharingName = SharingName(Product::NAME);

    /// All of them, in the order of history.
    pub fn all() -> impl Iterator<Item = SharingName> {
        NAMES.into_iter().map(SharingName)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        self.0
    }
}

impl std::str::FromStr for SharingName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let right = || format!("there is no sharing '{text}'; take one of {}", NAMES.join(", "));
        SharingName::all().find(|one| one.0 == text).ok_or_else(right)
    }
}

/// A stack, whatever its way of sharing.
pub trait AnyHost {
    /// One poll of every lane and of the control plane.
    fn turn(&mut self, now: Instant) -> Turn;
    /// One poll of one lane.
    fn turn_lane(&mut self, lane: usize, now: Instant) -> Turn;
    /// One poll of the control plane; when it wants another, and whether a lane has mail of it.
    fn turn_control(&mut self, now: Instant) -> (Instant, bool);
    /// Its control plane.
    fn control(&mut self) -> &mut Control;
    /// The counters of all lanes.
    fn counters(&mut self) -> Counters;
    /// How many lanes.
    fn lanes(&self) -> usize;
    /// Looks at the tables of a lane.
    fn tables(&mut self, lane: usize, look: &mut dyn FnMut(&mut Tables));
    /// Its device can answer for it in a flood, and these tell that it does.
    fn heed(&mut self, alarms: &Alarms);
    /// How the device is to do so, as lanes have asked since this was called last.
    fn overrun(&mut self) -> Vec<CookieAnswer>;
}

impl<S: Sharing> AnyHost for Host<LinkRx, LinkTx, Puppet, S> {
    fn turn(&mut self, now: Instant) -> Turn {
        self.turn(now)
    }
    fn turn_lane(&mut self, lane: usize, now: Instant) -> Turn {
        self.seats[lane].turn(now)
    }
    fn turn_control(&mut self, now: Instant) -> (Instant, bool) {
        (self.control.turn(now), self.control.undelivered().next().is_some())
    }
    fn control(&mut self) -> &mut Control {
        &mut self.control
    }
    fn counters(&mut self) -> Counters {
        self.counters()
    }
    fn lanes(&self) -> usize {
        self.seats.len()
    }
    fn tables(&mut self, lane: usize, look: &mut dyn FnMut(&mut Tables)) {
        self.seats[lane].lane.tables(look);
    }
    fn heed(&mut self, alarms: &Alarms) {
        self.seats.iter_mut().for_each(|seat| seat.lane.heed(alarms.clone()));
    }
    fn overrun(&mut self) -> Vec<CookieAnswer> {
        self.seats.iter_mut().filter_map(|seat| seat.lane.take_overrun()).map(|how| *how).collect()
    }
}

/// What a host is made of.
pub(crate) struct HostParts<'a> {
    pub(crate) config: Config,
    pub(crate) network: &'a Network,
    pub(crate) secrets: &'a BootSecrets,
    pub(crate) queues: Vec<Queue<LinkRx, LinkTx>>,
    pub(crate) now: Instant,
}

/// A host that shares in this way.
pub(crate) fn host(sharing: SharingName, parts: HostParts<'_>, app: impl FnMut(usize) -> Puppet) -> Box<dyn AnyHost> {
    let HostParts { config, network, secrets, queues, now } = parts;
    let sensible = "the scenario makes sense";
    if sharing == SharingName::LANE {
        let host: Host<_, _, _, Product> = Host::new(config, network, secrets, queues, now, app).expect(sensible);
        return Box::new(host);
    }
    let spread = |lanes: usize, make: &mut dyn FnMut() -> Tables| {
        Chosen::<Plain>::spread_as(sharing.name(), lanes, make).expect("every other name is of a variant with locks")
    };
    Box::new(Host::new_shared(config, network, secrets, queues, now, spread, app).expect(sensible))
}
