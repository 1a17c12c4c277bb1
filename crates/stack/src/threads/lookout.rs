//! Owns looking for the next news of many sockets, before the one who waits for it sleeps.

use super::company;
use super::desk::Desk;
pub use super::patience::Look;
use super::patience::Patience;
use super::poll::Watched;
use std::sync::Weak;

/// What one who waits for many sockets knows: over which lane the last of their news came, over which the next will most likely come, too;
/// and whether it has been worth it to look for it.
#[derive(Default)]
pub struct Lookout {
    /// Whose lane it is. The sockets may be of several stacks, and none is kept by this.
    desk: Weak<Desk>,
    lane: usize,
    /// There was news of so many at once.
    told: usize,
    patience: Patience,
}

impl Lookout {
    /// There is news of this one, which is one of those that are told of next.
    #[inline]
    pub fn came_from(&mut self, watched: &Watched) {
        self.lane = watched.source.lane();
        if !Weak::ptr_eq(&self.desk, &watched.desk) {
            self.desk = watched.desk.clone();
        }
    }

    /// The calling thread is told of so many sockets at once.
    #[inline]
    pub fn told_of(&mut self, sockets: usize) {
        self.told = sockets;
        company::told_of(sockets);
    }

    /// There was news of many sockets when there was any last.
    pub fn is_told_of_many(&self) -> bool {
        self.told >= company::MANY
    }

    /// Looks for so many microseconds at the most, as the first of several times unless `look` is that of one before. Whether there `is_news`; `None`: not
    /// yet, and there is time left.
    ///
    /// False at once where there was never any news, where it has not been worth it, and after news of many at once: that is better waited for
    /// asleep, while the lanes bring more.
    pub fn looks(&self, look: &mut Option<Look>, us: u64, is_news: impl FnMut() -> bool) -> Option<bool> {
        let tries = || if self.is_told_of_many() { None } else { self.patience.tries() };
        let Some(before) = look.map(|look| look.before).or_else(tries) else { return Some(false) };
        let Some(desk) = self.desk.upgrade() else { return Some(false) };
        *look = look.or_else(|| desk.begin_look(self.lane, before));
        look.map_or(Some(false), |look| desk.go_on(look, &self.patience, us, is_news))
    }
}

#[cfg(test)]
mod tests {
    use super::super::accept::Acceptors;
    use super::super::poll::{Source, Watch, poll_list};
    use super::super::words::READ;
    use super::*;
    use crate::app::ListenerId;
    use crate::runtime::Bells;
    use std::sync::Arc;

    /// The longest that can be asked for.
    const LOOK_US: u32 = 1_000;

    fn watched() -> (Arc<Desk>, Arc<Watch>) {
        let (desk, _) = Desk::new(1, Bells::new(1).unwrap());
        desk.set_look_us(LOOK_US);
        let (acceptors, _) = Acceptors::new(ListenerId(0), "10.0.0.1:80".parse().unwrap(), 1, 1);
        let watch = poll_list().unwrap().0.watch(&desk, Source::Acceptors(acceptors), 7, READ).unwrap();
        (desk, watch)
    }

    #[test]
    fn one_looks_after_news_of_few() {
        let (desk, watch) = watched();
        let mut lookout = Lookout::default();
        let looks = |lookout: &Lookout| {
            let mut has_looked = false;
            let is_news = || {
                has_looked = true;
                true
            };
            assert_eq!(lookout.looks(&mut None, u64::MAX, is_news), Some(has_looked));
            has_looked
        };
        assert!(!looks(&lookout), "there was never any news");
        lookout.came_from(&watch);
        lookout.told_of(1);
        assert!(looks(&lookout));
        lookout.told_of(company::MANY);
        assert!(!looks(&lookout), "there was news of many");
        lookout.told_of(company::MANY - 1);
        assert!(looks(&lookout));
        desk.set_look_us(0);
        assert!(!looks(&lookout), "nobody looks on this stack");
        desk.set_look_us(LOOK_US);
        drop(desk);
        assert!(!looks(&lookout), "the stack is gone");
    }

    #[test]
    fn a_look_that_comes_to_nothing_is_worth_less_until_one_tries_again() {
        let (desk, watch) = watched();
        desk.set_look_us(1);
        let mut lookout = Lookout::default();
        lookout.came_from(&watch);
        lookout.told_of(1);
        let mut looked = [false; 100];
        for has_looked in &mut looked {
            let is_news = || {
                *has_looked = true;
                false
            };
            assert_eq!(lookout.looks(&mut None, u64::MAX, is_news), Some(false));
        }
        let times = looked.iter().filter(|has_looked| **has_looked).count();
        assert!((3..=10).contains(&times), "it has looked {times} times of 100");
        assert!(looked[0] && looked[60..].contains(&true));
    }

    /// However slow the machine is, of three looks of a millisecond not each is over after 20 microseconds of it.
    #[test]
    fn a_look_is_gone_on_with_until_its_time_is_over() {
        let (_desk, watch) = watched();
        let mut lookout = Lookout::default();
        lookout.came_from(&watch);
        lookout.told_of(1);
        let times = (0..3).map(|_| {
            let mut look = None;
            let glances = std::iter::from_fn(|| lookout.looks(&mut look, 20, || false).is_none().then_some(()));
            glances.count()
        });
        let most = times.max().unwrap();
        assert!((2..=LOOK_US as usize / 20).contains(&most), "{most}");
    }
}
