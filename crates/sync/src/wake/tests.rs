use super::*;
use std::sync::atomic::AtomicUsize;

#[test]
fn items_come_in_the_order_in_which_they_were_pushed() {
    let (list, mut woken) = wake_list::<Job<u32>>();
    let jobs: Vec<_> = (0..5).map(|i| Arc::new(Job::new(i))).collect();
    let first: Vec<bool> = jobs.iter().map(|job| list.push(job)).collect();
    assert_eq!(first, [true, false, false, false, false]);
    assert_eq!(**woken.pop().unwrap(), 0);
    assert!(list.push(&jobs[0]), "what was taken left the list empty");
    let rest: Vec<u32> = std::iter::from_fn(|| woken.pop()).map(|job| **job).collect();
    assert_eq!(rest, [1, 2, 3, 4, 0]);
    assert!(woken.is_empty());
}

#[test]
fn nothing_comes_twice_in_a_round() {
    let (list, mut woken) = wake_list::<Job<u32>>();
    let jobs: Vec<_> = (0..3).map(|i| Arc::new(Job::new(i))).collect();
    jobs.iter().for_each(|job| _ = list.push(job));
    assert!(woken.pop_of_round().is_none(), "no round has begun");
    woken.begin_round();
    assert_eq!(**woken.pop_of_round().unwrap(), 0);
    assert!(list.push(&jobs[0]));
    woken.begin_round(); // two are left of this one
    let mut rest = || std::iter::from_fn(|| woken.pop_of_round()).map(|job| **job).collect::<Vec<u32>>();
    assert_eq!((rest(), rest()), (vec![1, 2], vec![]));
    woken.begin_round();
    assert_eq!(**woken.pop_of_round().unwrap(), 0);
    assert!(woken.pop_of_round().is_none() && woken.is_empty());
}

#[test]
fn dropping_either_side_gives_everything_back() {
    let jobs: Vec<_> = (0..4).map(|i| Arc::new(Job::new(i))).collect();
    let (list, mut woken) = wake_list::<Job<u32>>();
    jobs.iter().for_each(|job| _ = list.push(job));
    drop(woken.pop());
    drop(woken);
    list.push(&jobs[0]);
    drop(list);
    assert!(jobs.iter().all(|job| Arc::strong_count(job) == 1));
    let (list, _woken) = wake_list::<Job<u32>>();
    assert!(list.push(&jobs[1]), "and it can be pushed again");
}

/// An item that can push itself.
struct Own(WakeList<Job<Own>>);

#[test]
fn items_that_have_their_list_do_not_outlive_its_consumer() {
    let (list, woken) = wake_list();
    let jobs: Vec<_> = (0..3).map(|_| Arc::new(Job::new(Own(list.clone())))).collect();
    assert!(jobs[0].0.push(&jobs[0]));
    jobs[1].0.push_last(jobs[1].clone(), 1);
    drop(woken);
    assert!(!jobs[0].0.push(&jobs[0]), "nobody is to be woken");
    assert!(!jobs[2].0.push_last(jobs[2].clone(), 1));
    assert!(jobs.iter().all(|job| Arc::strong_count(job) == 1), "the list holds nothing");
    let head = Arc::downgrade(&list.0);
    drop((list, jobs));
    assert!(head.upgrade().is_none(), "and nothing holds the list");
}

#[test]
fn no_work_is_forgotten_under_load() {
    const EACH: usize = if cfg!(miri) { 40 } else { 20_000 };
    let (list, mut woken) = wake_list::<Job<AtomicUsize>>();
    let jobs: Vec<_> = (0..3).map(|_| Arc::new(Job::new(AtomicUsize::new(0)))).collect();
    let threads: Vec<_> = jobs
        .iter()
        .map(|job| {
            let (job, list) = (job.clone(), list.clone());
            std::thread::spawn(move || {
                for _ in 0..EACH {
                    job.fetch_add(1, Relaxed);
                    list.push(&job);
                }
            })
        })
        .collect();
    let mut seen = 0;
    while seen < 3 * EACH {
        match woken.pop() {
            Some(job) => seen += job.swap(0, Relaxed),
            None => std::thread::yield_now(),
        }
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_push_list_keeps_order_and_forgets_nothing() {
    let list = PushList::default();
    assert!(list.push("a".to_owned()));
    assert!(!list.push("b".to_owned()));
    assert_eq!(list.take_all(), ["a", "b"]);
    assert!(list.is_empty() && list.take_all().is_empty());
    list.push("dropped with the list".to_owned());
}

#[test]
fn flags_are_taken_once() {
    let flags = Flags::default();
    flags.want(1 | 4);
    assert_eq!(flags.get(7), 5);
    assert_eq!(flags.take(1), 1);
    assert_eq!(flags.take(1), 0);
    assert_eq!(flags.take(6), 4);
}
