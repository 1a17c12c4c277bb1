//! An echo server. Without arguments it runs in memory together with a client that asks it a few things; with
//! `--tun NAME --addr CIDR` it serves port 7 on a TUN interface: `nc 10.9.0.2 7` from another terminal.
//!
//! ```text
//! cargo run -p laneway --example echo
//! sudo -E cargo run -p laneway --example echo -- --tun lw0 --addr 10.9.0.2/24
//! ```

use laneway::on_lane::{Address, App, CloseReason, ConnId, Context, Device, Stack, StartError};
use std::sync::mpsc::{Sender, channel};

/// Sends back whatever arrives.
struct Echo;

impl App for Echo {
    fn on_data(&mut self, cx: &mut Context<'_>, connection: ConnId, data: &[u8]) -> usize {
        // What does not fit the send buffer is not taken, and stays with the stack.
        cx.send(connection, data)
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        // There is room again: show what was kept.
        cx.resume(connection);
    }
}

/// Opens a connection for each question, and tells what came back.
struct Ask {
    questions: Vec<&'static str>,
    answers: Vec<Vec<u8>>,
    tell: Sender<(String, CloseReason)>,
    started: bool,
}

impl App for Ask {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.started, true) {
            for i in 0..self.questions.len() {
                // The token comes back with every event: here it is the number of the question.
                cx.connect(None, Address::from_v4([10, 0, 0, 1]), 7, i as u64).expect("a free port");
            }
        }
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        let i = cx.token(connection) as usize;
        cx.send(connection, self.questions[i].as_bytes());
        cx.shutdown(connection); // the FIN rides on the last segment
    }
    fn on_data(&mut self, cx: &mut Context<'_>, connection: ConnId, data: &[u8]) -> usize {
        let i = cx.token(connection) as usize;
        self.answers[i].extend_from_slice(data);
        data.len()
    }
    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, token: u64, reason: CloseReason) {
        let answer = String::from_utf8_lossy(&self.answers[token as usize]).into_owned();
        self.tell.send((answer, reason)).expect("main waits");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => in_memory(),
        ["--tun", name, "--addr", cidr] => on_tun(name, cidr),
        _ => {
            eprintln!("usage: echo [--tun NAME --addr ADDRESS/BITS]");
            std::process::exit(2);
        }
    };
    if let Err(error) = result {
        eprintln!("echo: {error}");
        std::process::exit(2);
    }
}

fn in_memory() -> Result<(), StartError> {
    let (here, there) = Device::memory_pair(/* lanes of each */ 1)?;
    let server = Stack::builder(here).address("10.0.0.1/24")?.start(|_lane| Echo)?;
    server.listen("0.0.0.0:7".parse().expect("an address"), 128)?;

    let questions = vec!["hello", "is anybody there?", "good bye"];
    let (tell, told) = channel();
    let client = Stack::builder(there).address("10.0.0.2/24")?.start(|_lane| Ask {
        questions: questions.clone(),
        answers: vec![Vec::new(); questions.len()],
        tell: tell.clone(),
        started: false,
    })?;
    for _ in &questions {
        let (answer, reason) = told.recv().expect("an answer");
        println!("{answer:?} came back ({reason:?})");
    }
    client.stop();
    let ended = server.stop();
    for (name, value) in ended.counters.iter().filter(|(name, _)| name.starts_with("Tcp")) {
        println!("{name:<32}{value}");
    }
    Ok(())
}

fn on_tun(name: &str, cidr: &str) -> Result<(), StartError> {
    let stack = Stack::builder(Device::tun(name)).address(cidr)?.start(|_lane| Echo)?;
    stack.listen("[::]:7".parse().expect("an address"), 128)?;
    println!("echo on port 7 of {cidr}, {} lanes, {}; end it with Enter", stack.lanes(), stack.device());
    let _ = std::io::stdin().read_line(&mut String::new());
    stack.stop();
    Ok(())
}
