//! Who has reserved what: several holders may share a key if they do not conflict, and a claim is made in two steps.
//!
//! [`reserve`](ReservationTable::reserve) checks the newcomer against all holders of the key and notes it, in one critical
//! section, so that of two that conflict exactly one gets in. It is *pending* then, and keeps others out already, while its
//! owner asks whoever else must agree; [`commit`](ReservationTable::commit) makes it firm,
//! [`release`](ReservationTable::release) takes it back, whether pending or firm.
//!
//! For rare operations. A bucket is a lock and a list, on lines of its own, so that holders of different keys do not meet; what a
//! conflict is, the caller says.
//!
//! ```
//! use laneway_table::ReservationTable;
//! use laneway_table::reservation_table::{Conflict, Reservation};
//!
//! let seats = ReservationTable::with_buckets(16, |seat: &u16| u64::from(*seat));
//! let shares = |willing: bool| move |other: &Reservation<bool>| !(willing && other.value);
//! seats.reserve(80, /* holder= */ 1, /* willing= */ true, shares(true))?;
//! assert_eq!(seats.reserve(80, 2, false, shares(false)), Err(Conflict(1)), "pending keeps others out, too");
//! seats.reserve(80, 3, true, shares(true))?; // both share
//! assert!(seats.commit(&80, 1));
//! assert_eq!(seats.release(&80, 3), Some(true));
//! # Ok::<(), Conflict>(())
//! ```

use laneway_sync::padded::Padded;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(test)]
mod tests;

/// One reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reservation<V> {
    /// The caller's number for the holder; one holder has one reservation of a key.
    pub holder: u32,
    /// What else the caller must know to judge a conflict.
    pub value: V,
    /// Not committed yet.
    pub pending: bool,
}

/// Another reservation of the key stands in the way: this holder's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict(pub u32);

type Bucket<K, V> = Padded<Mutex<Vec<(K, Reservation<V>)>>>;

/// Key to reservations. See the [module](self).
pub struct ReservationTable<K, V> {
    buckets: Box<[Bucket<K, V>]>,
    hash: Box<dyn Fn(&K) -> u64 + Send + Sync>,
}

impl<K: Eq, V> ReservationTable<K, V> {
    /// An empty table of so many buckets, rounded up to a power of two. `hash` spreads keys over them: under a secret of the
    /// caller's where strangers choose the keys. The table asks nobody for chance.
    pub fn with_buckets(buckets: usize, hash: impl Fn(&K) -> u64 + Send + Sync + 'static) -> Self {
        let buckets = (0..buckets.max(1).next_power_of_two()).map(|_| Padded(Mutex::new(Vec::new()))).collect();
        ReservationTable { buckets, hash: Box::new(hash) }
    }

    fn bucket(&self, key: &K) -> MutexGuard<'_, Vec<(K, Reservation<V>)>> {
        let at = (self.hash)(key) as usize & (self.buckets.len() - 1);
        // No step below leaves a list half changed.
        self.buckets[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves `key` for `holder`, pending, unless `conflicts` says of one who has it that both cannot be.
    pub fn reserve(
        &self,
        key: K,
        holder: u32,
        value: V,
        mut conflicts: impl FnMut(&Reservation<V>) -> bool,
    ) -> Result<(), Conflict> {
        let mut bucket = self.bucket(&key);
        if let Some((_, other)) = bucket.iter().find(|(k, other)| *k == key && conflicts(other)) {
            return Err(Conflict(other.holder));
        }
        bucket.push((key, Reservation { holder, value, pending: true }));
        Ok(())
    }

    /// Makes it firm; false if there is no such reservation.
    pub fn commit(&self, key: &K, holder: u32) -> bool {
        let mut bucket = self.bucket(key);
        let found = bucket.iter_mut().find(|(k, r)| k == key && r.holder == holder);
        found.map(|(_, r)| r.pending = false).is_some()
    }

    /// Changes what is known of a holder, unless another stands in the way of the change.
    pub fn change(
        &self,
        key: &K,
        holder: u32,
        mut conflicts: impl FnMut(&Reservation<V>) -> bool,
        change: impl FnOnce(&mut V),
    ) -> Result<bool, Conflict> {
        let mut bucket = self.bucket(key);
        if let Some((_, other)) = bucket.iter().find(|(k, r)| k == key && r.holder != holder && conflicts(r)) {
            return Err(Conflict(other.holder));
        }
        let found = bucket.iter_mut().find(|(k, r)| k == key && r.holder == holder);
        Ok(found.map(|(_, r)| change(&mut r.value)).is_some())
    }

    /// Gives a reservation back.
    pub fn release(&self, key: &K, holder: u32) -> Option<V> {
        let mut bucket = self.bucket(key);
        let at = bucket.iter().position(|(k, r)| k == key && r.holder == holder)?;
        Some(bucket.swap_remove(at).1.value)
    }

    /// Somebody has it.
    pub fn is_reserved(&self, key: &K) -> bool {
        self.bucket(key).iter().any(|(k, _)| k == key)
    }
}

impl<K, V> std::fmt::Debug for ReservationTable<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReservationTable").field("buckets", &self.buckets.len()).finish_non_exhaustive()
    }
}
