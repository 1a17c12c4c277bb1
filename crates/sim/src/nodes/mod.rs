//! Owns the nodes that a network is made of. Each is one thing that really happens between hosts.

mod chance;
mod delay;
mod flood;
mod mark;
mod mtu;
mod split;

pub use chance::{Blackout, Corrupt, Drop, Duplicate};
pub use delay::{Bottleneck, Delay, Reorder};
pub use flood::{Flood, Target};
pub use mark::Mark;
pub use mtu::Mtu;
pub use split::Split;

use crate::network::Way;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// When it is due, its place among those of one time, its way.
type Held = (u64, u64, usize, Vec<u8>);

/// Frames that wait for their time. Those of one time leave in the order in which they came.
#[derive(Default)]
struct Shelf {
    heap: BinaryHeap<Reverse<Held>>,
    count: u64,
}

impl Shelf {
    fn put(&mut self, at_us: u64, way: Way, frame: Vec<u8>) {
        self.heap.push(Reverse((at_us, self.count, way.index(), frame)));
        self.count += 1;
    }
    fn take(&mut self, now_us: u64) -> Option<(Way, Vec<u8>)> {
        if self.due_us()? > now_us {
            return None;
        }
        let Reverse((_, _, way, frame)) = self.heap.pop()?;
        Some((if way == 0 { Way::Right } else { Way::Left }, frame))
    }
    fn due_us(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }
}
