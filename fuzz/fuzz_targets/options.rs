//! TCP options: no panic, and what was read is written such that it is read again. SACK blocks for which the other options
//! leave no room may be lost on the way, once.
#![no_main]

use laneway_wire::tcp::{Flags, Header, Options, Segment, SeqNum, UnscaledWindow};
use libfuzzer_sys::fuzz_target;

fn through_a_header(options: Options) -> Options {
    let header = Header {
        src_port: 1,
        dst_port: 2,
        seq: SeqNum::new(3),
        ack: SeqNum::new(4),
        flags: Flags::ACK,
        window: UnscaledWindow::new(5),
        urgent: 0,
        options,
    };
    let mut buf = vec![0; header.len()];
    assert!((20..=60).contains(&buf.len()) && buf.len() % 4 == 0);
    header.emit(&mut buf);
    Segment::parse(&buf).expect("what we write can be read").options
}

fuzz_target!(|data: &[u8]| {
    let Ok(options) = Options::parse(&data[..data.len().min(40)]) else { return };
    assert!(options.len() <= 40);
    let once = through_a_header(options);
    assert_eq!(
        (once.mss, once.sack_permitted, once.timestamps),
        (options.mss, options.sack_permitted, options.timestamps)
    );
    assert_eq!(once.window_scale.map(|s| s.get()), options.window_scale.map(|s| s.get()));
    assert!(options.sack.as_slice().starts_with(once.sack.as_slice()));
    assert_eq!(format!("{:?}", through_a_header(once)), format!("{once:?}"));
});
