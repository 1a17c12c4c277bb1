//! `laneway nstat`: counters of a running stack under the kernel's names, as increments since the last call.

use crate::ask::{Out, Which, hello};
use crate::counters::{octets_per_packet, size_line};
use crate::failure::Failure;
use crate::life::Life;
use laneway::control::{Ask, Client, Counter};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

mod gone;

/// Prints what a running stack counts, under the kernel's names, as increments since the last call.
///
/// Like nstat(8) it remembers the last values in a file of its own; a stack that was started anew counts from zero. What was
/// remembered of one that is gone is removed a day later.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    /// Absolute values, not increments.
    #[arg(short, long)]
    absolute: bool,
    /// Counters that are zero too.
    #[arg(short, long)]
    zeros: bool,
    /// Do not remember the values.
    #[arg(short = 's', long)]
    noupdate: bool,
    /// Only counters whose names begin like this; may be given more than once.
    #[arg(value_name = "PREFIX")]
    prefixes: Vec<String>,
    /// Where the last values are kept [default: beside the control sockets]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    #[command(flatten)]
    which: Which,
    /// Say it as JSON: one object.
    #[arg(long)]
    json: bool,
}

const EXAMPLE: &str =
    "Examples:\n  laneway nstat\n  laneway nstat -az Tcp\n  laneway nstat -z --json | jq .counters.TcpRetransSegs";

/// What the name of a file ends with that values are kept in, unless somebody has named it.
const ENDING: &str = ".nstat.json";

/// What is kept between two calls.
#[derive(Serialize, Deserialize, Default)]
struct History {
    #[serde(flatten)]
    life: Life,
    counters: BTreeMap<String, u64>,
}

/// Prints.
pub fn run(args: Args) -> Result<(), Failure> {
    let socket = args.which.path()?;
    let mut client = Client::connect(&socket)?;
    let life = Life::of(&hello(&mut client)?);
    let now = counters(&mut client)?;
    // It says all that it counts, what is zero too: whose name is not there is nowhere.
    let is_known = |prefix: &String| now.iter().any(|counter| counter.name.starts_with(prefix.as_str()));
    if let Some(unknown) = args.prefixes.iter().find(|prefix| !is_known(prefix)) {
        return Err(Failure::Misuse(format!(
            "no counter's name begins with '{unknown}': `laneway nstat -az` shows all that there are"
        )));
    }
    // Absolute values need no place where others are kept.
    let kept = match &args.history {
        _ if args.absolute => None,
        Some(path) => Some(path.clone()),
        None => Some(default_history(&socket)?),
    };
    let before = kept.as_deref().map(|path| read(path, args.history.is_some())).transpose()?.unwrap_or_default();
    let before = if before.life.is(&life) { before.counters } else { BTreeMap::new() };
    let shown: Vec<(&str, u64)> = now
        .iter()
        .map(|counter| {
            let increment = counter.value.saturating_sub(before.get(&counter.name).copied().unwrap_or(0));
            (counter.name.as_str(), increment)
        })
        .filter(|(name, value)| {
            (args.zeros || *value > 0)
                && (args.prefixes.is_empty() || args.prefixes.iter().any(|prefix| name.starts_with(prefix)))
        })
        .collect();
    let sizes = octets_per_packet(shown.iter().copied());
    let mut out = Out::new();
    if args.json {
        let counters: serde_json::Map<String, serde_json::Value> =
            shown.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        let sizes: serde_json::Map<String, serde_json::Value> =
            sizes.iter().map(|(name, size)| ((*name).to_owned(), json!(size))).collect();
        out.line(
            json!({"pid": life.pid, "absolute": args.absolute, "counters": counters, "octets_per_packet": sizes}),
        )?;
    } else {
        out.line("#laneway")?;
        for (name, value) in &shown {
            out.line(format_args!("{name:<32}{value:<20}"))?;
        }
        for (name, size) in sizes {
            out.line(size_line(name, size))?;
        }
    }
    out.flush()?;
    let Some(kept) = kept.filter(|_| !args.noupdate) else { return Ok(()) };
    let counters = now.into_iter().map(|counter| (counter.name, counter.value)).collect();
    if args.history.is_none() {
        make_usual_place(&kept).map_err(|error| not_kept(&kept, &error))?;
    }
    write(&kept, &History { life, counters }).map_err(|error| not_kept(&kept, &error))?;
    if let Some(usual) = kept.parent().filter(|_| args.history.is_none()) {
        gone::remove(usual);
    }
    Ok(())
}

/// Everything that it counts.
pub fn counters(client: &mut Client) -> Result<Vec<Counter>, Failure> {
    Ok(client.ask::<Counter>(&Ask::Nstat {})?.collect::<Result<Vec<_>, _>>()?)
}

/// In the directory of control sockets, under the whole path of the stack's: elsewhere there may be one of the same name.
fn default_history(socket: &Path) -> Result<PathBuf, Failure> {
    let directory = laneway::control::directory().ok_or_else(|| {
        Failure::Misuse(
            "there is no usual place to remember values in, because XDG_RUNTIME_DIR is not set: give one with --history FILE, or ask for absolute values with -a".into(),
        )
    })?;
    let socket = socket.canonicalize().unwrap_or_else(|_| socket.to_owned());
    const SPOILS_A_NAME: &AsciiSet = &CONTROLS.add(b'/').add(b'%');
    let stack = percent_encode(socket.as_os_str().as_bytes(), SPOILS_A_NAME);
    Ok(directory.join(format!("{stack}{ENDING}")))
}

fn read(path: &Path, was_named: bool) -> Result<History, Failure> {
    // A pipe or a device can have no end, and would have a file in its place afterwards: /dev/null, too.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(Failure::Misuse(format!(
            "{} is no file, which the last values need: choose another place with --history FILE, or ask for absolute values with -a",
            path.display()
        )));
    }
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(History::default()),
        Err(error) => {
            return Err(Failure::Misuse(format!(
                "the last values cannot be read from {}: {error}; choose another place with --history FILE",
                path.display()
            )));
        }
    };
    match serde_json::from_slice(&text) {
        Ok(history) => Ok(history),
        // A file that somebody named is somebody's: it is not overwritten.
        Err(_) if was_named && !text.is_empty() => Err(Failure::Misuse(format!(
            "{} is no history of `laneway nstat`: choose another place with --history FILE",
            path.display()
        ))),
        Err(_) => Ok(History::default()),
    }
}

fn not_kept(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!(
        "the values cannot be kept in {}: {error}; choose another place with --history FILE, or say --noupdate",
        path.display()
    ))
}

/// The directory of control sockets, which a stack whose own is elsewhere has not made. Nobody else's is made.
fn make_usual_place(kept: &Path) -> std::io::Result<()> {
    match kept.parent() {
        Some(directory) if !directory.exists() => std::fs::DirBuilder::new().mode(0o700).create(directory),
        _ => Ok(()),
    }
}

/// Whole or not at all: two calls at once leave one of the two, and one that fails leaves what was there, and nothing beside it.
fn write(path: &Path, history: &History) -> std::io::Result<()> {
    let text = serde_json::to_vec(history)?;
    let mut making = path.as_os_str().to_owned();
    making.push(format!(".{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&making)?;
    let written = file.write_all(&text).and_then(|()| std::fs::rename(&making, path));
    written.inspect_err(|_| drop(std::fs::remove_file(&making)))
}
