//! Owns the stories of two UDP sockets, which speak to each other, and to where nobody is.

use super::*;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

/// Whom a socket speaks to.
#[derive(Clone, Copy, Debug)]
pub enum Whom {
    Other,
    /// The other's host, at a port that nobody has.
    Nobody,
}

/// What is done with a socket.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Connect(Whom),
    Send(usize),
    TrySend(usize),
    SendTo(usize, Whom),
    TrySendTo(usize, Whom),
    Recv(usize),
    TryRecv(usize),
    RecvFrom(usize),
    TryRecvFrom(usize),
    Peek(usize),
    PeekFrom(usize),
    Ready(bool, bool),
    TakeError,
    Names,
    Drop,
}

pub fn act(dice: &mut Dice) -> Act {
    let n = |dice: &mut Dice| dice.pick(&[0, 1, 2, 5, 100, 3_000]);
    let whom = |dice: &mut Dice| if dice.one_in(4) { Whom::Nobody } else { Whom::Other };
    match dice.below(56) {
        0..5 => Act::Connect(whom(dice)),
        5..9 => Act::Send(n(dice)),
        9..13 => Act::TrySend(n(dice)),
        13..17 => Act::SendTo(n(dice), whom(dice)),
        17..21 => Act::TrySendTo(n(dice), whom(dice)),
        21..25 => Act::Recv(n(dice)),
        25..29 => Act::TryRecv(n(dice)),
        29..33 => Act::RecvFrom(n(dice)),
        33..37 => Act::TryRecvFrom(n(dice)),
        37..39 => Act::Peek(n(dice)),
        39..41 => Act::PeekFrom(n(dice)),
        41..49 => Act::Ready(dice.one_in(2), dice.one_in(2)),
        49..52 => Act::TakeError,
        52..55 => Act::Names,
        _ => Act::Drop,
    }
}

/// What is done next, so that no refusal of what was sent is left: a task of tokio's that waits to receive is not told of it, as a thread would be, and
/// ours is.
fn heeds_refusal(act: Act) -> Vec<Act> {
    match act {
        Act::Send(_) | Act::SendTo(..) => vec![Act::TakeError],
        Act::TrySend(n) | Act::TrySendTo(n, _) => vec![Act::SendTo(n, Whom::Other), Act::TakeError],
        _ => vec![],
    }
}

/// A socket in one of the two worlds.
macro_rules! world {
    ($world:ident, $socket:path) => {
        mod $world {
            use super::*;
            use $socket as UdpSocket;

            /// What it says. `other` and `nobody`: where those are.
            fn act(socket: &mut Option<UdpSocket>, act: Act, other: SocketAddr, nobody: SocketAddr) -> Option<Line> {
                let it = socket.as_ref()?;
                let at = |whom| match whom {
                    Whom::Other => other,
                    Whom::Nobody => nobody,
                };
                let room = |n| vec![0; n];
                let from = |done: io::Result<(usize, SocketAddr)>| {
                    done.map(|(n, from)| {
                        assert_eq!(from, other);
                        n
                    })
                };
                Some(match act {
                    Act::Connect(whom) => line(once(it.connect(at(whom)))),
                    Act::Send(n) => line(once(it.send(&bytes(n)))),
                    Act::TrySend(n) => line(Some(it.try_send(&bytes(n)))),
                    Act::SendTo(n, whom) => line(once(it.send_to(&bytes(n), at(whom)))),
                    Act::TrySendTo(n, whom) => line(Some(it.try_send_to(&bytes(n), at(whom)))),
                    Act::Recv(n) => {
                        let mut buf = room(n);
                        let done = once(it.recv(&mut buf));
                        heard(&buf, done)
                    }
                    Act::TryRecv(n) => {
                        let mut buf = room(n);
                        let done = it.try_recv(&mut buf);
                        heard(&buf, Some(done))
                    }
                    Act::RecvFrom(n) => {
                        let mut buf = room(n);
                        let done = once(it.recv_from(&mut buf)).map(from);
                        heard(&buf, done)
                    }
                    Act::TryRecvFrom(n) => {
                        let mut buf = room(n);
                        let done = from(it.try_recv_from(&mut buf));
                        heard(&buf, Some(done))
                    }
                    Act::Peek(n) => {
                        let mut buf = room(n);
                        let done = once(it.peek(&mut buf));
                        heard(&buf, done)
                    }
                    Act::PeekFrom(n) => {
                        let mut buf = room(n);
                        let done = once(it.peek_from(&mut buf)).map(from);
                        heard(&buf, done)
                    }
                    // Of a refusal tokio says that nothing can be written any more, which is not so.
                    Act::Ready(reads, writes) => of_ready(once(it.ready(interest(reads, writes)))).without_closed(),
                    Act::TakeError => line(Some(it.take_error().map(|error| error.map(|error| error.kind())))),
                    Act::Names => line(Some(it.peer_addr().map(|peer| peer == other))),
                    Act::Drop => {
                        *socket = None;
                        line(Some(Ok(())))
                    }
                })
            }

            /// What the story's calls say; `moment`: how long what is done takes to reach everybody. `nobody`: where nobody is, on each host.
            pub async fn tell(
                sockets: [UdpSocket; 2],
                nobody: [SocketAddr; 2],
                story: &Story<Act>,
                moment: Duration,
            ) -> io::Result<Vec<Line>> {
                let at = [sockets[0].local_addr()?, sockets[1].local_addr()?];
                let (mut sockets, mut lines) = (sockets.map(Some), Vec::new());
                tokio::time::sleep(moment).await;
                for (who, done) in &story.acts {
                    for done in [&[*done], &heeds_refusal(*done)[..]].concat() {
                        if let Some(line) = act(&mut sockets[*who], done, at[1 - who], nobody[1 - who]) {
                            lines.push(line.of(*who, &done));
                            tokio::time::sleep(moment).await;
                        }
                    }
                }
                Ok(lines)
            }
        }
    };
}

world!(kernels, tokio::net::UdpSocket);
world!(ours, laneway::tokio::UdpSocket);

/// An address of the kernel's that no other story has: where the port of a socket that is gone is another story's by now, that would hear what is sent to it.
fn own_host() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0x7f80_0001);
    Ipv4Addr::from(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// What the kernel's have said, and what ours have.
pub async fn told(story: &Story<Act>, moment: Duration) -> io::Result<[Vec<Line>; 2]> {
    let host = own_host();
    let sockets = [tokio::net::UdpSocket::bind((host, 0)).await?, tokio::net::UdpSocket::bind((host, 0)).await?];
    // Below those that the kernel gives out.
    let nobody = [(host, 9).into(); 2];
    let of_kernels = kernels::tell(sockets, nobody, story, moment);
    let (server, client) = common::stacks();
    let near = laneway::tokio::UdpSocket::bind_on(&client, "10.0.0.2:0").await?;
    let far = laneway::tokio::UdpSocket::bind_on(&server, "10.0.0.1:0").await?;
    let nobody = ["10.0.0.2:9", "10.0.0.1:9"].map(|at| at.parse().expect("an address"));
    let of_ours = ours::tell([near, far], nobody, story, moment);
    let (kernels, ours) = tokio::join!(of_kernels, of_ours);
    Ok([kernels?, ours?])
}
