//! Owns what the page of S5 shows.

use crate::wall::page::{Chart, Page, Picture};
use crate::wall::rows::Rows;

/// At the top.
pub fn words() -> Vec<String> {
    vec![
        "Every packet looks at the route that it takes. Until Linux 6.4 it took a reference to it in a loop of compare-exchange, in the line that every other packet read; then without a loop, and on a line of its own. Here it takes none.".to_owned(),
        "The seed's machines had up to 112 cores; what two show is the shape and not the height.".to_owned(),
    ]
}

fn bars(rows: &Rows, metric: &str, of: impl Fn(&str) -> bool) -> Vec<(String, f64)> {
    let named = |row: &&crate::wall::rows::Row| of(&row.variant);
    let all = rows.only(&[metric]).into_iter().filter(named);
    all.map(|row| {
        let axes: Vec<String> = row
            .axes
            .iter()
            .filter(|(axis, _)| axis != "ratio")
            .map(|(axis, value)| format!("{axis} {value}"))
            .collect();
        (format!("{}, {}", row.variant, axes.join(", ")), row.value)
    })
    .collect()
}

fn picture(title: &str, caption: &str, x: &str, bars: Vec<(String, f64)>, rows: &Rows, metrics: &[&str]) -> Picture {
    Picture {
        title: title.to_owned(),
        caption: caption.to_owned(),
        chart: Chart::Bars { x: x.to_owned(), bars },
        rows: rows.only(metrics).into_iter().cloned().collect(),
    }
}

/// References by themselves.
pub fn micro(rows: &Rows, page: &mut Page) {
    let metrics = ["ops_per_s", "retries_per_op", "kept_ops_per_s", "kept_retries_per_op", "neighbour_reads_per_s"];
    let caption = "Pairs of get and put on one object, by one thread and by two on cores of their own. The lane borrows under the epoch.";
    page.pictures.push(picture(
        "References by themselves",
        caption,
        "pairs per s",
        bars(rows, "ops_per_s", |_| true),
        rows,
        &metrics,
    ));
    let caption = "What a core reads in a second of a field of the object while another counts references to it.";
    page.pictures.push(picture(
        "Beside the count",
        caption,
        "reads per s",
        bars(rows, "neighbour_reads_per_s", |_| true),
        rows,
        &["neighbour_reads_per_s"],
    ));
}

/// The table over traffic, and the seed's.
pub fn traffic(rows: &Rows, page: &mut Page) {
    let metrics = ["requests_per_s", "shared_writes_per_packet", "retries_per_op"];
    let caption = "A server of memcached's protocol and a closed loop of clients on our stack; the variants differ in what a packet does to its route, and in nothing else.";
    page.pictures.push(picture(
        "Requests",
        caption,
        "requests per s",
        bars(rows, "requests_per_s", |_| true),
        rows,
        &metrics,
    ));
    let caption = "As multiples of r0: ours on this machine, and the seed's on its machines A, B and C.";
    page.pictures.push(picture(
        "Ours and the seed's",
        caption,
        "times r0",
        bars(rows, "times_r0", |_| true),
        rows,
        &["times_r0", "memtier_score"],
    ));
}

/// Routes replaced under load.
pub fn flap(rows: &Rows, page: &mut Page) {
    let metrics = ["requests_per_s", "tables_per_s", "times_static", "tables_retired", "tables_freed"];
    let caption = "Whole tables put in place under load, and routes that stay, in turn.";
    let bars = bars(rows, "requests_per_s", |variant| variant.contains("routes"));
    page.pictures.push(picture("Routes replaced", caption, "requests per s", bars, rows, &metrics));
}
