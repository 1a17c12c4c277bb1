//! The protocol core: what the RFCs say, and nothing else.
//!
//! No clock, no randomness, no atomics, no threads, no `unsafe`: time and secrets are arguments. Methods come in
//! four kinds: `on_*` take events in, verbs are what an application can do, `poll_*` and `decide` take things out, getters look. Who
//! drives them carries bytes from one end to the other and says what time it is:
//!
//! ```
//! use laneway_proto::tcp::nagle::Lane;
//! use laneway_proto::tcp::{BufferPool, Config, Connection, Cx, HalfOpen, Handshake, handshake, listen};
//! use laneway_proto::time::Instant;
//! use laneway_wire::flow::{Address, FlowKey};
//! use laneway_wire::tcp::{Header, Segment, SeqNum};
//!
//! let (config, mut pool) = (Config::default(), BufferPool::new(/* bytes= */ 1 << 20));
//! let now = Instant::from_us(1_000_000);
//! let mut cx = Cx { now, config: &config, pool: &mut pool };
//! let client = Address::from_v4([192, 0, 2, 1]);
//! let server = Address::from_v4([192, 0, 2, 2]);
//! let key = FlowKey { local: client, remote: server, local_port: 50_000, remote_port: 80 };
//! let wire = |header: Header| {
//!     let mut bytes = vec![0; header.len()];
//!     header.emit(&mut bytes); // whoever knows the addresses fills in the checksum
//!     bytes
//! };
//!
//! // SYN …
//! let mut opening = Handshake::connect(key, SeqNum::new(7), /* ts_offset= */ 0, /* mss= */ 1_460, now);
//! let syn = wire(opening.decide(&cx).expect("a SYN is due"));
//! opening.commit(&cx);
//! // … SYN-ACK …
//! let secrets = listen::Secrets { isn: [1, 2], timestamp: [3, 4], cookie: [5, 6] };
//! let mut half = HalfOpen::on_syn(&key.reversed(), &Segment::parse(&syn)?, /* listener= */ 0, None, &secrets, 0, &cx);
//! let syn_ack = wire(half.syn_ack(1_460, &cx));
//! let handshake::Outcome::Established(agreed) = opening.on_segment(&Segment::parse(&syn_ack)?, &cx) else { panic!() };
//! // … and the ACK, with a request in it.
//! let mut client = Connection::new(&agreed, /* path_mtu= */ 1_500, &config, now);
//! client.send(b"hello", &mut cx);
//! let plan = client.decide::<Lane>(now).expect("text waits, and both windows are open");
//! let mut request = vec![0; plan.segment_len()];
//! client.build(&plan, now, /* offloaded= */ false, &mut request);
//! client.commit(&plan, now);
//!
//! let segment = Segment::parse(&request)?;
//! let listen::Outcome::Established(agreed) = half.on_segment(&segment, &cx) else { panic!() };
//! let mut server = Connection::accepted(&agreed, 1_500, &config, now, /* listener= */ 0);
//! let arrival = server.on_segment(&segment, &mut cx);
//! assert_eq!(arrival.text, b"hello"); // where it lies in the frame
//! server.finish(&arrival, /* consumed= */ 5, &mut cx);
//! # Ok::<(), laneway_wire::Malformed>(())
//! ```
#![forbid(unsafe_code)]

pub mod discard;
pub mod ethernet;
pub mod icmp;
pub mod ip;
pub mod neighbour;
pub mod tcp;
pub mod time;
pub mod udp;
