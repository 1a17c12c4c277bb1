//! Asynchronous programs on Laneway: streams, listeners, an unmodified axum application, and runtimes that go away.

use axum::Router;
use axum::routing::{get, post};
use laneway::tokio::{TcpListener, TcpStream};
use laneway::{Device, Stack};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

fn stacks() -> (Stack, Stack) {
    let (here, there) = Device::memory_pair(1).unwrap();
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().start().unwrap();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
    (server, client)
}

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_waits_for_memory_that_another_stream_holds() {
    let (here, there) = Device::memory_pair(1).unwrap();
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().blocks(65_536).start().unwrap();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let mut hog = TcpStream::connect_on(&client, at).await.unwrap();
    let (mut idle, _) = listener.accept().await.unwrap();
    hog.write_all(&[7; 196_608]).await.unwrap();
    let mut near = TcpStream::connect_on(&client, at).await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    // 128 KiB of blocks, small and large, and the first stream's bytes take all of them.
    let all_held = async {
        while server.memory().unwrap().1 < 131_072 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(10), all_held).await.expect("the first stream's bytes come");
    let writer = tokio::spawn(async move { far.write_all(b"world").await.map(|()| far) });
    tokio::time::sleep(Duration::from_millis(50)).await;
    idle.read_exact(&mut vec![0; 196_608]).await.unwrap();
    let _far = timeout(Duration::from_secs(10), writer).await.expect("it is told").unwrap().unwrap();
    let mut buf = [0; 5];
    timeout(Duration::from_secs(10), near.read_exact(&mut buf)).await.expect("it was sent").unwrap();
    assert_eq!(&buf, b"world");
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
async fn errors_arrive() {
    let (server, client) = stacks();
    let refused = TcpStream::connect_on(&client, "10.0.0.1:9").await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
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
