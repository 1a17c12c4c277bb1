//! `laneway lanes`: what each lane does with its time, and what it meets, interval by interval, as `mpstat` does for processors.

use crate::again::Again;
use crate::ask::{Out, Which};
use crate::failure::Failure;
use crate::parse;
use laneway::control::{Ask, Client, LaneRow};
use serde_json::json;
use std::time::{Duration, Instant};

/// Prints a line a second for each lane of a running stack: how busy it is, what it carries, whom it waits for.
///
/// busy, idle: shares of the time, in percent; a poll that did something is busy, with what passed until the next began. sleep: of
/// idle, what the core was free for others. polls: polls a second. in, out: IP packets a second, super-packets as one.
/// mail: frames a second that other lanes found in their queues and handed over. smtx: locks a second that the lane's
/// thread found held (mpstat's column); cas: compare-exchanges a second that another thread's came before. The last two
/// are 0 in a stack of the product's own ways: see `serve --sharing` and `--references` for others.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    /// Time between two looks.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = parse::duration_us, allow_hyphen_values = true)]
    interval: u64,
    /// End after so many looks [default: go on]
    #[arg(short = 'n', long, value_name = "N", value_parser = parse::number::<u64>(1..=u64::MAX))]
    count: Option<u64>,
    #[command(flatten)]
    which: Which,
    /// Say it as JSON, one object per lane and look.
    #[arg(long)]
    json: bool,
}

const EXAMPLE: &str = "Examples:\n  laneway lanes\n  laneway lanes --interval 200ms -n 10 --json | jq 'select(.busy > 90)'\n  sudo laneway serve . --tun lw0 --addr 10.9.0.2/24 --lanes 2 --sharing global &\n  sudo laneway lanes            # and beside it: sudo laneway locks --callers";

/// Prints until there is a reason to end.
pub fn run(args: Args) -> Result<(), Failure> {
    if !(100_000..=3_600_000_000).contains(&args.interval) {
        return Err(Failure::Misuse("an interval is 100ms to 60min: choose one in between".into()));
    }
    let interval = Duration::from_micros(args.interval);
    let mut stack = Again::begin(&args.which, interval)?;
    let mut before = look(stack.now())?;
    let mut at = Instant::now();
    let mut out = Out::new();
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        let now = look(stack.next()?)?;
        let seconds = at.elapsed().as_secs_f64();
        at = Instant::now();
        let lines: Vec<Line> =
            now.iter().zip(&before).map(|(now, before)| Line::between(before, now, seconds)).collect();
        before = now;
        if args.json {
            for line in &lines {
                out.line(line.json(seconds))?;
            }
        } else {
            out.line(heading())?;
            for line in &lines {
                out.line(line.text())?;
            }
            if lines.len() > 1 {
                out.line(Line::all(&lines).text())?;
            }
        }
        out.flush()?;
    }
    Ok(())
}

/// What each lane has done so far.
pub fn look(client: &mut Client) -> Result<Vec<LaneRow>, Failure> {
    Ok(client.ask::<LaneRow>(&Ask::Lanes {})?.collect::<Result<Vec<_>, _>>()?)
}

/// What a second is counted of, in the order of the columns.
const RATES: [&str; 6] = ["polls", "in", "out", "mail", "smtx", "cas"];

/// One lane between two looks.
struct Line {
    /// `None`: all of them.
    lane: Option<usize>,
    /// Of the time, in percent: busy, idle, asleep.
    shares: [f64; 3],
    rates: [f64; RATES.len()],
}

impl Line {
    fn between(before: &LaneRow, now: &LaneRow, seconds: f64) -> Self {
        let grown = |of: fn(&LaneRow) -> u64| of(now).saturating_sub(of(before)) as f64;
        // What the lane itself has lived through: by another clock the shares would not make up a whole.
        let lived = (grown(|row| row.busy_us) + grown(|row| row.idle_us)).max(1.0);
        let share = |us: f64| (100.0 * us / lived).min(100.0);
        let rate = |of| grown(of) / seconds;
        Line {
            lane: Some(now.lane),
            shares: [
                share(grown(|row| row.busy_us)),
                share(grown(|row| row.idle_us)),
                share(grown(|row| row.sleep_us)),
            ],
            rates: [
                rate(|row| row.polls_busy + row.polls_idle),
                rate(|row| row.packets_in),
                rate(|row| row.packets_out),
                rate(|row| row.mailed),
                rate(|row| row.contended),
                rate(|row| row.retries),
            ],
        }
    }

    /// The mean of the shares, the sum of the rates.
    fn all(lines: &[Line]) -> Self {
        let mean = |i: usize| lines.iter().map(|line| line.shares[i]).sum::<f64>() / lines.len() as f64;
        let sum = |i: usize| lines.iter().map(|line| line.rates[i]).sum();
        Line { lane: None, shares: std::array::from_fn(mean), rates: std::array::from_fn(sum) }
    }

    fn text(&self) -> String {
        let lane = self.lane.map_or("all".to_owned(), |lane| lane.to_string());
        let shares: String = self.shares.iter().map(|share| format!("{share:>7.1}")).collect();
        let rates: String = self.rates.iter().map(|rate| format!("{rate:>10.0}")).collect();
        format!("{lane:>4}{shares}{rates}")
    }

    fn json(&self, seconds: f64) -> serde_json::Value {
        let tenths = |share: f64| (share * 10.0).round() / 10.0;
        let [busy, idle, sleep] = self.shares.map(tenths);
        let mut object = json!({"lane": self.lane, "seconds": seconds, "busy": busy, "idle": idle, "sleep": sleep});
        for (name, rate) in RATES.iter().zip(self.rates) {
            object[*name] = json!(rate.round() as u64);
        }
        object
    }
}

fn heading() -> String {
    let shares: String = ["busy", "idle", "sleep"].iter().map(|name| format!("{name:>7}")).collect();
    format!("{:>4}{shares}{}", "lane", RATES.iter().map(|name| format!("{name:>10}")).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(lane: usize, busy_us: u64, idle_us: u64) -> LaneRow {
        LaneRow {
            lane,
            busy_us,
            idle_us,
            sleep_us: idle_us / 2,
            polls_busy: busy_us,
            polls_idle: idle_us,
            packets_in: 10 * busy_us,
            packets_out: 20 * busy_us,
            mailed: 0,
            contended: 3 * busy_us,
            retries: busy_us,
        }
    }

    #[test]
    fn shares_make_up_a_whole_and_rates_are_of_a_second() {
        let line = Line::between(&row(1, 1_000, 9_000), &row(1, 4_000, 10_000), 2.0);
        let words: Vec<String> = line.text().split_whitespace().map(str::to_owned).collect();
        assert_eq!(words, ["1", "75.0", "25.0", "12.5", "2000", "15000", "30000", "0", "4500", "1500"]);
        assert_eq!(words.len(), heading().split_whitespace().count());
        let json = line.json(2.0);
        assert_eq!(
            (json["lane"].as_u64(), json["busy"].as_f64(), json["smtx"].as_u64()),
            (Some(1), Some(75.0), Some(4_500))
        );
    }

    #[test]
    fn the_last_line_is_of_all_lanes() {
        let lines = [(0, 3_000, 1_000), (1, 1_000, 3_000)]
            .map(|(lane, busy, idle)| Line::between(&row(lane, 0, 0), &row(lane, busy, idle), 1.0));
        let words: Vec<String> = Line::all(&lines).text().split_whitespace().map(str::to_owned).collect();
        assert_eq!(words, ["all", "50.0", "50.0", "25.0", "8000", "40000", "80000", "0", "12000", "4000"]);
    }

    #[test]
    fn a_lane_that_has_not_lived_has_no_share() {
        let line = Line::between(&row(0, 5, 5), &row(0, 5, 5), 1.0);
        assert_eq!(line.shares, [0.0; 3]);
    }
}
