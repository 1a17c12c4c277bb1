//! The kernel's side of programs: maps, loading, and the place where a program is asked. By `bpf(2)` itself.

use super::Insn;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

// The parts of `union bpf_attr` that we use; the kernel takes a shorter one for zeroes.

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
struct MapElement {
    map_fd: u32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl MapElement {
    fn new<K, V>(map: &OwnedFd, key: &K, value: *const V) -> Self {
        let key = (&raw const *key) as u64;
        MapElement { map_fd: map.as_raw_fd() as u32, _padding: 0, key, value: value as u64, flags: 0 }
    }
}

#[repr(C)]
struct ProgramLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
    relative_fd: u32,
    _padding: u32,
    expected_revision: u64,
}

#[repr(C)]
struct ProgramTestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

const BPF_MAP_CREATE: i32 = 0;
const BPF_MAP_LOOKUP_ELEM: i32 = 1;
const BPF_MAP_UPDATE_ELEM: i32 = 2;
const BPF_PROG_LOAD: i32 = 5;
const BPF_PROG_TEST_RUN: i32 = 10;
const BPF_LINK_CREATE: i32 = 28;
const BPF_TCX_EGRESS: u32 = 47;
pub(crate) const BPF_MAP_TYPE_ARRAY: u32 = 2;
pub(crate) const BPF_MAP_TYPE_LRU_HASH: u32 = 9;
/// The program may only read the map.
pub(crate) const BPF_F_RDONLY_PROG: u32 = 1 << 7;

/// What a program is for.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Looks at packets, and says a number.
    SocketFilter,
    /// Decides on packets that leave by an interface, and may change them.
    Egress,
}

/// # Safety
/// Pointers within `attr` must be valid for what `command` does with them.
unsafe fn bpf<T>(command: i32, attr: &T) -> io::Result<i32> {
    // SAFETY: `attr` is live and of the size that is passed; what it points to is the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attr, mem::size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// # Safety
/// The same, of a command that answers with a new descriptor.
unsafe fn bpf_fd<T>(command: i32, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attr) }?;
    // SAFETY: the kernel has just given us this descriptor (with close-on-exec), and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn create_map(
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let attr = MapCreate { map_type: kind, key_size, value_size, max_entries, map_flags: flags };
    // SAFETY: the attribute holds no pointers.
    unsafe { bpf_fd(BPF_MAP_CREATE, &attr) }
}

/// # Safety
/// `key` and `value` must be as long as the map's are.
pub(crate) unsafe fn update<K, V>(map: &OwnedFd, key: &K, value: &V) -> io::Result<()> {
    let attr = MapElement::new(map, key, &raw const *value);
    // SAFETY: the caller vouches for the lengths; both live through the call.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &attr) }.map(drop)
}

/// Reads a value into `value`.
///
/// # Safety
/// `key` and `value` must be as long as the map's are, and `value` of a type that any bytes make.
pub(crate) unsafe fn look_up<K, V>(map: &OwnedFd, key: &K, value: &mut V) -> io::Result<()> {
    let attr = MapElement::new(map, key, &raw mut *value);
    // SAFETY: the caller vouches for the lengths and for what is written to `value`; both live through the call.
    unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &attr) }.map(drop)
}

pub(crate) fn load_program(kind: Kind, insns: &[Insn]) -> io::Result<OwnedFd> {
    const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
    const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
    // No helper is called that is kept for the GPL.
    let license = c"MIT";
    let attr = ProgramLoad {
        prog_type: match kind {
            Kind::SocketFilter => BPF_PROG_TYPE_SOCKET_FILTER,
            Kind::Egress => BPF_PROG_TYPE_SCHED_CLS,
        },
        insn_cnt: insns.len() as u32,
        insns: insns.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name: *b"laneway\0\0\0\0\0\0\0\0\0",
        prog_ifindex: 0,
        expected_attach_type: match kind {
            Kind::SocketFilter => 0,
            Kind::Egress => BPF_TCX_EGRESS,
        },
    };
    // SAFETY: `insns` holds as many instructions as said, `license` ends with a zero byte; both live through the call.
    unsafe { bpf_fd(BPF_PROG_LOAD, &attr) }
}

/// Has the kernel ask the program, one for [`Kind::Egress`], about each packet that leaves by the interface with this index, until what is answered
/// is closed or the interface is gone. Linux 6.6 and later.
pub(crate) fn attach_egress(program: &OwnedFd, interface: u32) -> io::Result<OwnedFd> {
    let attr = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        target_ifindex: interface,
        attach_type: BPF_TCX_EGRESS,
        flags: 0,
        relative_fd: 0,
        _padding: 0,
        expected_revision: 0,
    };
    // SAFETY: the attribute holds no pointers.
    unsafe { bpf_fd(BPF_LINK_CREATE, &attr) }
}

/// What the program, one for [`Kind::Egress`], says of an Ethernet frame that goes nowhere, and what it makes of it.
pub(crate) fn try_out(program: &OwnedFd, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
    let mut out = vec![0; frame.len() + 256];
    let mut attr = ProgramTestRun {
        prog_fd: program.as_raw_fd() as u32,
        retval: 0,
        data_size_in: frame.len() as u32,
        data_size_out: out.len() as u32,
        data_in: frame.as_ptr() as u64,
        data_out: out.as_mut_ptr() as u64,
        repeat: 1,
        duration: 0,
    };
    let size = mem::size_of_val(&attr);
    // SAFETY: the attribute, which the kernel writes to, has the size that is passed; `frame` and `out` have as many bytes as it says; all live through
    // the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_TEST_RUN, &raw mut attr, size) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    out.truncate(attr.data_size_out as usize);
    Ok((attr.retval, out))
}
