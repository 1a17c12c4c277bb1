//! `laneway bench` and `laneway lab`: hand over to `laneway-lab`, which carries the peers and the charts.

use crate::ask::Out;
use crate::failure::Failure;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Measures: connections, requests, streams, idle memory; beside other stacks if asked. Done by `laneway-lab`.
///
/// Everything after `bench` is passed on; --json prints the result as JSON.
#[derive(clap::Args)]
#[command(disable_help_flag = true, after_help = EXAMPLE)]
pub struct BenchArgs {
    /// What `laneway-lab bench` is given: crr|rr|stream|idle and options.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
    arguments: Vec<OsString>,
}

const EXAMPLE: &str = "Example:\n  laneway bench crr --conns 100 --lanes 1 --seconds 5 --peer linux --json";

/// The laboratory: each historic wall reproduced, found, changed, measured. Done by `laneway-lab`.
#[derive(clap::Args)]
#[command(disable_help_flag = true, after_help = "Example:\n  laneway lab --help")]
pub struct LabArgs {
    /// What `laneway-lab` is given.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
    arguments: Vec<OsString>,
}

/// `laneway bench`.
pub fn bench(args: BenchArgs) -> Result<(), Failure> {
    if wants_help(&args.arguments) && find().is_err() {
        return help::<BenchArgs>("bench");
    }
    hand_over(std::iter::once(OsString::from("bench")).chain(args.arguments))
}

/// `laneway lab`.
pub fn lab(args: LabArgs) -> Result<(), Failure> {
    if wants_help(&args.arguments) && find().is_err() {
        return help::<LabArgs>("lab");
    }
    hand_over(args.arguments.into_iter())
}

fn wants_help(arguments: &[OsString]) -> bool {
    matches!(arguments, [only] if only == "--help" || only == "-h")
}

/// What can be said without `laneway-lab`, which else says more.
fn help<A: clap::Args>(name: &'static str) -> Result<(), Failure> {
    let mut command = A::augment_args(clap::Command::new(name).bin_name(format!("laneway {name}")));
    let now = find().err().map_or_else(String::new, |why| format!("Now {why}"));
    let mut out = Out::new();
    out.line(format_args!("{}\n{now}", command.render_help()))?;
    out.flush()
}

fn hand_over(arguments: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let lab = find()?;
    // Returns only if it cannot be done.
    let error = Command::new(&lab).args(arguments).exec();
    Err(Failure::Failed(format!("{} cannot be executed: {error}", lab.display())))
}

/// Beside this binary.
fn find() -> Result<PathBuf, Failure> {
    let here = std::env::current_exe()
        .map_err(|error| Failure::Failed(format!("the place of this program is not known: {error}")))?;
    let lab = here.with_file_name("laneway-lab");
    if lab.is_file() {
        return Ok(lab);
    }
    Err(Failure::Misuse(format!(
        "the program laneway-lab is not beside this one ({}): build it with `cargo build --release -p laneway-lab`",
        lab.display()
    )))
}
