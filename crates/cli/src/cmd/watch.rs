//! `laneway watch`: a line a second about connections being made, on the side that accepts and on the side that connects.

use super::nstat::counters;
use crate::again::Again;
use crate::ask::{Out, Which};
use crate::failure::Failure;
use crate::parse;
use serde_json::json;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Prints a line a second about the connections that a running stack accepts and makes.
///
/// ListenDrop: SYNs and finished handshakes dropped because the accept queue was full. ListenDropQ0: SYNs dropped because too
/// many connections were half open, and cookies are off. TCPaccept: connections established by peers. TCPrefused: SYNs answered with RST, because nobody listens there. SCAccept and SCAF:
/// calls of accept, and those of them that found nobody. Connect, ConnFail, ConnRetry: connections begun by us, those
/// that failed, and SYNs sent again.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    /// Time between two lines.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = parse::duration_us, allow_hyphen_values = true)]
    interval: u64,
    /// End after so many lines [default: go on]
    #[arg(short = 'n', long, value_name = "N", value_parser = parse::number::<u64>(1..=u64::MAX))]
    count: Option<u64>,
    #[command(flatten)]
    which: Which,
    /// Say it as JSON, one object per line.
    #[arg(long)]
    json: bool,
}

const EXAMPLE: &str = "Examples:\n  laneway watch\n  laneway watch -n 37 --json > series.jsonl";

/// A column, the counter that it is, and one to be taken away from that.
const COLUMNS: &[(&str, &str, Option<&str>)] = &[
    ("ListenDrop", "TcpExtListenOverflows", None),
    ("ListenDropQ0", "TcpExtTCPReqQFullDrop", None),
    ("TCPaccept", "TcpPassiveOpens", None),
    ("TCPrefused", "TcpRefused", None),
    ("SCAccept", "SCAccept", None),
    ("SCAF", "SCAF", None),
    ("Connect", "TcpActiveOpens", None),
    // Only of those that were opened here.
    ("ConnFail", "TcpAttemptFails", Some("TcpExtEmbryonicRsts")),
    ("ConnRetry", "ConnectRetries", None),
];

/// Lines between two headings.
const PAGE: u64 = 20;

/// Prints until there is a reason to end.
pub fn run(args: Args) -> Result<(), Failure> {
    if !(100_000..=3_600_000_000).contains(&args.interval) {
        return Err(Failure::Misuse("an interval is 100ms to 60min: choose one in between".into()));
    }
    let interval = Duration::from_micros(args.interval);
    let mut stack = Again::begin(&args.which, interval)?;
    let mut before = columns(stack.now())?;
    let mut at = Instant::now();
    let mut out = Out::new();
    for line in 0..args.count.unwrap_or(u64::MAX) {
        let now = columns(stack.next()?)?;
        let seconds = at.elapsed().as_secs_f64();
        at = Instant::now();
        let rates: Vec<f64> =
            now.iter().zip(&before).map(|(now, before)| now.saturating_sub(*before) as f64 / seconds).collect();
        before = now;
        if args.json {
            let mut object = json!({"seconds": seconds});
            for ((name, ..), rate) in COLUMNS.iter().zip(&rates) {
                object[*name] = json!(rate.round() as u64);
            }
            out.line(object)?;
        } else {
            if line % PAGE == 0 {
                out.line(COLUMNS.iter().map(|(name, ..)| format!("{name:>13}")).collect::<String>())?;
            }
            out.line(rates.iter().map(|rate| format!("{rate:>13.0}")).collect::<String>())?;
        }
        out.flush()?;
    }
    Ok(())
}

fn columns(client: &mut laneway::control::Client) -> Result<Vec<u64>, Failure> {
    let counters: HashMap<String, u64> = counters(client)?.into_iter().map(|c| (c.name, c.value)).collect();
    let value = |name: &str| counters.get(name).copied().unwrap_or(0);
    Ok(COLUMNS.iter().map(|(_, counted, less)| value(counted).saturating_sub(less.map_or(0, value))).collect())
}

#[cfg(test)]
mod tests {
    use super::COLUMNS;

    #[test]
    fn every_column_is_something_that_is_counted() {
        let counters = laneway::on_lane::Counters::default();
        let names: Vec<_> = counters.all().map(|(name, _)| name.into_owned()).collect();
        for name in COLUMNS.iter().flat_map(|(_, counted, less)| std::iter::once(counted).chain(less)) {
            assert!(names.iter().any(|n| n == name), "{name} is not counted");
        }
    }
}
