//! `laneway locks`: what each place in the source that takes a lock has cost a running stack, and who waited for whom.

use super::nstat::hello;
use crate::ask::{Out, Which};
use crate::failure::Failure;
use laneway::control::{Ask, LockRow, MeetingRow};

/// Lists the locks of a running stack, by the places that take them, in the nine columns of FreeBSD's debug.lock.prof.stats.
///
/// Times are in microseconds; the longest waited for is first. Only a stack that was started with another `--sharing` than
/// `lane` has such locks. They count from the start of the program.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    /// Instead: which place waited for which.
    #[arg(long)]
    who: bool,
    #[command(flatten)]
    which: Which,
    /// Say it as JSON, one object per line.
    #[arg(long)]
    json: bool,
}

const EXAMPLE: &str = "Examples:\n  sudo laneway serve . --tun lw0 --addr 10.9.0.2/24 --lanes 2 --sharing global &\n  laneway locks\n  laneway locks --who\n  laneway locks --json | jq 'select(.cnt_lock > 0)'";

/// Lists.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut client = args.which.connect()?;
    let sharing = hello(&mut client)?.sharing;
    let mut out = Out::new();
    if sharing == "lane" {
        let words = "there is no lock: every lane owns its connections (--sharing lane), and waits for no other";
        match args.json {
            true => out.line(serde_json::json!({"sharing": sharing, "locks": 0, "note": words}))?,
            false => out.line(words)?,
        }
        return out.flush();
    }
    if args.who {
        let met = client.ask::<MeetingRow>(&Ask::Meetings {})?.collect::<Result<Vec<_>, _>>()?;
        meetings(&args, &met, &mut out)?;
    } else {
        let rows = client.ask::<LockRow>(&Ask::Locks {})?.collect::<Result<Vec<_>, _>>()?;
        locks(&args, &rows, &mut out)?;
    }
    out.flush()
}

fn json(row: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(row).map_err(|error| Failure::Failed(error.to_string()))
}

fn locks(args: &Args, rows: &[LockRow], out: &mut Out) -> Result<(), Failure> {
    if !args.json {
        out.line(format_args!(
            "{:>8} {:>9} {:>11} {:>11} {:>11} {:>6} {:>8} {:>8} {:>8} name",
            "max", "wait_max", "total", "wait_total", "count", "avg", "wait_avg", "cnt_hold", "cnt_lock"
        ))?;
    }
    for row in rows {
        if args.json {
            out.line(json(row)?)?;
        } else {
            out.line(line(row))?;
        }
    }
    Ok(())
}

/// Whole microseconds, and tenths where they are all there is.
fn us(us: f64) -> String {
    if us < 10.0 { format!("{us:.1}") } else { format!("{us:.0}") }
}

fn line(row: &LockRow) -> String {
    format!(
        "{:>8} {:>9} {:>11} {:>11} {:>11} {:>6} {:>8} {:>8} {:>8} {}: {}",
        us(row.max),
        us(row.wait_max),
        us(row.total),
        us(row.wait_total),
        row.count,
        us(row.avg),
        us(row.wait_avg),
        row.cnt_hold,
        row.cnt_lock,
        row.name,
        row.why
    )
}

/// A matrix: a line for each place that waited, a column for each that was waited for; in each field how often, and how long.
fn meetings(args: &Args, met: &[MeetingRow], out: &mut Out) -> Result<(), Failure> {
    if args.json {
        for one in met {
            out.line(json(one)?)?;
        }
        return Ok(());
    }
    if met.is_empty() {
        return out.line("nobody has waited yet");
    }
    for text in matrix(met) {
        out.line(text)?;
    }
    Ok(())
}

fn matrix(met: &[MeetingRow]) -> Vec<String> {
    let mut holders: Vec<&str> = Vec::new();
    let mut waiters: Vec<&str> = Vec::new();
    for one in met {
        if !holders.contains(&one.holder.as_str()) {
            holders.push(&one.holder);
        }
        if !waiters.contains(&one.waiter.as_str()) {
            waiters.push(&one.waiter);
        }
    }
    let mut lines = vec!["waited (times/microseconds) for the holder in column:".to_owned()];
    lines.extend(holders.iter().enumerate().map(|(number, holder)| format!("  [{}] {holder}", number + 1)));
    lines.push(
        (1..=holders.len()).map(|number| format!("{:>20}", format!("[{number}]"))).collect::<String>() + "  waiter",
    );
    for waiter in waiters {
        let field = |holder: &&str| {
            let one = met.iter().find(|one| one.waiter == waiter && one.holder == *holder);
            format!("{:>20}", one.map_or("-".into(), |one| format!("{}/{}", one.count, us(one.wait_total))))
        };
        lines.push(holders.iter().map(field).collect::<String>() + "  " + waiter);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_nine_columns_in_microseconds() {
        let row = LockRow {
            max: 265.4,
            wait_max: 39_477.0,
            total: 4_669_994.0,
            wait_total: 57_027_602.0,
            count: 840_000,
            avg: 5.559,
            wait_avg: 67.89,
            cnt_hold: 0,
            cnt_lock: 780_171,
            name: "usrreq.c:728 (rw:info)".into(),
            why: "shutdown".into(),
        };
        let text = line(&row);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words[..9], ["265", "39477", "4669994", "57027602", "840000", "5.6", "68", "0", "780171"]);
    }

    #[test]
    fn the_matrix_has_a_line_for_each_waiter() {
        let met = |waiter: &str, holder: &str, count| MeetingRow {
            waiter: waiter.into(),
            holder: holder.into(),
            count,
            wait_total: 12.34,
        };
        let lines = matrix(&[met("a", "b", 7), met("a", "a", 2), met("b", "a", 1)]);
        assert_eq!(lines.len(), 1 + 2 + 1 + 2);
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&lines[4]), ["7/12", "2/12", "a"]);
        assert_eq!(words(&lines[5]), ["-", "1/12", "b"]);
    }
}
