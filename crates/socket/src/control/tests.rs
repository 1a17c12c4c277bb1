//! A stack in this process, asked by the client's code and by clients that mean no good.

use super::*;
use crate::on_lane::{Address, App, ConnId, Context, Device, Mib, Stack};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Opens connections and leaves them open.
struct Hold {
    to_open: usize,
    opened: Option<Sender<()>>,
}

impl App for Hold {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        while self.to_open > 0 {
            self.to_open -= 1;
            cx.connect(None, Address::from_v4([10, 0, 0, 1]), 80, 0).expect("there are ports");
        }
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        cx.send(id, b"hello");
        if let Some(opened) = &self.opened {
            let _ = opened.send(());
        }
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

/// A directory of its own, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("laneway-control-{}-{n}", std::process::id()));
        std::fs::create_dir(&path).expect("a directory");
        Place(path)
    }
    fn socket(&self) -> PathBuf {
        self.0.join("x.sock")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that can be asked, and a client stack with `connections` to it.
fn stacks(path: &Path, connections: usize) -> (Stack, Stack) {
    let lanes = 2;
    let (here, there) = Device::memory_pair(lanes).unwrap();
    let idle = || Hold { to_open: 0, opened: None };
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().pin(false).grace(Duration::from_millis(10));
    let server = server.control(ControlSocket::At(path.to_owned())).start(|_| idle()).unwrap();
    server.listen("0.0.0.0:80".parse().unwrap(), 4_096).unwrap();
    let (opened, is_open) = channel();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().pin(false).grace(Duration::from_millis(10));
    let client = client
        .start(|lane| Hold {
            to_open: connections / lanes + if lane == 0 { connections % lanes } else { 0 },
            opened: Some(opened.clone()),
        })
        .unwrap();
    for _ in 0..connections {
        is_open.recv_timeout(Duration::from_secs(20)).expect("a connection is stuck");
    }
    // The client's end is open when its last ACK has left; the server's when that has come.
    let began = std::time::Instant::now();
    while server.counters().unwrap().get(Mib::TcpPassiveOpens) < connections as u64 {
        assert!(began.elapsed() < Duration::from_secs(20), "a connection is stuck at the server");
        std::thread::sleep(Duration::from_millis(1));
    }
    (server, client)
}

fn ss(path: &Path, states: &[&str]) -> Vec<SsRow> {
    let ask = Ask::Ss { states: states.iter().map(|s| (*s).to_owned()).collect() };
    let rows: Result<_, _> = Client::connect(path).unwrap().ask(&ask).unwrap().collect();
    rows.unwrap()
}

/// Sends bytes, and reads what comes back until the stack closes.
fn raw(path: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let _ = stream.write_all(bytes); // it may have been cut off already
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer); // reset, if it was cut off with bytes unread
    String::from_utf8(answer).unwrap()
}

#[test]
fn every_question_is_answered() {
    let place = Place::new();
    let path = place.socket();
    let (server, client) = stacks(&path, 700);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let mut asking = Client::connect(&path).unwrap();
    let hello: Vec<Hello> = asking.ask(&Ask::Hello {}).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!((hello[0].lanes, hello[0].pid, hello[0].protocol), (2, std::process::id(), VERSION));
    let counters: Vec<Counter> = asking.ask(&Ask::Nstat {}).unwrap().collect::<Result<_, _>>().unwrap();
    let counters: HashMap<String, u64> = counters.into_iter().map(|c| (c.name, c.value)).collect();
    assert_eq!(counters["TcpPassiveOpens"], 700);
    assert_eq!(counters["TcpEstabResets"], 0);

    let lanes: Vec<LaneRow> = asking.ask(&Ask::Lanes {}).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(lanes.iter().map(|row| row.lane).collect::<Vec<_>>(), [0, 1]);
    assert!(lanes.iter().map(|row| row.packets_in).sum::<u64>() >= 2 * 700, "a SYN and an ACK each: {lanes:?}");
    for lane in &lanes {
        assert!(lane.busy_us > 0 && lane.polls_busy > 0 && lane.sleep_us <= lane.idle_us, "{lane:?}");
        assert_eq!((lane.contended, lane.retries), (0, 0), "a lane of the product waits for nobody");
    }

    let rows = ss(&path, &[]);
    assert_eq!(rows.len(), 701);
    assert_eq!((&*rows[0].state, rows[0].local.to_string()), ("LISTEN", "0.0.0.0:80".into()));
    assert!(rows[0].peer.is_none() && rows[0].lane.is_none());
    assert_eq!((rows[0].recv_q, rows[0].send_q), (0, 4_096), "all were taken, and the backlog is of both lanes");
    let mut peers: Vec<u16> = rows[1..].iter().map(|row| row.peer.unwrap().port()).collect();
    peers.sort_unstable();
    peers.dedup();
    assert_eq!(peers.len(), 700, "each connection once");
    for row in &rows[1..] {
        assert_eq!(&*row.state, "ESTAB");
        let info = row.info.as_ref().unwrap();
        assert_eq!((info.bytes_received, &*info.congestion, info.ts), (5, "cubic", true));
    }
    assert!(rows.iter().filter_map(|row| row.lane).any(|lane| lane == 1), "the second lane tells too");
    assert_eq!(ss(&path, &["listening"]).len(), 1);
    assert_eq!(ss(&path, &["established"]).len(), 700);
    assert_eq!(ss(&path, &["time-wait", "syn-recv"]).len(), 0);
    let refused: Vec<Result<SsRow, _>> =
        asking.ask(&Ask::Ss { states: vec!["asleep".into()] }).unwrap().collect::<Vec<_>>();
    assert!(matches!(&refused[..], [Err(AskError::Refused(why))] if why.contains("asleep")), "{refused:?}");

    client.stop();
    server.stop();
    assert!(!path.exists(), "a stack that has ended leaves no socket behind");
    assert!(matches!(Client::connect(&path), Err(AskError::NoStack(_))));
}

/// Time that passes is either busy or idle; a lane that has nothing to do sleeps, and is not woken by who looks on for longer
/// than it takes to answer.
#[test]
fn lanes_give_account_of_their_time() {
    let place = Place::new();
    let path = place.socket();
    let (server, client) = stacks(&path, 1);
    let mut asking = Client::connect(&path).unwrap();
    let mut look = || -> Vec<LaneRow> { asking.ask(&Ask::Lanes {}).unwrap().collect::<Result<_, _>>().unwrap() };
    let (began, before) = (Instant::now(), look());
    std::thread::sleep(Duration::from_millis(200));
    let (after, most_us) = (look(), began.elapsed().as_micros() as u64);
    for (before, after) in before.iter().zip(&after) {
        let (busy, idle) = (after.busy_us - before.busy_us, after.idle_us - before.idle_us);
        let slept = after.sleep_us - before.sleep_us;
        assert!((150_000..=most_us).contains(&(busy + idle)), "{busy} and {idle} of {most_us} us");
        assert!(slept > 100_000 && slept <= idle + 1_000, "{slept} of {idle} us slept");
        assert!(after.polls_idle > before.polls_idle && after.polls_busy > before.polls_busy, "the question is work");
    }
    client.stop();
    server.stop();
}

#[test]
fn buckets_are_listed_with_their_flows_and_moved() {
    let place = Place::new();
    let path = place.socket();
    let (server, client) = stacks(&path, 300);
    let mut asking = Client::connect(&path).unwrap();
    let mut ask = |ask: &Ask| -> Vec<SteerRow> { asking.ask(ask).unwrap().collect::<Result<_, _>>().unwrap() };
    let before = ask(&Ask::Steer {});
    assert_eq!(before.len(), 128);
    assert!(before.iter().enumerate().all(|(i, row)| row.bucket == i && row.lane == i % 2 && row.from.is_none()));
    assert_eq!(before.iter().map(|row| row.flows).sum::<u64>(), 300);
    let full = before.iter().find(|row| row.flows > 0).expect("one that has flows").clone();
    let to = 1 - full.lane;
    let moved = ask(&Ask::Move { bucket: full.bucket, lane: to });
    assert_eq!((moved.len(), moved[0].lane, moved[0].from), (1, to, Some(full.lane)));
    let waits = ask(&Ask::Move { bucket: full.bucket, lane: full.lane });
    assert_eq!((waits[0].lane, waits[0].from, waits[0].then), (to, Some(full.lane), Some(full.lane)));
    let row = ask(&Ask::Steer {})[full.bucket].clone();
    assert_eq!((row.flows, row.left), (0, Some(full.flows)), "connections stay where they are");
    for wrong in [r#"{"v":1,"ask":"move","bucket":128,"lane":0}"#, r#"{"v":1,"ask":"move","bucket":0,"lane":2}"#] {
        let answer = raw(&path, format!("{wrong}\n").as_bytes());
        assert!(answer.contains("error") && answer.contains("numbered from 0 to"), "{answer}");
    }
    drop(client); // its connections end, and so do the move and the one that waits for it
    let began = Instant::now();
    loop {
        let now = server.buckets().unwrap()[full.bucket];
        if (now.lane, now.from, now.then) == (full.lane, None, None) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{now:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// To count a million flows takes longer than a client waits for a silent stack. What it hears instead is no row.
#[test]
fn who_waits_for_buckets_hears_that_they_are_counted() {
    let place = Place::new();
    let path = place.socket();
    let (server, client) = stacks(&path, 300);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"{\"v\":1,\"ask\":\"steer\"}\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let spaces = answer.len() - answer.trim_start().len();
    assert!(spaces >= 2 && !answer.starts_with("  \n"), "a page of each lane at least: {answer:.80}");
    // A reader that knows nothing of this understands every line.
    let rows: Vec<SteerRow> = answer.lines().take(128).map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.iter().map(|row| row.flows).sum::<u64>(), 300);
    assert_eq!(answer.lines().nth(128), Some("{\"end\":true,\"rows\":128}"));
    client.stop();
    server.stop();
}

/// Also the sentence of a stack that ends while it counts.
#[test]
fn spaces_before_a_line_mean_nothing_to_a_client() {
    let place = Place::new();
    let listener = UnixListener::bind(place.socket()).unwrap();
    let row = r#"{"bucket":0,"lane":0,"flows":3}"#;
    for answer in
        [format!("   {row}\n {{\"end\":true,\"rows\":1}}\n"), format!(" {row}\n  {{\"error\":\"it ends\"}}\n")]
    {
        let mut asking = Client::connect(place.socket()).unwrap();
        let (mut stack, _) = listener.accept().unwrap();
        stack.write_all(answer.as_bytes()).unwrap();
        let rows: Vec<Result<SteerRow, _>> = asking.ask(&Ask::Steer {}).unwrap().collect();
        assert!(matches!(&rows[0], Ok(row) if row.flows == 3), "{rows:?}");
        match rows.get(1) {
            None => assert!(answer.contains("end\"")),
            Some(Err(AskError::Refused(why))) => assert_eq!(why, "it ends"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn packets_come_as_pcapng_until_the_client_has_enough() {
    let place = Place::new();
    let path = place.socket();
    let (here, there) = Device::memory_pair(1).unwrap();
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().pin(false);
    let server = server.control(ControlSocket::At(path.clone())).start(|_| Hold { to_open: 0, opened: None }).unwrap();
    server.listen("0.0.0.0:80".parse().unwrap(), 1_024).unwrap();
    let ask = Ask::Trace { host: None, port: Some(80), protocol: Some(6), snaplen: Some(60) };
    let mut packets = Client::connect(&path).unwrap().trace(&ask).unwrap();
    let mut file = vec![0; 28];
    packets.read_exact(&mut file).unwrap(); // the section's header: the lanes have mail …
    server.counters().unwrap(); // … and have read it
    let (opened, is_open) = channel();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().pin(false).grace(Duration::from_millis(10));
    let client = client.start(|_| Hold { to_open: 50, opened: Some(opened.clone()) }).unwrap();
    for _ in 0..50 {
        is_open.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    packets.finish().unwrap();
    packets.read_to_end(&mut file).unwrap();

    // Blocks: kind, length, …, length.
    let mut kinds: HashMap<u32, usize> = HashMap::new();
    let mut rest = &file[..];
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    while !rest.is_empty() {
        let (kind, len) = (word(rest, 0), word(rest, 4) as usize);
        assert_eq!(word(rest, len - 4) as usize, len);
        *kinds.entry(kind).or_default() += 1;
        if kind == 6 {
            assert!(word(rest, 20) <= 60 && word(rest, 24) >= 40, "captured and real length");
        }
        rest = &rest[len..];
    }
    assert_eq!((kinds[&0x0a0d_0d0a], kinds[&1]), (1, 1));
    assert!(kinds[&6] >= 100, "50 connections are 100 packets and more: {kinds:?}");
    assert!(kinds[&5] >= 1, "how many are missing is said at the end");
    client.stop();
    server.stop();
}

#[test]
fn nonsense_gets_a_sentence_and_the_door() {
    let place = Place::new();
    let path = place.socket();
    let (server, client) = stacks(&path, 1);
    for (sent, said) in [
        (&b"\n"[..], "not JSON"),
        (b"GET / HTTP/1.1\n", "not JSON"),
        (b"[]\n", "not an object"),
        (b"{}\n", "no version"),
        (b"{\"v\":\"1\",\"ask\":\"ss\"}\n", "no version"),
        (b"{\"v\":7,\"ask\":\"ss\"}\n", "version 7"),
        (b"{\"v\":1}\n", "no question"),
        (b"{\"v\":1,\"ask\":\"sudo\"}\n", "sudo"),
        (b"{\"v\":1,\"ask\":\"ss\",\"color\":true}\n", "color"),
        (b"{\"v\":1,\"ask\":\"ss\",\"states\":[\"awake\"]}\n", "'awake' is no state: there are established, "),
        (b"{\"v\":1,\"ask\":\"trace\",\"port\":70000}\n", "70000"),
        (&[0xff; 64], ""),
        (&[b'['; 4_096], "at most 4096"),
        (&[b'{'; 100_000], "at most 4096"),
    ] {
        if said.is_empty() {
            continue; // no newline: it is waited for, which is another test's affair
        }
        let answer = raw(&path, sent);
        // A client that sends on after it was cut off may find its answer taken away by the reset.
        let cut = sent.len() > 4_096 && answer.is_empty();
        assert!(cut || (answer.starts_with("{\"error\":") && answer.contains(said)), "{said}: {answer}");
        assert!(answer.lines().count() <= 1);
    }
    assert_eq!(ss(&path, &["established"]).len(), 1, "and everybody else is served");
    client.stop();
    server.stop();
}

/// Bytes by a seed, many times: the stack lives, and answers a good question afterwards.
#[test]
fn random_bytes_harm_nobody() {
    let place = Place::new();
    let path = place.socket();
    let (server, client) = stacks(&path, 1);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let good = br#"{"v":1,"ask":"ss","states":["established"]}"#;
    for _ in 0..300 {
        let mut bytes = if next() % 2 == 0 { good.to_vec() } else { Vec::new() };
        for _ in 0..next() % 64 {
            let at = next() as usize % (bytes.len() + 1);
            match next() % 3 {
                0 => bytes.insert(at, next() as u8),
                1 if at < bytes.len() => bytes[at] = next() as u8,
                _ => bytes.truncate(at.max(1)),
            }
        }
        bytes.push(b'\n');
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(&bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        for line in answer.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            serde_json::from_slice::<serde_json::Value>(line).expect("every answer is JSON");
        }
    }
    assert_eq!(ss(&path, &["established"]).len(), 1);
    assert_eq!(server.failure(), None);
    client.stop();
    server.stop();
}

#[test]
fn silent_and_slow_clients_are_bounded_and_cut_off() {
    let place = Place::new();
    let path = place.socket();
    let (server, client) = stacks(&path, 2_000);
    let begin = Instant::now();
    // All seats taken by clients that say nothing, ask without reading, or drip.
    let mut hostile: Vec<UnixStream> = Vec::new();
    for i in 0..16 {
        let mut stream = UnixStream::connect(&path).unwrap();
        match i % 3 {
            0 => {}
            1 => (0..50).for_each(|_| drop(stream.write_all(b"{\"v\":1,\"ask\":\"ss\"}\n"))),
            _ => drop(stream.write_all(b"{\"v\":1,")),
        }
        hostile.push(stream);
    }
    let mut seventeenth = raw(&path, b"");
    assert!(seventeenth.contains("16 clients") || seventeenth.is_empty(), "{seventeenth}");
    // Nobody of them keeps the stack from its work, and before long there is room again.
    server.counters().unwrap();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let mut asking = Client::connect(&path).unwrap();
        if let Ok(rows) = asking.ask::<Hello>(&Ask::Hello {}).and_then(|rows| rows.collect::<Result<Vec<_>, _>>()) {
            assert_eq!(rows.len(), 1);
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(15), "hostile clients stay for ever");
    }
    // One that reads nothing at all is gone too: what it finds is less than it asked for.
    std::thread::sleep(Duration::from_secs(6).saturating_sub(begin.elapsed()));
    seventeenth.clear();
    let mut greedy = &hostile[1];
    greedy.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut got = Vec::new();
    let _ = greedy.read_to_end(&mut got);
    let ends = got.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{\"end\"")).count();
    assert!(ends < 50, "it was served to the end without reading");
    drop(hostile);
    let stopping = Instant::now();
    client.stop();
    server.stop();
    assert!(stopping.elapsed() < Duration::from_secs(5), "a client holds up the end");
}

/// Every piece is taken in time, and the whole is not.
#[test]
fn a_client_that_drips_is_cut_off() {
    let place = Place::new();
    let path = place.socket();
    let (server, client) = stacks(&path, 4_000);
    let begin = Instant::now();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"{\"v\":1,\"ask\":\"ss\"}\n").unwrap();
    let (mut some, mut taken, mut last) = ([0; 2_048], 0, Vec::new());
    while begin.elapsed() < Duration::from_secs(30) {
        let Ok(n @ 1..) = stream.read(&mut some) else { break };
        taken += n;
        last = some[..n].to_vec();
        // What lay ready when it was cut off can be read all the same.
        if begin.elapsed() < Duration::from_secs(12) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    assert!(begin.elapsed() < Duration::from_secs(25), "it is served for as long as it likes");
    assert!(!String::from_utf8_lossy(&last).contains("\"end\""), "{taken} bytes were all");
    client.stop();
    server.stop();
}

#[test]
fn clients_that_wait_do_not_hold_up_the_end() {
    let place = Place::new();
    let path = place.socket();
    let (server, client) = stacks(&path, 1);
    let ask = Ask::Trace { host: None, port: None, protocol: None, snaplen: None };
    let mut tracing = Client::connect(&path).unwrap().trace(&ask).unwrap();
    let _silent = UnixStream::connect(&path).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let stopping = Instant::now();
    server.stop();
    client.stop();
    assert!(stopping.elapsed() < Duration::from_secs(3));
    let mut rest = Vec::new();
    tracing.read_to_end(&mut rest).unwrap();
}

#[test]
fn five_traces_are_one_too_many() {
    let place = Place::new();
    let path = place.socket();
    let (server, client) = stacks(&path, 1);
    let ask = Ask::Trace { host: None, port: None, protocol: None, snaplen: Some(64) };
    let mut traces: Vec<Packets> = (0..4).map(|_| Client::connect(&path).unwrap().trace(&ask).unwrap()).collect();
    let fifth = Client::connect(&path).unwrap().trace(&ask);
    assert!(matches!(&fifth, Err(AskError::Refused(why)) if why.contains("4 traces")), "{fifth:?}");
    let mut last = traces.pop().unwrap();
    last.finish().unwrap();
    last.read_to_end(&mut Vec::new()).unwrap();
    let again = Client::connect(&path).unwrap().trace(&ask);
    assert!(again.is_ok(), "{again:?}");
    server.stop();
    client.stop();
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let place = Place::new();
    let path = place.socket();
    drop(UnixListener::bind(&path).unwrap()); // nobody listens, the file stays
    assert!(path.exists());
    let start = || {
        let (here, _there) = Device::memory_pair(1).unwrap();
        let builder = Stack::builder(here).address("10.0.0.1/24").unwrap().pin(false);
        builder.control(ControlSocket::At(path.clone())).start(|_| Hold { to_open: 0, opened: None })
    };
    let first = start().unwrap();
    let second = start().map(drop).unwrap_err().to_string();
    assert!(second.contains("another stack answers") && second.contains("x.sock"), "{second}");
    assert!(ss(&path, &[]).is_empty(), "the first goes on");
    // Someone else's socket in our place is left alone.
    std::fs::remove_file(&path).unwrap();
    let _theirs = UnixListener::bind(&path).unwrap();
    first.stop();
    assert!(path.exists());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "notes").unwrap();
    let third = start().map(drop).unwrap_err().to_string();
    assert!(third.contains("is no socket"), "{third}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "notes");
    // Nor is one of another kind taken for an abandoned one, unless it is.
    std::fs::remove_file(&path).unwrap();
    let datagrams = UnixDatagram::bind(&path).unwrap();
    let fourth = start().map(drop).unwrap_err().to_string();
    assert!(fourth.contains("of another kind") && fourth.contains("x.sock"), "{fourth}");
    UnixDatagram::unbound().unwrap().send_to(b"still here", &path).unwrap();
    assert_eq!(datagrams.recv(&mut [0; 16]).unwrap(), 10);
    drop(datagrams);
    start().unwrap().stop();
}

/// Its process was stopped, perhaps: then as many as its queue holds wait there, and the next is not to wait for ever.
#[test]
fn whose_queue_is_full_is_somebody() {
    let place = Place::new();
    let path = place.socket();
    let stopped = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&stopped, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&stopped, 0).unwrap();
    let waits = UnixStream::connect(&path).unwrap();
    let (here, _there) = Device::memory_pair(1).unwrap();
    let builder = Stack::builder(here).address("10.0.0.1/24").unwrap().pin(false);
    let builder = builder.control(ControlSocket::At(path.clone()));
    let second = builder.start(|_| Hold { to_open: 0, opened: None }).map(drop).unwrap_err().to_string();
    assert!(second.contains("another stack answers"), "{second}");
    let asks = std::thread::spawn({
        let path = path.clone();
        move || Client::connect(&path).map(drop)
    });
    std::thread::sleep(Duration::from_millis(100));
    assert!(!asks.is_finished(), "it waits for room");
    drop(accept(&stopped).unwrap());
    asks.join().unwrap().expect("there is room");
    let refused = Client::connect(&path).map(drop).unwrap_err();
    assert!(matches!(&refused, AskError::Stuck(at) if *at == path), "{refused}");
    drop(waits);
    // Who was let in, and hears nothing, is told the same.
    let unheard = AskError::from(std::io::Error::from(std::io::ErrorKind::WouldBlock));
    for said in [refused, unheard].map(|error| error.to_string()) {
        assert!(said.contains("its process is stopped or hangs, so continue or end it"), "{said}");
    }
}

/// The capture may be that of the stack which has the place, and what lies there is of last time at least.
#[test]
fn a_stack_that_gets_no_place_has_touched_nothing() {
    let place = Place::new();
    let (path, capture) = (place.socket(), place.0.join("x.pcapng"));
    std::fs::write(&capture, "of last time").unwrap();
    let start = |at: &Path| {
        let (here, _there) = Device::memory_pair(1).unwrap();
        let builder = Stack::builder(here).address("10.0.0.1/24").unwrap().pin(false).pcap(&capture);
        builder.control(ControlSocket::At(at.to_owned())).start(|_| Hold { to_open: 0, opened: None })
    };
    let theirs = UnixListener::bind(&path).unwrap();
    for at in [&path, &capture, &place.0.join("no/x.sock")] {
        let refused = start(at).map(drop).unwrap_err();
        assert_eq!(std::fs::read_to_string(&capture).unwrap(), "of last time", "{refused}");
    }
    drop(theirs);
    start(&path).unwrap().stop();
    // The other way round, the place is given back by who gets no farther.
    std::fs::remove_file(&capture).unwrap();
    std::fs::create_dir(&capture).unwrap();
    let refused = start(&path).map(drop).unwrap_err().to_string();
    assert!(refused.contains("x.pcapng") && !path.exists(), "{refused}");
}

#[test]
fn places_that_cannot_be() {
    for name in ["", ".", "..", ".x", "a/b"] {
        assert!(ControlSocket::Named(name.into()).path().is_err(), "{name}");
    }
    assert!(ControlSocket::At("".into()).path().is_err());
    let (here, _there) = Device::memory_pair(1).unwrap();
    let builder = Stack::builder(here).address("10.0.0.1/24").unwrap().pin(false);
    let place = ControlSocket::At("/no/such/place/x.sock".into());
    let failed = builder.control(place).start(|_| Hold { to_open: 0, opened: None });
    let said = failed.map(drop).unwrap_err().to_string();
    assert!(said.contains("/no/such/place") && said.contains("choose another place"), "{said}");
}

#[test]
fn ports_are_listed_by_lane_and_destination() {
    let place = Place::new();
    let path = place.socket();
    let (here, there) = Device::memory_pair(2).unwrap();
    let idle = || Hold { to_open: 0, opened: None };
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().pin(false).grace(Duration::from_millis(10));
    let server = server.start(|_| idle()).unwrap();
    server.listen("0.0.0.0:80".parse().unwrap(), 1_024).unwrap();
    let (opened, is_open) = channel();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().pin(false).grace(Duration::from_millis(10));
    let client = client.control(ControlSocket::At(path.clone()));
    let client = client.start(|_| Hold { to_open: 100, opened: Some(opened.clone()) }).unwrap();
    (0..200).for_each(|_| is_open.recv_timeout(Duration::from_secs(20)).expect("a connection is stuck"));
    let mut asking = Client::connect(&path).unwrap();
    let rows: Vec<PortsRow> = asking.ask(&Ask::Ports {}).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(rows.iter().map(|row| (row.lane, row.in_use)).collect::<Vec<_>>(), [(0, 100), (1, 100)]);
    // Together the lanes own the whole range, and no port twice.
    assert_eq!(rows.iter().map(|row| row.owned).sum::<usize>(), 60_999 - 32_768 + 1);
    assert!(rows.iter().all(|row| row.time_wait == 0 && row.reserved == 0));
    drop((client, server));
}

#[test]
fn a_stack_whose_sockets_block_is_asked_too() {
    use crate::net::{Stack, TcpListener, TcpStream};
    let place = Place::new();
    let path = place.socket();
    let (here, there) = Device::memory_pair(1).unwrap();
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().control(ControlSocket::At(path.clone()));
    let server = server.start().unwrap();
    assert_eq!(server.control_path().as_ref(), Some(&path));
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
    assert_eq!(client.control_path(), None);
    let listener = TcpListener::bind_on(&server, "10.0.0.1:80").unwrap();
    let queues = || ss(&path, &["listening"]).iter().map(|row| (row.recv_q, row.send_q)).collect::<Vec<_>>();
    assert_eq!(queues(), [(0, 4_096)]);
    let mut near = TcpStream::connect_on(&client, "10.0.0.1:80").unwrap();
    let began = Instant::now();
    while queues() != [(1, 4_096)] {
        assert!(began.elapsed() < Duration::from_secs(20), "nobody waits to be accepted: {:?}", queues());
    }
    let (mut far, peer) = listener.accept().unwrap();
    assert_eq!(queues(), [(0, 4_096)]);
    near.write_all(b"hello").unwrap();
    far.read_exact(&mut [0; 5]).unwrap();

    let listening = ss(&path, &["listening"]);
    assert_eq!(listening.iter().map(|row| row.local).collect::<Vec<_>>(), [listener.local_addr().unwrap()]);
    let open = ss(&path, &["established"]);
    assert_eq!(
        open.iter().map(|row| (row.local, row.peer)).collect::<Vec<_>>(),
        [(far.local_addr().unwrap(), Some(peer))]
    );
    server.stop();
    assert!(!path.exists(), "it is gone with the stack");
}
