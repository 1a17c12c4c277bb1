//! Owns which ports of the range are a lane's towards a destination: the rows of its slice.

use super::LanePorts;
use super::destination::Destination;
use crate::ports::classes::{Classes, classes_of};
use crate::ports::{Ask, PortParts};
use crate::steering::{BUCKETS, Steering};

/// No row.
const NOT_MINE: u8 = u8::MAX;

/// Which buckets are a lane's.
pub(super) struct Layout {
    pub(super) lane: usize,
    pub(super) buckets: Vec<u8>,
    pub(super) row_of: [u8; BUCKETS],
    /// For IPv6 and IPv4, for each twist, how many ports there are before each row, and in all.
    pub(super) before: [Option<Box<[u16]>>; 2],
}

impl Layout {
    /// How many ports of a slice come before each of its rows, and at last in all.
    #[inline]
    pub(super) fn rows(&self, v4: bool, twist: u8) -> &[u16] {
        let stride = self.buckets.len() + 1;
        let all = self.before[usize::from(v4)].as_deref().unwrap_or(&[]);
        let begin = usize::from(twist) * stride;
        all.get(begin..begin + stride).unwrap_or(&[0])
    }

    #[cold]
    pub(super) fn count(&mut self, v4: bool, classes: &Classes, twists: usize) {
        let mut before = Vec::with_capacity(twists * (self.buckets.len() + 1));
        for twist in 0..twists {
            let mut sum = 0;
            before.push(0);
            for bucket in &self.buckets {
                sum += classes.len(usize::from(*bucket) ^ twist) as u16;
                before.push(sum);
            }
        }
        self.before[usize::from(v4)] = Some(before.into_boxed_slice());
    }
}

/// What the classes are permuted by towards the destination of an ask.
#[inline]
pub(super) fn twist_of(ask: &Ask<'_>) -> u8 {
    (ask.steering.bucket(&ask.flow(0)) % classes_of(ask.steering)) as u8
}

/// For whom everything is there, and which layout is theirs.
#[derive(Clone, Copy)]
pub(super) struct Ready {
    pub(super) lane: usize,
    pub(super) v4: bool,
    pub(super) layout: usize,
}

impl LanePorts {
    /// Everything that depends on who owns which bucket and on the family is there; the answer is the lane's layout.
    #[inline(always)]
    pub(super) fn prepare(&mut self, ask: &Ask<'_>) -> usize {
        // A single lane owns everything, whatever moves.
        if ask.steering.lanes() > 1 && ask.steering.table().version != self.table.version {
            self.moved(ask.steering);
        }
        let v4 = ask.local.is_v4();
        match self.ready {
            Some(ready) if ready.lane == ask.lane && ready.v4 == v4 => ready.layout,
            _ => self.prepare_for(ask.lane, v4),
        }
    }

    #[inline(never)]
    pub(super) fn prepare_for(&mut self, lane: usize, v4: bool) -> usize {
        if self.classes[usize::from(v4)].is_none() {
            self.make_classes(v4);
        }
        let at = match self.layouts.iter().position(|layout| layout.lane == lane) {
            Some(layout) => layout,
            None => self.lay_out(lane),
        };
        if self.layouts[at].before[usize::from(v4)].is_none()
            && let Some(classes) = self.classes[usize::from(v4)].as_deref()
        {
            self.layouts[at].count(v4, classes, classes_of(&self.parts.steering));
        }
        self.ready = Some(Ready { lane, v4, layout: at });
        at
    }

    #[cold]
    pub(super) fn make_classes(&mut self, v4: bool) {
        let PortParts { range, reserved, steering, .. } = &self.parts;
        self.classes[usize::from(v4)] = Some(Box::new(Classes::new(steering, v4, *range, reserved)));
    }

    /// Buckets have moved between lanes: every slice is another one now.
    #[cold]
    pub(super) fn moved(&mut self, steering: &Steering) {
        self.table = *steering.table();
        self.layouts.clear();
        self.ready = None;
        while let Some(destination) = self.indexed.last().copied() {
            self.drop_index(destination);
        }
    }

    #[cold]
    pub(super) fn lay_out(&mut self, lane: usize) -> usize {
        let mut layout = Layout { lane, buckets: Vec::new(), row_of: [NOT_MINE; BUCKETS], before: [None, None] };
        for (bucket, owner) in self.table.owner.iter().enumerate().take(classes_of(&self.parts.steering)) {
            // Of one that moves, its former owner may still have flows: its ports are nobody's until those are gone.
            if usize::from(*owner) == lane && !self.table.is_moving(bucket) {
                layout.row_of[bucket] = layout.buckets.len() as u8;
                layout.buckets.push(bucket as u8);
            }
        }
        self.layouts.push(layout);
        self.layouts.len() - 1
    }

    #[inline]
    pub(super) fn classes(&self, v4: bool) -> Option<&Classes> {
        self.classes[usize::from(v4)].as_deref()
    }

    /// The row of a port in a destination's slice, and its place there; nothing if it may not be granted to this lane at all.
    #[inline]
    pub(super) fn place(&self, destination: &Destination, port: u16) -> Option<(usize, usize)> {
        let (class, rank) = self.classes(destination.key.is_v4())?.place(port)?;
        let lane = usize::from(destination.key.local_port);
        let layout = self.layouts.iter().find(|layout| layout.lane == lane)?;
        let row = layout.row_of[class ^ usize::from(destination.twist)];
        (row != NOT_MINE).then_some((usize::from(row), rank))
    }
}

/// The row of a slice that holds its `begin`-th port, and its place there: `rows` says how many there are before each, and at last in all.
/// They are about equally long, so it lies near its share of them.
#[inline]
pub(super) fn row_of(rows: &[u16], begin: u32) -> (usize, usize) {
    let (count, space) = (rows.len() - 1, u32::from(rows[rows.len() - 1]));
    let mut row = (begin * count as u32 / space) as usize;
    // Nearly always it is that one or one beside it, at random: to branch on which would be to guess.
    row -= usize::from(u32::from(rows[row]) > begin);
    row += usize::from(u32::from(rows[row + 1]) <= begin);
    while u32::from(rows[row]) > begin {
        row -= 1;
    }
    while u32::from(rows[row + 1]) <= begin {
        row += 1;
    }
    (row, begin as usize - usize::from(rows[row]))
}
