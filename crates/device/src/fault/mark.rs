//! Owns the mark that a router with a full queue sets in place of dropping a packet (RFC 3168 section 5).

use crate::Medium;
use laneway_wire::checksum::Sum;

const NOT_ECT: u8 = 0b00;
const CE: u8 = 0b11;
/// An IPv4 header without options. (Of one with them nothing is marked.)
const V4_LEN: usize = 20;

/// Marks a frame whose sender heeds marks. False: it does not, or the frame is marked already.
pub(crate) fn mark(medium: Medium, frame: &mut [u8]) -> bool {
    match frame.get_mut(medium.header_len()..) {
        Some(packet @ [0x45, _, ..]) if packet.len() >= V4_LEN => {
            if matches!(packet[1] & CE, NOT_ECT | CE) {
                return false;
            }
            packet[1] |= CE;
            packet[10..12].fill(0);
            let sum = Sum::of(&packet[..V4_LEN]).checksum();
            packet[10..12].copy_from_slice(&sum);
            true
        }
        // The class lies over two bytes, and the two bits in the second.
        Some([0x60..=0x6f, class, ..]) => {
            let is_markable = !matches!(*class >> 4 & CE, NOT_ECT | CE);
            if is_markable {
                *class |= CE << 4;
            }
            is_markable
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(class: u8) -> Vec<u8> {
        let mut packet = vec![0x45, class, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let sum = Sum::of(&packet).checksum();
        packet[10..12].copy_from_slice(&sum);
        packet
    }

    #[test]
    fn only_what_may_be_is_marked() {
        for (is, marked, becomes) in [(0b00, false, 0b00), (0b01, true, 0b11), (0b10, true, 0b11), (0b11, false, 0b11)]
        {
            let class = 0xb8;
            for link in [0, 14] {
                let medium = if link == 0 { Medium::Ip } else { Medium::Ethernet };
                let mut frame = [vec![0xaa; link], v4(class | is)].concat();
                assert_eq!(mark(medium, &mut frame), marked);
                assert_eq!(frame[link..], v4(class | becomes));
                let v6 = |ecn: u8| {
                    [vec![0xaa; link], vec![0x60 | class >> 4, (class | ecn) << 4 | 0x0f], vec![7; 38]].concat()
                };
                let mut frame = v6(is);
                assert_eq!(mark(medium, &mut frame), marked);
                assert_eq!(frame, v6(becomes));
            }
        }
        assert!(!mark(Medium::Ip, &mut []) && !mark(Medium::Ip, &mut [0x45, 0b10]));
        assert!(!mark(Medium::Ethernet, &mut [0xff; 60]));
    }
}
