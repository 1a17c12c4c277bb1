//! `laneway steer`: which lane has which flows, in 128 buckets, and giving a bucket to another lane.

use crate::ask::{Out, Which, hello};
use crate::failure::Failure;
use laneway::control::{Ask, Client, SteerRow};

/// Lists the steering buckets of a running stack with the lane and the flows of each, or gives some to another lane.
///
/// Every flow falls into one of 128 buckets, and each bucket belongs to a lane. Moving one moves the flows that begin from then
/// on; connections that exist stay where they are until they end, and so long the bucket is said to move. One that moves
/// can be given away again at once: that is done when it has settled.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    /// Give this bucket to this lane; may be said several times.
    #[arg(long = "move", value_name = "BUCKET=LANE", allow_hyphen_values = true)]
    moves: Vec<Moved>,
    /// Sum up by lane.
    #[arg(long, conflicts_with = "moves")]
    lanes: bool,
    #[command(flatten)]
    which: Which,
    /// Say it as JSON, one object per line.
    #[arg(long)]
    json: bool,
}

const EXAMPLE: &str = "Examples:\n  sudo laneway serve . --tun lw0 --addr 10.9.0.2/24 --lanes 2 &\n  sudo laneway steer\n  sudo laneway steer --lanes\n  sudo laneway steer --move 17=1 --move 19=1\n  sudo laneway steer --json | jq 'select(.from)'";

/// One `--move`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Moved {
    bucket: usize,
    lane: usize,
}

impl std::str::FromStr for Moved {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let right = "write it as BUCKET=LANE, for example 17=1";
        let (bucket, lane) = text.split_once('=').ok_or_else(|| format!("'{text}' has no '=': {right}"))?;
        let number = |what: &str, digits: &str| {
            digits.parse().map_err(|_| format!("'{digits}' is no number of a {what}: {right}"))
        };
        let moved = Moved { bucket: number("bucket", bucket)?, lane: number("lane", lane)? };
        if moved.bucket > 127 {
            return Err(format!("there is no bucket {}: they are numbered from 0 to 127", moved.bucket));
        }
        Ok(moved)
    }
}

/// Lists, or moves.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut client = args.which.connect()?;
    let mut out = Out::new();
    let lanes = hello(&mut client)?.lanes;
    if let Some(wrong) = args.moves.iter().find(|moved| moved.lane >= lanes) {
        let words = format!("there is no lane {}: this stack's are numbered from 0 to {}", wrong.lane, lanes - 1);
        return Err(Failure::Misuse(words));
    }
    for Moved { bucket, lane } in &args.moves {
        for row in ask(&mut client, &Ask::Move { bucket: *bucket, lane: *lane })? {
            if args.json {
                out.line(json(&row)?)?;
            } else {
                out.line(sentence(&row))?;
            }
        }
    }
    if !args.moves.is_empty() {
        return out.flush();
    }
    let rows = ask(&mut client, &Ask::Steer {})?;
    if args.lanes {
        by_lane(&rows, lanes, args.json, &mut out)?;
    } else {
        buckets(&rows, args.json, &mut out)?;
    }
    out.flush()
}

fn ask(client: &mut Client, ask: &Ask) -> Result<Vec<SteerRow>, Failure> {
    Ok(client.ask::<SteerRow>(ask)?.collect::<Result<_, _>>()?)
}

fn json(row: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(row).map_err(|error| Failure::Failed(error.to_string()))
}

fn sentence(row: &SteerRow) -> String {
    let SteerRow { bucket, lane, from, then, .. } = row;
    match (from, then) {
        (_, Some(then)) => format!("bucket {bucket} still moves to lane {lane}, and goes to lane {then} after that"),
        (Some(from), None) => format!("bucket {bucket} moves from lane {from} to lane {lane}"),
        (None, None) => format!("bucket {bucket} is lane {lane}'s"),
    }
}

fn buckets(rows: &[SteerRow], as_json: bool, out: &mut Out) -> Result<(), Failure> {
    if !as_json {
        out.line("bucket lane    flows")?;
    }
    for row in rows {
        if as_json {
            out.line(json(row)?)?;
            continue;
        }
        let mut text = format!("{:>6} {:>4} {:>8}", row.bucket, row.lane, row.flows);
        if let (Some(from), Some(left)) = (row.from, row.left) {
            text += &format!("  moving from lane {from}, which has {left} left");
        }
        if let Some(then) = row.then {
            text += &format!("; then to lane {then}");
        }
        out.line(text)?;
    }
    Ok(())
}

fn by_lane(rows: &[SteerRow], lanes: usize, as_json: bool, out: &mut Out) -> Result<(), Failure> {
    if !as_json {
        out.line("lane buckets moving    flows")?;
    }
    for lane in 0..lanes {
        let own = || rows.iter().filter(|row| row.lane == lane);
        let left = rows.iter().filter(|row| row.from == Some(lane)).filter_map(|row| row.left);
        let flows = own().map(|row| row.flows).sum::<u64>() + left.sum::<u64>();
        let (buckets, moving) = (own().count(), own().filter(|row| row.from.is_some()).count());
        if as_json {
            out.line(serde_json::json!({"lane": lane, "buckets": buckets, "moving": moving, "flows": flows}))?;
        } else {
            out.line(format_args!("{lane:>4} {buckets:>7} {moving:>6} {flows:>8}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_a_bucket_and_a_lane() {
        assert_eq!("17=1".parse(), Ok(Moved { bucket: 17, lane: 1 }));
        assert_eq!("127=0".parse(), Ok(Moved { bucket: 127, lane: 0 }));
        for wrong in ["17", "17=", "=1", "a=1", "17=-1", "128=0", "1=2=3"] {
            let said = wrong.parse::<Moved>().unwrap_err();
            assert!(said.contains("17=1") || said.contains("0 to 127"), "{wrong}: {said}");
        }
    }
}
