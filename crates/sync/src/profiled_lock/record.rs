//! Owns the numbers: what each site has counted, and who has waited for whom.

use super::site::Site;
use super::table::Row;
use crate::padded::Padded;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Sites that can be told apart; those beyond share the last number.
const SITES: usize = 128;
/// Threads that count on lines of their own; those beyond share them.
const THREADS: usize = 64;

/// What one thread has counted at one site, in nanoseconds: a line.
#[derive(Default)]
struct Cell {
    count: AtomicU64,
    total: AtomicU64,
    max: AtomicU64,
    wait_total: AtomicU64,
    wait_max: AtomicU64,
    cnt_hold: AtomicU64,
    cnt_lock: AtomicU64,
}

/// What is counted for one site.
pub(super) struct Record {
    site: &'static Site,
    class: &'static str,
    number: u32,
    cells: Box<[Padded<Cell>]>,
}

/// By number; 0 is nobody.
static RECORDS: [OnceLock<&'static Record>; SITES] = [const { OnceLock::new() }; SITES];
/// How many numbers are given; also keeps two sites from taking the same.
static REGISTERED: Mutex<usize> = Mutex::new(1);
/// Who has waited for whom: how often, and for how many nanoseconds.
static MATRIX: [(AtomicU64, AtomicU64); SITES * SITES] =
    [const { (AtomicU64::new(0), AtomicU64::new(0)) }; SITES * SITES];

thread_local! {
    static THREAD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Relaxed) % THREADS
    };
}

impl Record {
    pub(super) fn register(site: &'static Site, class: &'static str) -> &'static Record {
        let mut given = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *given;
        if number + 1 < SITES {
            *given += 1;
        }
        let cells = (0..THREADS).map(|_| Padded::default()).collect();
        let new = || &*Box::leak(Box::new(Record { site, class, number: number as u32, cells }));
        RECORDS[number].get_or_init(new)
    }

    pub(super) fn of(number: u32) -> Option<&'static Record> {
        RECORDS.get(number as usize)?.get().copied()
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    fn cell(&self) -> &Cell {
        // A thread that is ending has lost its number: any cell will do.
        &self.cells[THREAD.try_with(|thread| *thread).unwrap_or(0)]
    }

    pub(super) fn on_take(&self) {
        self.cell().count.fetch_add(1, Relaxed);
    }

    pub(super) fn on_wait(&self, holder: u32, ns: u64) {
        let cell = self.cell();
        cell.cnt_lock.fetch_add(1, Relaxed);
        cell.wait_total.fetch_add(ns, Relaxed);
        cell.wait_max.fetch_max(ns, Relaxed);
        let (count, wait) = &MATRIX[self.number as usize * SITES + holder as usize % SITES];
        count.fetch_add(1, Relaxed);
        wait.fetch_add(ns, Relaxed);
    }

    pub(super) fn on_release(&self, held_ns: u64, arrived: u32) {
        let cell = self.cell();
        cell.total.fetch_add(held_ns, Relaxed);
        cell.max.fetch_max(held_ns, Relaxed);
        if arrived > 0 {
            cell.cnt_hold.fetch_add(u64::from(arrived), Relaxed);
        }
    }

    fn name(&self) -> String {
        let (file, line) = self.site.place();
        format!("{file}:{line} ({})", self.class)
    }

    fn row(&self) -> Row {
        let sum = |pick: fn(&Cell) -> &AtomicU64| self.cells.iter().map(|cell| pick(cell).load(Relaxed)).sum::<u64>();
        let max =
            |pick: fn(&Cell) -> &AtomicU64| self.cells.iter().map(|cell| pick(cell).load(Relaxed)).max().unwrap_or(0);
        Row {
            max_ns: max(|cell| &cell.max),
            wait_max_ns: max(|cell| &cell.wait_max),
            total_ns: sum(|cell| &cell.total),
            wait_total_ns: sum(|cell| &cell.wait_total),
            count: sum(|cell| &cell.count),
            cnt_hold: sum(|cell| &cell.cnt_hold),
            cnt_lock: sum(|cell| &cell.cnt_lock),
            name: self.name(),
            why: self.site.why(),
        }
    }
}

fn records() -> impl Iterator<Item = &'static Record> {
    RECORDS.iter().filter_map(|record| record.get().copied())
}

/// A row for each site that has taken a profiled lock, the longest waited for first.
pub fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = records().map(Record::row).filter(|row| row.count > 0).collect();
    rows.sort_by(|a, b| b.wait_total_ns.cmp(&a.wait_total_ns).then_with(|| a.name.cmp(&b.name)));
    rows
}

/// One field of the matrix of waits: `waiter` found the lock in the hands of `holder`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meeting {
    /// Who waited: as [`Row::name`].
    pub waiter: String,
    /// For whom.
    pub holder: String,
    /// How often.
    pub count: u64,
    /// For how long in all, in nanoseconds.
    pub wait_ns: u64,
}

/// Who has waited for whom, the longest first.
pub fn meetings() -> Vec<Meeting> {
    let mut all = Vec::new();
    for waiter in records() {
        for holder in records() {
            let (count, wait) = &MATRIX[waiter.number as usize * SITES + holder.number as usize];
            let (count, wait_ns) = (count.load(Relaxed), wait.load(Relaxed));
            if count > 0 {
                all.push(Meeting { waiter: waiter.name(), holder: holder.name(), count, wait_ns });
            }
        }
    }
    all.sort_by_key(|meeting| std::cmp::Reverse(meeting.wait_ns));
    all
}

/// Begins again at zero, as writing 1 to `debug.lock.prof.reset` does. What is under way is counted half.
pub fn reset() {
    for record in records() {
        for cell in &record.cells {
            for number in
                [&cell.count, &cell.total, &cell.max, &cell.wait_total, &cell.wait_max, &cell.cnt_hold, &cell.cnt_lock]
            {
                number.store(0, Relaxed);
            }
        }
    }
    for (count, wait) in &MATRIX {
        count.store(0, Relaxed);
        wait.store(0, Relaxed);
    }
}
