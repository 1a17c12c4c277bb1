//! What must not be lost is not, and comes in the order in which it was said; what need not be said leaves room for it.

use super::*;

fn ends() -> (ControlMail, LaneMail) {
    let (mut control, mut lanes) = exchange(1);
    (control.remove(0), lanes.remove(0))
}

/// The versions that a lane says it goes by.
fn versions(control: &mut ControlMail) -> Vec<u64> {
    let goes_by = |report| if let ToControl::GoesBy(version) = report { Some(version) } else { None };
    std::iter::from_fn(|| control.from_lane.pop()).filter_map(goes_by).collect()
}

#[test]
fn what_is_kept_comes_later_and_in_order() {
    let (mut control, mut lane) = ends();
    let all = CONTROL_MAIL as u64 + 10;
    for version in 0..all {
        lane.tell(ToControl::GoesBy(version));
        control.tell(ToLane::Release(version as u16));
    }
    assert!(lane.keeps() && control.keeps());
    let mut seen = versions(&mut control);
    lane.tell(ToControl::GoesBy(all));
    seen.extend(versions(&mut control));
    assert_eq!(seen, (0..=all).collect::<Vec<_>>());
    let mut heard = Vec::new();
    while let Some(ToLane::Release(id)) = lane.from_control.pop() {
        heard.push(u64::from(id));
        control.tell_kept();
    }
    assert_eq!(heard, (0..all).collect::<Vec<_>>());
    assert!(!lane.keeps() && !control.keeps());
}

/// Whoever fills the ring with what anybody can make a lane say.
#[test]
fn what_need_not_be_said_leaves_room_for_the_rest() {
    let said: [fn(&mut LaneMail); 2] =
        [|lane| _ = lane.pass_on(&[0; 60]), |lane| lane.mention(ToControl::Used(Address::from_v4([10, 0, 0, 1])))];
    for say in said {
        let (mut control, mut lane) = ends();
        (0..2 * CONTROL_MAIL).for_each(|_| say(&mut lane));
        assert!(!lane.pass_on(&[0; 60]), "too many wait there already");
        (0..RESERVED as u64).for_each(|version| lane.tell(ToControl::GoesBy(version)));
        assert!(!lane.keeps(), "there is room for {RESERVED} others");
        assert_eq!(versions(&mut control).len(), RESERVED);
        assert!(lane.pass_on(&[0; 60]));
    }
}
