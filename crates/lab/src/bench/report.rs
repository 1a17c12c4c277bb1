//! Owns how results look: a table for a reader, the same facts as JSON for a program.

use super::contender::{Account, Contender, Round};
use super::machine;
use serde::Serialize;

/// All results of a run.
#[derive(Serialize)]
pub struct Report {
    /// What an operation is.
    pub unit: &'static str,
    /// Where it ran.
    pub machine: String,
    /// The total row of each contender comes before the rows of its cores.
    pub rows: Vec<Row>,
    /// For the table only.
    #[serde(skip)]
    pub remarks: Vec<String>,
}

/// What `bench idle` found out about one thing.
pub struct Idle {
    /// What it is about.
    pub who: &'static str,
    /// Who computes checksums.
    pub checksums: &'static str,
    /// Connections or records.
    pub conns: usize,
    /// How fast they came to be.
    pub ops_per_s: f64,
    /// p50, p99 and p99.9 of a request, in microseconds.
    pub us: Option<[f64; 3]>,
    /// Bytes of one.
    pub bytes_per_conn: f64,
    /// Early evictions.
    pub tw_evicted: Option<u64>,
    /// Connections that were not opened, or failed.
    pub failed: u64,
    /// In words.
    pub remarks: String,
}

/// One line.
#[derive(Serialize, Clone, Debug)]
pub struct Row {
    who: String,
    api: &'static str,
    device: &'static str,
    checksums: &'static str,
    lanes: usize,
    conns: usize,
    ops_per_s: f64,
    ops_per_s_per_core: f64,
    /// Of payload; `bench idle` carries next to none, and measures no processor time.
    gbit_s: Option<f64>,
    cpu_us_per_op: Option<f64>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
    packets_per_op: Option<f64>,
    /// With `--api thread` only: what of the processor time the lanes had, …
    #[serde(skip_serializing_if = "Option::is_none")]
    lane_cpu_us_per_op: Option<f64>,
    /// … and what the application's threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    app_cpu_us_per_op: Option<f64>,
    bytes_per_conn: Option<f64>,
    tw_evicted: Option<u64>,
    /// Operations that failed; left out where none has.
    #[serde(skip_serializing_if = "is_none")]
    failed: u64,
    /// Operations per second of each round.
    rounds: Vec<f64>,
    /// For the table only: a part of the row above.
    #[serde(skip)]
    part: Option<usize>,
}

fn is_none(failed: &u64) -> bool {
    *failed == 0
}

/// The middle one; 0 if there are none.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

impl Report {
    /// Nothing yet.
    pub fn new(unit: &'static str) -> Self {
        Report { unit, machine: machine::describe(), rows: Vec::new(), remarks: Vec::new() }
    }

    /// Adds a contender: one row in all, and one for each core if there are several.
    pub fn add(
        &mut self,
        contender: &dyn Contender,
        conns: usize,
        payload_bytes: usize,
        rounds: &[Round],
        account: &Account,
    ) {
        let rates: Vec<f64> = rounds.iter().map(Round::rate).collect();
        let rate = median(rates.iter().copied());
        let shares = rounds.first().map_or(1, |round| round.shares.len().max(1));
        let cores = contender.cores().unwrap_or(shares);
        let lane_cpu: Option<Vec<f64>> = rounds.iter().map(Round::lane_cpu_us_per_op).collect();
        let lane_cpu = lane_cpu.map(|all| median(all.into_iter()));
        let cpu = median(rounds.iter().map(Round::cpu_us_per_op));
        let us = |quantile| account.latency.as_ref().map(|all| all.value_at_quantile(quantile) as f64 / 1e3);
        let packets: Option<Vec<f64>> = rounds.iter().map(|round| Some(round.packets? as f64 / round.ops())).collect();
        let total = Row {
            who: contender.who().to_owned(),
            api: contender.api(),
            device: contender.device(),
            checksums: contender.checksums(),
            lanes: contender.lanes(),
            conns,
            ops_per_s: rate,
            ops_per_s_per_core: rate / cores as f64,
            gbit_s: Some(rate * payload_bytes as f64 * 8e-9),
            cpu_us_per_op: Some(cpu),
            lane_cpu_us_per_op: lane_cpu,
            app_cpu_us_per_op: lane_cpu.map(|lanes| (cpu - lanes).max(0.0)),
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
            packets_per_op: packets.map(|all| median(all.into_iter())),
            bytes_per_conn: account.bytes_per_conn,
            tw_evicted: account.tw_evicted,
            failed: account.failed,
            rounds: rates,
            part: None,
        };
        let parts = (0..shares).filter(|_| shares > 1).map(|core| {
            let one = |round: &Round| Round { shares: vec![round.shares[core]], packets: None, lane_cpu_s: None };
            let rates: Vec<f64> = rounds.iter().map(|round| one(round).rate()).collect();
            let rate = median(rates.iter().copied());
            // A core may work for operations that end on another: then one has no cost here.
            let cost = |round: &Round| (round.shares[core].ops > 0.0).then(|| one(round).cpu_us_per_op());
            let costs: Option<Vec<f64>> = rounds.iter().map(cost).collect();
            Row {
                lanes: 1,
                ops_per_s: rate,
                ops_per_s_per_core: rate,
                gbit_s: Some(rate * payload_bytes as f64 * 8e-9),
                cpu_us_per_op: costs.map(|all| median(all.into_iter())),
                p50_us: None,
                p99_us: None,
                p999_us: None,
                packets_per_op: None,
                lane_cpu_us_per_op: None,
                app_cpu_us_per_op: None,
                bytes_per_conn: None,
                tw_evicted: None,
                failed: 0,
                rounds: rates,
                part: Some(core),
                ..total.clone()
            }
        });
        let parts: Vec<Row> = parts.collect();
        let failed = if account.failed > 0 { format!("; FAILED: {}", account.failed) } else { String::new() };
        self.remarks.push(format!("{} at {conns}: {}{failed}", contender.who(), account.remarks));
        // All totals first, whatever the number of connections; then the parts.
        let at = self.rows.iter().position(|row| row.part.is_some()).unwrap_or(self.rows.len());
        self.rows.insert(at, total);
        self.rows.extend(parts);
    }

    /// Adds what only `bench idle` measures.
    pub fn add_idle(&mut self, idle: &Idle) {
        self.rows.push(Row {
            who: idle.who.to_owned(),
            api: "on-lane",
            device: "memory",
            checksums: idle.checksums,
            lanes: 1,
            conns: idle.conns,
            ops_per_s: idle.ops_per_s,
            ops_per_s_per_core: idle.ops_per_s,
            gbit_s: None,
            cpu_us_per_op: None,
            p50_us: idle.us.map(|us| us[0]),
            p99_us: idle.us.map(|us| us[1]),
            p999_us: idle.us.map(|us| us[2]),
            packets_per_op: None,
            lane_cpu_us_per_op: None,
            app_cpu_us_per_op: None,
            bytes_per_conn: Some(idle.bytes_per_conn),
            tw_evicted: idle.tw_evicted,
            failed: idle.failed,
            rounds: vec![idle.ops_per_s],
            part: None,
        });
        self.remarks.push(idle.remarks.clone());
    }

    /// For a program.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// For a reader.
    pub fn table(&self) -> String {
        let mut out = format!("{} on {}\n\n", self.unit, self.machine);
        out += &format!(
            "{:<12} {:>7} {:>5} {:>9} {:>13} {:>7} {:>13} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>7}\n",
            "who",
            "conns",
            "lanes",
            "checksums",
            "ops/s",
            "spread",
            "per core",
            "Gbit/s",
            "CPU us/op",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "packets",
            "B/conn"
        );
        for row in &self.rows {
            let least = row.rounds.iter().copied().fold(f64::INFINITY, f64::min);
            let most = row.rounds.iter().copied().fold(0.0, f64::max);
            let spread = if row.ops_per_s > 0.0 { 100.0 * (most - least) / row.ops_per_s } else { 0.0 };
            let who = row.part.map_or_else(|| row.who.clone(), |core| format!("  core {core}"));
            let or_dash = |value: Option<f64>, digits: usize| {
                value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
            };
            out += &format!(
                "{who:<12} {:>7} {:>5} {:>9} {:>13} {spread:>6.0}% {:>13} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>7}\n",
                row.conns,
                row.lanes,
                row.checksums,
                grouped(row.ops_per_s),
                grouped(row.ops_per_s_per_core),
                or_dash(row.gbit_s, 2),
                or_dash(row.cpu_us_per_op, 3),
                or_dash(row.p50_us, 1),
                or_dash(row.p99_us, 1),
                or_dash(row.p999_us, 1),
                or_dash(row.packets_per_op, 2),
                or_dash(row.bytes_per_conn, 0),
            );
        }
        out += &self.by_lanes();
        out += &self.ratios();
        out.push('\n');
        for remark in &self.remarks {
            out += remark;
            out.push('\n');
        }
        out
    }

    /// Where lanes and application threads have processor time of their own: how much of it.
    fn by_lanes(&self) -> String {
        let mut out = String::new();
        for row in &self.rows {
            if let Some((lanes, apps)) = row.lane_cpu_us_per_op.zip(row.app_cpu_us_per_op) {
                out += &format!(
                    "\n{} at {} ({}): CPU us/op of the lanes {lanes:.3}, of the application's threads {apps:.3}; {} ops for a second of the lanes",
                    row.who,
                    row.conns,
                    row.api,
                    grouped(if lanes > 0.0 { 1e6 / lanes } else { 0.0 }),
                );
            }
        }
        if !out.is_empty() {
            out.push('\n');
        }
        out
    }

    /// Ours against each other contender, round by round: the median and the spread of the ratios.
    fn ratios(&self) -> String {
        let mut out = String::new();
        for ours in self.rows.iter().filter(|row| row.who == "laneway" && row.part.is_none()) {
            for other in
                self.rows.iter().filter(|row| row.who != "laneway" && row.part.is_none() && row.conns == ours.conns)
            {
                let mut ratios: Vec<f64> = ours.rounds.iter().zip(&other.rounds).map(|(a, b)| a / b).collect();
                ratios.sort_by(f64::total_cmp);
                let per_core = ours.ops_per_s_per_core / other.ops_per_s_per_core;
                let cpu = other.cpu_us_per_op.zip(ours.cpu_us_per_op).map(|(theirs, ours)| theirs / ours);
                if let (Some(least), Some(most)) = (ratios.first(), ratios.last()) {
                    out += &format!(
                        "\nlaneway / {} at {}: {:.2} x (rounds {least:.2} to {most:.2}), per core {per_core:.2} x",
                        other.who,
                        ours.conns,
                        median(ratios.iter().copied()),
                    );
                }
                if let Some(cpu) = cpu {
                    out += &format!(", per CPU time {cpu:.2} x");
                }
                if let Some((a, b)) = other.lane_cpu_us_per_op.zip(ours.lane_cpu_us_per_op) {
                    out += &format!(", per lane CPU {:.2} x", a / b);
                }
                if let Some((a, b)) = ours.p50_us.zip(other.p50_us) {
                    out += &format!(", p50 {:.2} x", a / b);
                }
            }
        }
        if !out.is_empty() {
            out.push('\n');
        }
        out
    }
}

/// 1234567 as "1,234,567".
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::contender::Share;
    use super::super::failure::Failure;
    use super::*;
    use std::time::Duration;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0.4, 999.0, 1_000.0, 1_234_567.0].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(median([4.0, 1.0, 3.0].into_iter()), 3.0);
        assert_eq!(median([4.0, 1.0, 3.0, 2.0].into_iter()), 2.5);
    }

    /// One whose operations all end on its second core.
    struct OneEnd;

    impl Contender for OneEnd {
        fn who(&self) -> &str {
            "one end"
        }
        fn api(&self) -> &'static str {
            "on-lane"
        }
        fn device(&self) -> &'static str {
            "memory"
        }
        fn checksums(&self) -> &'static str {
            "software"
        }
        fn lanes(&self) -> usize {
            1
        }
        fn warm_up(&mut self) -> Result<(), Failure> {
            Ok(())
        }
        fn round(&mut self, _: Duration) -> Result<Round, Failure> {
            let share = |ops, cpu_s| Share { ops, wall_s: 1.0, cpu_s, ..Share::default() };
            Ok(Round { shares: vec![share(0.0, 0.25), share(100.0, 0.75)], ..Round::default() })
        }
        fn account(&mut self) -> Account {
            Account { latency: None, bytes_per_conn: None, tw_evicted: None, failed: 0, remarks: String::new() }
        }
    }

    /// A core may work for operations that end on another.
    #[test]
    fn a_core_on_which_no_operation_ends_has_no_cost_of_one() {
        let mut report = Report::new("connections");
        let round = OneEnd.round(Duration::from_secs(1)).expect("a round");
        report.add(&OneEnd, 1, 1, &[round], &OneEnd.account());
        let cost: Vec<Option<f64>> = report.rows.iter().map(|row| row.cpu_us_per_op).collect();
        assert_eq!(cost, [Some(10_000.0), None, Some(7_500.0)]);
    }

    #[test]
    fn a_program_is_told_of_what_failed() {
        let mut report = Report::new("connections");
        let round = OneEnd.round(Duration::from_secs(1)).expect("a round");
        report.add(&OneEnd, 1, 1, &[round], &Account { failed: 7, ..OneEnd.account() });
        let json: serde_json::Value = serde_json::from_str(&report.json()).expect("our own JSON");
        assert_eq!(json["rows"][0]["failed"], 7);
        assert!(json["rows"][1].get("failed").is_none(), "it is not known of which core");
    }

    #[test]
    fn json_has_exactly_the_promised_keys() {
        let mut report = Report::new("connections");
        report.add_idle(&Idle {
            who: "laneway",
            checksums: "software",
            conns: 1,
            ops_per_s: 1.0,
            us: None,
            bytes_per_conn: 400.0,
            tw_evicted: Some(0),
            failed: 0,
            remarks: String::new(),
        });
        let json: serde_json::Value = serde_json::from_str(&report.json()).expect("our own JSON");
        let not_measured =
            ["cpu_us_per_op", "gbit_s", "packets_per_op", "p50_us"].map(|key| json["rows"][0][key].is_null());
        assert_eq!(not_measured, [true; 4], "what was not measured is not 0");
        let keys = |value: &serde_json::Value| {
            value.as_object().map(|object| object.keys().cloned().collect::<Vec<_>>()).unwrap_or_default()
        };
        let sorted = |names: &str| {
            let mut names: Vec<String> = names.split(' ').map(str::to_owned).collect();
            names.sort();
            names
        };
        let mut top = keys(&json);
        top.sort();
        assert_eq!(top, sorted("unit machine rows"));
        let mut row = keys(&json["rows"][0]);
        row.sort();
        assert_eq!(
            row,
            sorted(
                "who api device checksums lanes conns ops_per_s ops_per_s_per_core gbit_s cpu_us_per_op p50_us p99_us p999_us packets_per_op bytes_per_conn tw_evicted rounds"
            )
        );
    }
}
