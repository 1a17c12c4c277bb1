//! Two hosts exchange streams over a link on which anything happens to a frame: loss, doubling, reordering, delay, a
//! flipped bit. While the fuzzer's bytes last, that is; then the link is good, and everything must arrive and end well.
#![no_main]

use laneway_fuzz::{Mind, PORT, Rig, addresses, pattern};
use laneway_proto::tcp::CloseReason;
use laneway_stack::app::{ConnId, Context};
use laneway_stack::device::Medium;
use libfuzzer_sys::fuzz_target;

/// Sends its stream, takes the other, closes when it has sent all.
#[derive(Default)]
struct Stream {
    connects: bool,
    total: u32,
    sent: u32,
    taken: u32,
    id: Option<ConnId>,
    shut: bool,
    end: Option<CloseReason>,
}

impl Stream {
    fn push(&mut self, cx: &mut Context<'_>) {
        let Some(id) = self.id else { return };
        while self.sent < self.total {
            let bytes: Vec<u8> = (self.sent..self.total.min(self.sent + 4_096)).map(pattern).collect();
            let n = cx.send(id, &bytes);
            self.sent += n as u32;
            if n < bytes.len() {
                return;
            }
        }
        if !self.shut {
            self.shut = true;
            cx.shutdown(id);
        }
    }
}

impl Mind for Stream {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if std::mem::take(&mut self.connects) {
            cx.connect(None, addresses(1).0, PORT, 0).expect("a port");
        }
    }
    fn open(&mut self, cx: &mut Context<'_>, id: ConnId) {
        assert_eq!(self.id, None, "one connection was made, and two are there");
        self.id = Some(id);
        self.push(cx);
    }
    fn data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        for byte in data {
            assert_eq!(*byte, pattern(self.taken), "byte {} of the stream is wrong", self.taken);
            self.taken += 1;
        }
        data.len()
    }
    fn room(&mut self, cx: &mut Context<'_>, _: ConnId) {
        self.push(cx);
    }
    fn peer_closed(&mut self, _: &mut Context<'_>, _: ConnId) {}
    fn closed(&mut self, _: ConnId, reason: CloseReason) {
        self.end = Some(reason);
    }
}

/// A frame under way: when it is due, in which order it was sent, to which host.
type Flying = (u64, u64, usize, Vec<u8>);

/// Misfortunes that a link has in store: fewer than the tries that any of the two makes, since all may meet one segment.
const MISFORTUNES_MAX: usize = 150;

fuzz_target!(|data: &[u8]| {
    let Some((&[a, b], mut luck)) = data.split_first_chunk::<2>() else { return };
    let mut hosts = [1, 2].map(|n| {
        Rig::<Stream>::new(n, Medium::Ip, |config| {
            // Nobody gives up: what is wanted is that everything arrives in the end.
            config.tcp.tcp_syn_retries = 200;
            config.tcp.tcp_synack_retries = 200;
            config.tcp.tcp_retries2 = 200;
            config.tcp.msl_us = 1_000_000;
            config.tcp.tcp_rmem = (8_192, 65_536);
            config.tcp.tcp_wmem = 32_768;
        })
    });
    let totals = [u32::from(a) * 300, u32::from(b) * 300];
    for (host, total) in hosts.iter_mut().zip(totals) {
        host.seat().app.mind.total = total;
    }
    hosts[1].seat().app.mind.connects = true;

    let mut flying: Vec<Flying> = Vec::new();
    let (mut now, mut count, mut misfortunes) = (0u64, 0u64, 0);
    let mut over = None;
    // 200 s: twice the longest time-out, after the last loss.
    for _ in 0..200_000 {
        let mut next = u64::MAX;
        let mut busy = false;
        for i in 0..2 {
            hosts[i].now_us = now;
            let mut out = Vec::new();
            let (moved, deadline) = hosts[i].turn(|frame| out.push(frame.to_vec()));
            (busy, next) = (busy | moved, next.min(deadline));
            hosts[i].check();
            for mut frame in out {
                count += 1;
                let (what, rest) = luck.split_first().map_or((0, luck), |(what, rest)| (*what, rest));
                luck = rest;
                misfortunes += usize::from(what > 127);
                let what = if misfortunes > MISFORTUNES_MAX || over.is_some() { 0 } else { what };
                let mut delay = 1_000;
                match what {
                    0..=127 => {}
                    128..=159 => continue,
                    160..=191 => flying.push((now + 1_500, count, 1 - i, frame.clone())),
                    192..=223 => delay = 1_000 + u64::from(what - 191) * 700,
                    224..=239 => delay = 300_000 + u64::from(what - 223) * 200_000,
                    // One flipped bit: every checksum sees it.
                    240..=255 => {
                        let at = usize::from(what) * 7_919 % frame.len();
                        frame[at] ^= 1 << (what & 7);
                    }
                }
                flying.push((now + delay, count, 1 - i, frame));
            }
        }
        if hosts.iter_mut().all(|host| host.seat().app.mind.end.is_some()) && flying.is_empty() {
            // A SYN that came when all was over is half a connection, until its answer meets nobody who remembers.
            if hosts.iter_mut().all(Rig::is_empty) || now > *over.get_or_insert(now) + 400_000_000 {
                break;
            }
        }
        flying.sort_unstable_by_key(|(due, order, ..)| (*due, *order));
        while flying.first().is_some_and(|(due, ..)| *due <= now) {
            let (_, _, to, frame) = flying.remove(0);
            hosts[to].inject(&frame);
            busy = true;
        }
        if !busy {
            let due = flying.first().map_or(u64::MAX, |(due, ..)| *due);
            now = next.min(due).max(now + 1);
        }
    }
    let ends = hosts.each_mut().map(|host| host.seat().app.mind.end);
    for (i, host) in hosts.iter_mut().enumerate() {
        let mind = &host.seat().app.mind;
        let got = (mind.sent, mind.taken);
        assert_eq!(got, (totals[i], totals[1 - i]), "host {} at {now} us", i + 1);
        // The last acknowledgement may be lost until nobody remembers any more what it was for.
        let forgotten = ends[i] == Some(CloseReason::Reset) && ends[1 - i] == Some(CloseReason::Normal);
        assert!(ends[i] == Some(CloseReason::Normal) || forgotten, "host {} at {now} us: {:?}", i + 1, ends[i]);
    }
    hosts.iter_mut().for_each(Rig::check_empty);
});
