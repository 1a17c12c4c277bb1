use super::*;

fn asleep() -> Duty {
    let duty = Duty::new();
    duty.announce();
    assert!(duty.sleep());
    duty
}

#[test]
fn a_ring_before_the_sleep_keeps_the_owner_awake() {
    let duty = Duty::new();
    assert!(!duty.ring(), "who is awake need not be woken");
    duty.announce();
    assert!(!duty.ring(), "who looks finds it");
    assert!(!duty.sleep());
    assert!(duty.is_owners());
    duty.announce();
    duty.stay();
    assert!(duty.is_owners());
}

#[test]
fn one_of_many_ringers_pays() {
    let duty = asleep();
    assert!(duty.is_asleep());
    assert!(duty.ring());
    assert!(!duty.ring());
    assert!(duty.resume());
}

#[test]
fn one_of_many_stands_in_and_hears_of_the_others() {
    let duty = asleep();
    assert_eq!(duty.relieve(), Relief::Taken);
    assert_eq!(duty.relieve(), Relief::Seen);
    assert!(!duty.ring());
    assert!(duty.is_relieved());
    assert_eq!(duty.leave(), Left::Again);
    assert!(duty.is_relieved());
    assert_eq!(duty.leave(), Left::Asleep);
    assert!(!duty.is_relieved(), "nobody is at it");
    assert_eq!(duty.relieve(), Relief::Taken);
}

#[test]
fn an_owner_that_wakes_by_itself_waits_for_its_stand_in() {
    let duty = asleep();
    assert_eq!(duty.relieve(), Relief::Taken);
    assert!(!duty.resume());
    assert!(!duty.resume(), "and asks as often as it likes");
    assert!(!duty.is_owners() && !duty.is_relieved(), "whoever has it is to give it back");
    assert_eq!(duty.leave(), Left::Owed);
    assert!(duty.resume() && duty.is_owners());

    let duty = asleep();
    assert_eq!(duty.relieve(), Relief::Taken);
    duty.hand_over();
    assert!(duty.resume());
    assert!(asleep().resume(), "nobody had come");
}

#[test]
fn work_that_many_bring_is_done_once() {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;
    let each = if cfg!(miri) { 20 } else { 20_000u64 };
    let (duty, brought, done) = (Duty::new(), AtomicU64::new(0), Mutex::new(0u64));
    let work = || {
        let mut done = done.try_lock().expect("one at a time");
        let now = brought.load(Acquire);
        let any = *done != now;
        *done = now;
        any
    };
    std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let mut naps = 0;
            loop {
                if work() {
                    continue;
                }
                duty.announce();
                if work() {
                    duty.stay();
                    continue;
                }
                if brought.load(Acquire) == 2 * each {
                    return naps;
                }
                if duty.sleep() {
                    naps += 1;
                    std::thread::park_timeout(std::time::Duration::from_millis(10));
                    while !duty.resume() {
                        std::thread::park_timeout(std::time::Duration::from_millis(10));
                    }
                }
            }
        });
        for helps in [true, false] {
            let (duty, brought, work, owner) = (&duty, &brought, &work, owner.thread().clone());
            scope.spawn(move || {
                for _ in 0..each {
                    brought.fetch_add(1, order::exchange());
                    if !helps {
                        if duty.ring() {
                            owner.unpark();
                        }
                    } else if duty.relieve() == Relief::Taken {
                        loop {
                            while work() {}
                            match duty.leave() {
                                Left::Asleep => break,
                                Left::Again => {}
                                Left::Owed => break owner.unpark(),
                            }
                        }
                    }
                }
            });
        }
        owner.join().expect("no panic");
    });
    assert_eq!(done.into_inner().expect("no panic"), 2 * each);
}
