//! More clients than a lane has memory for: each gets his answer in the end.

use super::slow::{LEN, Shop, take};
use super::*;
use laneway::on_lane::Config;

#[test]
fn who_was_refused_memory_goes_on_when_there_is_some() {
    const CLIENTS: usize = 24;
    let config = Config { lane_mem: 1 << 20, ..Config::default() };
    let shop = Shop::with("starved", Patience::default(), config, |server| server);
    let streams: Vec<_> = (0..CLIENTS).map(|_| shop.ask("Connection: close\r\n")).collect();
    std::thread::scope(|scope| {
        for (number, mut stream) in streams.into_iter().enumerate() {
            // Some read at once and some seldom, so that who has memory is now one and now another.
            let pause = Duration::from_millis(number as u64 % 4);
            scope.spawn(move || {
                let (got, end) = take(&mut stream, pause, true);
                assert!(end.is_ok() && got > LEN, "client {number}: {got} bytes, then {end:?}");
            });
        }
    });
}
