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
//! as the SYNs. Which SYN-ACK was sent last is noted by a hash of its flow in one of [`RECENT`] places.
//!
//! What is not as nearly all SYNs are goes to the lane: with text, with IP options or extension headers, in a VLAN, with options that say nothing sensible.
//! Checksums are not looked at, of most packets nobody has computed them yet: who sends a SYN of which a bit fell over is
//! offered something else than he wanted, and that is all.
//!
//! # What it does not know
//! Whether the flow has a connection or a record in TIME-WAIT. A SYN there is answered with a cookie, too, and the lane has to judge the ACK: of a record
//! by RFC 6191 (`laneway_proto::tcp::TimeWait`), and a connection challenges what it does not expect.

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
use crate::ebpf::{
    ADD, AND, B, DIV, DW, FRAME, H, Helper, Insn, JEQ, JGE, JGT, JLE, JLT, JNE, Jump, LSH, MOV, OR, Program, RSH, SUB,
    W, XOR,
};
use crate::{Alarms, CookieAnswer, Medium};

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
    _padding: u8,
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
    pub const ACCEPTS: i16 = offset_of!(Recipe, accepts) as i16;
    /// Bits of the last.
    pub const ACCEPTS_TIMESTAMPS: i32 = 1;
    pub const ACCEPTS_SACK: i32 = 2;
    pub const ACCEPTS_SCALES: i32 = 4;
}

/// The program for one interface, shared by its queues. The kernel is asked for it when an endpoint is overrun for the first time.
#[derive(Debug)]
pub(crate) struct CookieGiver {
    state: Mutex<State>,
    alarms: Alarms,
}

#[derive(Debug)]
enum State {
    Unasked {
        /// The interface's number.
        interface: u32,
        medium: Medium,
    },
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
    /// For the interface with this number.
    pub(crate) fn new(interface: u32, medium: Medium) -> Self {
        CookieGiver { state: Mutex::new(State::Unasked { interface, medium }), alarms: Alarms::default() }
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
            &mut State::Unasked { interface, medium } => {
                let (giver, endpoint) = (Arc::clone(self), Endpoint::of(how));
                let loads = thread::Builder::new().name("laneway-cookies".into());
                *state = match loads.spawn(move || giver.load((interface, medium), endpoint, recipe)) {
                    Ok(_) => State::Loading,
                    Err(_) => State::Refused,
                };
            }
            State::Attached(attached) => attached.tell(Endpoint::of(how), recipe, &self.alarms),
            State::Loading | State::Refused => {}
        }
    }

    fn load(&self, (interface, medium): (u32, Medium), endpoint: Endpoint, recipe: Recipe) {
        let attached = Attached::new(interface, medium);
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
                | bit(how.window_scale.is_some(), recipe::ACCEPTS_SCALES),
            _padding: 0,
        })
    }
}

impl Attached {
    fn new(interface: u32, medium: Medium) -> io::Result<Attached> {
        let loaded = Loaded::new(medium)?;
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
    fn new(medium: Medium) -> io::Result<Loaded> {
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
        let program = load_program(Kind::Egress, &assemble(medium, &maps))?;
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
    attach_egress(&Loaded::new(Medium::Ip)?.program, LO).map(drop)
}

/// What the program does with an Ethernet frame while this endpoint is overrun, for tests: what goes back, if anything does.
#[doc(hidden)]
pub fn tried_out(how: &CookieAnswer, frame: &[u8]) -> io::Result<Option<Vec<u8>>> {
    const REDIRECT: u32 = 7;
    let loaded = Loaded::new(Medium::Ethernet)?;
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

/// Descriptors of what the program looks things up in.
struct Maps {
    endpoints: i32,
    recent: i32,
    count: i32,
}

/// Registers that calls leave alone.
mod reg {
    /// The packet.
    pub const CONTEXT: u8 = 6;
    /// The [`Recipe`](super::Recipe), once it is found.
    pub const RECIPE: u8 = 7;
    /// Time; then how far the options are read.
    pub const AT: u8 = 8;
    /// The flags that matter; then lengths.
    pub const LEN: u8 = 9;
}

/// The program's memory: where in it what lies, from its end.
mod slot {
    /// IP and TCP header of what came, without options.
    pub const HEADERS: i16 = -64;
    pub const ENDPOINT: i16 = HEADERS - 24;
    /// The lane's clock, microseconds.
    pub const NOW: i16 = ENDPOINT - 8;
    /// What the cookie's first hash says.
    pub const BASE: i16 = NOW - 8;
    /// The flow as words to be hashed: four for its addresses, one for its ports, and what is hashed with it.
    pub const ENDS: i16 = BASE - 32;
    pub const PORTS: i16 = ENDS - 8;
    pub const MORE: i16 = PORTS - 8;
    /// An index into a map.
    pub const INDEX: i16 = MORE - 4;
    /// The place of the MSS in the table.
    pub const CLASS: i16 = INDEX - 4;
    // What the options said.
    pub const MSS: i16 = CLASS - 4;
    pub const SCALE: i16 = MSS - 4;
    pub const SACK: i16 = SCALE - 4;
    pub const HAS_TIMESTAMP: i16 = SACK - 4;
    /// As it came.
    pub const TIMESTAMP: i16 = HAS_TIMESTAMP - 4;
    /// One option.
    pub const OPTION: i16 = TIMESTAMP - 12;
    /// IP and TCP header of what goes back, at most 80 bytes.
    pub const ANSWER: i16 = OPTION - 80;
    /// Link addresses, and each in the other's place.
    pub const LINK: i16 = ANSWER - 16;
}

const SYN: i32 = 0x02;
const RST: i32 = 0x04;
const SYN_ACK: i32 = 0x12;
const FIN_SYN_RST_ACK: i32 = 0x17;
const TCP: i32 = 6;
const TCP_HEADER: i16 = 20;
/// Stands for "no window scale option" in a timestamp.
const NO_SCALE: i32 = 15;
/// So many options of a SYN are read. No system writes more.
const OPTIONS_MAX: usize = 16;
/// The packet goes on (`TCX_NEXT`), or is dropped (`TCX_DROP`).
const NEXT: i32 = -1;
const DROP: i32 = 2;
const BPF_F_INGRESS: i32 = 1;
// Offsets in `struct __sk_buff`.
const SKB_PROTOCOL: i16 = 16;
const SKB_VLAN_PRESENT: i16 = 20;
const SKB_IFINDEX: i16 = 40;

/// Where things are in the headers of an IP version.
struct Family {
    version: u16,
    ethertype: u16,
    header: i16,
    source: i16,
    destination: i16,
    address: i16,
    /// Where it says how long it is, and how long that is with nothing in it.
    len: i16,
    len_of_nothing: i32,
    default_mss: i32,
}

const V4: Family = Family {
    version: 4,
    ethertype: 0x0800,
    header: 20,
    source: 12,
    destination: 16,
    address: 4,
    len: 2,
    len_of_nothing: 20,
    default_mss: 536,
};
const V6: Family = Family {
    version: 6,
    ethertype: 0x86dd,
    header: 40,
    source: 8,
    destination: 24,
    address: 16,
    len: 4,
    len_of_nothing: 0,
    default_mss: 1_220,
};

/// What is hashed of a flow for what, as `laneway_proto::tcp::isn` numbers it.
#[derive(Clone, Copy, PartialEq)]
enum Purpose {
    TimestampOffset = 2,
    CookieBase = 3,
    CookieBody = 4,
}

/// One word of what is hashed.
enum Word {
    /// What lies here, with these bits set.
    Slot(i16, u64),
    Const(u64),
}

fn assemble(medium: Medium, maps: &Maps) -> Vec<Insn> {
    let mut p = Program(Vec::with_capacity(4_000));
    p.op64_register(MOV, reg::CONTEXT, 1);
    let mut aside = Vec::new();
    if medium == Medium::Ethernet {
        p.load(W, 0, reg::CONTEXT, SKB_VLAN_PRESENT);
        aside.push(p.jump_if(JNE, 0, 0));
    }
    p.load(W, 0, reg::CONTEXT, SKB_PROTOCOL);
    let v6 = p.jump_if(JEQ, 0, i32::from(V6.ethertype.to_be()));
    aside.push(p.jump_if(JNE, 0, i32::from(V4.ethertype.to_be())));
    p.family(&V4, medium, maps);
    p.land(v6);
    p.family(&V6, medium, maps);
    p.land_all(aside);
    p.verdict(NEXT);
    p.0
}

impl Program {
    fn verdict(&mut self, verdict: i32) {
        self.op(MOV, 0, verdict);
        self.exit();
    }

    /// `dst = &memory[at]`.
    fn address(&mut self, dst: u8, at: i16) {
        self.op64_register(MOV, dst, FRAME);
        self.op64(ADD, dst, at.into());
    }

    /// Register 0 = what the map has under the key that lies at `at`, or 0.
    fn find(&mut self, map: i32, at: i16) {
        self.map(1, map);
        self.address(2, at);
        self.call(Helper::MapLookupElem);
    }

    /// Copies `len` bytes of the packet from `from` on; register 0 is not 0 if there are not so many.
    fn copy_packet(&mut self, from: i32, to: i16, len: i32) {
        self.op64_register(MOV, 1, reg::CONTEXT);
        self.op(MOV, 2, from);
        self.address(3, to);
        self.op(MOV, 4, len);
        self.call(Helper::SkbLoadBytes);
    }

    /// All that is done with a packet of one IP version. Ends on every way.
    fn family(&mut self, ip: &Family, medium: Medium, maps: &Maps) {
        let link = medium.header_len() as i32;
        let tcp = slot::HEADERS + ip.header;
        let mut next = Vec::new();
        self.copy_packet(link, slot::HEADERS, (ip.header + TCP_HEADER).into());
        next.push(self.jump_if(JNE, 0, 0));
        self.load(B, 0, FRAME, slot::HEADERS);
        if ip.version == 4 {
            next.push(self.jump_if(JNE, 0, 0x45));
            self.load(H, 0, FRAME, slot::HEADERS + 6);
            self.op(AND, 0, i32::from(0x3fff_u16.to_be())); // more fragments, or an offset
            next.push(self.jump_if(JNE, 0, 0));
            self.load(B, 0, FRAME, slot::HEADERS + 9);
        } else {
            self.op(RSH, 0, 4);
            next.push(self.jump_if(JNE, 0, 6));
            self.load(B, 0, FRAME, slot::HEADERS + 6);
        }
        next.push(self.jump_if(JNE, 0, TCP));
        self.load(B, reg::LEN, FRAME, tcp + 13);
        self.op(AND, reg::LEN, FIN_SYN_RST_ACK);
        let syn = self.jump_if(JEQ, reg::LEN, SYN);
        next.push(self.jump_if(JNE, reg::LEN, RST));
        self.land(syn);

        // Is it to an endpoint that is overrun?
        for word in 0..4 {
            if 4 * word < ip.address {
                self.load(W, 0, FRAME, slot::HEADERS + ip.destination + 4 * word);
                self.store(W, FRAME, slot::ENDPOINT + 4 * word, 0);
            } else {
                self.store_imm(W, FRAME, slot::ENDPOINT + 4 * word, 0);
            }
        }
        self.load(H, 0, FRAME, tcp + 2);
        self.store(H, FRAME, slot::ENDPOINT + 16, 0);
        self.store_imm(H, FRAME, slot::ENDPOINT + 18, ip.version.into());
        self.find(maps.endpoints, slot::ENDPOINT);
        next.push(self.jump_if(JEQ, 0, 0));
        self.op64_register(MOV, reg::RECIPE, 0);
        self.call(Helper::KtimeGetNs);
        self.load(DW, 1, reg::RECIPE, recipe::UNTIL_NS);
        next.push(self.jump_if_register(JGT, 0, 1));
        self.op64(DIV, 0, 1_000);
        self.load(DW, 1, reg::RECIPE, recipe::OFFSET_US);
        self.op64_register(ADD, 0, 1);
        self.store(DW, FRAME, slot::NOW, 0);

        self.lay_flow(ip);
        self.hash_flow(ip, recipe::COOKIE, Purpose::CookieBase);
        self.store(DW, FRAME, slot::BASE, 0);
        self.op64(RSH, 0, 32);
        self.op(AND, 0, RECENT as i32 - 1);
        self.store(W, FRAME, slot::INDEX, 0);
        let syn = self.jump_if(JEQ, reg::LEN, SYN);

        // A RST, which says no more than the sequence number that the SYN-ACK acknowledged.
        self.find(maps.recent, slot::INDEX);
        next.push(self.jump_if(JEQ, 0, 0));
        self.load(W, 1, FRAME, tcp + 4);
        next.push(self.jump_if(JEQ, 1, 0));
        self.load(W, 2, 0, 0);
        next.push(self.jump_if_register(JNE, 1, 2));
        // Once: what refuses a connection that began with this cookie, later, is the lane's.
        self.store_imm(W, 0, 0, 0);
        self.verdict(DROP);

        self.land(syn);
        next.extend(self.read_options(ip, link));
        self.cookie(ip);
        self.lay_answer(ip);
        next.extend(self.send(ip, link, maps));
        self.land_all(next);
        self.verdict(NEXT);
    }

    /// `ENDS` and `PORTS`, as `FlowKey::hash_words` has them: local before remote, and the peer's port in the low half.
    fn lay_flow(&mut self, ip: &Family) {
        let pair = |p: &mut Program, low: i16, high: i16, to: i16| {
            p.load(W, 0, FRAME, slot::HEADERS + low);
            p.load(W, 1, FRAME, slot::HEADERS + high);
            p.op64(LSH, 1, 32);
            p.op64_register(OR, 0, 1);
            p.store(DW, FRAME, to, 0);
        };
        if ip.version == 4 {
            pair(self, ip.destination, ip.source, slot::ENDS);
        } else {
            for (i, from) in [ip.destination, ip.destination + 8, ip.source, ip.source + 8].into_iter().enumerate() {
                pair(self, from, from + 4, slot::ENDS + 8 * i as i16);
            }
        }
        let tcp = slot::HEADERS + ip.header;
        self.load(H, 0, FRAME, tcp);
        self.swap_to_network(0, 16);
        self.load(H, 1, FRAME, tcp + 2);
        self.swap_to_network(1, 16);
        self.op64(LSH, 1, 16);
        self.op64_register(OR, 0, 1);
        self.store(DW, FRAME, slot::PORTS, 0);
    }

    /// Register 0 = the keyed hash of the flow, as `laneway_proto::tcp::isn` has it; with `MORE`, if it is for a cookie's body, and of the addresses
    /// alone, if it is for timestamps.
    fn hash_flow(&mut self, ip: &Family, key: i16, purpose: Purpose) {
        let number = purpose as u64;
        let ports = |bits| match purpose {
            Purpose::TimestampOffset => Word::Const(bits),
            _ => Word::Slot(slot::PORTS, bits),
        };
        let more = (purpose == Purpose::CookieBody).then_some(Word::Slot(slot::MORE, 0));
        let mut words: Vec<Word> = Vec::new();
        let last = if ip.version == 4 {
            words.push(Word::Slot(slot::ENDS, 0));
            words.extend(more);
            let len = 8 * words.len() as u64 + 5;
            ports(number << 32 | len << 56)
        } else {
            words.extend((0..4).map(|i| Word::Slot(slot::ENDS + 8 * i, 0)));
            words.push(ports(number << 56));
            words.push(more.unwrap_or(Word::Const(0)));
            Word::Const((8 * words.len() as u64) << 56)
        };
        words.push(last);
        self.siphash(key, &words);
    }

    /// Register 0 = SipHash-1-3 of the words, of which the last has the length in it, under the key at `key` in the recipe. Registers 1 to 5 are its own.
    fn siphash(&mut self, key: i16, words: &[Word]) {
        const BEGIN: [u64; 4] =
            [0x736f_6d65_7073_6575, 0x646f_7261_6e64_6f6d, 0x6c79_6765_6e65_7261, 0x7465_6462_7974_6573];
        for (v, begin) in BEGIN.into_iter().enumerate() {
            self.set64(v as u8, begin);
            self.load(DW, 4, reg::RECIPE, key + 8 * (v % 2) as i16);
            self.op64_register(XOR, v as u8, 4);
        }
        for word in words {
            match *word {
                Word::Const(word) => self.set64(5, word),
                Word::Slot(at, bits) => {
                    self.load(DW, 5, FRAME, at);
                    if bits != 0 {
                        self.set64(4, bits);
                        self.op64_register(OR, 5, 4);
                    }
                }
            }
            self.op64_register(XOR, 3, 5);
            self.sip_round();
            self.op64_register(XOR, 0, 5);
        }
        self.op64(XOR, 2, 0xff);
        (0..3).for_each(|_| self.sip_round());
        (1..4).for_each(|v| self.op64_register(XOR, 0, v));
    }

    fn sip_round(&mut self) {
        let rotate = |p: &mut Program, v: u8, bits: i32| {
            p.op64_register(MOV, 4, v);
            p.op64(LSH, v, bits);
            p.op64(RSH, 4, 64 - bits);
            p.op64_register(OR, v, 4);
        };
        self.op64_register(ADD, 0, 1);
        self.op64_register(ADD, 2, 3);
        rotate(self, 1, 13);
        self.op64_register(XOR, 1, 0);
        rotate(self, 3, 16);
        self.op64_register(XOR, 3, 2);
        rotate(self, 0, 32);
        self.op64_register(ADD, 2, 1);
        self.op64_register(ADD, 0, 3);
        rotate(self, 1, 17);
        self.op64_register(XOR, 1, 2);
        rotate(self, 3, 21);
        self.op64_register(XOR, 3, 0);
        rotate(self, 2, 32);
    }

    /// What the SYN's options say. The jumps are taken if it is for the lane to say something about them.
    fn read_options(&mut self, ip: &Family, link: i32) -> Vec<Jump> {
        const END: i32 = 0;
        const NOP: i32 = 1;
        let tcp = slot::HEADERS + ip.header;
        let mut strange = Vec::new();
        self.load(B, reg::LEN, FRAME, tcp + 12);
        self.op(RSH, reg::LEN, 4);
        self.op(LSH, reg::LEN, 2);
        strange.push(self.jump_if(JLT, reg::LEN, TCP_HEADER.into()));
        self.load(H, 0, FRAME, slot::HEADERS + ip.len);
        self.swap_to_network(0, 16);
        self.op(SUB, 0, ip.len_of_nothing);
        strange.push(self.jump_if_register(JNE, 0, reg::LEN)); // it has text

        self.store_imm(W, FRAME, slot::MSS, ip.default_mss);
        self.store_imm(W, FRAME, slot::SCALE, NO_SCALE);
        self.store_imm(W, FRAME, slot::SACK, 0);
        self.store_imm(W, FRAME, slot::HAS_TIMESTAMP, 0);
        self.store_imm(W, FRAME, slot::TIMESTAMP, 0);
        self.op(MOV, reg::AT, TCP_HEADER.into());
        let mut done = Vec::new();
        let here = link + i32::from(ip.header);
        // `len` bytes of the option to `OPTION`.
        let fetch = |p: &mut Program, len: i32| {
            p.op64_register(MOV, 1, reg::CONTEXT);
            p.op_register(MOV, 2, reg::AT);
            p.op(ADD, 2, here);
            p.address(3, slot::OPTION);
            p.op(MOV, 4, len);
            p.call(Helper::SkbLoadBytes);
            p.jump_if(JNE, 0, 0)
        };
        for _ in 0..OPTIONS_MAX {
            done.push(self.jump_if_register(JGE, reg::AT, reg::LEN));
            strange.push(fetch(self, 1));
            self.load(B, 1, FRAME, slot::OPTION);
            done.push(self.jump_if(JEQ, 1, END));
            let nop = self.jump_if(JEQ, 1, NOP);
            strange.push(fetch(self, 2));
            self.load(B, 2, FRAME, slot::OPTION + 1);
            strange.push(self.jump_if(JLT, 2, 2));
            self.op_register(MOV, 3, reg::AT);
            self.op_register(ADD, 3, 2);
            strange.push(self.jump_if_register(JGT, 3, reg::LEN));
            self.load(B, 1, FRAME, slot::OPTION);
            self.op(LSH, 1, 8);
            self.op_register(OR, 1, 2);
            let [mss, scale, sack, timestamp] =
                [2 << 8 | 4, 3 << 8 | 3, 4 << 8 | 2, 8 << 8 | 10].map(|kind_len| self.jump_if(JEQ, 1, kind_len));
            let other = self.jump();
            let mut read = vec![other];

            self.land(mss);
            strange.push(fetch(self, 4));
            self.load(H, 0, FRAME, slot::OPTION + 2);
            self.swap_to_network(0, 16);
            self.store(W, FRAME, slot::MSS, 0);
            self.op(MOV, 2, 4);
            read.push(self.jump());

            self.land(scale);
            strange.push(fetch(self, 3));
            self.load(B, 0, FRAME, slot::OPTION + 2);
            let fits = self.jump_if(JLE, 0, 14);
            self.op(MOV, 0, 14);
            self.land(fits);
            self.store(W, FRAME, slot::SCALE, 0);
            self.op(MOV, 2, 3);
            read.push(self.jump());

            self.land(sack);
            self.store_imm(W, FRAME, slot::SACK, 1);
            read.push(self.jump());

            self.land(timestamp);
            strange.push(fetch(self, 6));
            self.load(H, 0, FRAME, slot::OPTION + 2);
            self.store(H, FRAME, slot::TIMESTAMP, 0);
            self.load(H, 0, FRAME, slot::OPTION + 4);
            self.store(H, FRAME, slot::TIMESTAMP + 2, 0);
            self.store_imm(W, FRAME, slot::HAS_TIMESTAMP, 1);
            self.op(MOV, 2, 10);

            self.land_all(read);
            self.op_register(ADD, reg::AT, 2);
            let behind = self.jump();
            self.land(nop);
            self.op(ADD, reg::AT, 1);
            self.land(behind);
            // Nothing that is not so already; but who checks this program forgets now which way it came, and need not follow each to its end.
            self.op(AND, reg::AT, 63);
        }
        strange.push(self.jump_if_register(JLT, reg::AT, reg::LEN));
        self.land_all(done);
        strange
    }

    /// Register 0 = the sequence number of the SYN-ACK, as `cookie::encode` has it.
    fn cookie(&mut self, ip: &Family) {
        const INDEX_BITS: i32 = 3;
        const BODY_BITS: i32 = 24;
        // The largest value of the table that is not above what was offered, or the first.
        self.load(W, 1, FRAME, slot::MSS);
        self.op(MOV, 2, 0);
        let mut found = Vec::new();
        for class in 1..1 << INDEX_BITS {
            self.load(H, 3, reg::RECIPE, recipe::MSS_TABLE + 2 * class);
            found.push(self.jump_if_register(JLT, 1, 3));
            self.op(MOV, 2, class.into());
        }
        self.land_all(found);
        self.store(W, FRAME, slot::CLASS, 2);

        self.minute(0);
        self.op(LSH, 0, INDEX_BITS);
        self.op_register(OR, 0, 2);
        self.peers_isn(ip, 1);
        self.op64(LSH, 1, 32);
        self.op64_register(OR, 0, 1);
        self.store(DW, FRAME, slot::MORE, 0);
        self.hash_flow(ip, recipe::COOKIE, Purpose::CookieBody);
        self.op(LSH, 0, INDEX_BITS);
        self.load(W, 1, FRAME, slot::CLASS);
        self.op_register(OR, 0, 1);
        self.op(AND, 0, (1 << BODY_BITS) - 1);
        self.minute(1);
        self.op(LSH, 1, BODY_BITS);
        self.op_register(OR, 0, 1);
        self.load(DW, 1, FRAME, slot::BASE);
        self.op_register(ADD, 0, 1);
        self.peers_isn(ip, 1);
        self.op_register(ADD, 0, 1);
    }

    /// `dst` = the minute, of 32 bits.
    fn minute(&mut self, dst: u8) {
        self.load(DW, dst, FRAME, slot::NOW);
        self.op64(DIV, dst, 60_000_000);
        self.op_register(MOV, dst, dst);
    }

    /// `dst` = the SYN's sequence number.
    fn peers_isn(&mut self, ip: &Family, dst: u8) {
        self.load(W, dst, FRAME, slot::HEADERS + ip.header + 4);
        self.swap_to_network(dst, 32);
    }

    /// Writes the SYN-ACK with the sequence number in register 0 to `ANSWER`. `LEN` is then how long its TCP header is.
    fn lay_answer(&mut self, ip: &Family) {
        let (came, tcp) = (slot::HEADERS, slot::ANSWER + ip.header);
        let copy = |p: &mut Program, size: u8, from: i16, to: i16| {
            p.load(size, 1, FRAME, from);
            p.store(size, FRAME, to, 1);
        };
        self.swap_to_network(0, 32);
        self.store(W, FRAME, tcp + 4, 0);
        copy(self, H, came + ip.header + 2, tcp);
        copy(self, H, came + ip.header, tcp + 2);
        self.peers_isn(ip, 1);
        self.op(ADD, 1, 1);
        self.swap_to_network(1, 32);
        self.store(W, FRAME, tcp + 8, 1);
        self.store_imm(B, FRAME, tcp + 13, SYN_ACK);
        self.load(H, 1, reg::RECIPE, recipe::WINDOW);
        self.store(H, FRAME, tcp + 14, 1);
        self.store_imm(W, FRAME, tcp + 16, 0);
        self.store_imm(B, FRAME, tcp + 20, 2);
        self.store_imm(B, FRAME, tcp + 21, 4);
        self.load(H, 1, reg::RECIPE, recipe::MSS);
        self.store(H, FRAME, tcp + 22, 1);
        (24..40).step_by(4).for_each(|at| self.store_imm(W, FRAME, tcp + at, 0));
        self.op(MOV, reg::LEN, 24);

        // What else was offered can be kept only in a timestamp.
        self.load(W, 1, FRAME, slot::HAS_TIMESTAMP);
        let none = self.jump_if(JEQ, 1, 0);
        self.load(B, 1, reg::RECIPE, recipe::ACCEPTS);
        self.op(AND, 1, recipe::ACCEPTS_TIMESTAMPS);
        let unwanted = self.jump_if(JEQ, 1, 0);
        self.hash_flow(ip, recipe::TIMESTAMP, Purpose::TimestampOffset);
        // Register 2 gathers the bits of `cookie::encode_ts`.
        self.op(MOV, 2, NO_SCALE);
        self.op(MOV, reg::LEN, 36);
        self.load(B, 1, reg::RECIPE, recipe::ACCEPTS);
        self.op(AND, 1, recipe::ACCEPTS_SCALES);
        let unscaled = [self.jump_if(JEQ, 1, 0), {
            self.load(W, 1, FRAME, slot::SCALE);
            self.jump_if(JEQ, 1, NO_SCALE)
        }];
        self.op_register(MOV, 2, 1);
        self.op(MOV, reg::LEN, 40);
        self.store_imm(B, FRAME, tcp + 36, 1);
        self.store_imm(B, FRAME, tcp + 37, 3);
        self.store_imm(B, FRAME, tcp + 38, 3);
        self.load(B, 1, reg::RECIPE, recipe::WINDOW_SCALE);
        self.store(B, FRAME, tcp + 39, 1);
        self.land_all(unscaled);
        self.store_imm(B, FRAME, tcp + 24, 1);
        self.store_imm(B, FRAME, tcp + 25, 1);
        self.store_imm(B, FRAME, tcp + 26, 8);
        self.store_imm(B, FRAME, tcp + 27, 10);
        self.load(B, 1, reg::RECIPE, recipe::ACCEPTS);
        self.op(AND, 1, recipe::ACCEPTS_SACK);
        let without = [self.jump_if(JEQ, 1, 0), {
            self.load(W, 1, FRAME, slot::SACK);
            self.jump_if(JEQ, 1, 0)
        }];
        self.op(OR, 2, 0x10);
        self.store_imm(B, FRAME, tcp + 24, 4);
        self.store_imm(B, FRAME, tcp + 25, 2);
        self.land_all(without);
        // The latest time with these bits below that is not after now, and the offset.
        self.load(DW, 1, FRAME, slot::NOW);
        self.op64(DIV, 1, 1_000);
        self.op_register(MOV, 3, 1);
        self.op_register(SUB, 3, 2);
        self.op(AND, 3, 63);
        self.op_register(SUB, 1, 3);
        self.op_register(ADD, 1, 0);
        self.swap_to_network(1, 32);
        self.store(W, FRAME, tcp + 28, 1);
        copy(self, W, slot::TIMESTAMP, tcp + 32);
        self.land(none);
        self.land(unwanted);
        self.op_register(MOV, 1, reg::LEN);
        self.op(LSH, 1, 2);
        self.store(B, FRAME, tcp + 12, 1);

        for word in (0..ip.address).step_by(4) {
            copy(self, W, came + ip.destination + word, slot::ANSWER + ip.source + word);
            copy(self, W, came + ip.source + word, slot::ANSWER + ip.destination + word);
        }
        self.op_register(MOV, 1, reg::LEN);
        self.op(ADD, 1, ip.len_of_nothing);
        self.swap_to_network(1, 16);
        self.load(B, 2, reg::RECIPE, recipe::HOP_LIMIT);
        if ip.version == 4 {
            self.store_imm(H, FRAME, slot::ANSWER, i32::from(0x4500_u16.to_be()));
            self.store(H, FRAME, slot::ANSWER + 2, 1);
            self.store_imm(H, FRAME, slot::ANSWER + 4, 0);
            self.store_imm(H, FRAME, slot::ANSWER + 6, i32::from(0x4000_u16.to_be())); // may not be cut
            self.store(B, FRAME, slot::ANSWER + 8, 2);
            self.store_imm(B, FRAME, slot::ANSWER + 9, TCP);
            self.store_imm(H, FRAME, slot::ANSWER + 10, 0);
            self.op(MOV, 4, ip.header.into());
            self.op(MOV, 5, 0);
            self.checksum(slot::ANSWER, slot::ANSWER + 10);
        } else {
            self.store_imm(W, FRAME, slot::ANSWER, 0x6000_0000_u32.to_be() as i32);
            self.store(H, FRAME, slot::ANSWER + 4, 1);
            self.store_imm(B, FRAME, slot::ANSWER + 6, TCP);
            self.store(B, FRAME, slot::ANSWER + 7, 2);
        }
        // The addresses, which the pseudo-header has, lie right before the TCP header; the rest of it is protocol and length.
        self.op_register(MOV, 5, reg::LEN);
        self.op(ADD, 5, TCP);
        self.swap_to_network(5, 16);
        self.op_register(MOV, 4, reg::LEN);
        self.op(ADD, 4, (2 * ip.address).into());
        self.checksum(slot::ANSWER + ip.source, tcp + 16);
    }

    /// Writes the checksum of register 4's bytes from `from` on, and of register 5, to `to`.
    fn checksum(&mut self, from: i16, to: i16) {
        self.op(MOV, 1, 0);
        self.op(MOV, 2, 0);
        self.address(3, from);
        self.call(Helper::CsumDiff);
        self.op_register(MOV, 0, 0);
        for _ in 0..2 {
            self.op_register(MOV, 1, 0);
            self.op(RSH, 1, 16);
            self.op(AND, 0, 0xffff);
            self.op_register(ADD, 0, 1);
        }
        self.op(XOR, 0, 0xffff);
        self.store(H, FRAME, to, 0);
    }

    /// Puts the answer in the packet's place, and sends it back. The jumps are taken if nothing could be done, and nothing was.
    fn send(&mut self, ip: &Family, link: i32, maps: &Maps) -> Vec<Jump> {
        let mut undone = Vec::new();
        if link != 0 {
            self.copy_packet(0, slot::LINK, 12);
            undone.push(self.jump_if(JNE, 0, 0));
        }
        self.op64_register(MOV, 1, reg::CONTEXT);
        self.op_register(MOV, 2, reg::LEN);
        self.op(ADD, 2, link + i32::from(ip.header));
        self.op(MOV, 3, 0);
        self.call(Helper::SkbChangeTail);
        undone.push(self.jump_if(JNE, 0, 0));
        let write = |p: &mut Program, to: i32, from: i16, len: Option<i32>| {
            p.op64_register(MOV, 1, reg::CONTEXT);
            p.op(MOV, 2, to);
            p.address(3, from);
            match len {
                Some(len) => p.op(MOV, 4, len),
                None => {
                    p.op_register(MOV, 4, reg::LEN);
                    p.op(ADD, 4, ip.header.into());
                }
            }
            p.op(MOV, 5, 0);
            p.call(Helper::SkbStoreBytes);
            p.jump_if(JNE, 0, 0)
        };
        let mut lost = vec![write(self, link, slot::ANSWER, None)];
        if link != 0 {
            lost.push(write(self, 0, slot::LINK + 6, Some(6)));
            lost.push(write(self, 6, slot::LINK, Some(6)));
        }
        self.find(maps.recent, slot::INDEX);
        let unknown = self.jump_if(JEQ, 0, 0);
        self.load(W, 1, FRAME, slot::ANSWER + ip.header + 8);
        self.store(W, 0, 0, 1);
        self.land(unknown);
        self.store_imm(W, FRAME, slot::INDEX, 0);
        self.find(maps.count, slot::INDEX);
        let uncounted = self.jump_if(JEQ, 0, 0);
        self.op(MOV, 1, 1);
        self.add_atomically(0, 1);
        self.land(uncounted);
        self.load(W, 1, reg::CONTEXT, SKB_IFINDEX);
        self.op(MOV, 2, BPF_F_INGRESS);
        self.call(Helper::Redirect);
        self.exit();
        self.land_all(lost);
        self.verdict(DROP);
        undone
    }
}

#[cfg(test)]
mod tests;
