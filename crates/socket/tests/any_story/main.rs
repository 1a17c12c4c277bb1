//! Stories that nobody thought of, on the kernel's sockets and on ours: chance, out of a seed, says what is called, and what each call says must be the
//! same. Beside it are [`as_std`](../as_std/main.rs), whose stories somebody did think of; what is found here and mended goes there.
//!
//! A seed that fails is named and made short, with how to tell it again:
//!
//! ```text
//! LANEWAY_SEEDS=4711..4712 cargo test -p laneway --test any_story
//! ```

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, unused_macros, reason = "as_std uses all of it")]
#[path = "../as_std/world.rs"]
mod world;

mod call;
mod dice;
mod plan;
mod poller;
mod shrink;
mod sockets;
mod stage;
mod tcp;
mod udp;
mod waiting;

use call::Story;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use world::{Duration, Family, Kernel, MOMENT, Ours};

/// Seeds where nobody asks for others.
const SEEDS: Range<u64> = 0..200;
/// Stories that are told at the same time: nearly all of them wait nearly always.
const TELLERS: usize = 32;
/// How long what is done takes, if nothing is put off until later, on a machine that has nothing else to do.
const QUICK: Duration = Duration::from_millis(2);

/// So many stories say all of this: to a call the answer.
const MANY: u64 = 100;
const SAID: [(&str, &str); 19] = [
    ("Read(", "ConnectionReset"),
    ("Read(", "ConnectionRefused"),
    ("Read(", "WouldBlock"),
    ("Peek(", "WouldBlock"),
    ("Write(", "BrokenPipe"),
    ("Write(", "ConnectionReset"),
    ("TakeError)", "BrokenPipe"),
    ("TakeError)", "ConnectionReset"),
    ("Shutdown(", "NotConnected"),
    ("Accept", "WouldBlock"),
    ("ReadTimeout(", "InvalidInput, None"),
    ("ReadLater(", "over: error: ConnectionReset"),
    ("ReadLater(", "over: \"[]"),
    ("RecvLater(", "bytes"),
    ("Recv", "ConnectionRefused"),
    ("Connect(Everybody)", "PermissionDenied"),
    ("Wait", "b0 reads writes"),
    ("Wait", "the listener reads"),
    ("Wait", "u2 reads"),
];

/// What the kernel has said, and what we have.
type Told = (Vec<String>, Vec<String>);

/// Tells a story in both worlds.
fn told(story: &Story, teller: usize, moment: Duration) -> Told {
    static OF_V6: Mutex<()> = Mutex::new(());
    let (kernel, ours) = thread::scope(|scope| {
        let kernel = scope.spawn(|| match story.family {
            // Ports that are free again are not another's: each teller, of each process, has an address of its own, …
            Family::V4 => {
                let process = std::process::id();
                let at = Ipv4Addr::new(127, 1 + (process % 250) as u8, (process / 250 % 250) as u8, 1 + teller as u8);
                stage::tell(&Kernel(at.into()), story, moment)
            }
            // … or, where there is but one, is the only one.
            Family::V6 => {
                let _alone = OF_V6.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                stage::tell(&Kernel::new(Family::V6), story, moment)
            }
        });
        let ours = stage::tell(&Ours::of_lanes(story.lanes, story.family), story, moment);
        (kernel.join().expect("the kernel tells all stories"), ours)
    });
    (kernel, ours)
}

/// The same, if it is not the same.
fn differs(story: &Story, teller: usize, moment: Duration) -> Option<Told> {
    Some(told(story, teller, moment)).filter(|(kernel, ours)| kernel != ours)
}

fn report(seed: u64, story: &Story, (kernel, ours): &Told) -> String {
    let at = kernel.iter().zip(ours).take_while(|(kernel, ours)| kernel == ours).count();
    let [kernel, ours_then] = [kernel, ours].map(|lines| lines.get(at).map_or("nothing", String::as_str));
    let before = ours[..at].join("\n    ");
    format!(
        "seed {seed}, told again by LANEWAY_SEEDS={seed}..{}\n{story:?}  both say:\n    {before}\n  kernel: {kernel}\n  ours:   {ours_then}\n",
        seed + 1
    )
}

/// What has come of all stories.
#[derive(Default)]
struct Run {
    failed: Mutex<Vec<u64>>,
    told_twice: AtomicU64,
    said: Mutex<BTreeSet<usize>>,
}

impl Run {
    /// What is wrong with a story, if anything is.
    fn judge(&self, seed: u64, teller: usize) -> Option<String> {
        let story = Story::from_seed(seed);
        if !story.family.is_here() {
            return None;
        }
        let moment = if story.nagle { MOMENT } else { QUICK };
        let (kernel, ours) = told(&story, teller, moment);
        self.hear(&kernel);
        if kernel == ours {
            return None;
        }
        // On a machine that is busy something may have come late. Told again with patience it is the same, or is different.
        self.told_twice.fetch_add(1, Relaxed);
        differs(&story, teller, 5 * MOMENT)?;
        let short = shrink::shrunk(story.clone(), |story| differs(story, teller, moment).is_some());
        // One that was hastened to become short may be one that is the same.
        [short, story].iter().find_map(|story| {
            let told = differs(story, teller, 20 * MOMENT)?;
            Some(report(seed, story, &told))
        })
    }

    fn hear(&self, lines: &[String]) {
        let is_in =
            |(call, answer): &(&str, &str)| lines.iter().any(|line| line.contains(call) && line.contains(answer));
        let said = SAID.iter().enumerate().filter(|(_, said)| is_in(said)).map(|(number, _)| number);
        self.said.lock().unwrap().extend(said);
    }

    fn tell(&self, seed: u64, teller: usize) {
        let judged = catch_unwind(AssertUnwindSafe(|| self.judge(seed, teller)));
        let report = judged
            .unwrap_or_else(|_| Some(format!("seed {seed} was not told to its end\n{:?}", Story::from_seed(seed))));
        if let Some(report) = report {
            eprintln!("{report}");
            self.failed.lock().unwrap().push(seed);
        }
    }
}

#[test]
fn any_story_is_the_same_in_both_worlds() {
    let (seeds, run) = (common::seeds(SEEDS), Run::default());
    let next = AtomicU64::new(seeds.start);
    thread::scope(|scope| {
        for teller in 0..TELLERS {
            let (next, run, end) = (&next, &run, seeds.end);
            scope.spawn(move || {
                while let Some(seed) = Some(next.fetch_add(1, Relaxed)).filter(|seed| *seed < end) {
                    run.tell(seed, teller);
                }
            });
        }
    });
    let Run { failed, told_twice, said } = run;
    println!("of {seeds:?} {} were told twice", told_twice.into_inner());
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "of the seeds {seeds:?} these failed: {failed:?}");
    let said = said.into_inner().unwrap();
    if seeds.end.saturating_sub(seeds.start) >= MANY {
        let unsaid: Vec<_> =
            (0..SAID.len()).filter(|number| !said.contains(number)).map(|number| SAID[number]).collect();
        assert!(unsaid.is_empty(), "a run in which that is not said says nothing of it: {unsaid:?}");
    }
}
