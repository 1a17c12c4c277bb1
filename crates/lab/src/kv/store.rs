//! Owns what is kept: keys, values, flags, when they expire, and how much there may be of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Locks, so that lanes seldom meet at one.
const SHARDS: usize = 64;
/// What an entry costs beside its bytes.
const OVERHEAD: usize = 96;
/// From here on a time of expiry is one of the calendar, not one from now on, in seconds.
const RELATIVE_MAX: i64 = 30 * 86_400;

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub flags: u32,
    pub cas: u64,
    /// Seconds since 1970; 0: never.
    expires: u64,
    pub data: Vec<u8>,
}

/// What writing came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    Yes,
    /// `add` of what there was, `replace` of what there was not.
    No,
    /// `cas` of what somebody has written since.
    Exists,
    NotFound,
    NoRoom,
}

/// On what condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    Always,
    Absent,
    Present,
    Unchanged(u64),
}

/// What adding to a number came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    Now(u64),
    NotFound,
    NotANumber,
}

/// All entries.
pub struct Store {
    shards: Vec<Mutex<HashMap<Box<[u8]>, Item>>>,
    next_cas: AtomicU64,
    bytes: AtomicUsize,
    bytes_max: usize,
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Item {
    fn is_live(&self) -> bool {
        self.expires == 0 || self.expires > now_s()
    }
}

fn size(key: &[u8], data: &[u8]) -> usize {
    OVERHEAD + key.len() + data.len()
}

impl Store {
    /// For so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Store { shards, next_cas: AtomicU64::new(1), bytes: AtomicUsize::new(0), bytes_max }
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, HashMap<Box<[u8]>, Item>> {
        let hash = key
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
        // Every change is whole: what a thread that panicked has left can be used.
        self.shards[(hash >> 32) as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at an entry.
    pub fn get<R>(&self, key: &[u8], look: impl FnOnce(&Item) -> R) -> Option<R> {
        self.shard(key).get(key).filter(|item| item.is_live()).map(look)
    }

    /// Writes an entry, on a condition. `exptime` is the protocol's: 0 never, negative at once, else seconds from now or, if that
    /// is more than 30 days, since 1970.
    pub fn set(&self, key: &[u8], flags: u32, exptime: i64, data: &[u8], when: When) -> Stored {
        let expires = match exptime {
            0 => 0,
            past if past < 0 => 1,
            soon if soon <= RELATIVE_MAX => now_s() + soon as u64,
            date => date as u64,
        };
        let mut shard = self.shard(key);
        let old = shard.get(key).filter(|item| item.is_live());
        match (when, old) {
            (When::Absent, Some(_)) | (When::Present, None) => return Stored::No,
            (When::Unchanged(_), None) => return Stored::NotFound,
            (When::Unchanged(cas), Some(old)) if old.cas != cas => return Stored::Exists,
            _ => {}
        }
        let freed = shard.get(key).map_or(0, |old| size(key, &old.data));
        let wanted = size(key, data);
        let held = self.bytes.load(Ordering::Relaxed);
        if (held + wanted).saturating_sub(freed) > self.bytes_max {
            return Stored::NoRoom;
        }
        self.bytes.fetch_add(wanted, Ordering::Relaxed);
        self.bytes.fetch_sub(freed, Ordering::Relaxed);
        let cas = self.next_cas.fetch_add(1, Ordering::Relaxed);
        shard.insert(key.into(), Item { flags, cas, expires, data: data.to_vec() });
        Stored::Yes
    }

    /// Writes an entry before anybody reads.
    pub fn fill(&self, key: &[u8], data: &[u8]) {
        self.set(key, 0, 0, data, When::Always);
    }

    /// False: there was none.
    pub fn delete(&self, key: &[u8]) -> bool {
        let gone = self.shard(key).remove(key);
        if let Some(gone) = &gone {
            self.bytes.fetch_sub(size(key, &gone.data), Ordering::Relaxed);
        }
        gone.is_some_and(|gone| gone.is_live())
    }

    /// Adds to a decimal number, round 2^64, or takes from it, down to 0.
    pub fn count(&self, key: &[u8], by: u64, up: bool) -> Counted {
        let mut shard = self.shard(key);
        let Some(item) = shard.get_mut(key).filter(|item| item.is_live()) else { return Counted::NotFound };
        let number = std::str::from_utf8(&item.data).ok().and_then(|text| text.trim_end().parse::<u64>().ok());
        let Some(number) = number else { return Counted::NotANumber };
        let now = if up { number.wrapping_add(by) } else { number.saturating_sub(by) };
        let text = now.to_string().into_bytes();
        self.bytes.fetch_add(text.len(), Ordering::Relaxed);
        self.bytes.fetch_sub(item.data.len(), Ordering::Relaxed);
        item.data = text;
        item.cas = self.next_cas.fetch_add(1, Ordering::Relaxed);
        Counted::Now(now)
    }
}
