//! Whether anything is overtaken.

use laneway_device::memory::LinkTx;
use laneway_device::{Capabilities, Tx, TxMeta};
use laneway_wire::tcp::SeqNum;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A sender that counts the segments which tell that one before them was overtaken: those that carry SACK blocks.
pub struct Spy {
    pub inner: LinkTx,
    pub frame: Vec<u8>,
    pub sacks: Arc<AtomicU64>,
}

impl Tx for Spy {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }
    fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        self.inner.reserve(len)?;
        self.frame.resize(len, 0);
        Some(&mut self.frame)
    }
    fn commit(&mut self, len: usize, meta: TxMeta) {
        let frame = &self.frame[..len];
        let tcp = &frame[20..];
        let mut options = &tcp[20..usize::from(tcp[12] >> 4) * 4];
        while let [kind, rest @ ..] = options {
            if *kind == 5 {
                let number = |at: &[u8]| SeqNum::new(u32::from_be_bytes(at.try_into().expect("four bytes")));
                // What comes before the acknowledgement has come twice, and was not overtaken.
                let ack = number(&tcp[8..12]);
                let blocks = rest[1..usize::from(rest[0]) - 1].chunks(8);
                self.sacks.fetch_add(blocks.filter(|b| number(&b[..4]).after(ack)).count() as u64, Ordering::Relaxed);
            }
            let skip = if *kind <= 1 { 0 } else { usize::from(rest[0]) - 1 };
            options = &rest[skip..];
        }
        self.inner.reserve(self.frame.len()).expect("it was granted").copy_from_slice(&self.frame);
        self.inner.commit(len, meta);
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
}
