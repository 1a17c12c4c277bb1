//! Owns a round with locks that remember: who took what how often, for how long, and waited how long for it.

use super::{CLASSES, INFO, SHARD};
use crate::bench::contender::Contender;
use crate::bench::failure::Failure;
use crate::wall::rows::Row;
use laneway_stack::sharing::profile::{self, Row as Place, Table};
use std::time::Duration;

/// Before each round, a part of it that does not count.
const LEAD_IN: u32 = 4;

/// What was remembered.
pub struct Seen {
    conns: f64,
    /// Of all lanes together.
    lanes_ns: f64,
    places: Vec<Place>,
}

/// What a connection takes is the same everywhere. A shard is looked into by each idle poll too, and how many of those there are is a matter
/// of time.
fn acquisitions(name: &str, class: &str, per_conn: f64) -> Row {
    let of = if class == SHARD { Row::measured } else { Row::counted };
    of(name, "lock_acquisitions_per_conn", per_conn, "")
}

/// A round of what has warmed up, and of nobody else meanwhile: the profile is of the whole process.
pub fn round(contender: &mut dyn Contender, time: Duration) -> Result<Seen, Failure> {
    // What was under way has waited while others had their turns: what it sends again because of that is not this round's.
    contender.round(time / LEAD_IN)?;
    profile::reset();
    let round = contender.round(time)?;
    let lanes_ns = round.shares.iter().map(|share| share.wall_s * 1e9).sum();
    Ok(Seen { conns: round.ops(), lanes_ns, places: profile::rows() })
}

/// What all rounds of a variant come to.
pub fn rows(name: &str, rounds: &[Seen]) -> Vec<Row> {
    let by_round: Vec<Vec<Row>> = rounds.iter().map(|seen| seen.rows(name)).collect();
    let Some(first) = by_round.first() else { return Vec::new() };
    let of_place = |(at, row): (usize, &Row)| {
        let values: Vec<f64> = by_round.iter().map(|rows| rows[at].value).collect();
        row.clone().of_rounds(&values)
    };
    let mut rows: Vec<Row> = first.iter().enumerate().flat_map(of_place).collect();
    let longest = rounds.iter().flat_map(|seen| &seen.places).map(|place| place.wait_max_ns).max().unwrap_or(0);
    rows.push(Row::measured(name, "wait_us_max", longest as f64 / 1e3, "us"));
    rows
}

impl Seen {
    fn of<'a>(&'a self, class: &str) -> impl Iterator<Item = &'a Place> {
        let suffix = format!("({class})");
        self.places.iter().filter(move |place| place.name.ends_with(&suffix))
    }

    /// The rows. That a lock is held for longer because it remembers does not show in `lock_held_share`: whoever wants the hold of a bare
    /// lock takes that share of what a connection takes with bare locks.
    fn rows(&self, name: &str) -> Vec<Row> {
        let us_per_conn = |ns: u64| ns as f64 / 1e3 / self.conns;
        let mut rows = Vec::new();
        for class in CLASSES {
            let (taken, held) = self.of(class).fold((0, 0), |sum, place| (sum.0 + place.count, sum.1 + place.total_ns));
            for row in [
                acquisitions(name, class, taken as f64 / self.conns),
                Row::measured(name, "held_us_per_conn", us_per_conn(held), "us"),
                Row::measured(name, "lock_held_share", held as f64 / self.lanes_ns, ""),
            ] {
                rows.push(row.at("lock", class));
            }
        }
        let (taken, contended) = self.of(INFO).fold((0, 0), |sum, place| (sum.0 + place.count, sum.1 + place.cnt_lock));
        let waited: u64 = self.places.iter().map(|place| place.wait_total_ns).sum();
        rows.extend([
            Row::measured(name, "contended_share", contended as f64 / taken.max(1) as f64, ""),
            Row::measured(name, "wait_us_per_conn", us_per_conn(waited), "us"),
        ]);
        rows
    }

    /// The nine columns, with a headline.
    pub fn table(&self, name: &str, lanes: u8) -> String {
        let table =
            if self.places.is_empty() { "there is no lock\n".to_owned() } else { Table(&self.places).to_string() };
        format!("{name}, {lanes} lanes, {:.0} connections of the last round with profiling on:\n{table}", self.conns)
    }
}
