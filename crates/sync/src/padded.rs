//! A value on cache lines of its own.

use std::ops::{Deref, DerefMut};

/// Aligned to 128 bytes, so that a write to `T` disturbs no reader of what lies beside it.
///
/// Two lines and not one: the spatial prefetcher of Intel's cores "strives to complete every cache line fetched to the
/// L2 cache with the pair line that completes it to a 128-byte aligned chunk" (Intel 64 and IA-32 Architectures
/// Optimization Reference Manual, "Data Prefetching"), so two 64-byte neighbours are shared as one. Several ARM cores
/// have lines of 128 bytes to begin with.
#[derive(Debug, Default, Clone, Copy)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

const _: () = assert!(size_of::<Padded<u8>>() == 128 && align_of::<Padded<u8>>() == 128);

impl<T> Deref for Padded<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Padded<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Padded;

    #[test]
    fn neighbours_are_two_lines_apart() {
        let pair = [Padded(1u32), Padded(2u32)];
        let distance = (&raw const *pair[1]).addr() - (&raw const *pair[0]).addr();
        assert_eq!(distance, 128);
    }
}
