//! Owns the tests of files: with rows that s1 has just made, and with rows that must be refused.

use super::super::counts::sharing;
use super::super::curves::point;
use super::super::engine::Costs;
use super::*;
use crate::wall::rows::{Row, Rows};
use std::time::Duration;

/// Has a file with these rows read.
fn read_rows(name: &str, rows: &Rows) -> Result<Vec<Counts>, String> {
    let file = std::env::temp_dir().join(format!("laneway-counted-{name}-{}.json", std::process::id()));
    std::fs::write(&file, rows.json()).expect("a file");
    let mut all = sharing();
    let taken = read(&file, &mut all);
    std::fs::remove_file(&file).expect("it was there");
    taken.map(|_| all).map_err(|failure| failure.to_string())
}

fn of<'a>(all: &'a [Counts], variant: &str) -> &'a Counts {
    all.iter().find(|counts| counts.variant == variant).expect("a variant")
}

#[test]
fn rows_of_s1_give_a_model_whose_one_core_is_the_measured_one() {
    let variants = ["global", "timewait", "decomposed", "epoch", "lane"];
    let mut rows = Rows::new(None);
    crate::s1::sharing(&variants, 1, 3, Duration::from_millis(30), &mut rows).expect("rows");
    let all = read_rows("s1", &rows).expect("the model takes what s1 gives");
    for variant in variants {
        let counts = of(&all, variant);
        let measured = counts.measured[0].expect("one lane was measured");
        let modelled = point(counts, 1, Costs { hit_ns: 5.0, transfer_ns: 100.0, grip: 0.0 }).ops_per_s;
        assert!((0.85..1.15).contains(&(modelled / measured)), "{modelled} is not {measured}: {counts:?}");
        assert!(counts.locks.iter().all(|lock| lock.alike == 1 && lock.hold_ns > 1.0), "{counts:?}");
    }
    let names = |variant: &str| of(&all, variant).locks.iter().map(|lock| lock.class.as_str()).collect::<Vec<_>>();
    assert_eq!((names("global"), names("timewait")), (vec!["info"], vec!["info", "time_wait"]));
    assert_eq!((names("decomposed"), names("lane")), (vec!["time_wait", "list"], vec![]));
    let global = of(&all, "global");
    assert!((5.0..9.5).contains(&global.locks[0].per_op), "{global:?}");
    // Whatever else the machine does meanwhile: what one lock holds is a part of a connection that can be seen.
    assert!(global.held_ns() > 0.03 * (global.held_ns() + global.work_ns), "{global:?}");
    let [info] = &of(&all, "decomposed").lines[..] else { panic!("its readers write one line") };
    assert!(info.line == "info" && (6.0..16.0).contains(&info.per_op), "{info:?}");
    assert_eq!(of(&all, "accept"), of(&sharing(), "accept"), "no row speaks of it");
}

/// Rows of `global` at one lane: how often it takes INFO and for how much of the time, and how often a shard.
fn global(share: f64) -> Vec<Row> {
    let at = |row: Row, class: &str, lanes: u32| row.at("lanes", lanes).at("lock", class);
    vec![
        Row::measured("global", "conns_per_s", 1e5, "1/s").at("lanes", 1u32),
        Row::measured("global", "conns_per_s", 9e4, "1/s").at("lanes", 2u32),
        at(Row::counted("global", "lock_acquisitions_per_conn", 99.0, ""), INFO, 2),
        at(Row::counted("global", "lock_acquisitions_per_conn", 8.0, ""), INFO, 1),
        at(Row::counted("global", "lock_acquisitions_per_conn", 9.0, ""), SHARD, 1),
        at(Row::measured("global", "lock_held_share", share, ""), INFO, 1),
    ]
}

fn with(more: Vec<Row>) -> Rows {
    Rows { rows: more, ..Rows::new(None) }
}

#[test]
fn what_two_lanes_count_is_not_added_and_a_model_is_not_fed_with_a_model() {
    let mut rows = global(0.4);
    rows.push(Row::model("epoch", "conns_per_s", 1.0, "1/s").at("lanes", 1u32));
    rows.push(Row::counted("lane", "shared_lines_written_per_conn", 9.0, "").at("app", "thread"));
    rows.push(Row::counted("lane", "shared_lines_written_per_conn", 3.0, "").at("app", "lane"));
    let all = read_rows("one", &with(rows)).expect("rows");
    assert_eq!(of(&all, "global").locks, [lock("info", 8.0, 500.0, 1)]);
    assert_eq!((of(&all, "global").work_ns, of(&all, "global").measured), (6_000.0, [Some(1e5), Some(9e4)]));
    assert_eq!(of(&all, "epoch"), of(&sharing(), "epoch"));
    assert_eq!(of(&all, "lane").lines, [line("shared", Touch::Write, 3.0)]);
}

#[test]
fn a_file_without_holds_has_those_of_the_documents_as_parts_of_a_connection() {
    let mut rows = global(0.4);
    rows.retain(|row| row.metric != "lock_held_share");
    let all = read_rows("documents", &with(rows)).expect("rows");
    let held = of(&all, "global").held_ns();
    assert!((held - 9_000.0).abs() < 1.0, "{held}");
}

#[test]
fn what_the_model_cannot_use_is_refused_with_a_sentence() {
    let refused = |name: &str, rows: Vec<Row>| read_rows(name, &with(rows)).expect_err(name);
    let says = refused("held", global(1.1));
    assert!(says.contains("held for 11000 ns of a connection that takes 10000 ns"), "{says}");
    let taken = |variant: &str| Row::counted(variant, "lock_acquisitions_per_conn", 1.0, "").at("lanes", 1u32);
    let mut unknown = global(0.4);
    unknown.push(taken("global").at("lock", "tables"));
    let says = refused("unknown", unknown);
    assert!(says.contains("no locks of the class tables; it knows rw:info, pcb, timewait, list"), "{says}");
    let mut nameless = global(0.4);
    nameless.push(taken("global"));
    assert!(refused("nameless", nameless).contains("axis \"lock\""));
    assert!(refused("timeless", vec![taken("global").at("lock", INFO)]).contains("how long a connection takes"));
    let rate = Row::measured("accept", "conns_per_s", 1e5, "1/s").at("lanes", 1u32);
    assert!(refused("holdless", vec![rate, taken("accept").at("lock", LIST)]).contains("for how long"));
    assert!(refused("empty", vec![]).contains("no row counts"));
}
