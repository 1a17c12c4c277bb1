//! Owns what the wall's page shows and says of its rows.

use super::seed;
use crate::wall::page::{Chart, Page, Picture, Scale, Series, series as lines};
use crate::wall::rows::{Row, Rows};

/// What it is about.
pub fn words() -> Vec<String> {
    let text = [
        "connect() needs a local port that makes a four-tuple which nobody uses. In 2011 illumos lost most of its client \
         rate to the locks around that choice, 16 bytes each, four to a cache line (b0); they were padded and doubled (b1). \
         Linux went over to a keyed offset and every second port, a lock each (b2), and since 2025 looks before it locks \
         (b3). All of them look for a free port by trying one after the other, so all of them slow down as ports run out.",
        "Laneway (lane) gives every lane the ports whose replies come home to it, and keeps a bitmap of those that are free \
         towards a destination: it reads a few words and takes one. lane-aa is a second copy of the same, to show what \
         difference means nothing. kernel is the kernel of this machine, in a network namespace of its own.",
    ];
    text.map(str::to_owned).to_vec()
}

/// Lines of one metric over occupancy, towards so many destinations.
fn chosen(rows: &Rows, metric: &str, destinations: usize) -> Vec<Row> {
    let at = |row: &&Row| row.axis("destinations").and_then(|d| d.number()) == Some(destinations as f64);
    rows.rows.iter().filter(|row| row.metric == metric && row.axis("occupancy").is_some()).filter(at).cloned().collect()
}

fn by_variant(rows: &[Row], metric: &str, axis: &str) -> Vec<Series> {
    let mut all = lines(&rows.iter().collect::<Vec<_>>(), metric, axis);
    // Destinations and range are in the caption.
    for one in &mut all {
        one.name = one.name.split(", ").next().unwrap_or_default().to_owned();
    }
    all
}

/// The pictures of `laneway-lab s3`.
pub fn occupancy(rows: &Rows, destinations: &[usize], page: &mut Page) {
    for &destinations in destinations {
        for (metric, title, y, caption) in [
            (
                "p50_us",
                "Half of all connects take less than this",
                "µs",
                "The time of one call of connect() by occupancy, the median. The kernel had as many ports as the table says, and its call contains the handshake over loopback, which ours does not: compare shapes, not heights.",
            ),
            ("p99_us", "One connect in a hundred takes longer than this", "µs", "The same, the 99th percentile."),
            ("probes_per_connect", "Ports tried", "per connect", "Counted: the same on every machine."),
            ("locks_per_connect", "Locks taken", "per connect", "Counted. Laneway takes none; it lies at the bottom."),
            (
                "shared_lines_written_per_connect",
                "Cache lines written that other cores write too",
                "per connect",
                "Counted, each line once a connect. Laneway writes none.",
            ),
        ] {
            let shown = chosen(rows, metric, destinations);
            if shown.is_empty() {
                continue;
            }
            let towards =
                if destinations == 1 { "one destination".to_owned() } else { format!("{destinations} destinations") };
            page.pictures.push(Picture {
                title: format!("{title}: {towards}"),
                caption: caption.to_owned(),
                chart: Chart::Lines {
                    x: "occupancy, % of the ports".into(),
                    y: y.into(),
                    scale: Scale::Log,
                    series: by_variant(&shown, metric, "occupancy"),
                },
                rows: shown,
            });
        }
    }
}

/// The sentences that the numbers come down to, and the ratios as rows.
pub fn findings(rows: &mut Rows, destinations: &[usize]) -> Vec<String> {
    let mut said = Vec::new();
    for &destinations in destinations {
        let here = rows.at("destinations", destinations);
        let value = |variant: &str, metric: &str, occupancy: u32| here.value(variant, metric, "occupancy", occupancy);
        let mut names: Vec<String> = Vec::new();
        for row in chosen(rows, "p50_us", destinations) {
            if !names.contains(&row.variant) {
                names.push(row.variant);
            }
        }
        for name in &names {
            for (metric, ratio, at) in
                [("p50_us", "p50_50_over_10", 50), ("p50_us", "p50_99_over_10", 99), ("p99_us", "p99_99_over_10", 99)]
            {
                if let (Some(then), Some(now)) = (value(name, metric, 10), value(name, metric, at)) {
                    let row = Row::measured(name, ratio, now / then, "");
                    rows.push(row.at("destinations", destinations));
                }
            }
            if let (Some(first), Some(half), Some(last)) =
                (value(name, "p50_us", 10), value(name, "p50_us", 50), value(name, "p50_us", 99))
            {
                said.push(format!(
                    "{name}, {destinations} destination(s): a connect takes {first:.2} us at 10 %, {half:.2} us at 50 % ({:.1} x), {last:.2} us at 99 % ({:.1} x), in the median",
                    half / first,
                    last / first
                ));
            }
        }
        // Not the kernel: its call contains the handshake, ours does not.
        for (other, metric) in [("b3", "times_b3_at_90"), ("lane-aa", "times_twin_at_90")] {
            if let (Some(ours), Some(theirs)) = (value("lane", "calls_per_s", 90), value(other, "calls_per_s", 90)) {
                rows.push(Row::measured("lane", metric, ours / theirs, "").at("destinations", destinations));
                said.push(format!(
                    "lane against {other} at 90 %, {destinations} destination(s), same run: {:.2} x the calls per second",
                    ours / theirs
                ));
            }
        }
    }
    said
}

/// The picture of the series: ours, at so many connections a second, beside the seed's 37 rows.
pub fn series(rows: &Rows, rate: f64, page: &mut Page) {
    let shown: Vec<Row> = rows.rows.iter().filter(|row| row.axis("second").is_some()).cloned().collect();
    let spread: Vec<Row> = rows.only(&["cv", "max_over_min"]).into_iter().cloned().collect();
    let accepts = lines(&shown.iter().collect::<Vec<_>>(), seed::COLUMNS[seed::ACCEPTS], "second");
    page.pictures.push(Picture {
        title: "One client hammers one server".into(),
        caption: format!(
            "Connections accepted in each second. The seed's rows are those of the machine of 2011, whose rate came \
             from what its client managed; ours is an open loop at {rate:.0} per second."
        ),
        chart: Chart::Lines { x: "second".into(), y: "accepted per s".into(), scale: Scale::Linear, series: accepts },
        rows: spread.into_iter().chain(shown).collect(),
    });
}

/// The pictures of false sharing: measured on two cores, calculated for 24.
pub fn sharing(rows: &Rows, page: &mut Page) {
    let measured: Vec<Row> = rows.only(&["ns_per_lock", "line_transfer_ns"]).into_iter().cloned().collect();
    let bars = measured.iter().map(|row| {
        let threads = row.axis("threads").map(ToString::to_string).unwrap_or_default();
        (format!("{} {}, {threads} thread(s)", row.variant, row.metric.trim_end_matches("_ns")), row.value)
    });
    page.pictures.push(Picture {
        title: "Two locks side by side".into(),
        caption: "Nanoseconds of one lock and unlock, each thread on a core of its own with a lock of its own. In b0 the two \
                  locks share a cache line, in b1 they do not. Below: one line from core to core."
            .into(),
        chart: Chart::Bars { x: "ns".into(), bars: bars.collect() },
        rows: measured,
    });
    let model: Vec<Row> =
        rows.rows.iter().filter(|row| row.source == crate::wall::rows::Source::Model).cloned().collect();
    page.pictures.push(Picture {
        title: "The same on 24 cores: a model, not a measurement".into(),
        caption:
            "Connects per second of cores that do nothing but connect, by mean value analysis of the lines that they \
                  queue for, with the measured time of a transfer. docs/walls/s3.md lists what it assumes."
                .into(),
        chart: Chart::Lines {
            x: "cores".into(),
            y: "connects per s".into(),
            scale: Scale::Linear,
            series: lines(&model.iter().collect::<Vec<_>>(), "connects_per_s", "cores"),
        },
        rows: model,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_compared_with_itself_alone() {
        let mut rows = Rows::new(None);
        for (variant, us) in [("lane", 0.5), ("lane-aa", 0.5), ("b3", 1.0), ("kernel", 10.0)] {
            for occupancy in [10u32, 50, 90, 99] {
                let at = |row: Row| row.at("occupancy", occupancy).at("destinations", 1u32);
                rows.push(at(Row::measured(variant, "p50_us", us * f64::from(occupancy), "us")));
                rows.push(at(Row::measured(variant, "calls_per_s", 1e6 / us, "calls/s")));
            }
        }
        let said = findings(&mut rows, &[1]);
        assert_eq!(rows.value("lane", "times_b3_at_90", "destinations", 1u32), Some(2.0));
        assert_eq!(rows.value("kernel", "p50_50_over_10", "destinations", 1u32), Some(5.0));
        assert!(!rows.rows.iter().any(|row| row.metric.contains("kernel")), "{:?}", rows.rows);
        assert!(!said.iter().any(|words| words.contains("against kernel")), "{said:?}");
    }

    #[test]
    fn the_series_is_said_to_have_the_rate_that_it_had() {
        let mut page = Page::new("S3");
        series(&Rows::new(None), 1_234.0, &mut page);
        assert!(page.pictures[0].caption.contains("an open loop at 1234 per second"), "{}", page.pictures[0].caption);
    }
}
