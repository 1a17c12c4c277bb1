//! Owns the wall as threads see it: a blocking socket, and a thread, for each connection at both ends. A thread writes its
//! answer after the lane has had to decide about the acknowledgement, so that one packet a transaction cannot be promised here;
//! what is counted is how many there are.

use crate::bench::failure::Failure;
use laneway::{Device, Stack, TcpListener, TcpStream};
use laneway_stack::counters::Mib;
use std::io::{self, Read, Write};
use std::sync::Barrier;
use std::thread;

/// Threads are what this costs; more of them than this count the same.
const CONNECTIONS_MAX: usize = 32;

/// Packets and octets of IP that one host sends for each of `ops` transactions.
pub fn counted(conns: usize, message: usize, ops: u64) -> Result<(f64, f64), Failure> {
    exchange(conns.min(CONNECTIONS_MAX), message, ops)
        .map_err(|error| Failure::Machine(format!("blocking sockets: {error}")))
}

fn exchange(conns: usize, message: usize, ops: u64) -> io::Result<(f64, f64)> {
    let (here, there) = Device::memory_pair(1).map_err(io::Error::other)?;
    let start =
        |device, address| Stack::builder(device).address(address).and_then(|b| b.start()).map_err(io::Error::other);
    let stacks = [start(here, "10.96.0.1/24")?, start(there, "10.96.0.2/24")?];
    let listener = TcpListener::bind_on(&stacks[0], "10.96.0.1:7")?;
    let each = (ops / conns as u64).max(1);
    // The counters are read while nobody writes: before the first request, and after the last answer.
    let barrier = Barrier::new(conns + 1);
    let sent = || -> io::Result<[u64; 2]> {
        let mut sum = [0; 2];
        for stack in &stacks {
            let counters = stack.counters()?;
            sum[0] += counters.get(Mib::IpOutRequests);
            sum[1] += counters.get(Mib::IpExtOutOctets);
        }
        Ok(sum)
    };
    let [packets, octets] = thread::scope(|scope| -> io::Result<[u64; 2]> {
        let mut clients = Vec::new();
        for _ in 0..conns {
            let stream = TcpStream::connect_on(&stacks[1], "10.96.0.1:7")?;
            let (accepted, _) = listener.accept()?;
            scope.spawn(move || answer(accepted, message));
            clients.push(stream);
        }
        let clients: Vec<_> =
            clients.into_iter().map(|stream| scope.spawn(|| ask(stream, message, each, &barrier))).collect();
        barrier.wait();
        let before = sent();
        barrier.wait();
        barrier.wait();
        let after = sent();
        barrier.wait();
        for client in clients {
            client.join().unwrap_or_else(|_| Err(io::Error::other("a client's thread panicked")))?;
        }
        let (before, after) = (before?, after?);
        Ok([after[0] - before[0], after[1] - before[1]])
    })?;
    let packets_per_host = packets as f64 / 2.0;
    Ok((packets_per_host / (each * conns as u64) as f64, octets as f64 / packets as f64))
}

fn answer(mut stream: TcpStream, message: usize) -> io::Result<()> {
    let mut buffer = vec![0; message];
    while stream.read_exact(&mut buffer).is_ok() {
        stream.write_all(&buffer)?;
    }
    Ok(())
}

/// Waits where everybody waits whatever becomes of its requests, so that a failure is told and not waited for.
fn ask(mut stream: TcpStream, message: usize, ops: u64, barrier: &Barrier) -> io::Result<()> {
    let mut buffer = vec![b'q'; message];
    barrier.wait();
    barrier.wait();
    let outcome = (0..ops).try_for_each(|_| {
        stream.write_all(&buffer)?;
        stream.read_exact(&mut buffer)
    });
    barrier.wait();
    barrier.wait();
    outcome
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn a_blocking_transaction_takes_no_more_packets_than_linux_needs() {
        let (packets, octets) = counted(4, 4_096, 400).unwrap();
        // One that carries the text, and at most one that acknowledges.
        assert!((0.99..=2.01).contains(&packets), "{packets}");
        assert!(octets > 2_000.0, "{octets}");
    }
}
