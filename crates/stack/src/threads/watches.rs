//! Owns who is told of one socket: as a rule nobody or one poller; several, if its handles were given to several.

use super::poll::{Watch, Watched};
use std::slice;
use std::sync::Arc;

/// Those that watch one socket, in the hands of a lane. There are at most [`WATCHES_MAX`](super::WATCHES_MAX) that still want to know,
/// and those that do not any more are dropped whenever one comes or goes.
#[derive(Default)]
pub(super) enum Watches {
    #[default]
    None,
    One(Arc<Watch>),
    #[expect(clippy::box_collection, reason = "a record of a connection has no room for more words")]
    Several(Box<Vec<Arc<Watch>>>),
}

impl Watches {
    fn all(&self) -> &[Arc<Watch>] {
        match self {
            Watches::None => &[],
            Watches::One(watch) => slice::from_ref(watch),
            Watches::Several(watches) => watches,
        }
    }

    pub(super) fn is_none(&self) -> bool {
        matches!(self, Watches::None)
    }

    /// One of them, to be fetched from memory before it is told.
    #[inline]
    pub(super) fn first(&self) -> Option<&Arc<Watch>> {
        self.all().first()
    }

    /// One more is to be told from now on, and looks at once, unless it does not want to know any more; `None`: one of them does not.
    pub(super) fn change(&mut self, one_more: Option<Arc<Watch>>) {
        let mut watches = match std::mem::take(self) {
            Watches::None => Vec::new(),
            Watches::One(watch) => vec![watch],
            Watches::Several(watches) => *watches,
        };
        watches.retain(|watch| !watch.is_forgotten());
        if let Some(watch) = one_more.filter(|watch| !watch.is_forgotten()) {
            Watched::look(&watch);
            watches.push(watch);
        }
        *self = match watches.pop() {
            None => Watches::None,
            Some(last) if watches.is_empty() => Watches::One(last),
            Some(last) => {
                watches.push(last);
                Watches::Several(Box::new(watches))
            }
        };
    }

    /// Has all look, whatever they wait for.
    pub(super) fn look(&self) {
        self.all().iter().for_each(Watched::look);
    }

    /// Something has happened that may be one of `bits` (0: nothing).
    #[inline]
    pub(super) fn tell(&self, bits: u32) {
        self.all().iter().for_each(|watch| Watched::tell(watch, bits));
    }
}

#[cfg(test)]
mod tests {
    use super::super::accept::Acceptors;
    use super::super::desk::Desk;
    use super::super::poll::{Source, poll_list};
    use super::super::words::READ;
    use super::*;
    use crate::app::ListenerId;
    use crate::runtime::Bells;

    #[test]
    fn each_is_told_until_it_is_forgotten() {
        let (acceptors, _) = Acceptors::new(ListenerId(0), "10.0.0.1:80".parse().unwrap(), 1, 1);
        let (list, mut queue) = poll_list().unwrap();
        let (desk, _) = Desk::new(1, Bells::new(1).unwrap());
        let watch = |key| list.watch(&desk, Source::Acceptors(acceptors.clone()), key, READ).unwrap();
        let mut told = || -> Vec<usize> {
            queue.begin_round();
            std::iter::from_fn(|| queue.pop()).map(|watch| watch.key).collect()
        };
        let all = [watch(1), watch(2), watch(3)];
        let mut watches = Watches::default();
        all.iter().for_each(|watch| watches.change(Some(watch.clone())));
        assert_eq!(told(), [1, 2, 3], "each looks when it comes");
        watches.tell(READ);
        assert_eq!(told(), [1, 2, 3]);
        all[1].forget();
        watches.tell(READ);
        assert_eq!(told(), [1, 3]);
        watches.change(None);
        assert_eq!(Arc::strong_count(&all[1]), 1, "the lane keeps it no longer");
        all[0].forget();
        watches.change(None);
        assert!(matches!(&watches, Watches::One(one) if one.key == 3), "the one that is left needs no list");
        all[2].forget();
        watches.change(None);
        assert!(watches.is_none());
        let late = watch(4);
        late.forget();
        watches.change(Some(late));
        assert!(watches.is_none() && told().is_empty(), "one that was forgotten before the lane heard of it");
    }
}
