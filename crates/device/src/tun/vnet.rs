//! The virtio header that precedes each frame of a TUN with offload: what the kernel and we leave to each other.

use crate::{PartialChecksum, RxChecksum, RxMeta, TxMeta};

/// `sizeof(struct virtio_net_hdr)`, without the count of merged buffers.
pub(super) const VNET_LEN: usize = 10;

const F_NEEDS_CSUM: u8 = 1;
const F_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
/// The segments carry ECN's CWR on the first only.
const GSO_ECN: u8 = 0x80;

/// What the kernel says about a frame that it hands us.
#[inline]
pub(super) fn parse(header: &[u8; VNET_LEN]) -> RxMeta {
    let [flags, gso_type, _, _, gso0, gso1, start0, start1, offset0, offset1] = *header;
    let checksum = if flags & F_NEEDS_CSUM != 0 {
        RxChecksum::Partial(PartialChecksum {
            start: u16::from_le_bytes([start0, start1]),
            offset: u16::from_le_bytes([offset0, offset1]),
        })
    } else if flags & F_DATA_VALID != 0 {
        RxChecksum::Verified
    } else {
        RxChecksum::Unknown
    };
    let gso_size = match gso_type & !GSO_ECN {
        GSO_TCPV4 | GSO_TCPV6 => u16::from_le_bytes([gso0, gso1]),
        _ => 0,
    };
    RxMeta { checksum, gso_size }
}

/// What we ask of the kernel for a frame that we hand it.
#[inline]
pub(super) fn emit(meta: &TxMeta, is_v6: bool) -> [u8; VNET_LEN] {
    let mut header = [0; VNET_LEN];
    if let Some(partial) = meta.checksum_partial {
        header[0] = F_NEEDS_CSUM;
        header[6..8].copy_from_slice(&partial.start.to_le_bytes());
        header[8..10].copy_from_slice(&partial.offset.to_le_bytes());
    }
    header[1] = GSO_NONE;
    if meta.gso_size != 0 {
        header[1] = if is_v6 { GSO_TCPV6 } else { GSO_TCPV4 };
        header[2..4].copy_from_slice(&meta.header_len.to_le_bytes());
        header[4..6].copy_from_slice(&meta.gso_size.to_le_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_super_packet_is_said_as_virtio_says_it() {
        let meta = TxMeta {
            checksum_partial: Some(PartialChecksum { start: 40, offset: 16 }),
            gso_size: 1440,
            header_len: 72,
        };
        assert_eq!(emit(&meta, /* is_v6= */ true), [1, 4, 72, 0, 0xa0, 5, 40, 0, 16, 0]);
        let seen = parse(&emit(&meta, /* is_v6= */ true));
        assert_eq!(seen.gso_size, 1440);
        assert_eq!(seen.checksum, RxChecksum::Partial(PartialChecksum { start: 40, offset: 16 }));
    }

    /// With ECN the kernel says so beside the kind.
    #[test]
    fn a_super_packet_that_was_told_of_congestion_is_one() {
        for kind in [GSO_TCPV4, GSO_TCPV6, GSO_TCPV4 | GSO_ECN, GSO_TCPV6 | GSO_ECN] {
            assert_eq!(parse(&[1, kind, 72, 0, 0xa0, 5, 40, 0, 16, 0]).gso_size, 1440);
        }
    }

    #[test]
    fn a_plain_frame_is_all_zero() {
        assert_eq!(emit(&TxMeta::default(), /* is_v6= */ false), [0; VNET_LEN]);
        assert_eq!(parse(&[0; VNET_LEN]), RxMeta::default());
        assert_eq!(parse(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]).checksum, RxChecksum::Verified);
    }
}
