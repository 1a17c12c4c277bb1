use super::*;

fn tells(list: &PollList) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&list.event(), PollFlags::IN)], Some(&now)).unwrap() == 1
}

/// Who has taken the flag, and does the rest later.
fn rings_late(list: &PollList) -> impl FnOnce() + use<> {
    assert!(list.bell.flag.take());
    let bell = list.bell.clone();
    move || _ = rustix::io::write(&bell.event, &1u64.to_ne_bytes()).unwrap()
}

#[test]
fn a_ring_is_heard_and_then_forgotten() {
    let (list, mut queue) = poll_list().unwrap();
    list.wake();
    assert!(!tells(&list), "nobody waits");
    assert!(!queue.arm());
    list.wake();
    list.wake();
    queue.sleep(None);
    assert!(tells(&list));
    assert!(queue.disarm());
    assert!(!tells(&list));
}

/// The one who waits has found the work before he who brought it has rung. The ring comes when nobody expects it, and must not be heard for
/// ever.
#[test]
fn a_ring_that_comes_late_is_heard_once() {
    let (list, mut queue) = poll_list().unwrap();
    assert!(!queue.arm());
    let first = rings_late(&list);
    assert!(queue.disarm());
    assert!(!queue.arm());
    let second = rings_late(&list);
    first();
    assert!(queue.disarm());
    assert!(!tells(&list));
    // The second was not yet there to be taken back.
    second();
    assert!(!queue.arm());
    queue.sleep(None);
    assert!(!queue.disarm(), "nobody has rung since");
    assert!(!tells(&list), "and the next wait sleeps");
}

#[test]
fn a_ring_that_comes_when_nobody_waits_is_heard_once() {
    let (list, mut queue) = poll_list().unwrap();
    assert!(!queue.arm());
    let late = rings_late(&list);
    assert!(queue.disarm());
    late();
    assert!(!queue.disarm(), "it was not armed");
    assert!(!tells(&list));
}
