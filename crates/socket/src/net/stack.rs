//! Owns the handle of a stack whose sockets are used from any thread.

use super::inherited::Inherited;
use super::{TcpListener, UdpSocket, named};
use crate::control::ControlSocket;
use crate::error::{Why, refused};
use crate::on_lane::{
    self, BindId, BindOptions, Cidr, Config, Counters, Device, Ended, Error, ListenerId, Rates, StartError, UdpId,
};
use laneway_stack::proto::ip::output::Marks;
use laneway_stack::threads::POOL;
use laneway_stack::threads::desk::Desk;
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// A running stack whose sockets are used from any thread. Clones are the same stack; when the last one is dropped it
/// stops, and whoever waits on one of its sockets gets an error. Sockets are no handles: they do not keep it.
///
/// Dropping the last one waits, as [`stop`](Self::stop) does, for connections to end, up to the [grace](Builder::grace) period. So keep one where
/// that may be waited for, and not in a task of a runtime.
///
/// ```
/// use laneway::{Device, Stack, TcpListener, TcpStream};
/// use std::io::{Read, Write};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (here, there) = Device::memory_pair(/* lanes of each */ 1)?;
/// let server = Stack::builder(here).address("10.0.0.1/24")?.start()?;
/// let client = Stack::builder(there).address("10.0.0.2/24")?.start()?;
///
/// let listener = TcpListener::bind_on(&server, "10.0.0.1:80")?;
/// let echo = std::thread::spawn(move || -> std::io::Result<()> {
///     let (mut stream, peer) = listener.accept()?;
///     assert_eq!(peer.ip().to_string(), "10.0.0.2");
///     let mut line = [0; 5];
///     stream.read_exact(&mut line)?;
///     stream.write_all(&line)
/// });
/// let mut stream = TcpStream::connect_on(&client, "10.0.0.1:80")?;
/// stream.write_all(b"hello")?;
/// let mut answer = String::new();
/// stream.read_to_string(&mut answer)?;
/// assert_eq!(answer, "hello");
/// echo.join().unwrap()?;
/// # Ok(())
/// # }
/// ```
///
/// The constructors that `std::net` has, such as [`TcpStream::connect`](super::TcpStream::connect), use the stack that the
/// thread has [entered](Self::enter), or else the one that was [installed](Self::install) for the process.
#[derive(Clone)]
pub struct Stack(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(super) desk: Arc<Desk>,
    /// `None` once it was stopped.
    stack: Mutex<Option<on_lane::Stack>>,
    lanes: usize,
    backlog: usize,
}

static INSTALLED: RwLock<Option<Stack>> = RwLock::new(None);

thread_local! {
    /// The stacks that this thread has entered and not left, the last one last, and the number of each entry.
    static ENTERED: RefCell<Vec<(u64, Stack)>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, and none that was made after it on its thread, the thread's sockets are of one stack. Made by [`Stack::enter`].
pub struct Entered {
    number: u64,
    thread: std::marker::PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // A thread that ends may have forgotten already what it has entered.
        let left = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            let at = entered.iter().position(|(number, _)| *number == self.number)?; // not always the last one
            Some(entered.remove(at))
        });
        drop(left); // perhaps the last handle: not while the list is borrowed
    }
}

impl Stack {
    /// Begins to settle what a stack on this device shall be like.
    pub fn builder(device: Device) -> Builder {
        Builder {
            inner: on_lane::Stack::builder(device),
            spin: false,
            pin: false,
            stand_in: true,
            look: None,
            blocks: POOL,
        }
    }

    /// Until the answer is dropped, this thread's new sockets are of this stack.
    pub fn enter(&self) -> Entered {
        let number = ENTERED.with(|entered| {
            let mut entered = entered.borrow_mut();
            let number = entered.last().map_or(0, |(last, _)| last + 1);
            entered.push((number, self.clone()));
            number
        });
        Entered { number, thread: std::marker::PhantomData }
    }

    /// New sockets of all threads that have not entered another are of this stack. It stays until another is installed.
    pub fn install(&self) {
        let before = INSTALLED.write().unwrap_or_else(PoisonError::into_inner).replace(self.clone());
        drop(before);
    }

    /// The stack that this thread has entered, or that was installed.
    pub fn current() -> io::Result<Stack> {
        let entered = ENTERED.with(|entered| entered.borrow().last().map(|(_, stack)| stack.clone()));
        let found = entered.or_else(|| INSTALLED.read().unwrap_or_else(PoisonError::into_inner).clone());
        found.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotConnected,
                "no stack: start one and call `install` or `enter` on it, or use the functions that are given one",
            )
        })
    }

    /// How many lanes it has.
    pub fn lanes(&self) -> usize {
        self.0.lanes
    }

    /// What all lanes have counted so far.
    pub fn counters(&self) -> io::Result<Counters> {
        self.with(on_lane::Stack::counters)
    }

    /// Bytes that the lanes' tables hold, and bytes of blocks that conversations hold or have held.
    pub fn memory(&self) -> io::Result<(usize, usize)> {
        Ok((self.with(on_lane::Stack::table_bytes)?, self.0.desk.block_bytes()))
    }

    /// What has failed, if something has: the stack is then stopping, or has stopped.
    pub fn failure(&self) -> Option<String> {
        self.with(|stack| Ok(stack.failure())).ok().flatten()
    }

    /// The device, in words.
    pub fn device(&self) -> String {
        self.with(|stack| Ok(stack.device().to_owned())).unwrap_or_default()
    }

    /// Where it can be asked what it does, if it was [told](Builder::control) to open a socket for that.
    pub fn control_path(&self) -> Option<PathBuf> {
        self.with(|stack| Ok(stack.control_path().map(Into::into))).ok().flatten()
    }

    /// What was wished for and could not be had, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        self.with(|stack| Ok(stack.notes().to_vec())).unwrap_or_default()
    }

    /// Stops it, whatever handles there are: what was sent still goes out, connections end or, after the grace period, are
    /// reset. Calls that wait on its sockets, and all later ones, say that the network is down. A connection says so once, to whoever asks
    /// first behind the bytes that had come: from then on its reads find the end, and its writes a broken pipe. `None`: it was stopped before.
    pub fn stop(&self) -> Option<Ended> {
        if !self.0.desk.is_here() {
            return None;
        }
        let stack = self.0.stack.lock().unwrap_or_else(PoisonError::into_inner).take();
        stack.map(on_lane::Stack::stop)
    }

    /// A listener on every lane.
    pub(super) fn listen(&self, at: SocketAddr, options: BindOptions) -> io::Result<TcpListener> {
        let backlog = self.0.backlog;
        let is_v6 = at.is_ipv6();
        let (id, at) = self.with(|stack| stack.listen_with(at, backlog, options))?;
        let at = named(is_v6, at);
        Ok(TcpListener::new(self, self.0.desk.listen(id, at, backlog), Inherited::default()))
    }

    /// A listener where a socket is bound already.
    pub(super) fn listen_on(
        &self,
        (bound, at): (BindId, SocketAddr),
        backlog: u32,
        (inherited, marks): (Inherited, Marks),
    ) -> io::Result<TcpListener> {
        let backlog = self.0.backlog.min(backlog as usize);
        let id = self.with(|stack| stack.listen_marked(bound, backlog, marks))?;
        let acceptors = self.0.desk.listen(id, at, backlog);
        acceptors.set_marks(marks);
        Ok(TcpListener::new(self, acceptors, inherited))
    }

    pub(super) fn bind(&self, at: SocketAddr, options: BindOptions) -> io::Result<(BindId, SocketAddr)> {
        let is_v6 = at.is_ipv6();
        let (id, at) = self.with(|stack| stack.bind(at, options))?;
        Ok((id, named(is_v6, at)))
    }

    pub(super) fn bind_udp(&self, at: SocketAddr, options: BindOptions) -> io::Result<UdpSocket> {
        let is_v6 = at.is_ipv6();
        let (id, at) = self.with(|stack| stack.bind_udp_with(at, options))?;
        let at = named(is_v6, at);
        Ok(UdpSocket::new(self, self.0.desk.bind_udp(id, at), options.only_v6))
    }

    fn with<T>(&self, act: impl FnOnce(&on_lane::Stack) -> Result<T, Error>) -> io::Result<T> {
        self.check()?;
        let stack = self.0.stack.lock().unwrap_or_else(PoisonError::into_inner);
        let stack = stack.as_ref().ok_or(Why::Stopped)?;
        act(stack).map_err(refused)
    }

    fn check(&self) -> io::Result<()> {
        if self.0.desk.is_here() { Ok(()) } else { Err(Why::Forked.into()) }
    }
}

impl Inner {
    pub(super) fn mark(&self, id: ListenerId, marks: Marks) {
        if let Some(stack) = &*self.stack.lock().unwrap_or_else(PoisonError::into_inner) {
            stack.mark(id, marks);
        }
    }

    pub(super) fn unlisten(&self, id: ListenerId) {
        if let Some(stack) = &*self.stack.lock().unwrap_or_else(PoisonError::into_inner) {
            stack.unlisten(id);
        }
    }

    pub(super) fn unbind(&self, id: BindId) {
        if let Some(stack) = &*self.stack.lock().unwrap_or_else(PoisonError::into_inner) {
            stack.unbind(id);
        }
    }

    pub(super) fn unbind_udp(&self, id: UdpId) {
        if let Some(stack) = &*self.stack.lock().unwrap_or_else(PoisonError::into_inner) {
            stack.unbind_udp(id);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.desk.is_here() {
            // A child has none of the threads; waiting for them would be for ever.
            std::mem::forget(self.stack.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").field("lanes", &self.0.lanes).finish_non_exhaustive()
    }
}

/// What is settled before a stack starts. Made by [`Stack::builder`].
#[must_use]
pub struct Builder {
    inner: on_lane::Builder,
    spin: bool,
    pin: bool,
    stand_in: bool,
    look: Option<Duration>,
    blocks: usize,
}

impl Builder {
    /// Adds an address of ours with its network, as text: `10.0.0.2/24`, `fd00::2/64`.
    pub fn address(mut self, cidr: &str) -> Result<Self, StartError> {
        self.inner = self.inner.address(cidr)?;
        Ok(self)
    }

    /// Adds an address of ours with its network.
    pub fn cidr(self, cidr: Cidr) -> Self {
        self.change(|inner| inner.cidr(cidr))
    }

    /// Where everything goes that is in none of our networks; one of each family.
    pub fn gateway(self, gateway: IpAddr) -> Self {
        self.change(|inner| inner.gateway(gateway))
    }

    /// An address for the kernel's end of a TUN interface.
    pub fn host_address(self, cidr: Cidr) -> Self {
        self.change(|inner| inner.host_address(cidr))
    }

    /// How many lanes. A device of given queues has as many; a TUN interface one for every second core unless this says
    /// otherwise, because the application's threads need the others.
    pub fn lanes(self, lanes: usize) -> Self {
        self.change(|inner| inner.lanes(lanes))
    }

    /// Settings of TCP and of the tables.
    ///
    /// ```
    /// use laneway::on_lane::Algorithm;
    /// use laneway::{Config, Device, Stack};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut config = Config::default();
    /// config.tcp.tcp_congestion_control = Algorithm::Reno;
    /// config.tcp.msl_us = 1_000_000;
    /// let (device, _other_end) = Device::memory_pair(1)?;
    /// Stack::builder(device).address("10.0.0.1/24")?.config(config).start()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn config(self, config: Config) -> Self {
        self.change(|inner| inner.config(config))
    }

    /// How long a lane that has nothing to do keeps looking before it sleeps. Nothing, unless this says otherwise: the
    /// application's threads may be waiting for the core that it looks on.
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = true;
        self.change(|inner| inner.spin(spin))
    }

    /// Whether each lane is bound to a core of its own. Not, unless this says so: the application's threads would have to know
    /// which cores to keep away from.
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = true;
        self.change(|inner| inner.pin(pin))
    }

    /// Whether a thread whose calls wait, and which finds a lane asleep that it would have to wake, takes the lane's next turns itself. It
    /// does, unless this says otherwise: to wake a lane for a short message costs more than the message. So does a thread whose calls do not wait, unless
    /// its [`Poller`](super::Poller) or runtime has just told it of many sockets at once: then the lane has work for them all.
    pub fn stand_in(mut self, stand_in: bool) -> Self {
        self.stand_in = stand_in;
        self
    }

    /// How long a thread whose call waits looks for what it waits for before it sleeps, at the most: it does as long as that has been
    /// worth it on the same socket or [`Poller`](super::Poller). So does a runtime, between its tasks' turns. 20 µs, and nothing on a machine
    /// with one core; never more than 1 ms.
    pub fn look(mut self, look: Duration) -> Self {
        self.look = Some(look);
        self
    }

    /// How many bytes the conversations of a lane may hold, of each of the three sizes of blocks that they are made of (256 bytes, 4 KiB and 64 KiB):
    /// what was written and is not sent, and what has come and is not read. 256 MiB; however little this says, there is one block of each. Beyond
    /// that a write waits, and what comes stays with TCP, until others have let go of theirs. For each of the two there is a sixteenth of that
    /// besides, so that neither stops the other: threads that write a piece before they read the next one go on, as long as their peers read.
    pub fn blocks(mut self, bytes: usize) -> Self {
        self.blocks = bytes;
        self
    }

    /// How long [`Stack::stop`] waits for connections to end before it resets them. 1 s.
    pub fn grace(self, grace: Duration) -> Self {
        self.change(|inner| inner.grace(grace))
    }

    /// Called once with a sentence when a thread of the stack has failed: on a thread of its own, and with the stack already stopping.
    /// So it may call anything, [`Stack::stop`] too, and drop the stack; what asks the lanes may be told that they have ended. A
    /// `stop` on another thread waits for it. If it panics, nothing else comes of that.
    pub fn on_failure(self, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.change(|inner| inner.on_failure(tell))
    }

    /// Mistreats frames in both directions, by a seed.
    pub fn fault(self, rates: Rates, seed: u64) -> Self {
        self.change(|inner| inner.fault(rates, seed))
    }

    /// Writes every frame that the stack receives or sends into a pcapng file. Where that cannot go on, mostly for want of room, the capture ends
    /// with a warning and the stack does not. But a limit of the length of files (`ulimit -f`) is a signal first, which ends a process unless it is
    /// ignored or handled: SIGXFSZ.
    pub fn pcap(self, path: impl Into<PathBuf>) -> Self {
        self.change(|inner| inner.pcap(path))
    }

    /// Opens a control socket, so that `laneway ss` and its kin, and [`Client`](crate::control::Client)s of your own, can
    /// ask the running stack what it is doing. Without this there is none.
    ///
    /// ```
    /// use laneway::control::{Ask, Client, ControlSocket, SsRow};
    /// use laneway::{Device, Stack, TcpListener};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (device, _other_end) = Device::memory_pair(1)?;
    /// let path = std::env::temp_dir().join(format!("laneway-doc-net-{}.sock", std::process::id()));
    /// let stack = Stack::builder(device).address("10.0.0.1/24")?.control(ControlSocket::At(path.clone())).start()?;
    /// let _listener = TcpListener::bind_on(&stack, "10.0.0.1:80")?;
    ///
    /// let mut asking = Client::connect(&path)?;
    /// let rows: Vec<SsRow> = asking.ask(&Ask::Ss { states: vec!["listening".into()] })?.collect::<Result<_, _>>()?;
    /// assert_eq!(rows[0].local.to_string(), "10.0.0.1:80");
    /// # Ok(())
    /// # }
    /// ```
    pub fn control(self, socket: ControlSocket) -> Self {
        self.change(|inner| inner.control(socket))
    }

    /// Starts the lanes.
    pub fn start(self) -> Result<Stack, StartError> {
        let mut inner = self.inner;
        if !self.spin {
            inner = inner.spin(Duration::ZERO);
        }
        if !self.pin {
            inner = inner.pin(false);
        }
        inner = inner.stand_in(self.stand_in);
        let (backlog, usual) = (inner.somaxconn(), inner.usual());
        let mut made = None;
        let (stack, world) = inner.start_beside(|lanes, bells| {
            let (desk, servers) = Desk::with_pool(lanes, bells, self.blocks);
            made = Some(desk);
            servers
        })?;
        let desk: Arc<Desk> = made.expect("made before the lanes were");
        desk.set_usual(usual);
        desk.set_world(world);
        if let Some(look) = self.look {
            desk.set_look_us(look.as_micros().min(1_000) as u32);
        }
        let lanes = stack.lanes();
        Ok(Stack(Arc::new(Inner { desk, stack: Mutex::new(Some(stack)), lanes, backlog })))
    }

    fn change(mut self, change: impl FnOnce(on_lane::Builder) -> on_lane::Builder) -> Self {
        self.inner = change(self.inner);
        self
    }
}
