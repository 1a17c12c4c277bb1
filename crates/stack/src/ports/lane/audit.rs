//! What a test wants to see of a chooser.

use super::LanePorts;
use super::destination::{NONE, destination_key};
use crate::ports::Ask;

impl LanePorts {
    /// Free places of a destination by its index, by its lists, and the two lists' lengths.
    pub(in crate::ports) fn audit(&self, ask: &Ask<'_>) -> Option<usize> {
        let key = destination_key(ask);
        let destination = self.destinations.get(self.find(key.hash(&self.parts.key.get()), &key)?)?;
        let slice = self.slice_of(destination);
        let mut seen = [0; 2];
        let mut taken = std::collections::HashSet::new();
        for (list, seen) in [destination.in_use, destination.waiting].into_iter().zip(&mut seen) {
            let (mut next, mut before) = (list.first, NONE);
            while let Some(node) = self.nodes.get(next) {
                assert_eq!(node.before, before, "lists lead back the way they lead on");
                assert!(taken.insert(node.port), "one flow, one node");
                *seen += 1;
                (before, next) = (next, node.after);
            }
            assert_eq!(list.last, before);
        }
        assert_eq!(seen[0] + seen[1], destination.flows as usize);
        let index = destination.index.as_deref()?;
        taken.extend(&self.bound);
        taken.extend(&destination.foreign);
        let kept = taken.iter().filter(|port| self.place(destination, **port).is_some()).count();
        assert_eq!(index.free.free(), slice.owned - kept, "the index is exact");
        for port in &taken {
            if let Some(place) = self.place_in(index, destination, *port) {
                assert!(!index.free.is_free(place));
            }
        }
        Some(index.free.free())
    }

    pub(in crate::ports) fn indexes(&self) -> (usize, usize) {
        (self.indexed.len(), self.index_bytes)
    }
}
