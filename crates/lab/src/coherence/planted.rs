//! Owns what the oracles must find, each by itself, where every lane comes by for each frame that it sends.
//!
//! The place is the link's virtual RSS, which is called inside of the device's own function: an oracle that leaves the
//! device out by the names of its functions would miss all of them.

use super::part::Plant;
use laneway_device::memory::{LinkConfig, Steer};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A link with this planted at both ends.
pub fn planted(plant: Plant, mut link: LinkConfig) -> LinkConfig {
    // In memory of its own, as somebody's counter of frames would be.
    let frames = Arc::new(AtomicU64::new(0));
    link.steer_flow = [None, None]; // so that each frame comes by
    link.steer = link.steer.map(|steer| Some(with(plant, steer?, Arc::clone(&frames))));
    link
}

fn with(plant: Plant, steer: Steer, frames: Arc<AtomicU64>) -> Steer {
    Arc::new(move |frame| {
        match plant {
            // No lock prefix: two lanes in turn lose no count by it.
            Plant::Counter => frames.store(frames.load(Ordering::Relaxed) + 1, Ordering::Relaxed),
            // On the lane's own stack: it locks, and shares nothing.
            Plant::Lock => _ = black_box(&AtomicU64::new(0)).fetch_add(1, Ordering::Relaxed),
            Plant::Heap => _ = black_box(Box::new(frame.len())),
        }
        steer(frame)
    })
}
