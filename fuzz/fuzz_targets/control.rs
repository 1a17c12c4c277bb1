//! ARP and neighbour discovery, right, wrong and forged, into a host on Ethernet that tries to reach its neighbours.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use laneway_fuzz::{Mind, Rig, addresses, frames};
use laneway_stack::app::Context;
use laneway_stack::device::Medium;
use laneway_wire::arp;
use laneway_wire::flow::Address;
use laneway_wire::protocol;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Raw(&'a [u8]),
    Arp { reply: bool, sender_mac: u8, sender: u8, target: u8, to_all: bool },
    Ndp { kind: u8, flags: u8, from: u8, target: u8, link: Option<u8>, to_all: bool, rest: &'a [u8] },
    Reach { v6: bool, host: u8 },
    Pass { ms: u16 },
}

#[derive(Default)]
struct Caller {
    calls: Vec<Address>,
}

impl Mind for Caller {
    fn poll(&mut self, cx: &mut Context<'_>) {
        for to in self.calls.drain(..) {
            let _ = cx.connect(None, to, 80, 0);
        }
    }
}

fn host(v6: bool, n: u8) -> Address {
    let (v4, six) = addresses(n);
    if v6 { six } else { v4 }
}

fn ethernet(to_all: bool, kind: u16, body: Vec<u8>) -> Vec<u8> {
    let mut frame = if to_all { vec![0xff; 6] } else { frames::MACS[0].to_vec() };
    frame.extend(frames::MACS[1]);
    frame.extend(kind.to_be_bytes());
    frame.extend(body);
    frame
}

fuzz_target!(|data: &[u8]| {
    let mut rig = Rig::<Caller>::new(1, Medium::Ethernet, |config| config.tcp.tcp_syn_retries = 2);
    let mut data = Unstructured::new(data);
    for _ in 0..100 {
        if data.is_empty() {
            break;
        }
        let Ok(input) = Input::arbitrary(&mut data) else { break };
        match input {
            Input::Raw(bytes) => {
                let kind = [0x0806, 0x86dd, 0x0800][bytes.len() % 3];
                rig.inject(&ethernet(false, kind, bytes.to_vec()));
            }
            Input::Arp { reply, sender_mac, sender, target, to_all } => {
                let mut body = vec![0, 1, 8, 0, 6, 4, 0, 1 + u8::from(reply)];
                body.extend([2, 0, 0, 0, 0, sender_mac]);
                body.extend(host(false, sender).octets_v4());
                body.extend(frames::MACS[0]);
                body.extend(host(false, target).octets_v4());
                assert_eq!(body.len(), arp::LEN);
                rig.inject(&ethernet(to_all, 0x0806, body));
            }
            Input::Ndp { kind, flags, from, target, link, to_all, rest } => {
                let mut message = vec![133 + kind % 5, 0, 0, 0, flags, 0, 0, 0];
                message.extend(host(true, target).octets());
                if let Some(mac) = link {
                    message.extend([1 + (kind & 1), 1, 2, 0, 0, 0, 0, mac]);
                }
                message.extend(&rest[..rest.len().min(64)]);
                let packet = frames::packet(host(true, from), host(true, 1), protocol::ICMPV6, message);
                rig.inject(&ethernet(to_all, 0x86dd, packet));
            }
            Input::Reach { v6, host: n } => {
                let calls = &mut rig.seat().app.mind.calls;
                if n != 1 {
                    calls.push(host(v6, n));
                }
            }
            Input::Pass { ms } => rig.pass(u64::from(ms) * 1_000, |_| {}),
        }
        rig.rest(|_| {});
        rig.seat().lane.tables(|tables| assert!(tables.slots.len() <= 100, "{} connections", tables.slots.len()));
    }
    // Two SYNs more, and nothing answers: everything is given up in the end.
    rig.check_ends();
});
