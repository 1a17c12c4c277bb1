//! Where application threads meet lanes: sockets whose user is on any thread, served by an [`App`](crate::app::App) on
//! every lane.
//!
//! ```text
//!   application thread                                     lane (Server::on_poll, on_data, …)
//!   send: copy into the ring, publish          ──────────▶ wake list: pop, clear SCHEDULED, read the ring, Context::send
//!         push on the wake list, ring the bell             give the bytes back, those of a stream when they are acknowledged;
//!                                                          a third free: wake who wants space
//!   recv: copy out of the ring                 ◀────────── on_data: copy from the frame into the ring, publish
//!         room again: push on the wake list                at the end of the poll, one fence, wake who wants bytes
//!   shutdown, options: a note with the number   ─────────▶ acted upon when the bytes before it were taken
//!         of bytes that it stands behind
//!   close: a bit, and the conversation itself   ─────────▶ behind the last byte; then it is used for another connection
//! ```
//!
//! An application thread takes no lock that a lane takes, and touches a connection only where it is the lane (below). What the two share, per connection,
//! is a [`Conversation`](words::Conversation): five lines, and blocks while something lies in it.
//!
//! **What a short connection costs.** One that is accepted, asked, answered and closed moves the application's line to the thread and
//! back, and half of the line in which it was handed over. Everything else that either side needs to know lies in these two, or is on
//! lines that only one of them touches: who the peer is, what had come before it was taken, that nothing is wrong, that the application
//! has left. Nothing is allocated: the lane that made the conversation has it back with the close, and hands it out again
//! (`stock.rs`). `laneway-lab coherence` counts both.
//!
//! **One copy more for a word, none for a stream.** What was sent must be kept until it is acknowledged. A word is copied from the ring
//! into the connection's send buffer: it is in the cache (it was just read), the ring is free again at once, and its writer begins
//! at the front of the same block. Of a stream, where so much (`kept::STREAM`) waits at once, the ring keeps the bytes itself, and
//! segments are cut out of it: what its writer sees as taken is what the peer has acknowledged, and the ring is the send buffer. If the
//! peer is so far away that a ring would not hold what is under way, they are copied after all. The connection has the ring's
//! reading half (`kept::Kept`), so bytes and block stay for as long as they are needed, whoever leaves first. Each byte is read once
//! for a segment, and its checksum is that of what was read. Receiving has no such copy: from the frame into the ring, from there
//! to the caller.
//!
//! **Who speaks all the time is not on the list.** A lane that has few conversations to serve keeps them for the next poll, and
//! looks itself: their threads then write their own line and nothing else, and neither the list nor the bell travels from core to core.
//! One that has nothing to say when its turn comes is released, and goes by the list again. A lane never sleeps while it keeps one.
//!
//! **Who works while the lane sleeps.** To wake a lane for one short message costs more than the message. A thread whose calls wait
//! will most likely wait next; if it finds the lane asleep when it has written, asked for a connection or made room, it takes the lane's turns itself, and gives up after a few
//! ([`Bells::attend`](crate::runtime::Bells::attend)). One that sends datagrams does so for the first after it has received. A thread whose calls do not wait and that was told of many sockets at once (`company`) has others to serve first: it rings, and
//! the lane serves many at a time. A thread that waits looks for a moment before it sleeps, for as long as that has been worth it
//! ([`Desk::looks`](desk::Desk::looks), and for news of many sockets the [`Lookout`](lookout::Lookout)), and as long as it looks it does a
//! sleeping lane's work
//! ([`Bells::mind`](crate::runtime::Bells::mind)).
//!
//! **What bounds what.** A ring holds [`RING`] bytes in each direction, a lane's blocks [`POOL`] bytes of each size; a
//! lane looks at [`SERVED_MAX`] conversations and takes [`COMMANDS_MAX`] commands per poll; of notes there may be
//! [`NOTES_MAX`] in a conversation, and about as many of those taken wait for bytes before them or for the connection (`wishes`); a socket is watched by [`WATCHES_MAX`] at most; a lane keeps 256 ended conversations for others, and none when it is idle. Whoever wants more waits, or is told that it would.
//! Who finds all blocks with others tries again, or is told, when there are some (`hungry`). Beside them a lane has a sixteenth as much in
//! reserve, to show what has come when nothing else is left: two hosts whose threads have written all memory full hear each other still.
//! And as much for what is written: threads that answer before they read on give back what has come for them.
//! Who says nothing holds none: the block of a word goes back after some tenth of a second, larger ones within milliseconds (`lenders`).

pub mod accept;
pub mod company;
pub mod datagram;
pub mod desk;
mod heard;
mod hungry;
mod kept;
mod lenders;
pub mod lookout;
mod patience;
pub mod poll;
pub mod reach;
mod server;
mod stock;
pub mod usual;
mod watches;
pub mod words;

pub use laneway_sync::fork;
pub use laneway_sync::wake::look_fence;
pub use server::Server;

/// Bytes that may wait in each direction of a conversation.
pub const RING: u32 = 256 * 1024;
/// Bytes of blocks of each size that a lane's conversations may hold; in each of two reserves it has a sixteenth of that.
pub const POOL: usize = 256 << 20;
/// Conversations that a lane looks at in one poll because their application asked for it.
pub const SERVED_MAX: usize = 256;
/// Conversations that a lane looks at in every poll for as long as they have something to say each time.
pub const KEPT_MAX: usize = 16;
/// Commands that a lane takes in one poll.
pub const COMMANDS_MAX: usize = 64;
/// Notes that may wait in one conversation.
pub const NOTES_MAX: u16 = 64;
/// Pollers and runtimes that may watch one socket at a time.
pub const WATCHES_MAX: u16 = 256;
