//! A hint to the processor that memory will be needed soon. Never faults, never changes a result.

/// Bytes per cache line, as the prefetches count them.
pub const LINE: usize = 64;

/// Asks for the line that holds `address`, into all cache levels. Any address will do, also a dangling one.
#[inline(always)]
pub fn prefetch_line<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch does not access memory in the language's sense and cannot fault, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        // SAFETY: PRFM is a hint: it cannot fault and changes neither memory nor registers.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
        }
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Asks for the line that holds `address`, to be written: another core that has it gives it up now.
#[inline(always)]
pub fn prefetch_line_to_write<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: as above. A processor of this architecture that does not know the instruction does nothing.
        unsafe { std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, readonly, preserves_flags)) }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        // SAFETY: as above.
        unsafe { std::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags)) }
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Asks for `lines` lines from the one that holds `address` on.
#[inline(always)]
pub fn prefetch_lines<T>(address: *const T, lines: usize) {
    let start = address.cast::<u8>();
    for i in 0..lines {
        prefetch_line(start.wrapping_add(i * LINE));
    }
}

/// As many lines at the most are asked for of bytes that lie together: what is longer the processor goes on with by itself.
const LINES_MAX: usize = 4;

/// On how many lines `len` bytes from `address` on lie, as far as it is worth asking for them.
#[inline(always)]
fn lines_of(address: *const u8, len: usize) -> usize {
    (address.addr() % LINE + len).div_ceil(LINE).min(LINES_MAX)
}

/// Asks for the lines of `len` bytes from `address` on, the first few if they are many.
#[inline(always)]
pub fn prefetch_bytes(address: *const u8, len: usize) {
    prefetch_lines(address, lines_of(address, len));
}

/// The same, to be written.
#[inline(always)]
pub fn prefetch_bytes_to_write(address: *const u8, len: usize) {
    for i in 0..lines_of(address, len) {
        prefetch_line_to_write(address.wrapping_add(i * LINE));
    }
}
