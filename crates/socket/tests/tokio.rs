//! Asynchronous programs on Laneway: streams, listeners, an unmodified axum application, and runtimes that go away.

mod common;

use axum::Router;
use axum::routing::{get, post};
use common::{FEW, stacks, stacks_with_few_blocks, stuck};
use laneway::on_lane::{Mib, State};
use laneway::tokio::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use laneway::{BindOptions, Device, Stack};
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::task::{Context, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest, ReadBuf};
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_both_ways() {
    let (server, client) = stacks();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut reader, mut writer) = tokio::io::split(stream);
                tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                writer.shutdown().await.unwrap();
            });
        }
    });
    let mut streams = tokio::task::JoinSet::new();
    for i in 0..50u8 {
        let client = client.clone();
        streams.spawn(async move {
            let stream = TcpStream::connect_on(&client, at).await.unwrap();
            let data: Vec<u8> = (0..300_000).map(|n| (n / 7) as u8 ^ i).collect();
            let (mut reader, mut writer) = tokio::io::split(stream);
            let sent = data.clone();
            let sender = tokio::spawn(async move {
                writer.write_all(&sent).await.unwrap();
                writer.shutdown().await.unwrap();
            });
            let mut back = Vec::new();
            reader.read_to_end(&mut back).await.unwrap();
            sender.await.unwrap();
            back == data
        });
    }
    let all = timeout(Duration::from_secs(60), streams.join_all()).await.expect("a stream is stuck");
    assert!(all.into_iter().all(|same| same));
}

/// A runtime whose tasks wait has the work of a sleeping lane done for as long as it looks for what comes next.
#[tokio::test]
async fn who_looks_for_what_comes_does_the_work_of_a_lane_that_sleeps() {
    let (here, there) = Device::memory_pair(1).unwrap();
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().look(Duration::from_millis(1)).start().unwrap();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
    let far = UdpSocket::bind_on(&server, "10.0.0.1:53").await.unwrap();
    let near = laneway::UdpSocket::bind_on(&client, "10.0.0.2:0").unwrap();
    let stood_in = || server.counters().unwrap().get(Mib::StandIns);
    // Not where the lane that has brought the news is awake on this core: so several times.
    for _ in 0..50 {
        near.send_to(b"x", "10.0.0.1:53").unwrap();
        assert_eq!(far.recv(&mut [0; 4]).await.unwrap(), 1);
        tokio::time::sleep(Duration::from_millis(20)).await;
        if stood_in() > 0 {
            return;
        }
    }
    panic!("nobody has worked in a lane's stead");
}

/// A server all of whose blocks, small and large, hold what a stream has brought.
struct Hoarding {
    _stacks: (Stack, Stack),
    _hog: TcpStream,
    /// It holds what is in reserve to write to.
    _stuck: (laneway::TcpStream, laneway::TcpStream),
    /// Who reads what it brought gives the blocks back.
    idle: TcpStream,
    /// Another connection, and its end on the server.
    near: TcpStream,
    far: TcpStream,
}

impl Hoarding {
    const BROUGHT: usize = FEW;

    async fn new() -> Self {
        let (server, client) = stacks_with_few_blocks();
        let (mut hog, idle) = connected(&server, &client).await;
        hog.write_all(&[7; Self::BROUGHT]).await.unwrap();
        let (near, far) = connected(&server, &client).await;
        let all_held = async {
            while server.memory().unwrap().1 < FEW {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(10), all_held).await.expect("the first stream's bytes come");
        let stuck = stuck(&server, &client);
        assert!(server.memory().unwrap().1 > FEW, "it writes to what is in reserve");
        Hoarding { _stacks: (server, client), _hog: hog, _stuck: stuck, idle, near, far }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_waits_for_memory_that_another_stream_holds() {
    let Hoarding { _stacks, _hog, _stuck, mut idle, mut near, mut far } = Hoarding::new().await;
    let writer = tokio::spawn(async move { far.write_all(b"world").await.map(|()| far) });
    tokio::time::sleep(Duration::from_millis(50)).await;
    idle.read_exact(&mut vec![0; Hoarding::BROUGHT]).await.unwrap();
    let _far = timeout(Duration::from_secs(10), writer).await.expect("it is told").unwrap().unwrap();
    let mut buf = [0; 5];
    timeout(Duration::from_secs(10), near.read_exact(&mut buf)).await.expect("it was sent").unwrap();
    assert_eq!(&buf, b"world");
}

/// Room without memory is nothing that could be written to: who waits for it does not turn in a circle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_tries_waits_for_memory_that_another_stream_holds() {
    let mut attempts = 0;
    let (_kept, mut idle, mut near, writer, tries) = loop {
        let Hoarding { _stacks, _hog, _stuck, idle, near, far } = Hoarding::new().await;
        let tries = Arc::new(AtomicU32::new(0));
        let counted = tries.clone();
        let writer = tokio::spawn(async move {
            loop {
                far.writable().await?;
                counted.fetch_add(1, Relaxed);
                match far.try_write(b"world") {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    done => return done.map(|n| (n, far)),
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        if !writer.is_finished() {
            break ((_stacks, _hog, _stuck), idle, near, writer, tries);
        }
        // The first stream's bytes may have begun to come by a few, and the block of a word that those lay in be free again.
        attempts += 1;
        assert!(attempts < 20, "there is always memory");
    };
    idle.read_exact(&mut vec![0; Hoarding::BROUGHT]).await.unwrap();
    let (n, _far) = timeout(Duration::from_secs(10), writer).await.expect("it is told").unwrap().unwrap();
    let mut buf = [0; 5];
    timeout(Duration::from_secs(10), near.read_exact(&mut buf)).await.expect("it was sent").unwrap();
    assert_eq!((n, &buf), (5, b"world"));
    let tries = tries.load(Relaxed);
    assert!(tries < 20, "it tried {tries} times");
}

/// A server that reads a piece and has it written before it reads on: what has come for others and is not read holds all memory, and those
/// others wait to write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_write_before_they_read_on_share_what_memory_there_is() {
    const STREAMS: usize = 30;
    const EACH: usize = 300_000;
    let (server, client) = stacks_with_few_blocks();
    let mut streams = tokio::task::JoinSet::new();
    for i in 0..STREAMS {
        let (near, mut far) = connected(&server, &client).await;
        streams.spawn(async move {
            let mut piece = [0; 8_192];
            while let n @ 1.. = far.read(&mut piece).await.unwrap() {
                far.write_all(&piece[..n]).await.unwrap();
            }
            far.shutdown().await.unwrap();
        });
        streams.spawn(async move {
            let data: Vec<u8> = (0..EACH).map(|n| (n / 7 + i) as u8).collect();
            let (mut reader, mut writer) = tokio::io::split(near);
            let mut back = Vec::new();
            let write = async {
                writer.write_all(&data).await.unwrap();
                writer.shutdown().await.unwrap();
            };
            let (_, read) = tokio::join!(write, reader.read_to_end(&mut back));
            assert!(read.unwrap() == EACH && back == data, "stream {i} came back as another");
        });
    }
    timeout(Duration::from_secs(60), streams.join_all()).await.expect("each waits for memory that the others hold");
}

/// The same calls on tokio's own streams and on ours.
macro_rules! story_of_readiness {
    ($near:ident, $far:ident) => {{
        let mut said = Vec::new();
        let mut say = |what: &str, result: String| said.push(format!("{what}: {result}"));
        let kind = |result: io::Result<usize>| format!("{:?}", result.map_err(|error| error.kind()));
        let both = Interest::READABLE | Interest::WRITABLE;
        let mut buf = [0; 16];
        let within = Duration::from_millis(30);
        say("ready for", format!("{:?}", $near.ready(both).await.unwrap()));
        say("nothing to read", format!("{:?}", timeout(within, $near.readable()).await.is_ok()));
        say("read", kind($near.try_read(&mut buf)));
        say("write", kind($far.try_write(b"three words")));
        say("something to read", format!("{:?}", timeout(MOMENTS, $near.readable()).await.is_ok()));
        say("still", format!("{:?}", timeout(MOMENTS, $near.readable()).await.is_ok()));
        let (mut one, mut other) = ([0; 5], [0; 10]);
        let mut several = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other)];
        say("read", kind($near.try_read_vectored(&mut several)));
        say("which is", format!("{one:?} {other:?}"));
        say("read", kind($near.try_read(&mut buf)));
        say("nothing to read", format!("{:?}", timeout(within, $near.readable()).await.is_ok()));
        // As much as there is room for, then as much again as the other side reads.
        let mut sent = 0;
        while let Ok(n) = $far.try_write(&[7; 8_192]) {
            sent += n;
            // The stacks move bytes meanwhile, and on a machine that is busy with something else that takes its time.
            if timeout(Duration::from_millis(300), $far.writable()).await.is_err() {
                break;
            }
        }
        say("no room", format!("{:?}", timeout(within, $far.writable()).await.is_ok()));
        let mut got = 0;
        while got < sent {
            $near.readable().await.unwrap();
            got += $near.try_read(&mut [0; 65_536]).unwrap_or(0);
        }
        say("all", format!("{:?}", got == sent));
        say("room", format!("{:?}", timeout(MOMENTS, $far.writable()).await.is_ok()));
        say("nothing into no buffer", format!("{:?}", timeout(within, $near.read(&mut [])).await.is_ok()));
        say("shut", format!("{:?}", $far.shutdown().await.is_ok()));
        say("ready for", format!("{:?}", $far.ready(Interest::WRITABLE).await.unwrap()));
        tokio::time::sleep(within).await;
        say("an end to read", format!("{:?}", timeout(MOMENTS, $near.readable()).await.is_ok()));
        say("read", kind($near.try_read(&mut buf)));
        say("ready for", format!("{:?}", $near.ready(Interest::READABLE).await.unwrap()));
        say("write", kind($far.try_write(b"more")));
        said
    }};
}

/// Longer than anything takes that happens at all.
const MOMENTS: Duration = Duration::from_secs(10);

#[tokio::test]
async fn readiness_as_tokio_has_it() {
    let (server, client) = stacks();
    let (mut near, mut far) = connected(&server, &client).await;
    let ours = story_of_readiness!(near, far);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(tokio::net::TcpStream::connect(to), listener.accept());
    let (mut near, mut far) = (near.unwrap(), far.unwrap().0);
    let kernels = story_of_readiness!(near, far);
    assert_eq!(ours, kernels);
}

#[tokio::test]
async fn several_tasks_wait_until_a_stream_is_readable() {
    let (server, client) = stacks();
    let (mut near, far) = connected(&server, &client).await;
    let far = Arc::new(far);
    timeout(Duration::from_millis(10), far.readable()).await.expect_err("nothing was sent");
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let far = far.clone();
            tokio::spawn(async move { far.readable().await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    near.write_all(b"x").await.unwrap();
    for task in tasks {
        timeout(MOMENTS, task).await.expect("it waits for ever").unwrap().unwrap();
    }
    let neither = far.ready(Interest::PRIORITY).await.unwrap_err();
    assert_eq!(neither.kind(), ErrorKind::InvalidInput);
}

/// Both ends of a connection.
async fn connected(server: &Stack, client: &Stack) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind_on(server, "10.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(TcpStream::connect_on(client, at), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

/// On one thread: a task that never has to wait must not keep the others from theirs.
/// Whoever shares the connection may shut it, on whatever thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_for_bytes_hears_that_reading_was_shut() {
    let (server, client) = stacks();
    let listener = laneway::TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let stream = laneway::TcpStream::connect_on(&client, listener.local_addr().unwrap()).unwrap();
    let _far = listener.accept().unwrap();
    let other = stream.try_clone().unwrap();
    let mut stream = TcpStream::from_std(stream).unwrap();
    let reader = tokio::spawn(async move { stream.read(&mut [0; 4]).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!reader.is_finished());
    other.shutdown(std::net::Shutdown::Read).unwrap();
    assert_eq!(timeout(Duration::from_secs(10), reader).await.expect("it is told").unwrap().unwrap(), 0);
}

#[tokio::test]
async fn a_task_that_always_finds_bytes_lets_others_run() {
    const BYTES: usize = 4_000;
    let (server, client) = stacks();
    let (mut near, far) = connected(&server, &client).await;
    near.write_all(&[7; BYTES]).await.unwrap();
    let mut far = far;
    let mut buf = [0; BYTES];
    let all_there = async { while far.peek(&mut buf).await.unwrap() < BYTES {} };
    timeout(Duration::from_secs(10), all_there).await.expect("they come");

    let other = Arc::new(AtomicBool::new(false));
    let ran = other.clone();
    let task = tokio::spawn(async move { ran.store(true, Relaxed) });
    let mut before = None;
    for i in 0..BYTES {
        far.read_exact(&mut buf[..1]).await.unwrap();
        if other.load(Relaxed) {
            before.get_or_insert(i);
        }
    }
    task.await.unwrap();
    let before = before.expect("the other task ran while this one read");
    assert!(before < 1_000, "not before byte {before}");
}

#[tokio::test]
async fn several_tasks_accept_on_one_listener() {
    let (server, client) = stacks();
    let listener = Arc::new(TcpListener::bind_on(&server, "10.0.0.1:0").await.unwrap());
    let at = listener.local_addr().unwrap();
    // One that was given up is in nobody's way.
    timeout(Duration::from_millis(10), listener.accept()).await.unwrap_err();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let listener = listener.clone();
            tokio::spawn(async move { listener.accept().await.map(|(stream, _)| stream) })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(TcpStream::connect_on(&client, at).await.unwrap());
    }
    for task in tasks {
        timeout(Duration::from_secs(10), task).await.expect("it waits for ever").unwrap().unwrap();
    }
}

#[tokio::test]
async fn halves() {
    let (server, client) = stacks();
    let (near, mut far) = connected(&server, &client).await;
    let (mut reader, mut writer) = near.into_split();
    assert_eq!(reader.as_ref().local_addr().unwrap(), far.peer_addr().unwrap());
    // What is of use to either half is the stream's.
    writer.as_ref().set_nodelay(true).unwrap();
    assert!(reader.as_ref().nodelay().unwrap());
    writer.write_all(b"abc").await.unwrap();
    let mut buf = [0; 8];
    assert_eq!(far.peek(&mut buf).await.unwrap(), 3);
    {
        let (mut from, mut to) = far.split();
        assert_eq!(from.read(&mut buf).await.unwrap(), 3);
        to.write_all(&buf[..3]).await.unwrap();
    }
    assert_eq!(reader.peek(&mut buf).await.unwrap(), 3);
    assert_eq!((reader.read(&mut buf).await.unwrap(), &buf[..3]), (3, &b"abc"[..]));

    // Put together again it is whole, and nobody was told of an end.
    let near = reader.reunite(writer).unwrap();
    let (other, _other_far) = connected(&server, &client).await;
    let (reader, writer) = near.into_split();
    let (other_reader, other_writer) = other.into_split();
    let wrong = reader.reunite(other_writer).unwrap_err();
    let (reader, other_writer) = (wrong.0, wrong.1);
    other_writer.forget();
    drop(other_reader);
    let nothing = timeout(Duration::from_millis(20), far.read(&mut buf)).await;
    nothing.expect_err("nothing was sent, and nothing has ended");

    // The drop of the half that writes is the end; the other still reads.
    drop(writer);
    let end = timeout(Duration::from_secs(10), far.read(&mut buf)).await.expect("the end comes");
    assert_eq!(end.unwrap(), 0);
    far.write_all(b"late").await.unwrap();
    let mut reader = reader;
    let n = timeout(Duration::from_secs(10), reader.read(&mut buf)).await.expect("it comes").unwrap();
    assert_eq!(&buf[..n], b"late");
}

#[tokio::test]
async fn datagrams() {
    let (server, client) = stacks();
    let far = Arc::new(UdpSocket::bind_on(&server, "10.0.0.1:0").await.unwrap());
    let near = UdpSocket::bind_on(&client, "10.0.0.2:0").await.unwrap();
    // Two tasks wait on one socket, and each has its datagram.
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let far = far.clone();
            tokio::spawn(async move {
                let mut buf = [0; 16];
                let (n, from) = far.recv_from(&mut buf).await?;
                far.send_to(&buf[..n], from).await
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    near.connect(far.local_addr().unwrap()).await.unwrap();
    for word in [&b"one"[..], b"three"] {
        near.send(word).await.unwrap();
    }
    let mut sizes = Vec::new();
    for task in tasks {
        sizes.push(timeout(Duration::from_secs(10), task).await.expect("it waits for ever").unwrap().unwrap());
    }
    sizes.sort_unstable();
    assert_eq!(sizes, [3, 5]);
    let mut buf = [0; 16];
    for _ in 0..2 {
        let n = timeout(Duration::from_secs(10), near.recv(&mut buf)).await.expect("it comes").unwrap();
        assert!(n == 3 || n == 5);
    }

    // Who tries is told when it is worth it.
    timeout(Duration::from_millis(10), far.readable()).await.expect_err("nothing was sent");
    assert_eq!(far.try_recv_from(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
    near.writable().await.unwrap();
    assert_eq!(near.try_send(b"tried").unwrap(), 5);
    timeout(MOMENTS, far.readable()).await.expect("it comes").unwrap();
    assert_eq!(far.try_recv_from(&mut buf).unwrap(), (5, near.local_addr().unwrap()));

    // What is peeked at stays.
    near.send(b"stays").await.unwrap();
    let (peeked, from) = far.peek_from(&mut buf).await.unwrap();
    assert_eq!((peeked, from), (5, near.local_addr().unwrap()));
    assert_eq!(far.recv_from(&mut buf).await.unwrap(), (5, from));

    // Who sends faster than the lane can take waits for room, and does not fail.
    let flood = async {
        for _ in 0..5_000 {
            assert_eq!(near.send(&[0; 1_000]).await.unwrap(), 1_000);
        }
    };
    timeout(Duration::from_secs(20), flood).await.expect("there is room again");
}

/// The same looks at what has come, and is left there, on tokio's own sockets and on ours.
macro_rules! story_of_peeks {
    ($near:ident, $far:ident) => {{
        let (at, from) = ($far.local_addr().unwrap(), $near.local_addr().unwrap());
        let kind = |error: io::Error| error.kind();
        let mut said = vec![format!("{:?}", $far.try_peek_sender().map_err(kind).map(drop))];
        $near.send_to(b"look", at).await.unwrap();
        said.push(format!(
            "{:?}",
            timeout(MOMENTS, poll_fn(|cx| $far.poll_recv_ready(cx))).await.unwrap().map_err(kind)
        ));
        said.push(format!("{:?}", poll_fn(|cx| $near.poll_send_ready(cx)).await.map_err(kind)));
        said.push(format!("{}", $far.peek_sender().await.unwrap() == from));
        said.push(format!("{}", $far.try_peek_sender().unwrap() == from));
        said.push(format!("{}", poll_fn(|cx| $far.poll_peek_sender(cx)).await.unwrap() == from));
        let (mut small, mut large) = ([0; 2], [0; 8]);
        said.push(format!("{:?}", $far.try_peek(&mut small).map_err(kind)));
        said.push(format!("{:?}", $far.try_peek_from(&mut large).map_err(kind).map(|(n, is)| (n, is == from))));
        let mut buf = ReadBuf::new(&mut large);
        said.push(format!("{:?}", poll_fn(|cx| $far.poll_peek(cx, &mut buf)).await.map_err(kind)));
        said.push(format!("{:?}", buf.filled()));
        let mut buf = ReadBuf::new(&mut small);
        said.push(format!("{:?}", poll_fn(|cx| $far.poll_peek_from(cx, &mut buf)).await.unwrap() == from));
        said.push(format!("{:?}", buf.filled()));
        said.push(format!("{:?}", $far.try_recv(&mut [0; 8]).map_err(kind)));
        said.push(format!("{:?}", $far.try_peek(&mut [0; 8]).map_err(kind)));
        said
    }};
}

#[tokio::test]
async fn what_is_looked_at_is_left_there() {
    let (server, client) = stacks();
    let near = UdpSocket::bind_on(&client, "10.0.0.2:0").await.unwrap();
    let far = UdpSocket::bind_on(&server, "10.0.0.1:0").await.unwrap();
    let ours = story_of_peeks!(near, far);
    let near = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let far = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let kernels = story_of_peeks!(near, far);
    assert_eq!(ours, kernels);
    // Of a stream: the drop resets.
    let (near, mut far) = connected(&server, &client).await;
    near.set_zero_linger().unwrap();
    drop(near);
    let reset = timeout(MOMENTS, far.read(&mut [0; 4])).await.expect("it is told").unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
}

/// The same reads into buffers that grow, of datagrams and of bytes.
macro_rules! story_of_growing {
    ($near:ident, $far:ident, $stream:ident, $peer:ident) => {{
        let (at, from) = ($far.local_addr().unwrap(), $near.local_addr().unwrap());
        let kind = |error: io::Error| error.kind();
        let (mut small, mut large) = (Vec::with_capacity(8), Vec::with_capacity(100));
        large.extend(b"> ");
        let mut said = vec![format!("{:?}", $far.try_recv_buf(&mut large).map_err(kind))];
        for datagram in [b"0123456789", b"abcdefghij", b"ABCDEFGHIJ", b"....,,,,;;"] {
            $near.send_to(datagram, at).await.unwrap();
        }
        said.push(format!("{:?}", $far.recv_buf(&mut small).await.map_err(kind)));
        said.push(format!("{:?}", $far.recv_buf_from(&mut large).await.map_err(kind).map(|(n, is)| (n, is == from))));
        timeout(MOMENTS, $far.readable()).await.unwrap().unwrap();
        said.push(format!("{:?}", $far.try_recv_buf_from(&mut large).map_err(kind).map(|(n, is)| (n, is == from))));
        said.push(format!("{:?}", $far.recv_buf(&mut &mut [0; 3][..]).await.map_err(kind)));
        said.push(format!("{small:?} {large:?}"));

        let mut full = [0; 0];
        said.push(format!("{:?}", $peer.try_read_buf(&mut large).map_err(kind)));
        $stream.write_all(b"and so on").await.unwrap();
        timeout(MOMENTS, $peer.readable()).await.unwrap().unwrap();
        said.push(format!("{:?}", $peer.try_read_buf(&mut &mut full[..]).map_err(kind)));
        said.push(format!("{:?}", $peer.try_read_buf(&mut &mut [0; 4][..]).map_err(kind)));
        $stream.shutdown().await.unwrap();
        let (half, _other) = $peer.split();
        while timeout(MOMENTS, half.readable()).await.unwrap().is_ok()
            && half.try_read_buf(&mut large).is_ok_and(|n| n > 0)
        {}
        said.push(format!("{:?}", String::from_utf8_lossy(&large)));
        said
    }};
}

#[tokio::test]
async fn buffers_that_grow() {
    let (server, client) = stacks();
    let near = UdpSocket::bind_on(&client, "10.0.0.2:0").await.unwrap();
    let far = UdpSocket::bind_on(&server, "10.0.0.1:0").await.unwrap();
    let (mut stream, mut peer) = connected(&server, &client).await;
    let ours = story_of_growing!(near, far, stream, peer);
    let near = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let far = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut stream = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let mut peer = listener.accept().await.unwrap().0;
    let kernels = story_of_growing!(near, far, stream, peer);
    assert_eq!(ours, kernels);
}

/// A resolver may take seconds to answer. It is asked on a thread for that, as of tokio's own sockets, and other tasks have their turn.
#[test]
fn a_name_is_looked_up_beside_the_tasks() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (stack, _other) = stacks();
        let socket = UdpSocket::bind_on(&stack, "10.0.0.1:0").await.unwrap();
        let options = BindOptions::default();
        let mut calls: [Pin<Box<dyn Future<Output = io::Result<()>>>>; 7] = [
            Box::pin(async { TcpStream::connect_on(&stack, "localhost:1").await.map(drop) }),
            Box::pin(async { TcpListener::bind_on(&stack, "localhost:0").await.map(drop) }),
            Box::pin(async { TcpListener::bind_with(&stack, "localhost:0", options).await.map(drop) }),
            Box::pin(async { UdpSocket::bind_on(&stack, "localhost:0").await.map(drop) }),
            Box::pin(async { UdpSocket::bind_with(&stack, "localhost:0", options).await.map(drop) }),
            Box::pin(async { socket.connect("localhost:1").await }),
            Box::pin(async { socket.send_to(b"x", "localhost:1").await.map(drop) }),
        ];
        // The only thread for what blocks is not free.
        let (is_free, waits) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || waits.recv());
        for (i, call) in calls.iter_mut().enumerate() {
            assert!(timeout(Duration::from_millis(10), call).await.is_err(), "call {i} has looked up a name by itself");
        }
        drop(is_free);
        for call in calls {
            // A stack has no loopback.
            assert!(call.await.is_err());
        }
    });
}

#[tokio::test]
async fn an_unmodified_axum_application() {
    let (server, client) = stacks();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:80").await.unwrap();
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/echo", post(|body: String| async move { body.to_uppercase() }));
    let serve = tokio::spawn(async move { axum::serve(listener, app).await });
    for (request, says) in [
        ("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "hello"),
        ("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\nconnection: close\r\n\r\nabc", "ABC"),
        ("GET /none HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "404"),
    ] {
        let mut stream = TcpStream::connect_on(&client, "10.0.0.1:80").await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(Duration::from_secs(20), stream.read_to_string(&mut answer)).await.expect("no answer").unwrap();
        assert!(answer.starts_with("HTTP/1.1") && answer.contains(says), "{answer}");
    }
    serve.abort();
}

#[tokio::test]
async fn what_a_socket_can_be_told() {
    let (server, client) = stacks();
    let (stream, mut other) = connected(&server, &client).await;
    stream.set_keepalive(true).unwrap();
    stream.set_tcp_user_timeout(Some(Duration::from_secs(7))).unwrap();
    stream.set_ttl(99).unwrap();
    assert_eq!(stream.set_ttl(0).unwrap_err().kind(), ErrorKind::InvalidInput);
    let [ours, theirs] = [stream.info().await.unwrap(), other.info().await.unwrap()];
    assert_eq!((ours.state, ours.mss, ours.congestion), (theirs.state, theirs.mss, "cubic"));
    let mut stream = stream.into_std().unwrap();
    assert!(stream.keepalive().unwrap() && stream.ttl().unwrap() == 99);
    assert_eq!(stream.tcp_user_timeout().unwrap(), Some(Duration::from_secs(7)));
    assert_eq!(io::Read::read(&mut stream, &mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
    other.write_all(b"for a thread").await.unwrap();
    let mut bytes = [0; 12];
    tokio::task::spawn_blocking(move || io::Read::read_exact(&mut stream, &mut bytes).map(|()| bytes))
        .await
        .unwrap()
        .map(|bytes| assert_eq!(&bytes, b"for a thread"))
        .unwrap();
}

/// Panics if it is called by anybody but its runtime, between two polls.
struct Picky {
    runtime: ThreadId,
    is_polled: AtomicBool,
}

impl Wake for Picky {
    fn wake(self: Arc<Self>) {
        assert!(thread::current().id() == self.runtime && !self.is_polled.load(Relaxed), "a lane has called");
    }
}

/// Code of the program's that panics on a lane ends the stack, and what it waits for there every connection waits for.
#[tokio::test]
async fn no_lane_wakes_a_task_that_has_asked() {
    let (server, client) = stacks();
    let (near, _far) = connected(&server, &client).await;
    let picky = Arc::new(Picky { runtime: thread::current().id(), is_polled: AtomicBool::new(false) });
    let waker = Waker::from(picky.clone());
    for _ in 0..50 {
        let mut info = pin!(near.info());
        picky.is_polled.store(true, Relaxed);
        let _ = info.as_mut().poll(&mut Context::from_waker(&waker));
        picky.is_polled.store(false, Relaxed);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(client.failure(), None);
    let told = timeout(Duration::from_secs(5), near.info()).await.expect("it is told");
    assert_eq!(told.unwrap().state, State::Established);
}

/// They ask while it ends: nobody waits for ever.
#[tokio::test]
async fn a_task_that_asks_while_its_stack_stops_is_told() {
    let (server, client) = stacks();
    let (near, _far) = connected(&server, &client).await;
    let asks = tokio::spawn(async move { while near.info().await.is_ok() {} });
    tokio::time::sleep(Duration::from_millis(20)).await;
    tokio::task::spawn_blocking(move || client.stop()).await.unwrap();
    timeout(Duration::from_secs(5), asks).await.expect("it is told").unwrap();
}

#[tokio::test]
async fn sockets_that_share_a_port() {
    let (server, _client) = stacks();
    let group = BindOptions { reuse_port: true, ..BindOptions::default() };
    let listener = TcpListener::bind_with(&server, "10.0.0.1:80", group).await.unwrap();
    TcpListener::bind_with(&server, "10.0.0.1:80", group).await.unwrap();
    let alone = TcpListener::bind_on(&server, "10.0.0.1:80").await;
    assert_eq!(alone.map(drop).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert_eq!(listener.into_std().unwrap().accept().map(drop).unwrap_err().kind(), ErrorKind::WouldBlock);
    let socket = UdpSocket::bind_with(&server, "10.0.0.1:53", group).await.unwrap();
    laneway::UdpSocket::bind_with(&server, "10.0.0.1:53", group).unwrap();
    assert_eq!(socket.into_std().unwrap().recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_socket_is_bound_before_it_connects_or_listens() {
    let (server, client) = stacks();
    let at = "10.0.0.1:80".parse().unwrap();
    let socket = TcpSocket::new_v4_on(&server);
    socket.set_reuseaddr(true).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_zero_linger().unwrap();
    assert!(socket.reuseaddr().unwrap() && socket.nodelay().unwrap() && !socket.reuseport().unwrap());
    socket.bind(at).unwrap();
    assert_eq!(socket.local_addr().unwrap(), at);
    let listener = socket.listen(8).unwrap();

    let _entered = client.enter();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_keepalive(true).unwrap();
    socket.set_send_buffer_size(10_000).unwrap();
    socket.set_recv_buffer_size(20_000).unwrap();
    socket.set_tos_v4(0xb8).unwrap();
    let sizes = (socket.send_buffer_size().unwrap(), socket.recv_buffer_size().unwrap());
    assert_eq!((sizes, socket.tos_v4().unwrap()), ((20_000, 40_000), 0xb8));
    assert!(socket.set_tclass_v6(0xb8).is_err() && socket.tclass_v6().is_err(), "it is not one of IPv6");
    socket.bind("10.0.0.2:7000".parse().unwrap()).unwrap();
    let mut near = socket.connect(at).await.unwrap();
    let (far, from) = listener.accept().await.unwrap();
    assert_eq!((from, near.local_addr().unwrap()), ("10.0.0.2:7000".parse().unwrap(), from));
    assert!(near.keepalive().unwrap() && far.nodelay().unwrap() && !far.keepalive().unwrap());
    drop(far);
    let reset = timeout(Duration::from_secs(10), near.read(&mut [0; 4])).await.expect("it hangs").unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset, "its socket had been told to");
    let near = near.into_std().unwrap();
    let sizes = (near.send_buffer_size().unwrap(), near.recv_buffer_size().unwrap());
    assert_eq!((sizes, near.tos_v4().unwrap()), ((20_000, 40_000), 0xb8));

    let from_std = laneway::TcpSocket::new_v6().unwrap();
    from_std.set_only_v6(true).unwrap();
    let refused = TcpSocket::from(from_std).connect("[::ffff:10.0.0.1]:80".parse().unwrap()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NetworkUnreachable);
    let refused = TcpSocket::new_v4_on(&client).connect("10.0.0.1:9".parse().unwrap()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

/// Who shuts down gracefully drops the listener first, and the connections go on; who drops the stack means all of it.
#[tokio::test]
async fn a_listener_does_not_keep_its_stack() {
    let (server, _client) = stacks();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:80").await.unwrap();
    drop(server);
    let said = timeout(Duration::from_secs(10), listener.accept()).await.expect("the stack has ended");
    assert_eq!(said.map(drop).unwrap_err().kind(), ErrorKind::NetworkDown);
}

#[tokio::test]
async fn errors_arrive() {
    let (server, client) = stacks();
    for nobody in ["10.0.0.1:9", "10.0.0.1:0"] {
        let refused = TcpStream::connect_on(&client, nobody).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{nobody}");
    }
    let listener = TcpListener::bind_on(&server, "10.0.0.1:80").await.unwrap();
    let mut stream = TcpStream::connect_on(&client, "10.0.0.1:80").await.unwrap();
    let (there, _) = listener.accept().await.unwrap();
    there.set_linger(Some(Duration::ZERO)).unwrap();
    drop(there);
    let reset = timeout(Duration::from_secs(10), stream.read(&mut [0; 4])).await.expect("it hangs").unwrap_err();
    assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset);
    // The stack goes while a task waits for a connection.
    let waiting = tokio::spawn(async move { listener.accept().await.map(drop) });
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.stop();
    let stopped = timeout(Duration::from_secs(10), waiting).await.expect("it hangs").unwrap().unwrap_err();
    assert_eq!(stopped.kind(), std::io::ErrorKind::NetworkDown);
}

/// What becomes of writing nothing, and then something, to a stream that the peer has reset, on the stream and on its half.
macro_rules! story_of_nothing_written {
    ($near:ident, $far:ident) => {{
        #[allow(deprecated)] // with zero it blocks nobody
        $far.set_linger(Some(Duration::ZERO)).unwrap();
        drop($far);
        let (_reader, mut writer) = $near.into_split();
        let ended = async {
            while !writer.ready(Interest::WRITABLE).await.unwrap().is_write_closed() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(10), ended).await.expect("the reset comes");
        let (none, empty) = ([], [IoSlice::new(b""), IoSlice::new(b"")]);
        let said = [
            writer.as_ref().try_write_vectored(&none),
            writer.try_write_vectored(&empty),
            writer.write_vectored(&empty).await,
            writer.write(b"").await,
            writer.write_vectored(&[IoSlice::new(b""), IoSlice::new(b"x")]).await,
        ];
        said.map(|done| done.map_err(|error| error.kind()))
    }};
}

#[tokio::test]
async fn to_write_no_piece_that_has_a_byte_asks_nobody() {
    let (server, client) = stacks();
    let (near, far) = connected(&server, &client).await;
    let ours = story_of_nothing_written!(near, far);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(tokio::net::TcpStream::connect(to), listener.accept());
    let (near, far) = (near.unwrap(), far.unwrap().0);
    let kernels = story_of_nothing_written!(near, far);
    assert_eq!(ours, kernels);
    assert_eq!(ours, [Ok(0), Ok(0), Ok(0), Err(ErrorKind::ConnectionReset), Err(ErrorKind::BrokenPipe)]);
}

/// A socket that has outlived its runtime says so, and its stack serves other runtimes.
#[test]
fn a_runtime_is_dropped() {
    let (server, client) = stacks();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let listener = first.block_on(TcpListener::bind_on(&server, "10.0.0.1:80")).unwrap();
    drop(first);
    let second = runtime();
    let error = second.block_on(async { timeout(Duration::from_secs(10), listener.accept()).await });
    let error = error.expect("it hangs").map(drop).unwrap_err();
    assert!(error.to_string().contains("runtime"), "{error}");
    drop(listener);
    second.block_on(async {
        let listener = TcpListener::bind_on(&server, "10.0.0.1:80").await.unwrap();
        let (connected, accepted) = tokio::join!(TcpStream::connect_on(&client, "10.0.0.1:80"), listener.accept());
        accepted.unwrap().0.write_all(b"x").await.unwrap();
        assert_eq!(connected.unwrap().read(&mut [0; 4]).await.unwrap(), 1);
    });
}

/// Each runtime has a handle of one listener, and each is told, also after another has gone.
#[test]
fn a_listener_in_two_runtimes() {
    let (server, client) = stacks();
    let listener = laneway::TcpListener::bind_on(&server, "10.0.0.1:80").unwrap();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let clone = listener.try_clone().unwrap();
    let first_listener = first.block_on(async { TcpListener::from_std(clone) }).unwrap();
    let second_listener = second.block_on(async { TcpListener::from_std(listener) }).unwrap();
    let accepts = |runtime: &tokio::runtime::Runtime, listener: &TcpListener| {
        runtime.block_on(async {
            let connect = tokio::task::spawn_blocking({
                let client = client.clone();
                move || {
                    std::thread::sleep(Duration::from_millis(50)); // when it is waited for
                    laneway::TcpStream::connect_on(&client, "10.0.0.1:80").unwrap()
                }
            });
            let start = std::time::Instant::now();
            timeout(Duration::from_secs(5), listener.accept()).await.expect("nobody has connected").unwrap();
            // When the time is over one looks again, told or not.
            assert!(start.elapsed() < Duration::from_secs(5), "the runtime was not told");
            connect.await.unwrap();
        });
    };
    accepts(&first, &first_listener);
    accepts(&second, &second_listener);
    accepts(&first, &first_listener);
    drop((second_listener, second));
    accepts(&first, &first_listener);
}

#[tokio::test]
async fn a_stream_is_handed_over_to_read_from_and_to_write_to() {
    let (server, client) = stacks();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:80").await.unwrap();
    let stream = laneway::TcpStream::connect_on(&client, "10.0.0.1:80").unwrap(); // the lanes have threads of their own
    let mut other = listener.accept().await.unwrap().0;
    let mut reader = TcpStream::from_std(stream.try_clone().unwrap()).unwrap();
    let mut writer = TcpStream::from_std(stream).unwrap();
    let read = tokio::spawn(async move { (reader.read_u8().await.unwrap(), reader) });
    tokio::time::sleep(Duration::from_millis(50)).await; // it waits by now
    other.write_all(b"x").await.unwrap();
    let (byte, reader) = timeout(Duration::from_secs(5), read).await.expect("the reader was not told").unwrap();
    assert_eq!(byte, b'x');
    // The one that is left goes on.
    drop(reader);
    let read = tokio::spawn(async move { writer.read_u8().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(50)).await;
    other.write_all(b"y").await.unwrap();
    assert_eq!(timeout(Duration::from_secs(5), read).await.expect("nobody was told").unwrap(), b'y');
}
