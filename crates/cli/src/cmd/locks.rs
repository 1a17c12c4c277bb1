//! `laneway locks`: what each place in the source that takes a lock has cost a running stack, and who waited for whom.

use super::lanes;
use crate::ask::{Out, Which, hello};
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
    /// Instead: lock by lock, who called it, and what part of the lanes' busy time went by in waiting for it.
    #[arg(long, conflicts_with = "who")]
    callers: bool,
    #[command(flatten)]
    which: Which,
    /// Say it as JSON, one object per line.
    #[arg(long)]
    json: bool,
}

const EXAMPLE: &str = "Examples:\n  sudo laneway serve . --tun lw0 --addr 10.9.0.2/24 --lanes 2 --sharing global &\n  sudo laneway locks\n  sudo laneway locks --who\n  sudo laneway locks --callers\n  sudo laneway locks --json | jq 'select(.cnt_lock > 0)'";

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
        if args.callers {
            let busy_us = lanes::look(&mut client)?.iter().map(|lane| lane.busy_us).sum();
            for lock in by_lock(&rows) {
                if args.json {
                    lock.calls.iter().try_for_each(|call| out.line(lock.json(call, busy_us)))?;
                } else {
                    lock.text(busy_us).into_iter().try_for_each(|line| out.line(line))?;
                }
            }
        } else {
            locks(&args, &rows, &mut out)?;
        }
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

/// One lock, or all of one class: those who call it, the longest waiting first.
struct Called<'a> {
    lock: &'a str,
    calls: Vec<&'a LockRow>,
}

/// The rows by the lock that they are about, the longest waited for first.
fn by_lock(rows: &[LockRow]) -> Vec<Called<'_>> {
    let mut locks: Vec<Called<'_>> = Vec::new();
    for row in rows {
        // `file:line (class)`
        let lock = row.name.rsplit_once(" (").map_or("?", |(_, class)| class.trim_end_matches(')'));
        match locks.iter_mut().find(|one| one.lock == lock) {
            Some(one) => one.calls.push(row),
            None => locks.push(Called { lock, calls: vec![row] }),
        }
    }
    locks.iter_mut().for_each(|one| one.calls.sort_by(|a, b| b.wait_total.total_cmp(&a.wait_total)));
    locks.sort_by(|a, b| b.waited_us().total_cmp(&a.waited_us()));
    locks
}

/// A part in percent.
fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

impl Called<'_> {
    fn waited_us(&self) -> f64 {
        self.calls.iter().map(|call| call.wait_total).sum()
    }

    fn contended(&self) -> u64 {
        self.calls.iter().map(|call| call.cnt_lock).sum()
    }

    fn text(&self, busy_us: u64) -> Vec<String> {
        let count: u64 = self.calls.iter().map(|call| call.count).sum();
        let (contended, waited) = (self.contended(), self.waited_us());
        let mut lines = vec![format!(
            "{}: taken {count} times, found held {contended} times ({:.2}%), {} us waited, {:.2}% of the lanes' busy time",
            self.lock,
            percent(contended as f64, count as f64),
            us(waited),
            percent(waited, busy_us as f64)
        )];
        lines.push(format!("{:>8} {:>8} {:>11} {:>11}  called from", "waits", "time", "cnt_lock", "count"));
        lines.extend(self.calls.iter().map(|call| {
            format!(
                "{:>7.2}% {:>7.2}% {:>11} {:>11}  {}: {}",
                percent(call.cnt_lock as f64, contended as f64),
                percent(call.wait_total, waited),
                call.cnt_lock,
                call.count,
                call.name,
                call.why
            )
        }));
        lines
    }

    fn json(&self, call: &LockRow, busy_us: u64) -> serde_json::Value {
        serde_json::json!({
            "lock": self.lock, "name": call.name, "why": call.why, "count": call.count, "cnt_lock": call.cnt_lock,
            "wait_total": call.wait_total,
            "share_of_waits": percent(call.cnt_lock as f64, self.contended() as f64),
            "share_of_wait_time": percent(call.wait_total, self.waited_us()),
            "share_of_busy_time": percent(call.wait_total, busy_us as f64),
        })
    }
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

    fn shutdown() -> LockRow {
        LockRow {
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
        }
    }

    #[test]
    fn callers_are_told_lock_by_lock_with_their_part() {
        let other =
            |name: &str, wait_total, cnt_lock| LockRow { name: name.into(), wait_total, cnt_lock, ..shutdown() };
        let rows =
            [other("a.rs:1 (pcb)", 10.0, 1), other("a.rs:2 (rw:info)", 300.0, 3), other("a.rs:3 (rw:info)", 700.0, 1)];
        let locks = by_lock(&rows);
        assert_eq!(
            locks.iter().map(|one| (one.lock, one.calls.len())).collect::<Vec<_>>(),
            [("rw:info", 2), ("pcb", 1)]
        );
        let text = locks[0].text(/* busy_us= */ 4_000);
        assert!(text[0].starts_with("rw:info: taken 1680000 times, found held 4 times"), "{text:?}");
        assert!(text[0].ends_with("25.00% of the lanes' busy time"), "{text:?}");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&text[2])[..5], ["25.00%", "70.00%", "1", "840000", "a.rs:3"]);
        assert_eq!(words(&text[3])[..3], ["75.00%", "30.00%", "3"]);
        let json = locks[0].json(locks[0].calls[0], 4_000);
        assert_eq!((json["lock"].as_str(), json["share_of_busy_time"].as_f64()), (Some("rw:info"), Some(17.5)));
        assert!(by_lock(&[]).is_empty());
    }

    #[test]
    fn a_line_has_the_nine_columns_in_microseconds() {
        let row = shutdown();
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
