//! Owns `b1`: [`b0`](super::b0) as Joyent changed it in 2011. `TF_CACHEL_PAD` gives each bucket a line of 64 bytes, and
//! `TCP_BIND_FANOUT_SIZE` is 1,024. The walk is the same, to this day.

use super::b0::{Bucket, Slot};

/// A bucket on a line of its own.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Padded(Slot);

const _: () = assert!(size_of::<Padded>() == 64);

impl Bucket for Padded {
    const NAME: &'static str = "b1";
    const BUCKETS: usize = 1_024;
    fn slot(&self) -> &Slot {
        &self.0
    }
}
