//! Linux TUN and TAP: frames to and from the kernel's own stack.
//!
//! path: `[device::rx] → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → egress → [device::tx]`
//!
//! One file descriptor per queue. A receive batch is up to 64 `read`s into buffers that were made at start; a frame is sent by one
//! `write` at commit. With offload on, each frame is preceded by a virtio header: the kernel then leaves checksums to us and takes
//! super-packets from us.
//!
//! Everything that `ip(8)` would be called for (addresses, routes, MTU, up) is in [`configure`].

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::cookies_ebpf::CookieGiver;
use crate::steering_ebpf::Steering;
use crate::{
    Alarms, BATCH_MAX, BUCKETS, Capabilities, CookieAnswer, FloodGate, Medium, Queue, Rx, RxFrame, RxMeta, Tx, TxMeta,
    frame_too_long,
};

pub mod configure;
mod error;
mod steer;
mod strangers;
mod vnet;

pub use error::TunError;

use steer::Steered;
use strangers::Strangers;
use vnet::VNET_LEN;

/// From `linux/if_tun.h`; libc has only some of them.
mod abi {
    pub const IFF_TUN: i16 = 0x0001;
    pub const IFF_TAP: i16 = 0x0002;
    pub const IFF_MULTI_QUEUE: i16 = 0x0100;
    pub const IFF_NO_PI: i16 = 0x1000;
    pub const IFF_VNET_HDR: i16 = 0x4000;
    pub const TUNSETIFF: libc::Ioctl = 0x4004_54ca_u32 as libc::Ioctl;
    pub const TUNSETPERSIST: libc::Ioctl = 0x4004_54cb_u32 as libc::Ioctl;
    pub const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0_u32 as libc::Ioctl;
    pub const TUNSETVNETHDRSZ: libc::Ioctl = 0x4004_54d8_u32 as libc::Ioctl;
    pub const TUNSETVNETLE: libc::Ioctl = 0x4004_54dc_u32 as libc::Ioctl;
    pub const TUN_F_CSUM: u32 = 0x01;
    pub const TUN_F_TSO4: u32 = 0x02;
    pub const TUN_F_TSO6: u32 = 0x04;
}

/// The most queues that a TUN device can have (`MAX_TAP_QUEUES`).
pub const QUEUES_MAX: usize = 256;

/// The largest IP packet that the kernel passes in one piece, in bytes.
const SUPER_MAX: usize = 65_535;

/// An IP address with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The address.
    pub address: IpAddr,
    /// Bits of it that name the network.
    pub len: u8,
}

impl Prefix {
    /// `address/len`.
    pub fn new(address: impl Into<IpAddr>, len: u8) -> Self {
        Prefix { address: address.into(), len }
    }
}

/// What to open, and how to set it up. The default is one TUN queue without offload on a new interface, which is brought up.
#[derive(Clone, Debug)]
pub struct TunConfig {
    /// Interface name, at most 15 bytes; `%d` in it is replaced by the first free number. An existing persistent device is attached to.
    pub name: String,
    /// [`Medium::Ip`] opens a TUN, [`Medium::Ethernet`] a TAP.
    pub medium: Medium,
    /// Queues, 1 to [`QUEUES_MAX`].
    pub queues: usize,
    /// Checksums are left partial in both directions, and we may send super-packets (`IFF_VNET_HDR`).
    pub offload: bool,
    /// The kernel may hand us TCP super-packets. Only with `offload`.
    pub receive_super: bool,
    /// MTU to set, in bytes; `None` leaves it.
    pub mtu: Option<usize>,
    /// Frames that may wait for us in each queue at least; `None` leaves the kernel's 500, which a thousand clients fill in one burst. Only
    /// done where it is allowed: an interface that was made ready for us keeps what it has.
    pub queue_len: Option<u32>,
    /// The *kernel's* addresses on this interface. Ours are whatever else lies in these networks.
    pub addresses: Vec<Prefix>,
    /// Further networks that the kernel shall find behind this interface.
    pub routes: Vec<Prefix>,
    /// Bring the interface up.
    pub up: bool,
    /// Our link address on a TAP; `None` derives one from the kernel's. Ignored on a TUN.
    pub mac: Option<[u8; 6]>,
    /// Have the kernel choose the queue by our Toeplitz hash. `None`, or a kernel that refuses: the kernel's own flow table chooses.
    pub steering: Option<SteeringConfig>,
    /// Give each queue a second one, of which nobody is shown more than its frames, for the SYNs of addresses that have never completed a handshake
    /// (see [`steering_ebpf`](crate::steering_ebpf)). While others are served, what waits there has one part in so many of the lane's time. Only with
    /// `steering`, and for at most half of [`QUEUES_MAX`]; where it cannot be had there is none.
    pub strangers_apart: Option<u32>,
}

impl Default for TunConfig {
    fn default() -> Self {
        TunConfig {
            name: "laneway%d".into(),
            medium: Medium::Ip,
            queues: 1,
            offload: false,
            receive_super: false,
            mtu: None,
            queue_len: Some(8_192),
            addresses: Vec::new(),
            routes: Vec::new(),
            up: true,
            mac: None,
            steering: None,
            strangers_apart: None,
        }
    }
}

impl TunConfig {
    /// Whether there is to be a second queue for each, as far as is asked for and can be.
    fn wants_strangers_apart(&self) -> bool {
        self.strangers_apart.is_some() && self.steering.is_some() && self.queues <= QUEUES_MAX / 2
    }
}

/// How the kernel shall spread flows over queues.
#[derive(Clone)]
pub struct SteeringConfig {
    /// The Toeplitz key; random per boot where we choose it.
    pub key: [u8; 40],
    /// The queue of each bucket.
    pub table: [u8; BUCKETS],
}

impl fmt::Debug for SteeringConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is a secret: who knows it can aim flows at one lane.
        f.debug_struct("SteeringConfig").field("table", &self.table).finish_non_exhaustive()
    }
}

/// An open TUN or TAP device.
#[derive(Debug)]
pub struct Tun {
    /// The interface's name.
    pub name: String,
    /// Its queues, by number.
    pub queues: Vec<Queue<TunRx, TunTx>>,
    /// Counters of each queue; they outlive the move of the queue to its thread.
    pub counters: Vec<Arc<TunCounters>>,
    /// The steering program, if it is in place: the table can be changed through it.
    pub steering: Option<Steering>,
    /// What the operator should know, one sentence each: what was asked for and could not be had.
    pub notes: Vec<String>,
    capabilities: Capabilities,
    control: File,
}

/// What went wrong on one queue. Written by the queue's thread, read by any.
#[derive(Debug, Default)]
pub struct TunCounters {
    /// Frames lost because the kernel had no room (`EAGAIN`, `ENOBUFS`, `ENOMEM`).
    pub tx_full: AtomicU64,
    /// Frames that the kernel refused (interface down, malformed).
    pub tx_refused: AtomicU64,
    /// Reads that failed for another reason than that nothing waits.
    pub rx_errors: AtomicU64,
    /// Received frames too short for their virtio header.
    pub rx_short: AtomicU64,
}

/// One more, by the only writer.
fn count(counter: &AtomicU64) {
    // Not `fetch_add`: only this thread writes, and a locked instruction is what a full queue needs least.
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Whether an interface can have this name: the kernel says of some that cannot be that they exist already.
pub fn check_name(name: &str) -> Result<(), TunError> {
    // `%d` stands for a number of the kernel's choice.
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':');
    if !(1..=15).contains(&name.len()) || name.contains(odd) || matches!(name, "." | "..") {
        let right = "it must have 1 to 15 bytes, without white space, '/' and ':', and be neither '.' nor '..'";
        return Err(TunError::Config(format!("{name:?} is no interface name: {right}")));
    }
    Ok(())
}

impl Tun {
    /// Opens or creates the interface, sets it up, and brings it up if asked to.
    ///
    /// An interface that was created here is gone when the last queue is dropped, unless [`Tun::set_persistent`] was called. One that
    /// somebody else has a queue of is refused and left as it is, although the kernel would give us further ones: two programs would
    /// share its traffic, and set it up in turns.
    pub fn open(config: &TunConfig) -> Result<Tun, TunError> {
        if !(1..=QUEUES_MAX).contains(&config.queues) {
            return Err(TunError::Config(format!("a TUN device has 1 to {QUEUES_MAX} queues, not {}", config.queues)));
        }
        check_name(&config.name)?;
        let mut name = config.name.clone();
        let found = configure::link::find_free(&name);
        match found {
            Ok(Some(link)) if !link.is_tun => return Err(TunError::Foreign(name)),
            Ok(Some(link)) if link.is_held => {
                return Err(TunError::Attach { name, error: io::Error::from_raw_os_error(libc::EBUSY) });
            }
            // If that cannot be learned, opening it will say what is wrong.
            _ => {}
        }
        let denied = |error| match error {
            TunError::Attach { name, error }
                if error.raw_os_error() == Some(libc::EPERM) && matches!(found, Ok(Some(_))) =>
            {
                TunError::Denied(name)
            }
            other => other,
        };
        let mut files = Vec::with_capacity(config.queues);
        let mut multi_queue = config.queues > 1 || config.wants_strangers_apart();
        for _ in 0..config.queues {
            let file = match attach(&mut name, config, multi_queue) {
                // A persistent device must be opened as it was made: with many queues even for one, or with one.
                Err(TunError::Attach { error, .. })
                    if config.queues == 1 && error.raw_os_error() == Some(libc::EINVAL) =>
                {
                    multi_queue = !multi_queue;
                    attach(&mut name, config, multi_queue)
                }
                other => other,
            };
            files.push(file.map_err(denied)?);
        }

        let is_new = matches!(found, Ok(None));
        if is_new {
            // Where it cannot be set, whoever takes the interface down gives it its addresses again.
            let _ = configure::keep_addresses(&name);
            // Where it cannot be had, it costs memory.
            let _ = configure::without_queues_before(&name);
        }

        let control = files[0].try_clone().map_err(TunError::Node)?;
        // Before the interface is up, so that no frame is placed by another rule.
        let Steered { program: steering, peers, apart, notes } = steer::steer(&control, &name, config, multi_queue)?;
        configure::set_up(&name, config, is_new)?;
        let mtu = configure::mtu(&name).map_err(|error| configure_error(&name, "the MTU", error))?;
        let mac = match config.medium {
            Medium::Ip => [0; 6],
            Medium::Ethernet => match config.mac {
                Some(mac) => mac,
                None => {
                    let kernels =
                        configure::mac(&name).map_err(|error| configure_error(&name, "the link address", error))?;
                    neighbour_of(kernels)
                }
            },
        };
        let capabilities = Capabilities {
            medium: config.medium,
            mtu,
            tx_checksum: config.offload,
            tso_max: if config.offload { SUPER_MAX } else { 0 },
            rx_checksum: config.offload,
            mac,
        };

        let cookies = Arc::new(CookieGiver::new(
            configure::index(&name).map_err(|error| configure_error(&name, "the number", error))?,
            config.medium,
            mac,
        ));
        let counters: Vec<_> = files.iter().map(|_| Arc::new(TunCounters::default())).collect();
        let mut queues = Vec::with_capacity(files.len());
        let mut apart = apart.into_iter();
        for (file, counters) in files.into_iter().zip(&counters) {
            let write_side = file.try_clone().map_err(TunError::Node)?;
            let strangers = match (&peers, apart.next(), config.strangers_apart) {
                (Some(peers), Some(theirs), Some(parts)) => Some(Strangers::new(theirs, peers.clone(), parts)),
                _ => None,
            };
            queues.push(Queue {
                rx: TunRx {
                    strangers,
                    ..TunRx::new(file, &name, config, &capabilities, counters.clone(), cookies.clone())
                },
                tx: TunTx::new(write_side, config.offload, capabilities, counters.clone()),
            });
        }
        Ok(Tun { name, queues, counters, steering, notes, capabilities, control })
    }

    /// What the device can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Whether the interface outlives this program.
    pub fn set_persistent(&self, persistent: bool) -> io::Result<()> {
        ioctl_value(self.control.as_fd(), abi::TUNSETPERSIST, u64::from(persistent))
    }
}

fn configure_error(name: &str, what: &str, error: io::Error) -> TunError {
    TunError::Configure { name: name.into(), what: what.into(), error }
}

/// A link address that differs from the kernel's in one bit, and is marked as locally administered and unicast.
fn neighbour_of(mut mac: [u8; 6]) -> [u8; 6] {
    mac[0] = mac[0] & 0xfe | 0x02;
    mac[5] ^= 1;
    mac
}

/// Opens one queue; puts the name that the kernel chose into `name`.
fn attach(name: &mut String, config: &TunConfig, multi_queue: bool) -> Result<File, TunError> {
    // `File` opens with O_CLOEXEC.
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(TunError::Node)?;
    let mut request = configure::ifreq(name);
    let kind = match config.medium {
        Medium::Ip => abi::IFF_TUN,
        Medium::Ethernet => abi::IFF_TAP,
    };
    let flags = kind
        | abi::IFF_NO_PI
        | if multi_queue { abi::IFF_MULTI_QUEUE } else { 0 }
        | if config.offload { abi::IFF_VNET_HDR } else { 0 };
    request.ifr_ifru.ifru_flags = flags;
    let failed = |name: &str, error| TunError::Attach { name: name.into(), error };
    configure::ioctl_ifreq(file.as_fd(), abi::TUNSETIFF, &mut request).map_err(|error| failed(name, error))?;
    *name = configure::name_of(&request);
    if config.offload {
        let offload = abi::TUN_F_CSUM | if config.receive_super { abi::TUN_F_TSO4 | abi::TUN_F_TSO6 } else { 0 };
        ioctl_int(file.as_fd(), abi::TUNSETVNETHDRSZ, VNET_LEN as i32).map_err(|error| failed(name, error))?;
        // virtio 1 byte order; the header is written little-endian by `vnet`, whatever the machine.
        ioctl_int(file.as_fd(), abi::TUNSETVNETLE, 1).map_err(|error| failed(name, error))?;
        ioctl_value(file.as_fd(), abi::TUNSETOFFLOAD, u64::from(offload)).map_err(|error| failed(name, error))?;
    } else {
        // An interface that outlived another program still leaves checksums to us, if that one took them.
        ioctl_value(file.as_fd(), abi::TUNSETOFFLOAD, 0).map_err(|error| failed(name, error))?;
    }
    Ok(file)
}

/// How many frames may wait in each queue of the interface.
pub(crate) fn queue_len(name: &str) -> io::Result<usize> {
    let (any_socket, mut request) = (UnixDatagram::unbound()?, configure::ifreq(name));
    configure::ioctl_ifreq(any_socket.as_fd(), libc::SIOCGIFTXQLEN as libc::Ioctl, &mut request)?;
    // SAFETY: SIOCGIFTXQLEN fills in `ifr_qlen`, which is this member by another name.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex } as usize)
}

/// An ioctl whose argument is a number.
fn ioctl_value(fd: BorrowedFd<'_>, request: libc::Ioctl, value: u64) -> io::Result<()> {
    // SAFETY: the requests that this is called with (TUNSETOFFLOAD, TUNSETPERSIST) take their argument by value; no memory is passed.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, value as libc::c_ulong) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// An ioctl whose argument points to an int.
pub(crate) fn ioctl_int(fd: BorrowedFd<'_>, request: libc::Ioctl, value: i32) -> io::Result<()> {
    // SAFETY: the requests that this is called with read one int through the pointer; `value` lives through the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw const value) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The receiving half of one TUN queue.
pub struct TunRx {
    file: File,
    slots: Slots,
    /// The queue beside it, if there is one.
    strangers: Option<Strangers>,
    /// What answers in the kernel.
    pub(crate) cookies: Arc<CookieGiver>,
    counters: Arc<TunCounters>,
    name: String,
    /// The interface is gone.
    failure: Option<String>,
}

/// Bytes of a slot before the frame: the virtio header fits in, and the frame begins on a multiple of 16.
const SLOT_HEADROOM: usize = 16;

/// Where frames are read to.
struct Slots {
    /// [`BATCH_MAX`] slots of `stride` bytes.
    buffers: Box<[u8]>,
    stride: usize,
    vnet: bool,
    /// Length and meaning of each lent frame.
    lent: Box<[(u32, RxMeta); BATCH_MAX]>,
    count: usize,
}

impl Slots {
    /// Reads until there are `max` frames or no more wait. An error is why there are no more, if it is another reason than that.
    fn fill(&mut self, mut file: &File, max: usize, counters: &TunCounters) -> Result<(), io::Error> {
        let before = if self.vnet { SLOT_HEADROOM - VNET_LEN } else { SLOT_HEADROOM };
        while self.count < max {
            let slot = &mut self.buffers[self.count * self.stride..][..self.stride];
            let got = match file.read(&mut slot[before..]) {
                Ok(0) => break,
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let (len, meta) = if self.vnet {
                let header = slot[before..].first_chunk::<VNET_LEN>().expect("a slot is longer than the header");
                let Some(len) = got.checked_sub(VNET_LEN) else {
                    count(&counters.rx_short);
                    continue;
                };
                (len, vnet::parse(header))
            } else {
                (got, RxMeta::default())
            };
            self.lent[self.count] = (len as u32, meta);
            self.count += 1;
        }
        Ok(())
    }
}

impl TunRx {
    fn new(
        file: File,
        name: &str,
        config: &TunConfig,
        capabilities: &Capabilities,
        counters: Arc<TunCounters>,
        cookies: Arc<CookieGiver>,
    ) -> Self {
        // An operator can raise the MTU while we run. A frame that is then too long is cut off by the kernel, and refused by the stack.
        let packet = if config.offload && config.receive_super { SUPER_MAX } else { capabilities.mtu.max(1500) };
        let stride = (SLOT_HEADROOM + capabilities.medium.header_len() + packet).next_multiple_of(64);
        let slots = Slots {
            buffers: vec![0; stride * BATCH_MAX].into(),
            stride,
            vnet: config.offload,
            lent: Box::new([(0, RxMeta::default()); BATCH_MAX]),
            count: 0,
        };
        TunRx { file, slots, strangers: None, cookies, counters, name: name.into(), failure: None }
    }

    /// The kernel lends us nothing: for now, or for ever.
    #[cold]
    fn refused(&mut self, error: &io::Error) {
        count(&self.counters.rx_errors);
        if let Some(libc::EBADFD | libc::ENODEV | libc::EIO) = error.raw_os_error() {
            let name = &self.name;
            let failure = || format!("the interface {name} is gone: somebody has deleted it or cut it off ({error})");
            self.failure.get_or_insert_with(failure);
        }
    }
}

impl Rx for TunRx {
    fn poll(&mut self, max: usize) -> usize {
        self.release();
        let max = max.min(BATCH_MAX);
        let mut filled = self.slots.fill(&self.file, max, &self.counters);
        if let Some(strangers) = &mut self.strangers {
            let own = self.slots.count;
            let theirs = strangers.allowance(own, max - own);
            if theirs > 0 {
                filled = filled.and(self.slots.fill(&strangers.file, own + theirs, &self.counters));
                strangers.taken(self.slots.count - own, self.slots.count);
            }
        }
        if let Err(error) = filled {
            self.refused(&error);
        }
        self.slots.count
    }

    #[inline]
    fn frame(&self, i: usize) -> RxFrame<'_> {
        let slots = &self.slots;
        assert!(i < slots.count, "frame {i} of {} lent", slots.count);
        let (len, meta) = slots.lent[i];
        RxFrame { bytes: &slots.buffers[i * slots.stride + SLOT_HEADROOM..][..len as usize], meta }
    }

    fn release(&mut self) {
        self.slots.count = 0;
        if let Some(strangers) = &mut self.strangers {
            strangers.released();
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn aside(&self) -> Option<BorrowedFd<'_>> {
        self.strangers.as_ref().map(|strangers| strangers.file.as_fd())
    }

    fn floodgate(&mut self) -> Option<&mut dyn FloodGate> {
        Some(self)
    }

    fn failed(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

impl FloodGate for TunRx {
    fn rests(&self) -> Duration {
        self.strangers.as_ref().map_or(Duration::ZERO, Strangers::rest)
    }

    fn look_aside(&mut self) {
        self.strangers.iter_mut().for_each(Strangers::wait);
    }

    fn vouch(&mut self, peer: IpAddr) {
        if let Some(strangers) = &mut self.strangers {
            strangers.vouch(peer);
        }
    }

    fn overrun(&mut self, how: &CookieAnswer) {
        self.cookies.answer(how);
    }

    fn alarms(&self) -> Alarms {
        self.cookies.alarms()
    }

    fn answered(&mut self) -> u64 {
        self.cookies.answered()
    }
}

impl fmt::Debug for TunRx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunRx")
            .field("fd", &self.file.as_raw_fd())
            .field("lent", &self.slots.count)
            .finish_non_exhaustive()
    }
}

/// The sending half of one TUN queue.
pub struct TunTx {
    file: File,
    /// One frame, after [`SLOT_HEADROOM`] bytes.
    buffer: Box<[u8]>,
    vnet: bool,
    capabilities: Capabilities,
    counters: Arc<TunCounters>,
}

impl TunTx {
    fn new(file: File, vnet: bool, capabilities: Capabilities, counters: Arc<TunCounters>) -> Self {
        let buffer = vec![0; SLOT_HEADROOM + capabilities.frame_max()].into();
        TunTx { file, buffer, vnet, capabilities, counters }
    }
}

/// Up to so many bytes a frame is copied together, and one buffer given to the kernel instead of four.
const SMALL: usize = 16 << 10;

/// Writes one frame, which is taken whole or not at all.
fn write_frame(mut file: &File, counters: &TunCounters, parts: &[IoSlice<'_>]) {
    loop {
        let Err(error) = file.write_vectored(parts) else {
            return;
        };
        match error.raw_os_error() {
            Some(libc::EINTR) => continue,
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => count(&counters.tx_full),
            _ => count(&counters.tx_refused),
        }
        return;
    }
}

impl Tx for TunTx {
    #[inline]
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    #[inline]
    fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.capabilities.frame_max() {
            frame_too_long(len, self.capabilities.frame_max());
        }
        Some(&mut self.buffer[SLOT_HEADROOM..][..len])
    }

    fn commit(&mut self, len: usize, meta: TxMeta) {
        let mut begin = SLOT_HEADROOM;
        let end = SLOT_HEADROOM + len;
        if self.vnet {
            begin -= VNET_LEN;
            let link = self.capabilities.medium.header_len();
            let is_v6 = self.buffer.get(SLOT_HEADROOM + link).is_some_and(|first| first >> 4 == 6);
            self.buffer[begin..SLOT_HEADROOM].copy_from_slice(&vnet::emit(&meta, is_v6));
        }
        let frame = IoSlice::new(&self.buffer[begin..end]);
        write_frame(&self.file, &self.counters, &[frame]);
    }

    fn gathers(&self, len: usize) -> bool {
        len > SMALL
    }

    fn gather(&mut self, parts: [&[u8]; 3], meta: TxMeta) -> bool {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len > self.capabilities.frame_max() {
            frame_too_long(len, self.capabilities.frame_max());
        }
        let is_v6 = parts[0].get(self.capabilities.medium.header_len()).is_some_and(|first| first >> 4 == 6);
        let vnet = vnet::emit(&meta, is_v6);
        let [head, a, b] = parts.map(IoSlice::new);
        let vnet = IoSlice::new(if self.vnet { &vnet } else { &[] });
        write_frame(&self.file, &self.counters, &[vnet, head, a, b]);
        true
    }

    fn flush(&mut self) {}
}

impl fmt::Debug for TunTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunTx")
            .field("fd", &self.file.as_raw_fd())
            .field("capabilities", &self.capabilities)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
