//! SYN cookies as a program in the kernel: while a lane has no room for half-open connections, SYNs are answered where they are sent.
//!
//! A SYN that reaches a lane through TUN has cost a `read`, and its SYN-ACK costs a `write`: some 3 µs, whatever the lane does in between, and a core
//! can send more of them than another can take. This program is asked for each packet that leaves by the interface (`BPF_TCX_EGRESS`, Linux 6.6).
//! What it finds to be a SYN to an [endpoint that is overrun](CookieAnswer) it turns into the SYN-ACK that the lane would have sent, and hands back
//! where it came from. All of it is done by whoever sent the SYN, in his time. The lane sees the ACKs of those who are real.
//!
//! ```text
//! SYN to an endpoint that is overrun  → SYN-ACK, whose sequence number is laneway_proto::tcp::cookie::encode, bit for bit
//! RST to one, of such a SYN-ACK       → dropped: the lane knows of no connection that it could end
//! everything else                     → goes on as without the program
//! ```
//!
//! The second line is for whoever floods us from an address where somebody answers: his system refuses each SYN-ACK with a RST, and those would be as many
//! as the SYNs. Which SYN-ACK was sent last is noted by a hash of its flow in one of 65,536 places.
//!
//! What is not as nearly all SYNs are goes to the lane: with text, with IP options or extension headers, in a VLAN, to another link address, with options
//! that say nothing sensible.
//! Checksums are not looked at, of most packets nobody has computed them yet: who sends a SYN of which a bit fell over is
//! offered something else than he wanted, and that is all.
//!
//! # What it does not know
//! Whether the flow has a connection, a half-open entry, or a record in TIME-WAIT. A SYN there is answered with a cookie, too, and the lane has to judge
//! the ACK: an entry makes room for it, a record by RFC 6191 (`laneway_proto::tcp::TimeWait`), and a connection challenges what it does not expect.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::ebpf::kernel::{
    BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_LRU_HASH, Kind, attach_egress, create_map, load_program, look_up, try_out, update,
};
use crate::{Alarms, CookieAnswer, Medium};
use program::{Maps, assemble};

mod program;

/// Of so many of the last SYN-ACKs is known what a RST that refuses them says.
const RECENT: u32 = 65_536;
/// So many endpoints may be overrun at a time; beyond them the kernel forgets whichever nobody has asked for.
const ENDPOINTS_MAX: u32 = 1_024;
/// For so long an endpoint counts as overrun after a lane has said so.
const LASTS: Duration = Duration::from_secs(2);
/// A lane that says so again within this time has not said anything new.
const AGAIN: Duration = Duration::from_millis(200);

/// An endpoint of ours, as the program finds it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Endpoint {
    /// The address's bytes; of IPv4 four and zeros.
    address: [u8; 16],
    /// In the network's order.
    port: [u8; 2],
    /// 4 or 6, in this machine's order.
    version: u16,
}

/// What the program needs for an endpoint's SYN-ACKs.
#[repr(C)]
#[derive(Clone, Copy)]
struct Recipe {
    /// On the kernel's clock.
    until_ns: u64,
    /// What is to be added to the microseconds of that clock to have the lane's.
    offset_us: u64,
    cookie: [u64; 2],
    timestamp: [u64; 2],
    mss_table: [u16; 8],
    /// In the network's order, as the window.
    mss: [u8; 2],
    window: [u8; 2],
    hop_limit: u8,
    window_scale: u8,
    accepts: u8,
    traffic_class: u8,
}

const _: () = assert!(size_of::<Endpoint>() == 20 && size_of::<Recipe>() == 72);

/// Where the fields of a [`Recipe`] are.
mod recipe {
    use super::Recipe;
    use std::mem::offset_of;

    pub const UNTIL_NS: i16 = offset_of!(Recipe, until_ns) as i16;
    pub const OFFSET_US: i16 = offset_of!(Recipe, offset_us) as i16;
    pub const COOKIE: i16 = offset_of!(Recipe, cookie) as i16;
    pub const TIMESTAMP: i16 = offset_of!(Recipe, timestamp) as i16;
    pub const MSS_TABLE: i16 = offset_of!(Recipe, mss_table) as i16;
    pub const MSS: i16 = offset_of!(Recipe, mss) as i16;
    pub const WINDOW: i16 = offset_of!(Recipe, window) as i16;
    pub const HOP_LIMIT: i16 = offset_of!(Recipe, hop_limit) as i16;
    pub const WINDOW_SCALE: i16 = offset_of!(Recipe, window_scale) as i16;
    pub const TRAFFIC_CLASS: i16 = offset_of!(Recipe, traffic_class) as i16;
    pub const ACCEPTS: i16 = offset_of!(Recipe, accepts) as i16;
    /// Bits of the last.
    pub const ACCEPTS_TIMESTAMPS: i32 = 1;
    pub const ACCEPTS_SACK: i32 = 2;
    pub const ACCEPTS_SCALES: i32 = 4;
    pub const ACCEPTS_ECN: i32 = 8;
}

/// The program for one interface, shared by its queues. The kernel is asked for it when an endpoint is overrun for the first time.
#[derive(Debug)]
pub(crate) struct CookieGiver {
    state: Mutex<State>,
    alarms: Alarms,
}

/// Where the program is to be asked.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The interface's number.
    interface: u32,
    medium: Medium,
    /// The stack's own link address.
    mac: [u8; 6],
}

#[derive(Debug)]
enum State {
    Unasked(Place),
    /// A thread of its own has the kernel check the program, which takes it some ten milliseconds: no lane waits for that.
    Loading,
    Attached(Attached),
    /// The kernel has refused. It is not asked again.
    Refused,
}

#[derive(Debug)]
struct Attached {
    loaded: Loaded,
    counted: u64,
    told: HashMap<Endpoint, Instant>,
    /// Until this is closed the kernel asks the program.
    _link: OwnedFd,
}

/// The program and its maps.
#[derive(Debug)]
struct Loaded {
    program: OwnedFd,
    endpoints: OwnedFd,
    count: OwnedFd,
}

impl CookieGiver {
    /// For the interface with this number, behind which the stack has this link address.
    pub(crate) fn new(interface: u32, medium: Medium, mac: [u8; 6]) -> Self {
        let place = Place { interface, medium, mac };
        CookieGiver { state: Mutex::new(State::Unasked(place)), alarms: Alarms::default() }
    }

    /// What tells that an endpoint is overrun.
    pub(crate) fn alarms(&self) -> Alarms {
        self.alarms.clone()
    }

    /// Nobody holds it for longer than the kernel needs to look something up.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has SYNs answered so for a while.
    #[cold]
    pub(crate) fn answer(self: &Arc<Self>, how: &CookieAnswer) {
        let Ok(recipe) = Recipe::of(how) else { return };
        let mut state = self.state();
        match &mut *state {
            &mut State::Unasked(place) => {
                let (giver, endpoint) = (Arc::clone(self), Endpoint::of(how));
                let loads = thread::Builder::new().name("laneway-cookies".into());
                *state = match loads.spawn(move || giver.load(place, endpoint, recipe)) {
                    Ok(_) => State::Loading,
                    Err(_) => State::Refused,
                };
            }
            State::Attached(attached) => attached.tell(Endpoint::of(how), recipe, &self.alarms),
            State::Loading | State::Refused => {}
        }
    }

    fn load(&self, place: Place, endpoint: Endpoint, recipe: Recipe) {
        let attached = Attached::new(place);
        let mut state = self.state();
        *state = match attached {
            Ok(mut attached) => {
                attached.tell(endpoint, recipe, &self.alarms);
                State::Attached(attached)
            }
            Err(_) => State::Refused,
        };
    }

    /// SYNs that have been answered since this was asked last.
    pub(crate) fn answered(&self) -> u64 {
        let mut state = self.state();
        let State::Attached(attached) = &mut *state else { return 0 };
        let mut count = 0u64;
        // SAFETY: a `u32` has the map's key size (4) and a `u64` its value size (8), and any bytes make one.
        if unsafe { look_up(&attached.loaded.count, &0u32, &mut count) }.is_err() {
            return 0;
        }
        count - std::mem::replace(&mut attached.counted, count)
    }
}

impl Endpoint {
    fn of(how: &CookieAnswer) -> Endpoint {
        let mut address = [0; 16];
        let version = match how.address {
            IpAddr::V4(ip) => {
                address[..4].copy_from_slice(&ip.octets());
                4
            }
            IpAddr::V6(ip) => {
                address = ip.octets();
                6
            }
        };
        Endpoint { address, port: how.port.to_be_bytes(), version }
    }
}

impl Recipe {
    /// It holds for no time yet.
    fn of(how: &CookieAnswer) -> io::Result<Recipe> {
        let bit = |set: bool, bit: i32| if set { bit as u8 } else { 0 };
        Ok(Recipe {
            until_ns: 0,
            offset_us: how.now_us.wrapping_sub(monotonic_ns()? / 1_000),
            cookie: how.cookie_secret,
            timestamp: how.timestamp_secret,
            mss_table: how.mss_table,
            mss: how.mss.to_be_bytes(),
            window: how.window.to_be_bytes(),
            hop_limit: how.hop_limit,
            window_scale: how.window_scale.unwrap_or(0),
            accepts: bit(how.timestamps, recipe::ACCEPTS_TIMESTAMPS)
                | bit(how.sack, recipe::ACCEPTS_SACK)
                | bit(how.window_scale.is_some(), recipe::ACCEPTS_SCALES)
                | bit(how.ecn, recipe::ACCEPTS_ECN),
            traffic_class: how.traffic_class,
        })
    }
}

impl Attached {
    fn new(Place { interface, medium, mac }: Place) -> io::Result<Attached> {
        let loaded = Loaded::new(medium, mac)?;
        let link = attach_egress(&loaded.program, interface)?;
        Ok(Attached { loaded, counted: 0, told: HashMap::new(), _link: link })
    }

    fn tell(&mut self, endpoint: Endpoint, recipe: Recipe, alarms: &Alarms) {
        let now = Instant::now();
        if self.told.get(&endpoint).is_some_and(|told| now.duration_since(*told) < AGAIN) {
            return;
        }
        if self.told.len() >= ENDPOINTS_MAX as usize {
            self.told.clear();
        }
        self.told.insert(endpoint, now);
        // Before the first answer, so that no lane takes the ACK of one for a stranger's.
        alarms.raise();
        // What the kernel does not take it does not answer.
        let _ = self.loaded.tell(endpoint, recipe);
    }
}

impl Loaded {
    fn new(medium: Medium, mac: [u8; 6]) -> io::Result<Loaded> {
        let endpoints = create_map(
            BPF_MAP_TYPE_LRU_HASH,
            size_of::<Endpoint>() as u32,
            size_of::<Recipe>() as u32,
            ENDPOINTS_MAX,
            0,
        )?;
        let recent = create_map(BPF_MAP_TYPE_ARRAY, 4, 4, RECENT, 0)?;
        let count = create_map(BPF_MAP_TYPE_ARRAY, 4, 8, 1, 0)?;
        let maps = Maps { endpoints: endpoints.as_raw_fd(), recent: recent.as_raw_fd(), count: count.as_raw_fd() };
        let program = load_program(Kind::Egress, &assemble(medium, mac, &maps))?;
        Ok(Loaded { program, endpoints, count })
    }

    fn tell(&self, endpoint: Endpoint, recipe: Recipe) -> io::Result<()> {
        let recipe = Recipe { until_ns: monotonic_ns()? + LASTS.as_nanos() as u64, ..recipe };
        // SAFETY: the map was made for keys and values of these two types.
        unsafe { update(&self.endpoints, &endpoint, &recipe) }
    }
}

/// Whether the kernel would run the program, for whoever wants to know before it is needed. It is asked about `lo` for a moment, and lets everything go on.
pub fn check() -> io::Result<()> {
    const LO: u32 = 1;
    attach_egress(&Loaded::new(Medium::Ip, [0; 6])?.program, LO).map(drop)
}

/// What the program of whoever has this link address does with an Ethernet frame while this endpoint is overrun, for tests: what goes back, if anything
/// does.
#[doc(hidden)]
pub fn tried_out(how: &CookieAnswer, mac: [u8; 6], frame: &[u8]) -> io::Result<Option<Vec<u8>>> {
    const REDIRECT: u32 = 7;
    let loaded = Loaded::new(Medium::Ethernet, mac)?;
    loaded.tell(Endpoint::of(how), Recipe::of(how)?)?;
    let (verdict, out) = try_out(&loaded.program, frame)?;
    Ok((verdict == REDIRECT).then_some(out))
}

/// The clock of `bpf_ktime_get_ns`.
fn monotonic_ns() -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours, and of the type that is written.
    if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests;
