//! `findfalse`: data of a program in which cores take lines from one another, from its debug information.
#![forbid(unsafe_code)]

use clap::Parser;
use laneway_tools::findfalse::{Settings, allow, look};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  findfalse target/types/laneway                     what is ours and shares a line
  findfalse target/types/laneway --allow crates/tools/findfalse.allow --ours laneway
  findfalse /usr/bin/memcached --all                 with the package of debug symbols installed
  findfalse a.out --lock-type my_lock_t --line 128 --json

Exit code: 0 nothing found that has no reason, 1 something found, 2 it could not be looked for.
A program needs debug information with types: Rust's dev profile has it (or debug = true), for C compile with -g.";

/// Finds false sharing: arrays whose elements hold a lock or an atomic and share a cache line, and structures in which a
/// lock or an atomic shares one with fields that others read
#[derive(Parser)]
#[command(name = "findfalse", version, after_help = EXAMPLES)]
struct Cli {
    /// An ELF program or library, of Rust or C
    binary: PathBuf,
    /// Bytes of a cache line: 64, or 128 where lines are fetched in pairs
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = line)]
    line: u64,
    /// A type of this name is a lock too; may be given several times
    #[arg(long, value_name = "NAME")]
    lock_type: Vec<String>,
    /// Crates whose name begins so are ours [default: those built from neither a registry nor the toolchain]
    #[arg(long, value_name = "PREFIX")]
    ours: Vec<String>,
    /// Known exceptions: one name a line, and behind it the reason
    #[arg(long, value_name = "FILE")]
    allow: Option<PathBuf>,
    /// List what is allowed and what is not ours, too
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn line(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(bytes @ (64 | 128)) => Ok(bytes),
        _ => Err("a line has 64 or 128 bytes".into()),
    }
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(sentence) => {
            eprintln!("findfalse: {sentence}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, String> {
    let exceptions = match &cli.allow {
        None => Vec::new(),
        Some(file) => {
            let name = file.display().to_string();
            let text = std::fs::read_to_string(file).map_err(|error| format!("{name} cannot be read: {error}"))?;
            allow::parse(&name, &text)?
        }
    };
    let mut report = look(&cli.binary, &Settings { line: cli.line, lock_types: cli.lock_type, ours: cli.ours })?;
    let unused = report.allow(&exceptions);
    let text = if cli.json { format!("{:#}\n", report.json()) } else { report.table(cli.all) };
    // Who closes the pipe has seen enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    for name in unused {
        eprintln!("findfalse: note: the exception {name} matches nothing in this program");
    }
    Ok(if report.open().next().is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
