//! Property: no silly windows (RFC 9293 section 3.8.6.2; RFC 1122 sections 4.2.3.3 and 4.2.3.4). Who receives opens his window by steps that
//! are worth a segment, and who sends does not fill the rest of a window with a small one.
//!
//! Judged by the least that must be so: what a host knows of segments and buffers is at least what it has been sent, and has told.

use laneway_wire::tcp::{Segment, SeqNum};
use std::collections::VecDeque;

/// A full segment, before a larger one has come: what everybody may send (RFC 9293 section 3.7.1).
const SMALLEST: u32 = 536;

/// What one host has told of its window.
///
/// The field is rounded to units of the scale, so that where the right edge is cannot be seen; only between which two numbers. It has moved if
/// no number would suit all that was said.
#[derive(Clone, Debug)]
pub struct Told {
    edge: Option<(SeqNum, SeqNum)>,
    /// The window of its SYN.
    first: u32,
    /// The largest window, and so the least that its buffer can be.
    largest: u32,
    /// A full segment of its peer's, as far as it must know.
    full: u32,
    /// Larger ones that have reached it, by their ends; it may not have taken them in yet.
    larger: VecDeque<(SeqNum, u32)>,
}

impl Told {
    /// The host sends its SYN.
    pub fn new(syn: &Segment<'_>) -> Self {
        let first = syn.window.raw().into();
        Told { edge: None, first, largest: first, full: SMALLEST, larger: VecDeque::new() }
    }

    /// Text has reached the host. `is_new`: it will take it in, and learn from it.
    pub fn on_text(&mut self, seg: &Segment<'_>, is_new: bool) {
        let size = seg.payload.len() as u32;
        let most = self.larger.iter().map(|(_, size)| *size).fold(self.full, u32::max);
        if size < most && !seg.flags.psh() {
            // Its sender has more, so that this may be a full one now: the path became narrower, or there are reports beside the text.
            self.full = size.max(SMALLEST);
            self.larger.clear();
        } else if size > self.full && is_new {
            self.larger.push_back((seg.seq + size, size));
        }
    }

    /// The host sends an acknowledgement: what is wrong with the right edge of its window.
    ///
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.2.2
    //# keep RCV.NXT+RCV.WND fixed until: RCV.BUFF - RCV.USER - RCV.WND >= min( Fr * RCV.BUFF, Eff.snd.MSS )
    pub fn on_window(&mut self, ack: SeqNum, field: u16, scale: u8) -> Option<String> {
        while let Some(&(_, size)) = self.larger.front().filter(|(end, _)| end.at_or_before(ack)) {
            self.full = self.full.max(size);
            self.larger.pop_front();
        }
        let rounding = (1 << scale) - 1;
        let window = u32::from(field) << scale;
        self.largest = self.largest.max(window.saturating_sub(rounding));
        let edge = ack + window;
        let moved = (edge - rounding, edge);
        // What was promised by rounding may have been used; a step begins where the edge was, all the same.
        let (least, most) = self.edge.map_or(moved, |(least, most)| (least, most.latest(ack)));
        let (low, high) = (least.latest(moved.0), most.earliest(edge));
        let stays = low.at_or_before(high);
        self.edge = Some(if stays { (low, high) } else { moved });
        // A field that can say no more hides what there is: the edge was further.
        if stays || edge.at_or_before(most) || field == u16::MAX {
            return None;
        }
        let (step, worth) = (edge.offset_from(least), self.full.min(self.largest / 2));
        (step < worth as i32).then(|| {
            let (from, to) = (least.raw(), edge.raw());
            format!("the window opens by no more than {step}, from {from} to {to}: {worth} would be worth a segment")
        })
    }

    /// Whether a segment that is not full would be silly to send to the host, by one who has more than is in it. Later windows may be larger than
    /// the first, but when they were heard is not as clear.
    ///
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.2.1
    //# or if at least a fraction Fs of the maximum window can be sent, i.e., if:
    pub fn is_fragment(&self, len: u32) -> bool {
        len < self.first / 2
    }
}
