//! Owns the handle of a running stack.

use super::{BindId, BindOptions, Bucket, Counters, Error, ListenerId, RouteTable, Slice, Tallies, UdpId};
use crate::control::ControlServer;
use laneway_stack::proto::ip::output::Marks;
use laneway_stack::runtime::{Bells, Runtime};
use std::net::SocketAddr;

/// A running stack. Made by [`Builder::start`](super::Builder::start); dropping it stops it.
pub struct Stack {
    /// Dropped first: it asks the others.
    pub(super) control: Option<ControlServer>,
    pub(super) runtime: Runtime,
    pub(super) lanes: usize,
    pub(super) device: String,
    pub(super) notes: Vec<String>,
    pub(super) capture: Option<laneway_stack::device::pcap::Capture>,
}

/// How a stack ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Everything that the lanes counted.
    pub counters: Counters,
    /// What failed, in a sentence, if something did.
    pub failure: Option<String>,
}

/// Wakes lanes from other threads, so that their [`App::on_poll`](super::App::on_poll) is called soon.
///
/// ```
/// use laneway::on_lane::{App, ConnId, Context, Device, Stack};
/// use std::sync::mpsc::{Receiver, Sender, channel};
///
/// /// Doubles what it is told.
/// struct Doubler {
///     told: Receiver<u32>,
///     answers: Sender<u32>,
/// }
/// impl App for Doubler {
///     fn on_poll(&mut self, _: &mut Context<'_>) {
///         while let Ok(number) = self.told.try_recv() {
///             let _ = self.answers.send(2 * number);
///         }
///     }
///     fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
///         data.len()
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (device, _other_end) = Device::memory_pair(/* lanes of each */ 1)?;
/// let ((tell, told), (answers, heard)) = (channel(), channel());
/// let mut doubler = Some(Doubler { told, answers });
/// let stack = Stack::builder(device).address("10.0.0.1/24")?.start(move |_| doubler.take().expect("one lane"))?;
/// let waker = stack.waker(); // a copy for each thread
/// std::thread::spawn(move || {
///     tell.send(21).expect("the lane listens"); // first what it shall find …
///     waker.wake(0); // … then the bell
/// });
/// assert_eq!(heard.recv()?, 42);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Waker(Bells);

impl Waker {
    /// Wakes one lane. Costs a system call only if it sleeps. Publish what it shall find first.
    pub fn wake(&self, lane: usize) {
        self.0.ring(lane);
    }

    /// Wakes all.
    pub fn wake_all(&self) {
        self.0.ring_all();
    }
}

impl Stack {
    /// Listens on every lane. A SYN that is sent after this has returned cannot miss it. `backlog` is how many
    /// finished connections may wait to be accepted; over several lanes each has its share and 16 more.
    pub fn listen(&self, at: SocketAddr, backlog: usize) -> Result<ListenerId, Error> {
        self.runtime.listen(at, backlog)
    }

    /// As [`listen`](Self::listen), with socket options. The answer tells the port, if `at` had port 0.
    pub fn listen_with(
        &self,
        at: SocketAddr,
        backlog: usize,
        options: BindOptions,
    ) -> Result<(ListenerId, SocketAddr), Error> {
        self.runtime.listen_with(at, backlog, options)
    }

    /// Binds a TCP socket, to [listen](Self::listen_on) or to connect from with [`Context::connect_from`](super::Context::connect_from). The answer tells the
    /// port, if `at` had port 0.
    ///
    /// ```
    /// use laneway::on_lane::{Address, App, BindId, BindOptions, ConnId, Context, Device, Error, Stack};
    /// use std::sync::mpsc;
    ///
    /// /// Connects from a port that it is told.
    /// struct Caller {
    ///     lane: usize,
    ///     bound: mpsc::Receiver<BindId>,
    ///     from: mpsc::Sender<u16>,
    /// }
    /// impl App for Caller {
    ///     fn on_poll(&mut self, cx: &mut Context<'_>) {
    ///         let Ok(bound) = self.bound.try_recv() else { return };
    ///         match cx.connect_from(bound, Address::from_v4([10, 0, 0, 1]), 80, /* token= */ 0) {
    ///             Ok(_) => {}
    ///             // Over several lanes one alone may: pass the wish on to it, and wake it.
    ///             Err(Error::OtherLane(lane)) => assert_ne!(lane, self.lane),
    ///             Err(error) => panic!("{error}"),
    ///         }
    ///     }
    ///     fn on_connect(&mut self, cx: &mut Context<'_>, connection: ConnId) {
    ///         let _ = self.from.send(cx.flow(connection).expect("it is there").local_port);
    ///     }
    ///     fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
    ///         data.len()
    ///     }
    /// }
    ///
    /// /// Takes what comes.
    /// struct Sink;
    /// impl App for Sink {
    ///     fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
    ///         data.len()
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (here, there) = Device::memory_pair(/* lanes of each */ 1)?;
    /// let server = Stack::builder(there).address("10.0.0.1/24")?.start(|_| Sink)?;
    /// server.listen("10.0.0.1:80".parse()?, 16)?;
    ///
    /// let ((tell, bound), (from, heard)) = (mpsc::channel(), mpsc::channel());
    /// let mut caller = Some(Caller { lane: 0, bound, from });
    /// let client = Stack::builder(here).address("10.0.0.2/24")?.start(move |_| caller.take().expect("one lane"))?;
    /// let (id, at) = client.bind("10.0.0.2:0".parse()?, BindOptions::default())?;
    /// tell.send(id)?;
    /// client.waker().wake_all();
    /// assert_eq!(heard.recv()?, at.port());
    /// # Ok(())
    /// # }
    /// ```
    pub fn bind(&self, at: SocketAddr, options: BindOptions) -> Result<(BindId, SocketAddr), Error> {
        self.runtime.bind(at, options)
    }

    /// Makes a bound socket listen.
    pub fn listen_on(&self, bound: BindId, backlog: usize) -> Result<ListenerId, Error> {
        self.listen_marked(bound, backlog, Marks::NONE)
    }

    /// The same; the packets to whoever calls are marked.
    pub(crate) fn listen_marked(&self, bound: BindId, backlog: usize, marks: Marks) -> Result<ListenerId, Error> {
        self.runtime.listen_on(bound, backlog, marks)
    }

    /// Gives a bound socket up. Connections from it go on.
    pub fn unbind(&self, bound: BindId) {
        self.runtime.unbind(bound);
    }

    /// The destinations that this stack has connections to, `most` from each lane and the busiest first: how many ports each lane
    /// has towards them and how many of those are in use; and what choosing ports has cost. No lane stops for it.
    pub fn ports(&self, most: usize) -> Result<(Vec<Slice>, Tallies), Error> {
        self.runtime.ports(most)
    }

    /// Marks the packets to whoever calls a listener from now on.
    pub(crate) fn mark(&self, listener: ListenerId, marks: Marks) {
        self.runtime.mark(listener, marks);
    }

    /// Stops listening. Connections that nobody has accepted are reset; others go on.
    pub fn unlisten(&self, listener: ListenerId) {
        self.runtime.unlisten(listener);
    }

    /// Binds a UDP socket on every lane. A flow's datagrams stay in order, because they stay on one lane; between flows
    /// there is no order.
    ///
    /// ```
    /// use laneway::on_lane::{App, ConnId, Context, Device, Stack, UdpId};
    /// use std::net::SocketAddr;
    ///
    /// /// Sends each datagram back.
    /// struct Echo;
    /// impl App for Echo {
    ///     fn on_datagram(&mut self, cx: &mut Context<'_>, socket: UdpId, from: SocketAddr, data: &[u8]) {
    ///         cx.send_datagram(socket, from, data); // false: the socket's queue is full
    ///     }
    ///     fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
    ///         data.len()
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (here, there) = Device::memory_pair(/* lanes of each */ 2)?;
    /// let echo = Stack::builder(here).address("10.0.0.1/24")?.start(|_lane| Echo)?;
    /// echo.bind_udp("10.0.0.1:7".parse()?)?;
    ///
    /// // Its client here is a socket of a thread.
    /// let client = laneway::Stack::builder(there).address("10.0.0.2/24")?.start()?;
    /// let socket = laneway::UdpSocket::bind_on(&client, "10.0.0.2:0")?;
    /// socket.send_to(b"hello", "10.0.0.1:7")?;
    /// let mut back = [0; 16];
    /// assert_eq!(socket.recv_from(&mut back)?, (5, "10.0.0.1:7".parse()?));
    /// # Ok(())
    /// # }
    /// ```
    pub fn bind_udp(&self, at: SocketAddr) -> Result<UdpId, Error> {
        self.runtime.bind_udp(at)
    }

    /// As [`bind_udp`](Self::bind_udp), with socket options. The answer tells the port, if `at` had port 0.
    pub fn bind_udp_with(&self, at: SocketAddr, options: BindOptions) -> Result<(UdpId, SocketAddr), Error> {
        self.runtime.bind_udp_with(at, options)
    }

    /// Closes a UDP socket on every lane.
    pub fn unbind_udp(&self, socket: UdpId) {
        self.runtime.unbind_udp(socket);
    }

    /// Puts other routes in the place of all that there are, those to our own networks included. Packets go by them from
    /// each lane's next poll on; no lane stops for it. Where a route's source is no address of the stack's, all stays as it is:
    /// [`Error::AddressNotAvailable`].
    ///
    /// ```
    /// use laneway::on_lane::{Address, Prefix, Route, RouteTable};
    /// let network = Prefix::new(Address::from_v4([10, 0, 0, 0]), 24).unwrap();
    /// let on_link = Route { prefix: network, next_hop: None, interface: 0, mtu: None, source: None };
    /// let table = RouteTable::builder().add(on_link).build().unwrap(); // to be given to `replace_routes`
    /// assert_eq!(table.len(), 1);
    /// ```
    pub fn replace_routes(&self, routes: RouteTable) -> Result<(), Error> {
        self.runtime.replace_routes(routes)
    }

    /// Gives the flows of a steering bucket (0 to 127) that begin from now on to a lane. Connections that exist stay on theirs until
    /// they end; a bucket that still has such is moved a second time only when they have ended. Nothing is lost by it, and no lane
    /// stops for it: [`buckets`](Self::buckets) tells how far it has come.
    pub fn move_bucket(&self, bucket: usize, lane: usize) -> Result<(), Error> {
        self.runtime.move_bucket(bucket, lane)
    }

    /// Every steering bucket, by number: whose it is, and whether it moves.
    pub fn buckets(&self) -> Result<Vec<Bucket>, Error> {
        self.runtime.buckets()
    }

    /// What all lanes have counted so far. No lane stops for it.
    pub fn counters(&self) -> Result<Counters, Error> {
        // What lies there in a child its parent writes.
        if let Some(capture) = self.capture.as_ref().filter(|_| self.runtime.is_here()) {
            let _ = capture.flush();
        }
        self.runtime.counters().map(|(counters, _)| counters)
    }

    /// Bytes that the lanes' tables hold.
    pub fn table_bytes(&self) -> Result<usize, Error> {
        self.runtime.counters().map(|(_, bytes)| bytes)
    }

    /// How many lanes it has.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// The device, in words.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// What was wished for and could not be had, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Where its control socket is, if it has one.
    pub fn control_path(&self) -> Option<&std::path::Path> {
        self.control.as_ref().map(ControlServer::path)
    }

    /// For threads that have something for the lanes.
    pub fn waker(&self) -> Waker {
        Waker(self.runtime.bells().clone())
    }

    /// What has failed, if something has: the stack is then stopping, or has stopped.
    pub fn failure(&self) -> Option<String> {
        self.runtime.failure()
    }

    /// Stops: listeners close, the application is told ([`App::on_stop`](super::App::on_stop)), connections end or, after
    /// the grace period, are reset; the threads are joined.
    pub fn stop(self) -> Ended {
        let Stack { control, runtime, capture, .. } = self;
        drop(control);
        let capture = capture.filter(|_| runtime.is_here());
        let ended = runtime.stop();
        let mut failure = ended.failure;
        if let Some(Err(error)) = capture.map(|capture| capture.flush()) {
            failure.get_or_insert_with(|| format!("the capture could not be written: {error}"));
        }
        Ended { counters: ended.counters, failure }
    }
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").field("device", &self.device).field("lanes", &self.lanes).finish_non_exhaustive()
    }
}
