//! An echo server with a thread per connection, as one writes it with `std::net`, on a TUN interface or in memory.
//!
//! `cargo run --release --example echo_threads` talks to itself in memory; `cargo run --release --example echo_threads --
//! 10.77.0.2/24` (root) serves port 7 to the kernel's clients: `nc 10.77.0.2 7`.

use laneway::{Device, Stack, TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::thread;

fn serve(listener: TcpListener) -> io::Result<()> {
    for stream in listener.incoming() {
        let mut stream = stream?;
        thread::spawn(move || -> io::Result<()> {
            let mut buf = [0; 4096];
            loop {
                match stream.read(&mut buf)? {
                    0 => return Ok(()),
                    n => stream.write_all(&buf[..n])?,
                }
            }
        });
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(address) = std::env::args().nth(1) {
        let stack = Stack::builder(Device::tun("laneway0")).address(&address)?.start()?;
        let ip: IpAddr = address.split('/').next().unwrap_or_default().parse()?;
        let listener = TcpListener::bind_on(&stack, (ip, 7))?;
        println!("{} · {} lanes · echoes on {}", stack.device(), stack.lanes(), listener.local_addr()?);
        return Ok(serve(listener)?);
    }
    let (here, there) = Device::memory_pair(1)?;
    let server = Stack::builder(here).address("10.0.0.1/24")?.start()?;
    let client = Stack::builder(there).address("10.0.0.2/24")?.start()?;
    let listener = TcpListener::bind_on(&server, "10.0.0.1:7")?;
    thread::spawn(move || serve(listener));

    let mut stream = TcpStream::connect_on(&client, "10.0.0.1:7")?;
    stream.write_all(b"hello, lane")?;
    let mut answer = [0; 11];
    stream.read_exact(&mut answer)?;
    println!("{} says {:?}", stream.peer_addr()?, String::from_utf8_lossy(&answer));
    Ok(())
}
