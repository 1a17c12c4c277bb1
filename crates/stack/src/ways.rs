//! Owns which routes a lane goes by: those that lead to destinations in use, each looked up once and kept until a newer table says
//! otherwise.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → [egress] → device::tx`
//!
//! Destinations are many and their routes few. A new table comes from another core, so whoever looks something up in it waits for
//! memory a dozen times. What it changes comes with it in a few words ([`News`](crate::snapshot::News)), and they are compared with the
//! routes that are kept here: nearly always they are about others, and if not, they say what leads there now. The table itself is asked
//! for destinations that are new, or if the words did not suffice.

use hashbrown::HashMap;
use laneway_proto::ip::route::{Changes, Leads, Route, RouteTable, Stretch};
use laneway_wire::flow::Address;

/// Stretches of addresses that are kept at the most; then all are forgotten.
const WAYS_MAX: usize = 1_024;

/// Where a way is kept, and which one it was: who has this and finds [`Ways::holds`] needs not ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WayRef {
    at: u32,
    stamp: u64,
}

/// What leads to a stretch of addresses: a route, with its number in the table.
#[derive(Clone, Copy)]
struct Way {
    stretch: Stretch,
    leads: Option<(u32, Route)>,
}

/// The ways of one lane.
#[derive(Default)]
pub(crate) struct Ways {
    /// By place: which version of the way is there; 0 if it is to be looked up. Apart from the ways, because every path asks for it after each change.
    stamps: Vec<u64>,
    ways: Vec<Way>,
    by_beginning: HashMap<(bool, u128), u32>,
    /// The latest stamp: none is given twice.
    latest: u64,
}

impl WayRef {
    /// Of nothing: it never holds.
    pub(crate) const NONE: WayRef = WayRef { at: u32::MAX, stamp: 0 };
}

impl Ways {
    /// Whether what was worked out from this still holds.
    #[inline(always)]
    pub(crate) fn holds(&self, way: WayRef) -> bool {
        self.stamps.get(way.at as usize) == Some(&way.stamp)
    }

    /// The route to `dst` by a way that was found `before`, with its number; `None` if that is to be looked up, or there is none.
    #[inline]
    pub(crate) fn again(&self, before: WayRef, dst: Address) -> Option<(WayRef, u32, &Route)> {
        let stamp = *self.stamps.get(before.at as usize)?;
        let way = self.ways.get(before.at as usize).filter(|way| stamp != 0 && way.stretch.contains(dst))?;
        let (number, route) = way.leads.as_ref()?;
        Some((WayRef { at: before.at, stamp }, *number, route))
    }

    /// Whom a way that holds leads to.
    pub(crate) fn stretch(&self, way: WayRef) -> Option<Stretch> {
        self.ways.get(way.at as usize).map(|way| way.stretch)
    }

    /// What leads to `dst`, and how to ask later whether that still holds. `before`: where it was found last.
    pub(crate) fn find(
        &mut self,
        routes: &RouteTable,
        dst: Address,
        before: Option<WayRef>,
    ) -> (WayRef, Option<(u32, Route)>) {
        let at = before.map(|way| way.at as usize);
        if let Some(at) = at.filter(|at| self.stamps.get(*at).is_some_and(|stamp| *stamp != 0))
            && self.ways[at].stretch.contains(dst)
        {
            return (WayRef { at: at as u32, stamp: self.stamps[at] }, self.ways[at].leads);
        }
        let (stretch, number) = routes.stretch(dst);
        let leads = number.and_then(|number| Some((number, *routes.get(number)?)));
        let at = self.keep(Way { stretch, leads });
        (WayRef { at: at as u32, stamp: self.stamps[at] }, leads)
    }

    /// Keeps what was looked up. If it is kept already, who has it goes on with it.
    fn keep(&mut self, way: Way) -> usize {
        if let Some(at) = self.by_beginning.get(&way.stretch.beginning()).map(|at| *at as usize) {
            if self.stamps[at] == 0 || self.ways[at].stretch != way.stretch {
                self.ways[at] = way;
                self.stamps[at] = self.next();
            }
            return at;
        }
        if self.ways.len() == WAYS_MAX {
            self.forget();
        }
        let (at, stamp) = (self.ways.len(), self.next());
        self.by_beginning.insert(way.stretch.beginning(), at as u32);
        self.ways.push(way);
        self.stamps.push(stamp);
        at
    }

    fn next(&mut self) -> u64 {
        self.latest += 1;
        self.latest
    }

    /// A newer table says otherwise in so far.
    pub(crate) fn apply(&mut self, changes: &Changes) {
        if changes.is_renumbered() {
            return self.forget();
        }
        for change in changes.iter() {
            for at in 0..self.ways.len() {
                if self.stamps[at] == 0 || !change.stretch.meets(&self.ways[at].stretch) {
                    continue;
                }
                let leads = match change.leads {
                    Leads::Route(number, route) => Some(Some((number, route))),
                    Leads::Nowhere => Some(None),
                    Leads::Various => None,
                };
                match leads.filter(|_| change.stretch.covers(&self.ways[at].stretch)) {
                    Some(leads) => {
                        self.ways[at].leads = leads;
                        self.stamps[at] = self.next();
                    }
                    None => self.stamps[at] = 0,
                }
            }
        }
    }

    /// Something beside the routes is not as it was: what was worked out from them is to be worked out again.
    pub(crate) fn renew(&mut self) {
        for at in 0..self.stamps.len() {
            if self.stamps[at] != 0 {
                self.stamps[at] = self.next();
            }
        }
    }

    /// All are to be looked up again.
    pub(crate) fn forget(&mut self) {
        self.stamps.clear();
        self.ways.clear();
        self.by_beginning.clear();
    }
}
