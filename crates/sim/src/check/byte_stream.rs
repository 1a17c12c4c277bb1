//! Property: what one application says is what the other hears, in order, once, and the end comes at the end.

use crate::pattern::Pattern;
use crate::stage::Talk;
use laneway_proto::tcp::CloseReason;

/// An end is shown bytes: they must be the next ones that the peer has said.
pub fn on_data(talk: &Talk, end: usize, data: &[u8], pattern: &Pattern) -> Option<String> {
    let me = &talk.ends[end];
    let peer = &talk.ends[1 - end];
    if talk.haunted {
        return None;
    }
    if me.over.is_some() {
        return Some(format!("{} bytes after the end of the connection", data.len()));
    }
    if me.eof {
        return Some(format!("{} bytes after the peer's end", data.len()));
    }
    let mut done = 0;
    while done < data.len() {
        let at = me.heard + done as u64;
        let want = pattern.at(talk.keys[1 - end], at, (data.len() - done) as u64);
        let have = &data[done..done + want.len()];
        if have != want {
            let first = have.iter().zip(want).position(|(a, b)| a != b).unwrap_or(0) as u64;
            return Some(format!("byte {} of end {} is not what was said", at + first, 1 - end));
        }
        done += want.len();
    }
    let heard = me.heard + data.len() as u64;
    (heard > peer.said).then(|| format!("end {end} hears {heard} bytes of {} that were said", peer.said))
}

/// An end is told that the peer has ended: it must have heard all, and the peer must have ended.
pub fn on_eof(talk: &Talk, end: usize) -> Option<String> {
    let me = &talk.ends[end];
    let peer = &talk.ends[1 - end];
    if talk.haunted {
        return None;
    }
    if !peer.ended {
        return Some(format!("end {end} is told of an end that the peer has not made"));
    }
    (me.heard != peer.said).then(|| format!("end {end} is told of the end after {} of {} bytes", me.heard, peer.said))
}

/// An end is told that its connection is over.
pub fn on_over(talk: &Talk, end: usize, reason: CloseReason) -> Option<String> {
    let me = &talk.ends[end];
    let peer = &talk.ends[1 - end];
    if talk.haunted {
        return None;
    }
    if me.over.is_some() {
        return Some(format!("end {end} is told twice that it is over"));
    }
    if reason == CloseReason::Normal {
        if !me.ended {
            return Some(format!("end {end}: normal end of a connection that the application has not ended"));
        }
        if !talk.rude && me.eof && me.heard != peer.said {
            return Some(format!("end {end}: normal end after {} of {} bytes", me.heard, peer.said));
        }
    }
    if reason == CloseReason::Aborted && !talk.rude {
        return Some(format!("end {end}: aborted, and nobody has aborted it"));
    }
    None
}

/// All is over: if nobody was rude and nothing failed, all that was to be said has been heard.
pub fn at_the_end(talk: &Talk) -> Option<String> {
    let normal = talk.ends.iter().all(|e| e.over == Some(CloseReason::Normal));
    if !normal || talk.rude || talk.haunted {
        return None;
    }
    (0..2).find_map(|end| {
        let want = talk.plan.ends[1 - end].bytes;
        let have = talk.ends[end].heard;
        (have != want).then(|| format!("end {end} has heard {have} of {want} bytes, and both ended normally"))
    })
}
