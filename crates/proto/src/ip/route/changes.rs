//! Owns what a routing table says otherwise than the one before it, in as few words as whoever goes by it needs: a handful of
//! stretches of addresses, and the route that leads there now.
//!
//! Whoever has looked something up in the old table compares it with these, and has not to look at the new table, which he has
//! never seen and which is long.

use super::{NO_ROUTE, Ranges, Route, RouteTable, bits, width};
use laneway_wire::flow::Address;

/// Stretches of one family at the most: beyond that the last one grows.
const STRETCHES_MAX: usize = 8;

/// Consecutive addresses of one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Stretch {
    v4: bool,
    first: u128,
    last: u128,
}

impl Stretch {
    /// Whether `address` lies in it.
    #[inline]
    pub fn contains(&self, address: Address) -> bool {
        self.v4 == address.is_v4() && (self.first..=self.last).contains(&bits(&address))
    }

    /// Whether all of `other` lies in it.
    #[inline]
    pub fn covers(&self, other: &Stretch) -> bool {
        self.v4 == other.v4 && self.first <= other.first && other.last <= self.last
    }

    /// Whether some address lies in both.
    #[inline]
    pub fn meets(&self, other: &Stretch) -> bool {
        self.v4 == other.v4 && self.first <= other.last && other.first <= self.last
    }

    /// Its family, and its first address as a number: no two stretches of one table agree in both.
    #[inline]
    pub fn beginning(&self) -> (bool, u128) {
        (self.v4, self.first)
    }
}

/// What leads to a stretch of addresses whose route has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leads {
    /// This route, with its number in the new table.
    Route(u32, Route),
    /// None.
    Nowhere,
    /// More than one route, of which some may be as they were: the table knows.
    Various,
}

/// A stretch of addresses to which something else leads than before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The addresses.
    pub stretch: Stretch,
    /// What leads there now.
    pub leads: Leads,
}

/// Everything that a table says otherwise than the one before it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    list: Vec<Change>,
    renumbered: bool,
}

impl Changes {
    /// Every stretch of addresses to which something else leads than before. What lies in none of them has the route that it had.
    pub fn iter(&self) -> impl Iterator<Item = &Change> {
        self.list.iter()
    }

    /// Some route that is as it was has another number.
    pub fn is_renumbered(&self) -> bool {
        self.renumbered
    }

    fn push(&mut self, stretch: Stretch, now: Option<(u32, &Route)>) {
        let leads = now.map_or(Leads::Nowhere, |(number, route)| Leads::Route(number, *route));
        let same_family = self.list.iter().filter(|change| change.stretch.v4 == stretch.v4).count();
        match self.list.last_mut() {
            Some(last) if same_family > 0 && last.leads == leads && last.stretch.last + 1 == stretch.first => {
                last.stretch.last = stretch.last;
            }
            Some(last) if same_family == STRETCHES_MAX => {
                last.stretch.last = stretch.last;
                last.leads = Leads::Various;
            }
            _ => self.list.push(Change { stretch, leads }),
        }
    }
}

impl RouteTable {
    /// The widest stretch of addresses around `dst` to which one route leads, or none, and that route's number. O(log n).
    pub fn stretch(&self, dst: Address) -> (Stretch, Option<u32>) {
        if dst.is_v4() { self.v4.stretch(dst, |n| n.into()) } else { self.v6.stretch(dst, |n| n) }
    }

    /// What this table says otherwise than `before`. O(n).
    pub fn changes_since(&self, before: &RouteTable) -> Changes {
        // Mostly prefixes stay, and what is said of some has changed.
        if self.v4 == before.v4 && self.v6 == before.v6 && self.len() == before.len() {
            self.retold_since(before)
        } else {
            self.compared_with(before)
        }
    }

    /// The same, if both have the same ranges, each with a route of the same number.
    fn retold_since(&self, before: &RouteTable) -> Changes {
        let mut changes = Changes::default();
        let is_other: Vec<bool> = self.iter().zip(before.iter()).map(|(now, was)| now != was).collect();
        if is_other.contains(&true) {
            self.v4.note(/* v4= */ true, |n| n.into(), &is_other, self, &mut changes);
            self.v6.note(/* v4= */ false, |n| n, &is_other, self, &mut changes);
        }
        changes
    }

    /// The same, of any two.
    fn compared_with(&self, before: &RouteTable) -> Changes {
        let mut changes = Changes::default();
        compare((before, &before.v4), (self, &self.v4), /* v4= */ true, |n| n.into(), &mut changes);
        compare((before, &before.v6), (self, &self.v6), /* v4= */ false, |n| n, &mut changes);
        changes
    }
}

fn end_of_space(v4: bool) -> u128 {
    if v4 { u32::MAX.into() } else { u128::MAX }
}

impl<N: Copy + Ord> Ranges<N> {
    fn stretch(&self, dst: Address, widen: impl Fn(N) -> u128) -> (Stretch, Option<u32>) {
        let v4 = width(&dst) == 32;
        let address = bits(&dst);
        let after = self.starts.partition_point(|start| widen(*start) <= address);
        let first = after.checked_sub(1);
        let stretch = Stretch {
            v4,
            first: first.and_then(|at| self.starts.get(at)).map_or(0, |start| widen(*start)),
            last: self.starts.get(after).map_or(end_of_space(v4), |start| widen(*start) - 1),
        };
        let winner = first.and_then(|at| self.winners.get(at)).copied();
        (stretch, winner.filter(|winner| *winner != NO_ROUTE))
    }

    /// Notes every range in which a route wins that is another than it was.
    fn note(&self, v4: bool, widen: impl Fn(N) -> u128, is_other: &[bool], routes: &RouteTable, changes: &mut Changes) {
        for (at, (start, winner)) in self.starts.iter().zip(&self.winners).enumerate() {
            if is_other.get(*winner as usize) == Some(&true) {
                let (_, last) = self.range(at, v4, &widen);
                let now = routes.get(*winner).map(|route| (*winner, route));
                changes.push(Stretch { v4, first: widen(*start), last }, now);
            }
        }
    }

    /// Who wins in the range of this number, and where that ends. A table of nothing has one range in which nobody wins.
    fn range(&self, at: usize, v4: bool, widen: impl Fn(N) -> u128) -> (Option<u32>, u128) {
        let winner = self.winners.get(at).copied().filter(|winner| *winner != NO_ROUTE);
        (winner, self.starts.get(at + 1).map_or(end_of_space(v4), |start| widen(*start) - 1))
    }
}

/// Walks through the ranges of both tables at once, and notes those in which they differ.
fn compare<N: Copy + Ord>(
    (before, old): (&RouteTable, &Ranges<N>),
    (after, new): (&RouteTable, &Ranges<N>),
    v4: bool,
    widen: impl Fn(N) -> u128,
    changes: &mut Changes,
) {
    let (mut at_old, mut at_new) = (0, 0);
    let mut first = 0;
    loop {
        let (was, was_to) = old.range(at_old, v4, &widen);
        let (is, is_to) = new.range(at_new, v4, &widen);
        let last = was_to.min(is_to);
        let now = is.and_then(|number| Some((number, after.get(number)?)));
        if was.and_then(|number| before.get(number)) != now.map(|(_, route)| route) {
            changes.push(Stretch { v4, first, last }, now);
        } else if was != is {
            changes.renumbered = true;
        }
        if last == end_of_space(v4) {
            return;
        }
        at_old += usize::from(was_to == last);
        at_new += usize::from(is_to == last);
        first = last + 1;
    }
}

#[cfg(test)]
mod tests;
