//! Owns what a thread has asked for and its lane has not done yet: it stands behind bytes that were not taken, or the connection is being opened.

use super::super::NOTES_MAX;
use super::super::words::Op;
use std::collections::VecDeque;
use std::mem::discriminant;

/// Each with the number of bytes that it stands behind, in that order.
#[derive(Default)]
pub(super) struct Wishes(VecDeque<(u64, Op)>);

impl Wishes {
    /// Puts `op` behind all that stands at its byte or before. Where [`NOTES_MAX`] wait already, it takes the place of the last option of its kind:
    /// whoever sets one again and again while his peer does not read keeps no more than that.
    pub(super) fn put(&mut self, at: u64, mut op: Op) {
        if self.0.len() >= usize::from(NOTES_MAX)
            && let Some(last) = self.0.iter().rposition(|(_, earlier)| has_last_word(&op, earlier))
        {
            let earlier = self.0.remove(last);
            // What the last word leaves open the one before has said.
            if let (Op::KeepaliveTimes(times), Some((_, Op::KeepaliveTimes(before)))) = (&mut op, earlier) {
                *times = times.or(before);
            }
        }
        let next = self.0.partition_point(|(before, _)| *before <= at);
        self.0.insert(next, (at, op));
    }

    /// The next one, and the number of bytes that it stands behind.
    pub(super) fn first(&self) -> Option<(u64, &Op)> {
        self.0.front().map(|(at, op)| (*at, op))
    }

    pub(super) fn take_first(&mut self) -> Option<Op> {
        self.0.pop_front().map(|(_, op)| op)
    }
}

/// An option of the same kind as `earlier`, which counts for nothing once this one holds. What is an event counts each time.
fn has_last_word(op: &Op, earlier: &Op) -> bool {
    match (op, earlier) {
        (Op::Info(_) | Op::Shutdown | Op::ShutRead | Op::Close | Op::Abort | Op::Watch(_), _) => false,
        (Op::Tos { v4, .. }, Op::Tos { v4: other, .. }) => v4 == other,
        _ => discriminant(op) == discriminant(earlier),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_proto::tcp::KeepaliveTimes;
    use std::iter::from_fn;

    fn all(wishes: &mut Wishes) -> Vec<Op> {
        from_fn(|| wishes.take_first()).collect()
    }

    #[test]
    fn few_are_kept_as_they_came() {
        let mut wishes = Wishes::default();
        for (at, on) in [(3, true), (7, false), (3, false), (7, true)] {
            wishes.put(at, Op::Cork(on));
        }
        let order = from_fn(|| {
            let at = wishes.first()?.0;
            wishes.take_first().map(|op| (at, matches!(op, Op::Cork(true))))
        });
        assert_eq!(order.collect::<Vec<_>>(), [(3, true), (3, false), (7, false), (7, true)]);
    }

    /// Ten thousand times, of every kind: no more than may wait. The last word holds, behind its byte, and of the times of keepalive the
    /// last of each.
    #[test]
    fn what_is_said_again_and_again_is_kept_once() {
        let mut wishes = Wishes::default();
        let keeps = |idle_s, interval_s| Op::KeepaliveTimes(KeepaliveTimes { idle_s, interval_s, probes: 0 });
        for i in 0..10_000_u64 {
            let n = i as u16;
            for op in [Op::Nodelay(i % 2 == 0), Op::Tos { v4: true, tos: n as u8 }, Op::Tos { v4: false, tos: 4 }] {
                wishes.put(i, op);
            }
            wishes.put(i, if n == 9_998 { keeps(n, 0) } else { keeps(0, n) });
        }
        assert_eq!(wishes.0.back().map(|(at, _)| *at), Some(9_999));
        let kept = all(&mut wishes);
        assert_eq!(kept.len(), usize::from(NOTES_MAX));
        let last = |is: fn(&Op) -> bool| kept.iter().rfind(|op| is(op));
        assert!(matches!(last(|op| matches!(op, Op::Nodelay(_))), Some(Op::Nodelay(false))));
        assert!(matches!(last(|op| matches!(op, Op::Tos { v4: true, .. })), Some(Op::Tos { tos: 15, .. })));
        let Some(Op::KeepaliveTimes(times)) = last(|op| matches!(op, Op::KeepaliveTimes(_))) else { panic!() };
        assert_eq!((times.idle_s, times.interval_s), (9_998, 9_999));
    }

    #[test]
    fn what_happens_each_time_is_kept_each_time() {
        let mut wishes = Wishes::default();
        for _ in 0..NOTES_MAX {
            wishes.put(0, Op::Info(Box::new(|_| ())));
        }
        wishes.put(0, Op::Info(Box::new(|_| ())));
        wishes.put(0, Op::Shutdown);
        wishes.put(0, Op::Close);
        assert_eq!(all(&mut wishes).len(), usize::from(NOTES_MAX) + 3);
    }
}
