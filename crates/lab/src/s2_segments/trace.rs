//! Owns the picture of one transaction: which packets go over the wire, and when nothing more goes.

use super::memory::by_name;
use super::rules::{Refined, Ruled, Split, V1, V2};
use crate::bench::failure::Failure;
use laneway_device::memory::{LinkConfig, LinkRx, LinkTx, link};
use laneway_device::{PartialChecksum, Rx, Tx, TxMeta};
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::sharing::{LaneOwned, Sharing};
use laneway_wire::flow::Address;
use laneway_wire::tcp::{Segment, SeqNum};

/// Transactions before the one that is shown: quick ACKs are used up, and the windows are open.
const BEFORE: usize = 40;
const TCP_AT: usize = 20;
const TURNS_MAX: usize = 100_000;

struct End {
    is_server: bool,
    bytes: usize,
    heard: usize,
    done: usize,
    connection: Option<ConnId>,
}

impl App for End {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        if !self.is_server && self.connection.is_none() {
            self.connection = cx.connect(None, Address::from_v4([10, 0, 0, 1]), 80, 0).ok();
        }
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        cx.send(id, &vec![b'q'; self.bytes]);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        self.heard += data.len();
        if self.heard >= self.bytes {
            self.heard -= self.bytes;
            self.done += 1;
            if self.is_server || self.done <= BEFORE {
                cx.send(id, &vec![b'a'; self.bytes]);
            }
        }
        data.len()
    }
}

/// The packets of one transaction of `bytes` each way under a variant, as lines: the server's ports and numbers count from 0.
pub fn of(variant: &str, bytes: usize) -> Result<Vec<String>, Failure> {
    by_name!(variant, transaction(bytes))
}

fn transaction<S: Sharing>(bytes: usize) -> Result<Vec<String>, Failure> {
    let mut now = Instant::from_us(3_600_000_000);
    let mut wires = Vec::new();
    let mut host = |end: usize| -> Result<Host<LinkRx, LinkTx, End, S>, Failure> {
        let (queues, mut wire) = link(LinkConfig::default().with_offloads());
        wires.append(&mut wire);
        let address = ["10.0.0.1/24", "10.0.0.2/24"][end].parse().map_err(Failure::Misuse)?;
        let network = Network { addresses: vec![address], gateways: Vec::new() };
        let app = |_| End { is_server: end == 0, bytes, heard: 0, done: 0, connection: None };
        Ok(Host::new(Config::default(), &network, &BootSecrets::from_seed(end as u64), queues, now, app)?)
    };
    let (server, client) = (host(0)?, host(1)?);
    let mut hosts = [server, client];
    hosts[0].listen(std::net::SocketAddr::from(([10, 0, 0, 1], 80)), 4, now)?;
    let mut base = [None; 2];
    let mut lines = Vec::new();
    let mut turns_after = 0;
    let mut began = now;
    for _ in 0..TURNS_MAX {
        for from in [1, 0] {
            hosts[from].turn(now);
            let showing = hosts[1].seats[0].app.done >= BEFORE;
            let [a, b] = &mut wires[..] else { return Err(Failure::Stuck("a link has two ends".into())) };
            let (source, target) = if from == 0 { (&mut a.rx, &mut b.tx) } else { (&mut b.rx, &mut a.tx) };
            for i in 0..source.poll(64) {
                let frame = source.frame(i);
                if let Ok(segment) = Segment::parse(&frame.bytes[TCP_AT..]) {
                    let base_of = |base: Option<SeqNum>| base.map_or(segment.seq, |at| at);
                    base[from] = Some(base_of(base[from]));
                    // It begins with the request; an ACK before it belongs to what was before.
                    if showing && (!lines.is_empty() || !segment.payload.is_empty()) {
                        if lines.is_empty() {
                            began = now;
                        }
                        lines.push(line(from, &segment, base, now.since_us(began)));
                    }
                }
                let meta = TxMeta {
                    checksum_partial: Some(PartialChecksum { start: TCP_AT as u16, offset: 16 }),
                    gso_size: frame.meta.gso_size,
                    header_len: (TCP_AT + 32) as u16,
                };
                if let Some(into) = target.reserve(frame.bytes.len()) {
                    into.copy_from_slice(frame.bytes);
                    target.commit(frame.bytes.len(), meta);
                }
            }
            source.release();
            target.flush();
            now = now.after_us(10);
        }
        turns_after += usize::from(hosts[1].seats[0].app.done > BEFORE);
        if turns_after > 3 {
            return Ok(lines);
        }
    }
    Err(Failure::Stuck("the transaction that was to be shown did not end".into()))
}

fn line(from: usize, segment: &Segment<'_>, base: [Option<SeqNum>; 2], at_us: u64) -> String {
    let relative = |number: SeqNum, end: usize| base[end].map_or(0, |at| number.offset_from(at));
    let (a, b) = if from == 0 { ("server", "client") } else { ("client", "server") };
    let len = segment.payload.len();
    let what = match (len, segment.flags.psh()) {
        (0, _) => "ACK".to_owned(),
        (len, true) => format!("{len} bytes, PSH"),
        (len, false) => format!("{len} bytes"),
    };
    let (seq, ack) = (relative(segment.seq, from), relative(segment.ack, 1 - from));
    format!("{at_us:>4} us  {a} > {b}  seq {seq} ack {ack}: {what}")
}
