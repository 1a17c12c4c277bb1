//! Owns what sockets of any kind are to the application threads: the calls of `std::net`, and a poller.

use std::io;

/// A socket that something happened to.
#[derive(Clone, Copy)]
pub struct Ready {
    /// The name that it was given.
    pub key: usize,
    /// A write would not wait.
    pub writable: bool,
}

/// Sockets of one kind.
pub trait Net: Send + Sync {
    /// A connection.
    type Stream: Send;
    /// A listener.
    type Listener;
    /// Waits for many of them.
    type Poller;

    /// What the applications use, for the table: with blocking calls, …
    const BLOCKING: &'static str;
    /// … and with a poller.
    const POLLING: &'static str;
    /// What packets cross.
    const DEVICE: &'static str;
    /// Threads of the network's own.
    const LANES: usize;

    /// Who computes checksums.
    fn checksums(&self) -> &'static str;
    /// Seconds of processor time that the network's own threads have had so far, and that others have had in their stead; `None`: it
    /// has none of its own.
    fn lane_cpu_s(&self) -> Option<f64>;
    /// TIME_WAIT records that went before their time, from the very start; `None`: it cannot be asked.
    fn tw_evicted(&self) -> Option<u64>;
    /// For a reader.
    fn remarks(&self) -> String {
        String::new()
    }

    /// The listener of a pair of threads.
    fn listen(&self, pair: usize) -> io::Result<Self::Listener>;
    /// Takes a connection; whether it waits is as `set_nonblocking` says.
    fn accept(&self, listener: &Self::Listener) -> io::Result<Self::Stream>;
    /// Listeners are for pollers.
    fn accept_without_waiting(&self, listener: &Self::Listener) -> io::Result<()>;
    /// Opens a connection to the listener of a pair. `number` shares them out over addresses.
    fn connect(&self, pair: usize, number: usize) -> io::Result<Self::Stream>;
    /// Begins to open one; it becomes writable.
    fn begin(&self, pair: usize, number: usize) -> io::Result<Self::Stream>;
    /// Neither small segments nor calls wait, and a drop resets if `resets`.
    fn prepare(&self, stream: &Self::Stream, nonblocking: bool, resets: bool) -> io::Result<()>;
    /// `read`.
    fn read(&self, stream: &Self::Stream, buf: &mut [u8]) -> io::Result<usize>;
    /// `write`.
    fn write(&self, stream: &Self::Stream, buf: &[u8]) -> io::Result<usize>;

    /// A poller of nothing.
    fn poller(&self) -> io::Result<Self::Poller>;
    /// Watches for connections.
    fn watch_listener(&self, poller: &Self::Poller, listener: &Self::Listener, key: usize) -> io::Result<()>;
    /// Watches for bytes, by edges; and for room, if `writes`.
    fn watch(&self, poller: &Self::Poller, stream: &Self::Stream, key: usize, writes: bool) -> io::Result<()>;
    /// Room is of no interest any more.
    fn watch_reads(&self, poller: &Self::Poller, stream: &Self::Stream, key: usize) -> io::Result<()>;
    /// Ends the watching of a stream that is about to be dropped.
    fn forget(&self, poller: &Self::Poller, stream: &Self::Stream, key: usize) -> io::Result<()>;
    /// Appends what is ready, after 20 ms at the latest.
    fn wait(&self, poller: &mut Self::Poller, ready: &mut Vec<Ready>) -> io::Result<()>;
}
