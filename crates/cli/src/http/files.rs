//! Owns the directory that is served: finds files below it, never beside it, and keeps small ones in memory.
//!
//! A name is decoded and cut into segments; `..` is refused; and then the *kernel* resolves what is left with the order to
//! stay beneath the directory (`openat2(2)`, `RESOLVE_BENEATH`), so a link that leads out leads nowhere.

use super::listing::Pages;
use super::mime;
use super::respond::Status;
use percent_encoding::percent_decode;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Files up to this size are kept in memory, in bytes.
const SMALL_MAX: u64 = 65_536;
/// Bytes of files that a lane keeps.
const CACHE_MAX: usize = 32 << 20;
/// How often a file is asked for again while others are renamed.
const TRIES: u32 = 8;
/// Files that a lane keeps.
const CACHE_ENTRIES_MAX: usize = 4_096;
/// Large files of which a lane knows at least whether somebody reads them.
const SHARED_MIN: usize = 64;
/// How long a kept file is believed to be current, in microseconds.
const FRESH_US: u64 = 500_000;
/// Two changes of a file that are further apart have different times: file systems count whole seconds, or two at once.
const TICK: Duration = Duration::from_secs(2);

/// Which version of a file it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Length in bytes.
    pub len: u64,
    /// When it was last changed.
    pub modified: SystemTime,
    /// The same, as HTTP writes it.
    pub modified_text: String,
    /// A strong tag: it changes with the length, the inode, and the times of the last change, in nanoseconds: the one that
    /// anybody can set, and the one that only the kernel sets.
    pub etag: String,
}

/// A file in memory.
#[derive(Clone)]
pub struct Small {
    /// Version.
    pub stamp: Arc<Stamp>,
    /// Media type.
    pub mime: &'static str,
    /// All of it.
    pub bytes: Arc<[u8]>,
}

/// What a target leads to.
pub enum Found {
    /// A file that is kept in memory.
    Small(Small),
    /// A file to be read piece by piece.
    Large {
        /// It, open.
        file: Arc<OwnedFd>,
        /// Version.
        stamp: Arc<Stamp>,
        /// Media type.
        mime: &'static str,
    },
    /// A directory without `index.html`: the page that shows what is in it.
    Page(Arc<[u8]>),
    /// A directory whose name lacks the slash at the end.
    NeedsSlash,
    /// Nothing that can be served.
    Nothing(Status),
}

/// A directory with files.
#[derive(Clone)]
pub struct Root(Arc<OwnedFd>);

impl Root {
    /// Opens it.
    pub fn open(path: &Path) -> std::io::Result<Root> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Root(Arc::new(openat(CWD, path, flags, Mode::empty())?)))
    }

    /// Opens what lies at `path`, beneath the directory. It may be anything; a pipe does not block.
    fn open_beneath(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_as(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY)
    }

    /// Opens the directory at `path` only to pass through it, which may be allowed where listing it is not.
    fn pass_beneath(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_as(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)
    }

    fn open_as(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut tries = 0..TRIES;
        loop {
            match openat2(&*self.0, path, flags, Mode::empty(), how) {
                // Something was renamed or mounted meanwhile, so the kernel cannot say that this is beneath.
                Err(Errno::AGAIN) if tries.next().is_some() => {}
                // An old kernel, or a container that does not know the call: segment by segment, following no link.
                Err(Errno::NOSYS | Errno::PERM) => return self.open_step_by_step(path, flags | OFlags::NOFOLLOW),
                other => return other,
            }
        }
    }

    fn open_step_by_step(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut at: Option<OwnedFd> = None;
        for segment in path.split(|b| *b == b'/') {
            let from = at.as_ref().map_or(self.0.as_fd(), |fd| fd.as_fd());
            at = Some(openat(from, segment, flags, Mode::empty())?);
        }
        at.ok_or(Errno::NOENT)
    }
}

/// Cuts a target into the path that it means. `None`: it leads out, or cannot be a name.
pub fn resolve(target: &[u8]) -> Option<Vec<u8>> {
    let decoded: Vec<u8> = percent_decode(target).collect();
    if decoded.contains(&0) {
        return None;
    }
    let mut path = Vec::with_capacity(decoded.len());
    for segment in decoded.split(|b| *b == b'/') {
        match segment {
            b"" | b"." => continue,
            b".." => return None,
            name => {
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
            }
        }
    }
    Some(path)
}

struct Kept {
    small: Small,
    /// Believed to be current until then.
    fresh_until_us: u64,
    /// The file had rested when it was read: a change since then has another time.
    is_settled: bool,
}

/// A large file that somebody reads, perhaps.
struct Shared {
    file: Weak<OwnedFd>,
    stamp: Arc<Stamp>,
}

/// Finds files for one lane.
pub struct Files {
    root: Root,
    /// By path. However many read a file, it is open once: there are more connections than descriptors.
    shared: HashMap<Box<[u8]>, Shared>,
    /// At so many of them, those that nobody reads any more are left out.
    shared_max: usize,
    kept: HashMap<Box<[u8]>, Kept>,
    kept_bytes: usize,
    pages: Pages,
}

impl Files {
    /// Finds files beneath `root`.
    pub fn new(root: Root) -> Self {
        Files {
            root,
            shared: HashMap::new(),
            shared_max: SHARED_MIN,
            kept: HashMap::new(),
            kept_bytes: 0,
            pages: Pages::default(),
        }
    }

    /// What a target, as it was written in the request, leads to.
    pub fn find(&mut self, target: &[u8], now_us: u64) -> Found {
        if let Some(kept) = self.kept.get(target)
            && now_us < kept.fresh_until_us
        {
            return Found::Small(kept.small.clone());
        }
        self.look(target, now_us)
    }

    #[cold]
    fn look(&mut self, target: &[u8], now_us: u64) -> Found {
        let Some(mut path) = resolve(target) else { return Found::Nothing(Status::BadRequest) };
        let wants_directory = target.ends_with(b"/");
        if wants_directory && let Some(page) = self.pages.fresh(&path, now_us) {
            return Found::Page(page);
        }
        let (mut file, may_list) = match self.root.open_beneath(&path) {
            Ok(file) => (file, true),
            // Who may not see what is in a directory may be meant to see its `index.html` all the same.
            Err(Errno::ACCESS) => match self.root.pass_beneath(&path) {
                Ok(directory) => (directory, false),
                Err(_) => return Found::Nothing(Status::Forbidden),
            },
            Err(error) => return Found::Nothing(status_of(error)),
        };
        let mut stat = match fstat(&file) {
            Ok(stat) => stat,
            Err(error) => return Found::Nothing(status_of(error)),
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            if !wants_directory {
                return Found::NeedsSlash;
            }
            let mut index = path.clone();
            index.extend_from_slice(if path.is_empty() { b"index.html" } else { b"/index.html" });
            match self.root.open_beneath(&index) {
                Ok(found) => {
                    stat = match fstat(&found) {
                        Ok(stat) => stat,
                        Err(error) => return Found::Nothing(status_of(error)),
                    };
                    file = found;
                    path = index;
                }
                Err(Errno::NOENT) if may_list => {
                    let page = self.pages.make(file.as_fd(), &path, now_us);
                    return page.map_or_else(|error| Found::Nothing(status_of(error)), Found::Page);
                }
                Err(Errno::NOENT) => return Found::Nothing(Status::Forbidden),
                Err(error) => return Found::Nothing(status_of(error)),
            }
        } else if wants_directory {
            return Found::Nothing(Status::NotFound);
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Found::Nothing(Status::Forbidden);
        }
        let stamp = Arc::new(stamp(&stat));
        let mime = mime::of(&path);
        if stamp.len > SMALL_MAX {
            self.forget(target);
            return self.share(path, file, stamp, mime);
        }
        if let Some(kept) = self.kept.get_mut(target)
            && kept.small.stamp == stamp
            && kept.is_settled
        {
            kept.fresh_until_us = now_us + FRESH_US;
            return Found::Small(kept.small.clone());
        }
        let is_settled = has_settled(&stat, SystemTime::now());
        // From the disk, if it must be: the lane waits for so little, and then it is kept.
        let mut bytes = vec![0; stamp.len as usize];
        let mut at = 0;
        while at < bytes.len() {
            match rustix::io::pread(&file, &mut bytes[at..], at as u64) {
                Ok(0) => return Found::Nothing(Status::InternalServerError), // it is being cut short
                Ok(n) => at += n,
                Err(Errno::INTR) => {}
                Err(error) => return Found::Nothing(status_of(error)),
            }
        }
        let is_same = fstat(&file).is_ok_and(|after| self::stamp(&after) == *stamp);
        let small = Small { stamp, mime, bytes: bytes.into() };
        if is_same {
            self.keep(target, small.clone(), now_us, is_settled);
        } else {
            self.forget(target); // who asks next does not get what was caught in the middle
        }
        Found::Small(small)
    }

    #[cfg(test)]
    pub fn remembered(&self) -> usize {
        self.shared.len()
    }

    /// How many files are kept in memory, and their bytes as they are and as they are counted.
    #[cfg(test)]
    pub fn kept(&self) -> (usize, usize, usize) {
        (self.kept.len(), self.kept.values().map(|kept| kept.small.bytes.len()).sum(), self.kept_bytes)
    }

    /// The file that has just been opened, or the same one as others read it already.
    fn share(&mut self, path: Vec<u8>, file: OwnedFd, stamp: Arc<Stamp>, mime: &'static str) -> Found {
        let same = self.shared.get(&*path).filter(|shared| shared.stamp == stamp);
        if let Some(file) = same.and_then(|shared| shared.file.upgrade()) {
            return Found::Large { file, stamp, mime };
        }
        if self.shared.len() >= self.shared_max {
            self.shared.retain(|_, shared| shared.file.strong_count() > 0);
            self.shared_max = SHARED_MIN.max(2 * self.shared.len());
        }
        let file = Arc::new(file);
        self.shared.insert(path.into(), Shared { file: Arc::downgrade(&file), stamp: Arc::clone(&stamp) });
        Found::Large { file, stamp, mime }
    }

    fn forget(&mut self, target: &[u8]) {
        if let Some(kept) = self.kept.remove(target) {
            self.kept_bytes -= kept.small.bytes.len();
        }
    }

    fn keep(&mut self, target: &[u8], small: Small, now_us: u64, is_settled: bool) {
        self.forget(target);
        let len = small.bytes.len();
        if self.kept_bytes + len > CACHE_MAX || self.kept.len() >= CACHE_ENTRIES_MAX {
            // Whoever asks for everything there is gets it from the page cache. What is in use comes back at once.
            self.kept.clear();
            self.kept_bytes = 0;
        }
        self.kept_bytes += len;
        self.kept.insert(target.into(), Kept { small, fresh_until_us: now_us + FRESH_US, is_settled });
    }
}

fn stamp(stat: &rustix::fs::Stat) -> Stamp {
    let (seconds, nanos) = (stat.st_mtime.max(0) as u64, stat.st_mtime_nsec);
    let modified = UNIX_EPOCH + Duration::new(seconds, nanos as u32);
    let len = stat.st_size as u64;
    let (changed, changed_nanos) = (stat.st_ctime, stat.st_ctime_nsec);
    let etag = format!("\"{seconds:x}.{nanos:x}-{changed:x}.{changed_nanos:x}-{len:x}-{:x}\"", stat.st_ino);
    // A file from the year 10000 cannot be dated.
    let text = httpdate::fmt_http_date(modified.min(UNIX_EPOCH + Duration::from_secs(253_402_300_799)));
    Stamp { len, modified, modified_text: text, etag }
}

/// Whether a file was changed so long ago that its next change has another time. One from the future has not.
fn has_settled(stat: &rustix::fs::Stat, now: SystemTime) -> bool {
    let changed = UNIX_EPOCH + Duration::from_secs(stat.st_ctime.max(0) as u64);
    now.duration_since(changed).is_ok_and(|since| since > TICK)
}

fn status_of(error: Errno) -> Status {
    match error {
        Errno::ACCESS | Errno::PERM => Status::Forbidden,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Status::ServiceUnavailable,
        // It is there, but another program has a lease on it (fcntl(2)), or it is being renamed all the time.
        Errno::AGAIN => Status::ServiceUnavailable,
        Errno::IO => Status::InternalServerError,
        // Also: a link that leads out (EXDEV), a loop, a name that is too long, a socket.
        _ => Status::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_just_now_is_not_said_to_be_nowhere() {
        for (error, status) in [
            (Errno::AGAIN, Status::ServiceUnavailable),
            (Errno::MFILE, Status::ServiceUnavailable),
            (Errno::NOENT, Status::NotFound),
            (Errno::XDEV, Status::NotFound),
        ] {
            assert_eq!(status_of(error), status, "{error}");
        }
    }
}
