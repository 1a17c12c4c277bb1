//! Owns what tokio's `_buf` methods do: a read into the room that a buffer which grows has now, which moves its end.

use bytes::BufMut;
use std::io;

/// A read takes no more, so that what is laid aside for it stays small: a caller who wants more asks again. No datagram is longer.
const MOST: usize = 65_536;

/// What is read, first into memory that is laid aside: the room of such a buffer has nothing in it yet that could be lent to who reads.
pub(super) fn read<B: BufMut, T>(
    buf: &mut B,
    read: impl FnOnce(&mut [u8]) -> io::Result<(usize, T)>,
) -> io::Result<(usize, T)> {
    let mut aside = vec![0; buf.chunk_mut().len().min(MOST)];
    let (n, said) = read(&mut aside)?;
    buf.put_slice(&aside[..n]);
    Ok((n, said))
}
