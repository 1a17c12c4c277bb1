//! Owns what two historic systems had, in Rust, and the same with every hot thing in a line of its own. Compiled by the test.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

pub mod packed {
    use super::*;

    #[derive(Default)]
    pub struct Bucket {
        pub chain: AtomicPtr<u8>,
        pub lock: AtomicU32,
    }

    pub struct Fanout {
        pub buckets: [Bucket; 512],
    }

    #[derive(Default)]
    #[repr(C)]
    pub struct Route {
        pub device: usize,
        pub operations: [usize; 7],
        pub refcnt: AtomicU32,
        pub lwtstate: Option<Box<u64>>,
    }

    pub struct Shards {
        pub vec: Vec<Mutex<u8>>,
        pub boxed: Box<[RwLock<u8>]>,
        pub counted: Arc<[AtomicU64]>,
        pub optional: Option<Vec<AtomicU32>>,
    }

    pub static HITS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
}

pub mod padded {
    use super::*;

    #[derive(Default)]
    #[repr(align(64))]
    pub struct Own<T>(pub T);

    #[derive(Default)]
    #[repr(align(64))]
    pub struct Bucket {
        pub inside: Mutex<u64>,
    }

    pub struct Fanout {
        pub buckets: [Bucket; 1024],
    }

    #[derive(Default)]
    #[repr(C)]
    pub struct Route {
        pub device: usize,
        pub operations: [usize; 7],
        pub refcnt: Own<AtomicU32>,
        pub lwtstate: Option<Box<u64>>,
    }

    pub struct Shards {
        pub vec: Vec<Own<Mutex<u8>>>,
        pub counted: Arc<[Own<AtomicU64>]>,
    }

    pub static HITS: [Own<AtomicU64>; 64] = [const { Own(AtomicU64::new(0)) }; 64];
}

fn main() {
    let fanout = packed::Fanout { buckets: std::array::from_fn(|_| Default::default()) };
    let own = padded::Fanout { buckets: std::array::from_fn(|_| Default::default()) };
    let shards = packed::Shards {
        vec: vec![Mutex::new(1)],
        boxed: vec![RwLock::new(1)].into(),
        counted: Arc::new([AtomicU64::new(1)]),
        optional: Some(vec![AtomicU32::new(1)]),
    };
    let apart = padded::Shards { vec: vec![padded::Own(Mutex::new(1))], counted: Arc::new([padded::Own(AtomicU64::new(1))]) };
    let (route, other) = (packed::Route::default(), padded::Route::default());
    packed::HITS[route.device].fetch_add(1, Ordering::Relaxed);
    padded::HITS[other.device].0.fetch_add(1, Ordering::Relaxed);
    let sizes = [fanout.buckets.len(), own.buckets.len(), shards.vec.len(), shards.boxed.len(), shards.counted.len()];
    let more = [shards.optional.map_or(0, |all| all.len()), apart.vec.len(), apart.counted.len()];
    println!("{sizes:?} {more:?} {:?} {:?}", route.lwtstate, other.lwtstate);
}
