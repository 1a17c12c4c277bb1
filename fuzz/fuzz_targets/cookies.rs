//! SYN cookies: what was encoded is decoded, within its time and on its flow only; nothing panics.
#![no_main]

use arbitrary::Arbitrary;
use laneway_proto::tcp::cookie::{self, MINUTES_VALID, MSS_TABLE, TimestampOptions};
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::tcp::{SeqNum, WindowScale};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    secret: [u64; 2],
    remote: [u8; 4],
    ports: [u16; 2],
    isn: u32,
    minute: u32,
    age: u8,
    mss: u16,
    forged: u32,
    ts_now: u32,
    scale: Option<u8>,
    sack: bool,
    ecn: bool,
}

fuzz_target!(|input: Input| {
    let [local_port, remote_port] = input.ports;
    let key = FlowKey {
        local: Address::from_v4([192, 0, 2, 1]),
        remote: Address::from_v4(input.remote),
        local_port,
        remote_port,
    };
    let isn = SeqNum::new(input.isn);
    let made = cookie::encode(&input.secret, &key, isn, input.minute, input.mss);
    let later = input.minute.wrapping_add(input.age.into());
    let decoded = cookie::decode(&input.secret, &key, isn, made, later);
    if u32::from(input.age) <= MINUTES_VALID {
        let mss = decoded.expect("a cookie in its time");
        assert!(mss <= input.mss || mss == MSS_TABLE[0], "a larger MSS than the peer's");
        assert!(MSS_TABLE.iter().all(|value| *value <= mss || *value > input.mss), "a smaller MSS than need be");
    } else {
        assert_eq!(decoded, None, "a cookie is good for too long");
    }
    if let Some(mss) = cookie::decode(&input.secret, &key, isn, SeqNum::new(input.forged), input.minute) {
        assert!(MSS_TABLE.contains(&mss));
    }
    let kept = TimestampOptions { window_scale: input.scale.map(WindowScale::new), sack_permitted: input.sack, ecn: input.ecn };
    let val = cookie::encode_ts(input.ts_now, kept);
    assert_eq!(cookie::decode_ts(val), kept);
    assert!(input.ts_now.wrapping_sub(val) < 64, "the timestamp must be close, and not in the future");
});
