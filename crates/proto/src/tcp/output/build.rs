//! Owns how a [`Plan`] becomes bytes: its header, and the text from where it is queued.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → [tcp::output] → ip::output → egress → device::tx`

use super::{Kind, PLAIN_HEADER, Plan};
use crate::tcp::connection::{Connection, Facts};
use crate::time::Instant;
use laneway_wire::checksum::{Sum, copy_and_sum};
use laneway_wire::segmentation::{Headers, Place};
use laneway_wire::tcp::{Flags, Header, Options, SeqNum, Timestamps};

impl Connection {
    /// What the header of `plan` says.
    fn header(&self, plan: &Plan, now: Instant) -> Header {
        let reset = plan.kind == Kind::Reset;
        let mut options = Options::default();
        if !reset {
            if self.facts.has(Facts::TIMESTAMPS) {
                options.timestamps = Some(self.timestamps(now));
            }
            if self.rcv.ooo.is_some() {
                options.sack = self.sack_blocks();
            }
        }
        let mut flags = plan.flags;
        if self.told.is_some() {
            flags = flags | self.notes_of(plan);
        }
        let mut urgent = 0;
        if self.facts.has(Facts::URGENT_OUT) && self.snd.up.after(plan.seq) && !reset {
            flags = flags | Flags::URG;
            urgent = self.snd.up.offset_from(plan.seq).min(65_535) as u16;
        }
        self.header_with(plan, flags, urgent, options)
    }

    #[inline(always)]
    fn header_with(&self, plan: &Plan, flags: Flags, urgent: u16, options: Options) -> Header {
        Header {
            src_port: self.key.local_port,
            dst_port: self.key.remote_port,
            seq: plan.seq,
            ack: self.rcv.nxt,
            flags,
            window: plan.window.0,
            urgent,
            options,
        }
    }

    #[inline(always)]
    fn timestamps(&self, now: Instant) -> Timestamps {
        Timestamps { val: self.ts_now(now), echo: self.ts_recent }
    }

    /// Writes the segment of `plan` into `buf`, which has exactly `plan.segment_len()` bytes. The checksum field is left
    /// zero; the answer is the sum over the payload, so that the caller, who knows the addresses, completes it. With
    /// `offloaded` the device will sum, and the answer means nothing.
    #[inline(always)]
    pub fn build(&self, plan: &Plan, now: Instant, offloaded: bool, buf: &mut [u8]) -> Sum {
        let (head, body) = buf.split_at_mut(plan.header_len as usize);
        self.emit_header(plan, now, head);
        let offset = if plan.usual { 0 } else { self.offset_of(plan.seq) };
        self.payload(offset, offloaded, body)
    }

    #[inline(always)]
    fn emit_header(&self, plan: &Plan, now: Instant, head: &mut [u8]) {
        let plain = || self.facts.are(Facts::TIMESTAMPS | Facts::URGENT_OUT, Facts::TIMESTAMPS);
        if plan.usual || plan.header_len == PLAIN_HEADER && plain() {
            // Nearly always: timestamps and nothing else. The same bytes as below, without asking for the rest.
            self.header_with(plan, plan.flags, 0, Options::NONE).emit_usual(self.timestamps(now), head);
        } else {
            self.emit_unusual(*plan, now, head);
        }
    }

    /// Of a copy: who has the plan in registers need not lay it down for what nearly never is.
    #[inline(never)]
    fn emit_unusual(&self, plan: Plan, now: Instant, head: &mut [u8]) {
        self.header(&plan, now).emit(head);
    }

    /// The header of `plan` alone, checksum field zero, into the front of `head`; and its payload where it is queued, for a device
    /// that gathers. `None`: it lies in more than two places.
    pub fn parts(&self, plan: &Plan, now: Instant, head: &mut [u8]) -> Option<(&[u8], &[u8])> {
        let parts = self.snd.buf.slices(self.offset_of(plan.seq), plan.len)?;
        self.emit_header(plan, now, &mut head[..plan.header_len as usize]);
        Some(parts)
    }

    /// What the pieces of `plan` are made of.
    pub fn pieces(&self, plan: &Plan, now: Instant) -> Pieces<'_> {
        let text = self.snd.buf.slices(self.offset_of(plan.seq), plan.len);
        Pieces { connection: self, headers: Headers::new(&self.header(plan, now)), seq: plan.seq, text }
    }

    /// How far behind the oldest queued byte this one is.
    #[inline(always)]
    fn offset_of(&self, seq: SeqNum) -> u32 {
        seq.offset_from(self.snd.una).max(0) as u32
    }

    /// Copies queued bytes from `offset` on, as many as fit, and sums them unless the device will.
    #[inline(always)]
    fn payload(&self, offset: u32, offloaded: bool, body: &mut [u8]) -> Sum {
        if body.is_empty() {
            return Sum::ZERO;
        }
        match self.snd.buf.together(offset, body.len() as u32) {
            Some(text) => lay_down((text, &[]), offloaded, body),
            None => self.payload_around(offset, offloaded, body),
        }
    }

    /// Of bytes that lie in several places.
    #[inline(never)]
    fn payload_around(&self, offset: u32, offloaded: bool, body: &mut [u8]) -> Sum {
        if let Some(text) = self.snd.buf.slices(offset, body.len() as u32) {
            return lay_down(text, offloaded, body);
        }
        self.snd.buf.copy(offset, body);
        if offloaded { Sum::ZERO } else { Sum::of(body) }
    }
}

/// A super-segment, to be written in pieces: where its text lies was found once.
pub struct Pieces<'a> {
    connection: &'a Connection,
    headers: Headers,
    seq: SeqNum,
    /// All of the text. `None`: it lies in more than two places, and is looked for piece by piece.
    text: Option<(&'a [u8], &'a [u8])>,
}

impl Pieces<'_> {
    /// Writes the piece at `place` into `buf`, whose length says how much of the text is in it. As [`Connection::build`], but the
    /// answer is the sum over header and payload.
    #[inline]
    pub fn write(&self, place: Place, offloaded: bool, buf: &mut [u8]) -> Sum {
        let (head, body) = buf.split_at_mut(self.headers.len());
        let sum = self.headers.write(place, head);
        sum + match self.text(place.forward as usize, body.len()) {
            Some(text) => lay_down(text, offloaded, body),
            None => {
                let offset = self.connection.offset_of(self.seq + place.forward);
                self.connection.payload(offset, offloaded, body)
            }
        }
    }

    /// The `len` bytes of text behind the first `at`, or what there is of them: where they are queued. `None`: that was not found out.
    #[inline]
    pub fn text(&self, at: usize, len: usize) -> Option<(&[u8], &[u8])> {
        let (first, second) = self.text?;
        let cut = |of: &'_ [u8], from: usize, to: usize| from.min(of.len())..to.min(of.len());
        let (behind, end) = (at.saturating_sub(first.len()), (at + len).saturating_sub(first.len()));
        let (front, back) = (&first[cut(first, at, at + len)], &second[cut(second, behind, end)]);
        Some(if front.is_empty() { (back, front) } else { (front, back) })
    }
}

/// Copies text to where its segment is, and sums it unless the device will.
#[inline(always)]
fn lay_down((first, second): (&[u8], &[u8]), offloaded: bool, body: &mut [u8]) -> Sum {
    if second.is_empty() && !offloaded {
        return copy_and_sum(body, first);
    }
    let (front, back) = body.split_at_mut(first.len());
    front.copy_from_slice(first);
    if !second.is_empty() {
        back.copy_from_slice(second);
    }
    if offloaded { Sum::ZERO } else { Sum::of(body) }
}
