//! Owns what a lane is told: frames that other lanes found in their queues, and the commands of the control thread.

use super::batch;
use super::lent::ByMail;
use crate::app::{App, Context};
use crate::bound;
use crate::counters::Mib;
use crate::demux::Stage;
use crate::egress;
use crate::ingress::{self, Batch, Other};
use crate::lane::{Lane, Local};
use crate::listing;
use crate::mail::{ToControl, ToLane};
use crate::moving::Note;
use crate::sharing::{Sharing, Site};
use crate::tables::Handle;
use laneway_device::{BATCH_MAX, RxFrame, Tx};
use laneway_proto::discard::Discard;
use laneway_proto::ip::input;

/// Frames that other lanes found in their queues and that are ours.
pub(super) fn lane_mail<S: Sharing, T: Tx>(lane: &mut Lane<S>, tx: &mut T, app: &mut dyn App) -> bool {
    let mut any = false;
    for i in 0..lane.local.mail.from_lanes.len() {
        // The ring of a lane is behind those of the lanes before it, but for our own.
        let from = i + usize::from(i >= lane.local.id);
        if lane.local.mail.from_lanes[i].is_empty() || lane.local.moving.holds(from) {
            continue;
        }
        // The ring is taken out for the batch, because its frames are lent from it while the lane works.
        let mut ring = lane.local.mail.from_lanes.swap_remove(i);
        let n = ring.poll_far(BATCH_MAX);
        batch(lane, n, ByMail(&ring), tx, app);
        lane.local.moving.forget_beyond();
        lane.local.counters.add(Mib::SteerMailed, n as u64);
        ring.release(n);
        let rings = &mut lane.local.mail.from_lanes;
        rings.push(ring);
        let last = rings.len() - 1;
        rings.swap(i, last);
        any |= n > 0;
    }
    any
}

/// A packet from another lane, with what that has noted of it.
#[inline]
pub(super) fn mailed_packet<'a>(
    local: &mut Local,
    frame: RxFrame<'a>,
    note: Note,
    recent: impl Fn(u64) -> Option<Handle> + Copy,
    arriving: &mut Batch<'a>,
) -> Other<'a> {
    let before = arriving.len();
    let mut other = ingress::packet(local, (frame.bytes, frame.meta), note.group, recent, arriving);
    if let Some(other) = &mut other {
        (other.via, other.is_counted) = (note.via, true);
    }
    if let Some(segment) = arriving.get_mut(before) {
        segment.via = note.via;
        ingress::was_counted(local, segment);
        if let Some(least) = note.beyond {
            local.moving.note_beyond(segment.key, least);
        }
    }
    local.hear_of_cookies(note.cookies_s);
    other
}

/// Commands of the control thread. Hardly any poll has one, and what carries them out has a large frame: it is not entered for nothing.
#[inline]
pub(super) fn control_mail<S: Sharing, T: Tx>(lane: &mut Lane<S>, tx: &mut T, app: &mut dyn App) -> bool {
    let local = &lane.local;
    let waits = !local.mail.from_control.is_empty() || local.owes_answers || local.mail.keeps();
    waits && obey(lane, tx, app)
}

#[inline(never)]
fn obey<S: Sharing, T: Tx>(lane: &mut Lane<S>, tx: &mut T, app: &mut dyn App) -> bool {
    let mut any = lane.local.mail.keeps();
    lane.local.mail.tell_kept();
    while let Some(command) = lane.local.mail.from_control.pop() {
        any = true;
        let walks = matches!(command, ToLane::Unlisten(_) | ToLane::PathMtu(..));
        let mut tables = lane.shared.enter(if walks { Site::Walk } else { Site::Control });
        let local = &mut lane.local;
        match command {
            ToLane::Snapshot(mut snapshot) => {
                std::mem::swap(&mut local.snapshot, &mut *snapshot);
                local.paths.adopt(&local.snapshot);
                // If there is no room, it ends here.
                let _ = local.mail.to_control.push(ToControl::Replaced(snapshot));
                let neighbours = &local.snapshot.neighbours;
                let settled = local.waiting.settle(|hop| neighbours.get(hop).map(Option::is_some));
                for (next_hop, packets, reachable) in settled {
                    for packet in packets {
                        if reachable {
                            send_waited(local, tx, next_hop, &packet);
                        } else {
                            Stage { tables: &mut tables, local, tx, app }.nobody_answers(&packet);
                        }
                    }
                }
            }
            ToLane::Reserve { id, binding, port, census } => {
                bound::reserve(&mut tables, local, id, binding, port, census);
            }
            ToLane::Release(id) => bound::release(&mut tables, local, id),
            ToLane::Listen { id, binding, port, backlog, marks } => {
                let backlog = backlog.min(local.config.somaxconn);
                tables.listeners.add(id, binding, port, backlog, local.steering.lanes());
                tables.listeners.mark(id, |was| *was = marks);
                local.mail.tell(ToControl::Listening(id));
            }
            ToLane::Mark(id, marks) => tables.listeners.mark(id, |was| *was = marks),
            ToLane::Unlisten(id) => {
                for orphan in tables.listeners.remove(id) {
                    Context { tables: &mut tables, local }.abort(orphan);
                }
                let stale: Vec<u32> =
                    tables.half_open.iter().filter(|(_, half)| half.listener == id.0).map(|(i, _)| i).collect();
                for index in stale {
                    tables.remove_half_open(index);
                }
            }
            ToLane::BindUdp { id, binding, port } => local.udp.bind(id, binding, port),
            ToLane::UnbindUdp(id) => {
                local.udp.close(id);
                local.unbinding.push(id);
            }
            ToLane::Transmit(frame) => match tx.reserve(frame.len()) {
                Some(buf) => {
                    buf.copy_from_slice(&frame);
                    tx.commit(frame.len(), Default::default());
                }
                // A question is asked again in a second, and so is one that was not answered.
                None => local.counters.discard(Discard::TxFull),
            },
            ToLane::PathMtu(remote, said) => {
                if let Some(mtu) = local.paths.on_packet_too_big(&local.snapshot, remote, said, local.now) {
                    local.mtu_news.learn(remote, mtu);
                }
            }
            ToLane::UnverifiedMtu(of, remote, mtu) => {
                local.paths.on_unverified_too_big(&local.snapshot, of, (remote, mtu), local.now);
            }
            ToLane::Steer { table, is_abrupt } => local.on_table(table, is_abrupt),
            ToLane::Switched { bucket, capacity } => local.on_switched(bucket, capacity),
            ToLane::Cookies(until) => local.cookies_until = local.cookies_until.max(until),
            ToLane::ReportCounters => {
                let mut counters = local.counters.clone();
                counters.merge(&tables.counters);
                counters.add_met(local.met());
                local.mail.tell(ToControl::Counters(Box::new(counters), tables.bytes()));
            }
            ToLane::List(page) => local.pages.push_back(page),
            ToLane::Tap(tap) => local.taps.push(tap),
        }
    }
    // One page a poll, however many ask. What was said behind them does not wait for that: a socket is bound when its `bind` has returned.
    if let Some(mut page) = lane.local.pages.pop_front() {
        let (tables, local) = (lane.shared.enter(Site::Control), &mut lane.local);
        page.busy = local.busy;
        listing::fill(&mut page, &tables, app, local.id, local.now, local.config.tcp.msl_us);
        local.mail.tell(ToControl::Page(page));
        any = true;
    }
    if lane.local.bound.is_surveying() {
        bound::survey(&mut lane.shared.enter(Site::Control), &mut lane.local);
        any = true;
    }
    lane.local.owes_answers = lane.local.bound.is_surveying() || !lane.local.pages.is_empty();
    any
}

fn send_waited<T: Tx>(local: &mut Local, tx: &mut T, next_hop: laneway_wire::flow::Address, packet: &[u8]) {
    let dst = input::input(packet, /* header_checksum_verified= */ true).map_or(next_hop, |packet| packet.dst);
    let _ = egress::raw(local, tx, dst, packet);
}
