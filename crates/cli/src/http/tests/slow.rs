//! Clients that take their time, and a server that has little: who is given more, and who is not.

use super::*;
use laneway::TcpStream;
use laneway::on_lane::{Config, Instant};

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::thread::sleep;

/// More than a client's buffer holds, and less than the server's: all of it is queued at once.
pub const LEN: usize = 1_500_000;
const LONG: u64 = 60_000_000;
const SHORT: u64 = 100_000;

pub struct Shop {
    dir: PathBuf,
    client: laneway::Stack,
    server: Stack,
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Shop {
    fn new(name: &str, patience: Patience) -> Shop {
        Shop::with(name, patience, Config::default(), |server| server)
    }

    pub fn with<A: App + Send + 'static>(
        name: &str,
        patience: Patience,
        config: Config,
        app: impl Fn(Server) -> A,
    ) -> Shop {
        let dir = std::env::temp_dir().join(format!("laneway-slow-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("file"), vec![7; LEN]).unwrap();
        let (here, there) = Device::memory_pair(1).unwrap();
        let warmer = Warmer::start(1).unwrap();
        let root = Root::open(&dir).unwrap();
        let builder = Stack::builder(here).config(config).address("10.0.0.1/24").unwrap().pin(false);
        let server = builder.start(|_| app(Server::new(root.clone(), warmer.clone(), patience))).unwrap();
        warmer.attach(server.waker());
        server.listen("0.0.0.0:80".parse().unwrap(), 64).unwrap();
        let mut config = Config::default();
        config.tcp.tcp_rmem = (32_768, 32_768);
        let client = laneway::Stack::builder(there).config(config).address("10.0.0.2/24").unwrap();
        let client = client.pin(false).start().unwrap();
        Shop { dir, client, server }
    }

    pub fn ask(&self, fields: &str) -> TcpStream {
        let mut stream = TcpStream::connect_on(&self.client, "10.0.0.1:80").unwrap();
        write!(stream, "GET /file HTTP/1.1\r\nHost: x\r\n{fields}\r\n").unwrap();
        stream
    }
}

/// Reads a little at a time until the end, or until there is as much as a file and its head.
pub fn take(stream: &mut TcpStream, pause: Duration, until_end: bool) -> (usize, std::io::Result<()>) {
    let (mut got, mut buffer) = (0, vec![0; 16_000]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (got, Ok(())),
            Ok(n) => got += n,
            Err(error) => return (got, Err(error)),
        }
        if !until_end && got > LEN {
            return (got, Ok(()));
        }
        sleep(pause);
    }
}

#[test]
fn a_slow_client_gets_all_of_the_last_answer() {
    let shop = Shop::new("last", Patience { drain_us: SHORT, ..Patience::default() });
    for half_closes in [false, true] {
        let mut stream = shop.ask("Connection: close\r\n");
        if half_closes {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        let (got, end) = take(&mut stream, Duration::from_millis(15), true);
        assert!(end.is_ok() && got > LEN, "half-closed: {half_closes}, {got} bytes, then {end:?}");
    }
}

#[test]
fn a_slow_client_rests_only_when_it_has_its_answer() {
    let shop = Shop::new("rest", Patience { idle_us: 5 * SHORT, ..Patience::default() });
    let mut stream = shop.ask("");
    let (got, end) = take(&mut stream, Duration::from_millis(15), false);
    assert!(end.is_ok() && got > LEN, "{got} bytes, then {end:?}");
    // It was not said to be over before: the next answer comes.
    write!(stream, "GET /file HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let (got, end) = take(&mut stream, Duration::ZERO, false);
    assert!(end.is_ok() && got > LEN, "{got} bytes, then {end:?}");
}

#[test]
fn who_takes_nothing_is_reset() {
    let shop = Shop::new("none", Patience { stall_us: SHORT, idle_us: SHORT, drain_us: LONG, head_us: LONG });
    for fields in ["", "Connection: close\r\n"] {
        let mut stream = shop.ask(fields);
        sleep(Duration::from_millis(1_500));
        let (_, end) = take(&mut stream, Duration::ZERO, true);
        assert_eq!(end.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset), "{fields:?}");
    }
}

#[test]
fn who_has_all_and_does_not_close_is_reset() {
    let shop = Shop::new("stays", Patience { drain_us: SHORT, ..Patience::default() });
    let mut stream = shop.ask("Connection: close\r\n");
    let (got, end) = take(&mut stream, Duration::ZERO, true);
    assert!(end.is_ok() && got > LEN, "{got} bytes, then {end:?}");
    let reset = (0..40).any(|_| {
        sleep(Duration::from_millis(50));
        stream.write_all(b"x").is_err()
    });
    assert!(reset);
}

/// Some clients send one behind a body. It begins no request that could be too long in coming.
#[test]
fn an_empty_line_is_no_request() {
    let shop = Shop::new("empty", Patience { head_us: SHORT, ..Patience::default() });
    let mut stream = shop.ask("");
    let (got, end) = take(&mut stream, Duration::ZERO, false);
    assert!(end.is_ok() && got > LEN, "{got} bytes, then {end:?}");
    stream.write_all(b"\r\n").unwrap();
    sleep(Duration::from_millis(1_000));
    write!(stream, "GET /file HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let (got, end) = take(&mut stream, Duration::ZERO, false);
    assert!(end.is_ok() && got > LEN, "{got} bytes, then {end:?}");
}

/// A server whose lane stands still for so many milliseconds when it is told so, as if its process were stopped or its core taken.
struct Standing(Server, Arc<AtomicUsize>);

impl App for Standing {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        sleep(Duration::from_millis(self.1.swap(0, Relaxed) as u64));
        self.0.on_poll(cx);
    }
    fn poll_timeout(&self) -> Instant {
        self.0.poll_timeout()
    }
    fn on_accept(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.0.on_accept(cx, id);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        self.0.on_data(cx, id, data)
    }
    fn on_peer_closed(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.0.on_peer_closed(cx, id);
    }
    fn on_closed(&mut self, cx: &mut Context<'_>, id: ConnId, token: u64, reason: CloseReason) {
        self.0.on_closed(cx, id, token, reason);
    }
}

/// More of them than a poll reads frames.
#[test]
fn who_spoke_in_time_to_a_lane_that_stood_still_was_in_time() {
    const CLIENTS: usize = 200;
    let stand = Arc::new(AtomicUsize::new(0));
    let patience = Patience { head_us: 3_000_000, ..Patience::default() };
    let shop = Shop::with("stood", patience, Config::default(), |server| Standing(server, stand.clone()));
    let ask = || {
        let mut stream = TcpStream::connect_on(&shop.client, "10.0.0.1:80").unwrap();
        write!(stream, "GET /file HTTP/1.1\r\nHo").unwrap();
        stream
    };
    let mut streams: Vec<_> = (0..CLIENTS).map(|_| ask()).collect();
    stand.store(3_500, Relaxed);
    shop.server.waker().wake_all();
    sleep(Duration::from_millis(200));
    streams.iter_mut().for_each(|stream| write!(stream, "st: x\r\nRange: bytes=0-0\r\n\r\n").unwrap());
    let mut status = [0; 12];
    for stream in &mut streams {
        stream.read_exact(&mut status).unwrap();
        assert_eq!(String::from_utf8_lossy(&status), "HTTP/1.1 206");
    }
}
