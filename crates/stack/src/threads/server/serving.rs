//! Owns the way from a thread to its connection: which conversations are looked at in a poll, and what is done for each.

use super::super::kept::{self, Kept};
use super::super::words::{Conversation, FULL, GONE, LEFT, NO_SLOT, Op, RESETS, Talk, TalkEnd, last_words};
use super::super::{KEPT_MAX, SERVED_MAX};
use super::record::Record;
use super::{ROOMIER, Server};
use crate::app::{ConnId, Context};
use laneway_proto::tcp::State;
use laneway_sync::prefetch::{prefetch_line, prefetch_line_to_write};
use laneway_sync::wake::release;
use std::sync::atomic::Ordering::*;

/// Conversations that are looked at together.
pub(super) const BATCH: usize = 16;

impl Server {
    /// Does for one connection whatever its thread has asked for. True if nothing is left to do: false also if the connection
    /// has no room for more, and goes on by itself when it has.
    pub(super) fn serve(&mut self, cx: &mut Context<'_>, index: u32) -> bool {
        let Some(record) = self.records.get_mut(index as usize).and_then(Option::as_mut) else { return false };
        let id = record.id;
        // Before notes and bytes are looked at: it says that there are no more.
        let left = record.end.pipe().flags().seen(LEFT | RESETS);
        let mut aborts = !record.end.pipe().said().is_empty() && take_notes(record);
        if left != 0 {
            record.closing = true;
            aborts |= left & RESETS != 0 || record.end.unread() > 0;
        }
        if aborts {
            cx.set_token(id, 0);
            cx.abort(id);
            if left != 0 {
                self.put_away(index)
            } else {
                self.remove(index, None)
            }
            return false;
        }
        if record.closing && record.waiting() > 0 {
            cx.orphan(id);
        }
        let goes_on = if left == 0 { !record.closing } else { record.waiting() > 0 };
        let (mut sent, mut all, mut enlarged) = (0, true, false);
        loop {
            let taken = record.queued;
            let mut until = usize::MAX;
            if let Some(notes) = &mut record.notes {
                match notes.first() {
                    // It is still being opened: what was asked for waits until there is something that it can be said to. Unless it is to end,
                    // and nothing is left to be said on it.
                    Some((_, op)) if !matches!(op, Op::Close) && goes_on && is_opening(cx, id) => {
                        all = false;
                        break; // `on_connect` goes on
                    }
                    Some((at, _)) if at <= taken => {
                        let op = notes.take_first();
                        if matches!(op, Some(Op::Close)) {
                            cx.set_token(id, 0);
                            cx.close(id);
                            self.remove(index, None);
                            return false;
                        }
                        if let Some(op) = op {
                            enlarged |= matches!(op, Op::SendBuffer(_) | Op::NotsentLowat(_));
                            apply(cx, id, record.end.pipe(), op);
                        }
                        continue;
                    }
                    Some((at, _)) => until = (at - taken) as usize,
                    None => record.notes = None,
                }
            }
            if !record.keeps && record.waiting() >= kept::STREAM {
                record.keeps = keep(cx, id, &mut record.end);
            }
            let (n, len) = if record.keeps {
                let len = record.waiting().min(until);
                (if len == 0 { 0 } else { cx.send_kept(id, len) }, len)
            } else {
                let front = record.end.front();
                let front = &front[..front.len().min(until)];
                let (n, len) = (if front.is_empty() { 0 } else { cx.send(id, front) }, front.len());
                if n > 0 {
                    record.end.advance(n);
                }
                (n, len)
            };
            if left != 0 && (len == 0 || n == 0 && cannot_send(cx, id)) {
                cx.set_token(id, 0);
                cx.close(id);
                self.put_away(index);
                return false;
            }
            if len == 0 {
                break;
            }
            record.queued += n as u64;
            sent += n;
            if n < len {
                all = false;
                break; // `on_writable` goes on
            }
        }
        let taken = record.end.taken() as u32;
        let is_roomier = taken != std::mem::replace(&mut record.seen, taken) || enlarged;
        record.resume(cx);
        if is_roomier {
            self.tell_later(index, ROOMIER);
        } else if sent == 0 && record.waits_for_memory() {
            self.hungry.add(index, cx.now());
        }
        if sent > 0 {
            self.lend(index, cx.now());
        }
        all
    }

    /// Serves those that were kept, and those on the list; says how many.
    pub(super) fn serve_all(&mut self, cx: &mut Context<'_>) -> usize {
        let mut served = 0;
        let mut kept = std::mem::take(&mut self.kept);
        kept.retain(|talk| {
            let index = self.place(talk);
            if index.is_some_and(|index| self.has_work(index) && self.serve(cx, index)) {
                served += 1;
                return true;
            }
            release(&**talk);
            // It may have ended with what was done for it.
            match self.place(talk) {
                Some(index) => served += usize::from(self.serve_again(cx, index)),
                None => self.serve_nobody(talk),
            }
            false
        });
        // Where many are served, each of them has little to say, and looking at all of them again would cost more than the list.
        let keeps = self.served <= KEPT_MAX;
        let mut batch = std::mem::take(&mut self.batch);
        while served < SERVED_MAX {
            // In passes, as packets are: by the time one is served, its lines are on their way.
            while batch.len() < BATCH
                && let Some(talk) = self.inbox.woken.pop_and_keep()
            {
                prefetch_line_to_write(talk.place());
                prefetch_line(talk.lane());
                batch.push(talk);
            }
            if batch.is_empty() {
                break;
            }
            for talk in &batch {
                if let Some(record) = self.records.get(talk.place().load(Relaxed) as usize) {
                    prefetch_line(record);
                }
            }
            for talk in &batch {
                if let Some(Some(record)) = self.records.get_mut(talk.place().load(Relaxed) as usize) {
                    cx.prefetch(record.id);
                    record.end.prefetch_front();
                }
            }
            cx.prefetch_rings(batch.len());
            for talk in batch.drain(..) {
                served += 1;
                let index = self.place(&talk);
                if keeps && kept.len() < KEPT_MAX && index.is_some_and(|index| self.serve(cx, index)) {
                    kept.push(talk);
                    continue;
                }
                release(&*talk);
                // It may have ended with what was done for it, and what was said meanwhile is looked at by nobody else.
                match self.place(&talk) {
                    Some(index) => {
                        if let Some(record) = self.record(index) {
                            record.end.take_over(talk);
                        }
                        self.serve_again(cx, index);
                    }
                    None => self.serve_nobody(&talk),
                }
            }
        }
        self.batch = batch;
        self.kept = kept;
        self.served = served;
        served
    }

    /// Looks at a conversation after it was released: what was published before was not pushed. True if there was something.
    fn serve_again(&mut self, cx: &mut Context<'_>, index: u32) -> bool {
        // One who was kept and asks for memory is not put on the list for that.
        let asks = self.has_work(index) || self.record(index).is_some_and(|record| record.waits_for_memory());
        if asks {
            self.serve(cx, index);
        }
        asks
    }

    /// A conversation that was released, and that this lane does not keep.
    fn serve_nobody(&self, talk: &Talk) {
        if usize::from(talk.lane().lane.load(Acquire)) != self.lane {
            self.desk.serve(talk); // perhaps it was handed to another lane meanwhile
        } else if talk.lane().status.load(Relaxed) & GONE != 0 {
            last_words(talk); // it ended before the lane knew who watches it: the farewell reached nobody
        }
    }

    /// Where this lane keeps a conversation, if it does.
    #[inline]
    fn place(&self, talk: &Conversation) -> Option<u32> {
        if usize::from(talk.lane().lane.load(Acquire)) != self.lane {
            return None;
        }
        let index = talk.place().load(Relaxed);
        (index != NO_SLOT).then_some(index)
    }

    /// Its thread has said something that was not looked at.
    #[inline]
    fn has_work(&self, index: u32) -> bool {
        let Some(Some(record)) = self.records.get(index as usize) else { return false };
        let pipe = record.end.pipe();
        // That it has read is said by the list alone, and one who is kept is not put on it again. For want of memory nothing is to be done
        // before its time.
        let has_read = || {
            let asks = pipe.flags().get(FULL) != 0 && record.end.unread() <= pipe.receive_limit() / 3 * 2;
            asks && !self.hungry.is_listed(index)
        };
        let has_left = || !record.closing && pipe.flags().seen(LEFT) != 0;
        record.waiting() > 0 || !pipe.said().is_empty() || has_left() || has_read()
    }
}

/// From now on the connection sends out of the ring. False: there is none yet that could.
#[cold]
fn keep(cx: &mut Context<'_>, id: ConnId, end: &mut TalkEnd) -> bool {
    cx.state(id).is_synchronized() && end.part().is_some_and(|half| cx.set_keeper(id, Box::new(Kept::new(half))))
}

/// What a thread has noted goes to the record, each note at the byte that it stands behind. True if the connection is to end without another word.
#[inline(always)]
fn take_notes(record: &mut Record) -> bool {
    let notes = record.end.pipe().said().take_all();
    record.end.pipe().lane().noted.fetch_add(notes.len() as u16, Release);
    let (mut aborts, mut is_shut) = (false, false);
    for (at, op) in notes {
        is_shut |= matches!(op, Op::Shutdown | Op::ShutRead);
        match op {
            Op::Watch(watch) => record.watches.change(watch),
            Op::Abort => aborts = true,
            Op::ShutRead => {}
            // Bytes that nobody will read are thrown away, and their sender hears of it at once.
            Op::Close if record.end.unread() > 0 => aborts = true,
            // How long the peer is waited for, and how much may wait: bytes that wait are no reason to hear of that only behind them.
            op @ (Op::UserTimeout(_)
            | Op::SendBuffer(_)
            | Op::ReceiveBuffer(_)
            | Op::NotsentLowat(_)
            | Op::Quickack(_)
            | Op::Info(_)) => {
                record.notes.get_or_insert_default().put(record.queued, op);
            }
            op => {
                record.closing |= matches!(op, Op::Close);
                record.notes.get_or_insert_default().put(at, op);
            }
        }
    }
    if is_shut {
        // Whoever waits for what will not come may be another than who has shut it.
        record.watches.look();
    }
    aborts
}

/// It is not connected yet.
fn is_opening(cx: &mut Context<'_>, id: ConnId) -> bool {
    let state = cx.state(id);
    !state.is_synchronized() && state != State::Closed
}

/// It was connected, and takes no more bytes: there is a FIN behind those that it has.
#[cold]
fn cannot_send(cx: &mut Context<'_>, id: ConnId) -> bool {
    let state = cx.state(id);
    state.is_synchronized() && !state.can_send()
}

fn apply(cx: &mut Context<'_>, id: ConnId, pipe: &Conversation, op: Op) {
    match op {
        Op::Tos { v4, tos } if cx.flow(id).is_some_and(|flow| flow.local.is_v4() == v4) => cx.set_tos(id, tos),
        Op::Tos { .. } => {} // it has no packets of that version
        Op::Info(tell) => {
            let now = cx.now();
            if let Some(info) = cx.inspect(id, |connection| connection.info(now)) {
                tell(info);
            }
        }
        Op::Cork(on) => cx.set_cork(id, on),
        Op::Quickack(on) => cx.set_quickack(id, on),
        Op::Congestion(algorithm) => cx.set_congestion_control(id, algorithm),
        Op::SendBuffer(bytes) => cx.set_send_buffer(id, bytes),
        Op::NotsentLowat(bytes) => cx.set_notsent_lowat(id, bytes),
        // What its application has not read waits in two places.
        Op::ReceiveBuffer(bytes) => {
            cx.set_receive_buffer(id, bytes);
            pipe.set_receive_limit(bytes as usize);
        }
        Op::Nodelay(on) => cx.set_nodelay(id, on),
        Op::Keepalive(on) => cx.set_keepalive(id, on),
        Op::KeepaliveTimes(times) => cx.set_keepalive_times(id, times),
        Op::UserTimeout(ms) => cx.set_user_timeout_ms(id, ms),
        Op::Ttl(ttl) => cx.set_ttl(id, ttl),
        Op::Shutdown => cx.shutdown(id),
        // These were dealt with when they came.
        Op::Close | Op::Abort | Op::ShutRead | Op::Watch(_) => {}
    }
}
