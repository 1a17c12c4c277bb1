use super::*;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

/// Says when it is dropped.
struct Told(Arc<AtomicUsize>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn kept_until_the_last_has_given_it_back<C: Count>() {
    let (domain, mut limbo) = Domain::new(1);
    let mut seat = Domain::seat(&domain).expect("there is one");
    seat.online();
    let drops = Arc::new(AtomicUsize::new(0));
    let shared = Shared::<Told, C>::new(&domain, Told(Arc::clone(&drops)));
    let (first, retries) = shared.get().expect("alive");
    let (second, _) = shared.get().expect("alive");
    assert_eq!(retries, 0, "nobody else was at it");
    drop(shared);
    first.put(&seat.pin());
    seat.quiescent();
    assert_eq!((limbo.collect(), drops.load(Relaxed)), (0, 0), "one still has it");
    second.put(&seat.pin());
    assert_eq!((limbo.collect(), drops.load(Relaxed)), (0, 0), "the seat may still look");
    seat.quiescent();
    assert_eq!((limbo.collect(), drops.load(Relaxed)), (1, 1));
    assert_eq!(limbo.retired(), limbo.freed());
}

fn freed_once_by_any_of_many_threads<C: Count>() {
    let (domain, mut limbo) = Domain::new(0);
    let drops = Arc::new(AtomicUsize::new(0));
    for _ in 0..100 {
        let shared = Shared::<Told, C>::new(&domain, Told(Arc::clone(&drops)));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (held, _) = shared.get().expect("alive");
                let (domain, shared) = (&domain, &shared);
                scope.spawn(move || {
                    let guard = domain.guard();
                    for _ in 0..50 {
                        shared.get().expect("alive").0.put(&guard.pin());
                    }
                    held.put(&guard.pin());
                });
            }
        });
    }
    limbo.collect();
    assert_eq!((drops.load(Relaxed), limbo.retired(), limbo.freed()), (100, 100, 100));
}

#[test]
fn an_object_lives_until_the_last_reference_and_a_grace_period() {
    kept_until_the_last_has_given_it_back::<CasRef>();
    kept_until_the_last_has_given_it_back::<RcuRef>();
    kept_until_the_last_has_given_it_back::<Padded<CasRef>>();
    kept_until_the_last_has_given_it_back::<Padded<RcuRef>>();
}

#[test]
fn it_is_freed_once_whoever_is_last() {
    freed_once_by_any_of_many_threads::<CasRef>();
    freed_once_by_any_of_many_threads::<RcuRef>();
}

#[test]
fn what_is_left_with_a_domain_is_freed_with_it() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (domain, limbo) = Domain::new(0);
    drop(Shared::<Told, CasRef>::new(&domain, Told(Arc::clone(&drops))));
    drop(limbo);
    drop(domain);
    assert_eq!(drops.load(Relaxed), 1);
}

#[test]
fn padding_is_two_lines_and_no_padding_is_none() {
    type Small = [u8; 48];
    assert_eq!(Shared::<Small, CasRef>::COUNT_AT, 56);
    assert_eq!(Shared::<Small, RcuRef>::COUNT_AT, 56);
    assert_eq!(Shared::<Small, Padded<CasRef>>::COUNT_AT, 128);
    assert_eq!(Shared::<Small, Padded<RcuRef>>::COUNT_AT, 128);
    let (domain, _limbo) = Domain::new(0);
    let at = &raw const *Shared::<Small, CasRef>::new(&domain, [0; 48]);
    assert_eq!(at.addr() % 64, 0, "an object begins a line");
}

#[test]
fn none_comes_back_from_nought() {
    let (domain, _limbo) = Domain::new(0);
    let guard = domain.guard();
    let count = CasRef::one();
    assert_eq!(count.get(), Some(0));
    assert!(!count.put(&guard.pin()));
    assert!(count.put(&guard.pin()), "it was the last");
    assert_eq!(count.get(), None);
}

#[test]
#[should_panic(expected = "are a leak")]
fn too_many_are_refused_before_the_number_comes_round() {
    let _ = CasRef(AtomicU32::new(CAS_MOST)).get();
}

#[test]
#[should_panic(expected = "another domain")]
fn a_pin_of_another_domain_is_refused() {
    // A reference that is refused keeps its object for ever. So does this, or it would be a leak to an interpreter that looks for those.
    static SHARED: OnceLock<Shared<u32, CasRef>> = OnceLock::new();
    let (domain, _limbo) = Domain::new(0);
    let (other, _other_limbo) = Domain::new(0);
    let shared = SHARED.get_or_init(|| Shared::new(&domain, 1));
    shared.get().expect("alive").0.put(&other.guard().pin());
}
