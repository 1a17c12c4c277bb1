//! Owns the connections of one lane: reads requests, sends answers, ends what has been silent too long.

use super::files::{Files, Found, Root};
use super::patience::Patience;
use super::request::{self, Bad, HEAD_MAX, Read, Request};
use super::respond::{self, Manner, Status};
use super::warm::{Reading, Warmer};
use laneway::on_lane::{App, CloseReason, ConnId, Context, Instant};
use percent_encoding::{CONTROLS, percent_encode};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::io::IoSliceMut;
use std::sync::Arc;
use std::time::SystemTime;

/// How often connections are looked at, and how many at a time.
const SWEEP_US: u64 = 250_000;
const SWEEP_MAX: usize = 4_096;
/// Bytes that one connection may be given in one go, so that the others of the lane need not wait.
const TURN_MAX: usize = 128 << 10;
/// Bytes read from a file at a time.
const CHUNK: usize = 64 << 10;

/// What is left of an answer.
#[derive(Default)]
enum Body {
    #[default]
    None,
    Bytes {
        bytes: Arc<[u8]>,
        at: usize,
        end: usize,
    },
    File {
        reading: Arc<Reading>,
        at: u64,
        end: u64,
        /// A piece is being read from the disk.
        on_disk: bool,
    },
}

/// One connection; without an `id`, the place for one.
#[derive(Default)]
struct Conn {
    id: Option<ConnId>,
    /// The beginning of a head whose end has not come yet.
    head: Vec<u8>,
    /// Bytes of a request's body that are still to be read over.
    skip: u64,
    /// The rest of an answer's head that found no room.
    rest: Vec<u8>,
    body: Body,
    /// The connection ends after this answer.
    close_after: bool,
    /// We have closed; what still comes is read over until the peer closes.
    draining: bool,
    peer_closed: bool,
    deadline_us: u64,
    /// What the peer had still to acknowledge of an answer when this was last looked at.
    queued: u32,
}

impl Conn {
    fn is_busy(&self) -> bool {
        !self.rest.is_empty() || !matches!(self.body, Body::None)
    }

    /// Sets the deadline of an answer that waits for the peer.
    fn wait(&mut self, cx: &mut Context<'_>, id: ConnId, patience: &Patience) {
        self.queued = cx.inspect(id, |c| c.queued()).unwrap_or(0);
        let us = match self.draining {
            _ if self.is_busy() || self.queued > 0 => patience.stall_us,
            true => patience.drain_us,
            false => patience.idle_us,
        };
        self.deadline_us = cx.now().as_us() + us;
    }
}

/// The server on one lane.
pub struct Server {
    patience: Patience,
    files: Files,
    warmer: Warmer,
    conns: Vec<Conn>,
    free: Vec<usize>,
    /// Answers that go on in the next poll.
    runnable: Vec<(usize, ConnId)>,
    sweep_at_us: u64,
    sweep_from: usize,
    /// The last sweep was put off.
    put_off: bool,
    stopping: bool,
    /// An answer is put together here.
    out: Vec<u8>,
    chunk: Box<[u8]>,
    date: String,
    date_at: SystemTime,
    date_until_us: u64,
}

impl Server {
    /// Serves what is beneath `root`.
    pub fn new(root: Root, warmer: Warmer, patience: Patience) -> Self {
        Server {
            patience,
            files: Files::new(root),
            warmer,
            conns: Vec::new(),
            free: Vec::new(),
            runnable: Vec::new(),
            sweep_at_us: u64::MAX,
            sweep_from: 0,
            put_off: false,
            stopping: false,
            out: Vec::with_capacity(64 << 10),
            chunk: vec![0; CHUNK].into(),
            date: String::new(),
            date_at: SystemTime::UNIX_EPOCH,
            date_until_us: 0,
        }
    }

    /// The slot of a connection; `None` if it has none (any more).
    fn slot(&self, cx: &mut Context<'_>, id: ConnId) -> Option<usize> {
        let slot = (cx.token(id) as usize).checked_sub(1)?;
        (self.conns.get(slot)?.id == Some(id)).then_some(slot)
    }

    fn answer(&mut self, cx: &mut Context<'_>, slot: usize, read: &Read<'_>) {
        let now_us = cx.now().as_us();
        if now_us >= self.date_until_us {
            self.date_at = SystemTime::now();
            self.date = httpdate::fmt_http_date(self.date_at);
            // Whole seconds of the wall clock, and at most a quarter late.
            self.date_until_us = now_us + 250_000;
        }
        self.out.clear();
        let stopping = self.stopping;
        let conn = &mut self.conns[slot];
        conn.deadline_us = now_us + self.patience.stall_us;
        match read {
            Read::Request(request, _) => {
                conn.skip = request.body_len;
                conn.close_after = !request.keep_alive || stopping;
                self.answer_request(slot, request, now_us);
            }
            Read::Refused(refusal, _) => {
                conn.skip = refusal.body_len.unwrap_or(0);
                conn.close_after = refusal.body_len.is_none() || stopping;
                let (keep_alive, is_http10) = (!conn.close_after, refusal.is_http10);
                let manner = Manner { date: &self.date, now: self.date_at, keep_alive, is_http10 };
                status_page(&mut self.out, refusal.status, refusal.head_only, &[], &manner);
            }
            Read::Bad(bad) => {
                conn.close_after = true;
                let manner = Manner { date: &self.date, now: self.date_at, keep_alive: false, is_http10: false };
                status_page(&mut self.out, bad.status, bad.head_only, &[], &manner);
            }
            Read::Partial => return,
        }
        let Some(id) = self.conns[slot].id else { return };
        let taken = cx.send(id, &self.out);
        if taken < self.out.len() {
            self.conns[slot].rest.extend_from_slice(&self.out[taken..]);
        }
        self.pump(cx, slot);
    }

    fn answer_request(&mut self, slot: usize, request: &Request<'_>, now_us: u64) {
        let conn = &mut self.conns[slot];
        let (keep_alive, is_http10) = (!conn.close_after, request.is_http10);
        let manner = Manner { date: &self.date, now: self.date_at, keep_alive, is_http10 };
        let out = &mut self.out;
        match self.files.find(request.target, now_us) {
            Found::Small(small) => {
                let selected = respond::select(request, &small.stamp);
                if refused(out, selected.status, request.head_only, small.stamp.len, &manner) {
                    return;
                }
                respond::file_head(out, &selected, &small.stamp, small.mime, &manner);
                let (at, end) = (selected.bytes.start as usize, selected.bytes.end as usize);
                if !request.head_only && end > at {
                    if end - at <= CHUNK / 4 {
                        out.extend_from_slice(&small.bytes[at..end]);
                    } else {
                        conn.body = Body::Bytes { bytes: small.bytes, at, end };
                    }
                }
            }
            Found::Large { file, stamp, mime } => {
                let selected = respond::select(request, &stamp);
                if refused(out, selected.status, request.head_only, stamp.len, &manner) {
                    return;
                }
                respond::file_head(out, &selected, &stamp, mime, &manner);
                let (at, end) = (selected.bytes.start, selected.bytes.end);
                if !request.head_only && end > at {
                    conn.body = Body::File { reading: Arc::new(Reading(file)), at, end, on_disk: false };
                }
            }
            Found::Page(bytes) => {
                let (kind, end) = ("text/html; charset=utf-8", bytes.len());
                let status = respond::condition(request, None);
                if refused(out, status, request.head_only, end as u64, &manner) {
                    return;
                }
                respond::page_head(out, status, kind, end, &[("Cache-Control", "no-cache")], &manner);
                if !request.head_only && status == Status::Ok {
                    conn.body = Body::Bytes { bytes, at: 0, end };
                }
            }
            Found::NeedsSlash => {
                // Two slashes at the beginning would name another host.
                let path = request.target.trim_ascii_start();
                let skip = path.iter().take_while(|b| **b == b'/').count();
                // What the client has not encoded, as some leave `é`, stands in no address that we give.
                let (path, query) = (percent_encode(&path[skip..], CONTROLS), percent_encode(request.query, CONTROLS));
                let location = format!("/{path}/{query}");
                status_page(out, Status::MovedPermanently, request.head_only, &[("Location", &location)], &manner);
            }
            Found::Nothing(status) => status_page(out, status, request.head_only, &[], &manner),
        }
    }

    /// Sends what there is room for, and ends the answer when all is sent.
    fn pump(&mut self, cx: &mut Context<'_>, slot: usize) {
        let now_us = cx.now().as_us();
        let conn = &mut self.conns[slot];
        let Some(id) = conn.id else { return };
        if !conn.rest.is_empty() {
            let taken = cx.send(id, &conn.rest);
            conn.rest.drain(..taken);
            if !conn.rest.is_empty() {
                return self.blocked(cx, slot, taken);
            }
        }
        let mut given = 0;
        loop {
            let conn = &mut self.conns[slot];
            match &mut conn.body {
                Body::None => break,
                Body::Bytes { bytes, at, end } => {
                    let taken = cx.send(id, &bytes[*at..*end]);
                    *at += taken;
                    if at < end {
                        return self.blocked(cx, slot, taken);
                    }
                    conn.body = Body::None;
                }
                Body::File { on_disk: true, .. } => return,
                Body::File { reading, at, end, on_disk } => {
                    if given >= TURN_MAX {
                        conn.deadline_us = now_us + self.patience.stall_us;
                        return self.runnable.push((slot, id));
                    }
                    let room = cx.inspect(id, |c| c.room() as usize).unwrap_or(0);
                    let want = room.min(CHUNK).min(usize::try_from(*end - *at).unwrap_or(usize::MAX));
                    if want == 0 {
                        // Refused: so we are told when there is room.
                        cx.send(id, b" ");
                        if given > 0 {
                            conn.wait(cx, id, &self.patience);
                        }
                        return;
                    }
                    let got = match read_at(&reading.0, &mut self.chunk[..want], *at) {
                        Ok(0) => return cx.abort(id), // cut short meanwhile: the length that was promised cannot be kept
                        Ok(got) => got,
                        Err(Errno::AGAIN) => {
                            let ahead = usize::try_from(*end - *at).unwrap_or(usize::MAX).min(1 << 20);
                            *on_disk = self.warmer.want(reading, *at, ahead, cx.lane(), id);
                            if !*on_disk {
                                cx.abort(id);
                            }
                            return;
                        }
                        Err(_) => return cx.abort(id),
                    };
                    let taken = cx.send(id, &self.chunk[..got]);
                    *at += taken as u64;
                    given += taken;
                    if taken < got {
                        return self.blocked(cx, slot, taken);
                    }
                    if *at == *end {
                        conn.body = Body::None;
                    }
                }
            }
        }
        self.answered(cx, slot);
    }

    /// A send was short, because the send buffer is full or the lane has no memory: `on_writable` follows in either case.
    fn blocked(&mut self, cx: &mut Context<'_>, slot: usize, taken: usize) {
        let conn = &mut self.conns[slot];
        if let Some(id) = conn.id
            && taken > 0
        {
            conn.wait(cx, id, &self.patience);
        }
    }

    fn answered(&mut self, cx: &mut Context<'_>, slot: usize) {
        let conn = &mut self.conns[slot];
        let Some(id) = conn.id else { return };
        if conn.close_after {
            // Not `close`: bytes that are under way to us would be answered with RST, and that may overtake our answer.
            conn.draining = true;
            cx.shutdown(id);
        }
        conn.wait(cx, id, &self.patience);
        if cx.buffered(id) > 0 {
            cx.resume(id);
        } else if conn.peer_closed {
            cx.close(id);
        }
    }

    fn continue_all(&mut self, cx: &mut Context<'_>, list: Vec<(usize, ConnId)>) {
        for (slot, id) in list {
            if self.conns.get(slot).is_some_and(|conn| conn.id == Some(id)) {
                self.pump(cx, slot);
            }
        }
    }

    fn sweep(&mut self, cx: &mut Context<'_>, now_us: u64) {
        let until = (self.sweep_from + SWEEP_MAX).min(self.conns.len());
        for slot in self.sweep_from..until {
            let conn = &mut self.conns[slot];
            let Some(id) = conn.id else { continue };
            let is_over = conn.deadline_us <= now_us;
            // A slow peer is no silent one: as long as it takes something it has time, and only who has all can be waited for
            // to close or to ask again.
            if conn.queued > 0 && (is_over || !conn.is_busy()) {
                let before = conn.queued;
                if cx.inspect(id, |c| c.queued()).is_some_and(|now| now < before) {
                    conn.wait(cx, id, &self.patience);
                    continue;
                }
            }
            if !is_over {
                continue;
            }
            conn.deadline_us = u64::MAX;
            if conn.draining || conn.is_busy() || conn.queued > 0 {
                cx.abort(id);
            } else if !conn.head.is_empty() {
                let bad = Bad::new(Status::RequestTimeout, &conn.head);
                conn.head.clear();
                self.answer(cx, slot, &Read::Bad(bad));
            } else {
                cx.close(id);
            }
        }
        self.sweep_from = if until >= self.conns.len() { 0 } else { until };
        let any = self.free.len() < self.conns.len();
        self.sweep_at_us = if any { now_us + SWEEP_US } else { u64::MAX };
    }
}

/// Reads from a file what is in memory; `AGAIN`: the disk must be asked.
fn read_at(file: &OwnedFd, into: &mut [u8], at: u64) -> Result<usize, Errno> {
    loop {
        return match preadv2(file, &mut [IoSliceMut::new(into)], at, ReadWriteFlags::NOWAIT) {
            Err(Errno::INTR) => continue,
            // A file system, or a kernel, that cannot tell.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => rustix::io::pread(file, into, at),
            other => other,
        };
    }
}

fn status_page(out: &mut Vec<u8>, status: Status, head_only: bool, extra: &[(&str, &str)], manner: &Manner<'_>) {
    let body = format!("{}\n", status.line());
    let allow = [("Allow", "GET, HEAD")];
    let extra = if status == Status::MethodNotAllowed { &allow[..] } else { extra };
    respond::page_head(out, status, "text/plain; charset=utf-8", body.len(), extra, manner);
    if !head_only {
        out.extend_from_slice(body.as_bytes());
    }
}

/// Answers instead of a file of this length, if its conditions or ranges cannot be met.
fn refused(out: &mut Vec<u8>, status: Status, head_only: bool, len: u64, manner: &Manner<'_>) -> bool {
    let range = format!("bytes */{len}");
    let extra: &[_] = match status {
        Status::RangeNotSatisfiable => &[("Content-Range", &*range)],
        Status::PreconditionFailed => &[],
        _ => return false,
    };
    status_page(out, status, head_only, extra, manner);
    true
}

impl App for Server {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        let now_us = cx.now().as_us();
        if !self.runnable.is_empty() {
            let list = std::mem::take(&mut self.runnable);
            self.continue_all(cx, list);
        }
        for id in self.warmer.ready(cx.lane()) {
            if let Some(slot) = self.slot(cx, id) {
                if let Body::File { on_disk, .. } = &mut self.conns[slot].body {
                    *on_disk = false;
                }
                self.pump(cx, slot);
            }
        }
        if now_us >= self.sweep_at_us {
            // A lane that stood still has not read what peers have said meanwhile: that comes first. Once, or one that always comes late would
            // wait for everybody.
            self.put_off = !self.put_off && now_us - self.sweep_at_us > SWEEP_US;
            if self.put_off {
                self.sweep_at_us = now_us + SWEEP_US;
            } else {
                self.sweep(cx, now_us);
            }
        }
    }

    fn poll_timeout(&self) -> Instant {
        if !self.runnable.is_empty() {
            return Instant::ZERO;
        }
        match self.sweep_at_us {
            u64::MAX => Instant::NEVER,
            at_us => Instant::from_us(at_us),
        }
    }

    fn on_accept(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let now_us = cx.now().as_us();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.conns.push(Conn::default());
            self.conns.len() - 1
        });
        let conn = &mut self.conns[slot];
        conn.id = Some(id);
        conn.deadline_us = now_us + self.patience.idle_us;
        cx.set_token(id, slot as u64 + 1);
        cx.set_nodelay(id, true);
        if self.sweep_at_us == u64::MAX {
            self.sweep_at_us = now_us + SWEEP_US;
        }
    }

    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        let Some(slot) = self.slot(cx, id) else { return data.len() };
        let mut used = 0;
        while used < data.len() {
            let conn = &mut self.conns[slot];
            if conn.draining {
                return data.len();
            }
            if conn.is_busy() {
                break; // the next request waits for this one's answer
            }
            let more = &data[used..];
            if conn.skip > 0 {
                let skip = conn.skip.min(more.len() as u64);
                conn.skip -= skip;
                used += skip as usize;
            } else if conn.head.is_empty() && matches!(more[0], b'\r' | b'\n') {
                used += 1; // RFC 9112 section 2.2: an empty line before a request is none of it, and begins none
            } else if conn.head.is_empty() {
                match request::read(more) {
                    Read::Partial => {
                        conn.head.extend_from_slice(more);
                        conn.deadline_us = cx.now().as_us() + self.patience.head_us;
                        conn.queued = 0;
                        used = data.len();
                    }
                    read => {
                        used += head_len(&read).unwrap_or(more.len());
                        self.answer(cx, slot, &read);
                    }
                }
            } else {
                let old = conn.head.len();
                let take = more.len().min(HEAD_MAX + 1 - old);
                conn.head.extend_from_slice(&more[..take]);
                // Only a line's end can end a head: who sends byte by byte shall not make us read it all each time.
                if !more[..take].contains(&b'\n') && conn.head.len() <= HEAD_MAX {
                    used += take;
                    continue;
                }
                let mut head = std::mem::take(&mut conn.head);
                let read = request::read(&head);
                if matches!(read, Read::Partial) {
                    self.conns[slot].head = head;
                    used += take;
                    continue;
                }
                used += head_len(&read).map_or(more.len(), |len| len.saturating_sub(old));
                self.answer(cx, slot, &read);
                head.clear();
                self.conns[slot].head = head;
            }
        }
        used
    }

    fn on_writable(&mut self, cx: &mut Context<'_>, id: ConnId) {
        if let Some(slot) = self.slot(cx, id)
            && self.conns[slot].is_busy()
        {
            self.pump(cx, slot);
        }
    }

    fn on_peer_closed(&mut self, cx: &mut Context<'_>, id: ConnId) {
        match self.slot(cx, id) {
            // A client that has said all may still listen.
            Some(slot) if self.conns[slot].is_busy() => self.conns[slot].peer_closed = true,
            _ => cx.close(id),
        }
    }

    fn on_closed(&mut self, _: &mut Context<'_>, id: ConnId, token: u64, _: CloseReason) {
        let Some(slot) = (token as usize).checked_sub(1) else { return };
        let Some(conn) = self.conns.get_mut(slot).filter(|conn| conn.id == Some(id)) else { return };
        // Nothing of one client's is there for the next, and what a long head took is given back.
        *conn = Conn::default();
        self.free.push(slot);
    }

    fn on_stop(&mut self, cx: &mut Context<'_>) {
        self.stopping = true;
        for conn in &mut self.conns {
            let Some(id) = conn.id else { continue };
            if conn.is_busy() {
                conn.close_after = true;
            } else if !conn.draining {
                cx.close(id);
            }
        }
    }
}

fn head_len(read: &Read<'_>) -> Option<usize> {
    match read {
        Read::Request(_, len) | Read::Refused(_, len) => Some(*len),
        Read::Partial | Read::Bad(_) => None,
    }
}
