//! Frames of any kind into a host that listens: no panic, nothing grows without bound, and after a while nothing is left.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use laneway_fuzz::{Echo, PORT, Rig, addresses, frames};
use laneway_stack::device::Medium;
use laneway_wire::protocol;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    /// As it is.
    Raw(&'a [u8]),
    /// Behind a right IP header, with a right checksum.
    Ip { v6: bool, protocol: u8, payload: &'a [u8] },
    /// Likewise, and from one of a few ports to the one that listens.
    Tcp { v6: bool, port: u8, rest: &'a [u8] },
    /// Time passes.
    Pass { ms: u16 },
}

fuzz_target!(|data: &[u8]| {
    let mut rig = Rig::<Echo>::new(1, Medium::Ip, |_| {});
    let mut data = Unstructured::new(data);
    let ((our4, our6), (peer4, peer6)) = (addresses(1), addresses(2));
    for _ in 0..100 {
        if data.is_empty() {
            break;
        }
        let Ok(input) = Input::arbitrary(&mut data) else { break };
        let ends = |v6| if v6 { (peer6, our6) } else { (peer4, our4) };
        match input {
            Input::Raw(bytes) => {
                rig.inject(bytes);
            }
            Input::Ip { v6, protocol, payload } => {
                let (src, dst) = ends(v6);
                rig.inject(&frames::packet(src, dst, protocol, payload.to_vec()));
            }
            Input::Tcp { v6, port, rest } => {
                let (src, dst) = ends(v6);
                let mut tcp = [1_000 + u16::from(port % 64), PORT].map(u16::to_be_bytes).concat();
                tcp.extend(rest);
                rig.inject(&frames::packet(src, dst, protocol::TCP, tcp));
            }
            Input::Pass { ms } => rig.pass(u64::from(ms) * 1_000, |_| {}),
        }
        rig.rest(|packet| {
            frames::read(packet);
        });
        rig.check();
    }
    rig.check_ends();
});
