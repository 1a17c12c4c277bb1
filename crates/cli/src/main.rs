//! The command `laneway`: one file per command in [`cmd`].
//!
//! Exit codes: 0 it worked, 1 it failed, 2 it was asked for something that cannot be (misuse, a missing privilege).
#![forbid(unsafe_code)]

mod again;
mod aside;
mod ask;
mod cmd;
mod counters;
mod failure;
mod http;
mod life;
mod log;
mod open_files;
mod pace;
mod parse;
mod plain;
mod settings;
mod signals;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::Failure;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// So long the end waits for who reads the log.
const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// A user-space TCP/IP stack in which every core has its own lane.
#[derive(Parser)]
#[command(
    name = "laneway",
    version,
    arg_required_else_help = true,
    after_help = "Start with:\n  laneway demo\n  laneway doctor\n\nLANEWAY_LOG=info, or LANEWAY_LOG=warn,laneway_stack=debug, says on stderr what a stack does; warnings are said without it."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(cmd::demo::Args),
    Serve(cmd::serve::Args),
    Doctor(cmd::doctor::Args),
    Config(cmd::config::Args),
    Ss(cmd::ss::Args),
    Nstat(cmd::nstat::Args),
    Watch(cmd::watch::Args),
    Lanes(cmd::lanes::Args),
    Trace(cmd::trace::Args),
    Locks(cmd::locks::Args),
    Steer(cmd::steer::Args),
    Bench(cmd::lab::BenchArgs),
    Lab(cmd::lab::LabArgs),
}

/// What looks like a number below zero is one, and no option: who takes it says what would be right.
fn command() -> clap::Command {
    let takes_it = |arg: &clap::Arg| arg.get_long().is_some() && arg.get_action().takes_values();
    let heed = |arg| if takes_it(&arg) { arg.allow_negative_numbers(true) } else { arg };
    Cli::command().mut_subcommands(|command| command.mut_args(heed))
}

fn read<W: Into<OsString> + Clone>(words: impl IntoIterator<Item = W>) -> Result<Cli, clap::Error> {
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

fn main() -> ExitCode {
    // Where that is refused, it is as it was.
    let _ = signals::outlive_limits();
    let cli = match read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            // clap's own code for misuse is 2 as well; help and version are no misuse, and what was asked for.
            if error.use_stderr() {
                return ExitCode::from(2);
            }
            return printed.or_else(ask::gone).map_or_else(|failure| fail(&failure), |()| ExitCode::SUCCESS);
        }
    };
    let result = log::begin().and_then(|log| {
        let result = run(cli.command);
        log.finish(LOG_PATIENCE);
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    failure::say(format_args!("laneway: {failure}"));
    ExitCode::from(failure.code())
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => cmd::demo::run(args),
        Command::Serve(args) => cmd::serve::run(args),
        Command::Doctor(args) => cmd::doctor::run(args),
        Command::Config(args) => cmd::config::run(args),
        Command::Ss(args) => cmd::ss::run(args),
        Command::Nstat(args) => cmd::nstat::run(args),
        Command::Watch(args) => cmd::watch::run(args),
        Command::Lanes(args) => cmd::lanes::run(args),
        Command::Trace(args) => cmd::trace::run(args),
        Command::Locks(args) => cmd::locks::run(args),
        Command::Steer(args) => cmd::steer::run(args),
        Command::Bench(args) => cmd::lab::bench(args),
        Command::Lab(args) => cmd::lab::lab(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A remark about an example is one for the shell too.
    #[test]
    fn examples_run_as_they_stand() {
        let mut tried = 0;
        for command in command().get_subcommands() {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in after.lines().filter(|line| line.starts_with("  ")) {
                let words = line.split('#').next().unwrap_or_default().split_whitespace();
                let words =
                    words.skip_while(|word| *word == "sudo").take_while(|word| !matches!(*word, "&" | "|" | ">"));
                let words: Vec<&str> = words.collect();
                if words.first() == Some(&"laneway") {
                    let parsed = read(&words).map(drop).map_err(|error| error.to_string());
                    assert_eq!(parsed, Ok(()), "{line}");
                    tried += 1;
                }
            }
        }
        assert!(tried > 25, "{tried} examples were found");
    }
}
