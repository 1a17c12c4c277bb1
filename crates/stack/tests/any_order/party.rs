//! Owns one end of a connection, as its thread has it. It does as a thread does: it waits for what it finds too little of, and looks again when
//! it is told, and not before.

use crate::ledger::{Ledger, SAID_MAX};
use laneway_stack::threads::desk::Desk;
use laneway_stack::threads::words::{
    CONNECTED, ENDED, FULL, Fault, GONE, Op, READ, ROOM, SHUT_READ, SHUT_WRITE, Talk, WRITE,
};
use std::sync::atomic::Ordering::Acquire;

pub struct Party {
    pub talk: Talk,
    /// Its number in the ledger.
    pub voice: usize,
    /// So many bytes it has yet to say.
    pub to_say: usize,
    /// It has shut its side for sending.
    pub mute: bool,
    /// It reads no more.
    pub deaf: bool,
    /// Why it was over, as was seen when nothing was left to do.
    pub failed: Option<Fault>,
}

impl Party {
    pub fn new(talk: Talk, voice: usize) -> Party {
        Party { talk, voice, to_say: 0, mute: false, deaf: false, failed: None }
    }

    pub fn has(&self, status: u32) -> bool {
        self.talk.lane().status.load(Acquire) & status != 0
    }

    /// It waits, and nobody has told it.
    fn waits(&self, bits: u32) -> bool {
        self.talk.flags().get(bits) != 0
    }

    /// Says what it has to say, and the lane is to look. How much: nothing if it waits for room.
    pub fn say(&mut self, desk: &Desk, ledger: &mut Ledger) -> usize {
        if self.mute || !self.has(CONNECTED) || self.has(GONE) || self.to_say == 0 || self.waits(WRITE) {
            return 0;
        }
        let said = self.talk.send(&ledger.next(self.voice, self.to_say));
        ledger.voices[self.voice].said += said;
        self.to_say -= said;
        if self.to_say > 0 {
            self.talk.flags().want(WRITE | ROOM);
        }
        desk.serve(&self.talk);
        said
    }

    /// Hears what there is, or at the most so much. How much.
    pub fn hear(&mut self, desk: &Desk, ledger: &mut Ledger, most: usize) -> usize {
        if self.deaf || self.waits(READ) {
            return 0;
        }
        let mut heard = 0;
        while heard < most {
            let there = self.talk.readable().min(most - heard).min(SAID_MAX);
            if there == 0 {
                // The end is told of, too, and then there is nothing to wait for.
                if !self.has(ENDED | GONE) {
                    self.talk.flags().want(READ);
                }
                break;
            }
            let mut bytes = vec![0; there];
            assert_eq!(self.talk.recv(&mut bytes), there, "there is what is said to be there");
            heard += there;
            ledger.hears(self.voice, &bytes);
            if self.waits(FULL) && self.talk.readable() <= self.talk.receive_limit() / 3 * 2 {
                desk.serve(&self.talk);
            }
        }
        heard
    }

    /// Shuts its side: for sending, for receiving, or both.
    pub fn shut(&mut self, desk: &Desk, bits: u8) {
        desk.shut(&self.talk, bits);
        self.mute |= bits & SHUT_WRITE != 0;
        self.deaf |= bits & SHUT_READ != 0;
    }

    pub fn sets_nodelay(&self, desk: &Desk, on: bool) {
        desk.note(&self.talk, Op::Nodelay(on));
    }

    /// So much may wait from now on.
    pub fn sets_buffers(&self, desk: &Desk, send: u32, receive: u32) {
        self.talk.set_send_limit(send as usize);
        desk.note(&self.talk, Op::SendBuffer(send));
        desk.note(&self.talk, Op::ReceiveBuffer(receive));
    }

    /// In words.
    pub fn describe(&self, ledger: &Ledger) -> String {
        let Party { talk, voice, to_say, mute, deaf, failed } = self;
        let (status, flags, flow) = (talk.lane().status.load(Acquire), talk.flags().get(u32::MAX), talk.lane().flow());
        format!(
            "{voice} (status {status:#x}, {failed:?}, flags {flags:#x}, readable {}, writable {} of {}, to say {to_say}, mute {mute}, \
             deaf {deaf}, {flow:?}): {:?}",
            talk.readable(),
            talk.writable(),
            talk.send_limit(),
            ledger.voices[*voice],
        )
    }
}
