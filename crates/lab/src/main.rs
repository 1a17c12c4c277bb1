//! `laneway-lab`: measures Laneway, and what a user might pick instead, on the same work in the same run.
#![forbid(unsafe_code)]

mod bench;
mod coherence;
mod kv;
mod model;
mod output;
mod s1;
mod s2_segments;
mod s3;
mod s3_ports;
mod s4_send;
mod s5;
mod wall;

use clap::{CommandFactory, FromArgMatches, Parser};
use std::process::ExitCode;

/// Measures Laneway and its peers.
#[derive(Parser)]
#[command(name = "laneway-lab", version, about, long_about = None)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Measures operations per second, side by side in one run
    Bench(bench::options::Bench),
    /// Wall S1: one lock for all of TCP, stage by stage until there is none
    S1(s1::S1),
    /// Wall S2: packets of a small message: super-segments, and what holds their tail
    S2(s2_segments::S2),
    /// The part of s2 that runs in a network namespace of its own
    #[command(hide = true)]
    S2Kernel(s2_segments::kernel::Part),
    /// Wall S3: choosing a port for connect() as the ports run out
    S3(s3::S3),
    #[command(hide = true)]
    S3Kernel(s3::kernel::Part),
    /// Wall S4: the send path: a sender and the receive thread want one connection's lock
    S4(s4_send::S4),
    /// Wall S5: what a packet does to the route that it uses
    S5(s5::S5),
    /// What a connection costs the coherence of caches: locks, atomic operations, shared lines, calls of the heap
    Coherence(coherence::Coherence),
    /// The part of coherence that runs under valgrind
    #[command(hide = true)]
    CoherencePart(coherence::part::Part),
    /// What more cores than these would do: a model, and its tests
    Model(model::Model),
    Memcached(s5::memcached::Memcached),
}

/// What looks like a number below zero is one, and no option: who takes it says what would be right.
fn read() -> Result<Cli, clap::Error> {
    let takes_it = |arg: &clap::Arg| arg.get_long().is_some() && arg.get_action().takes_values();
    let heed = |arg| if takes_it(&arg) { arg.allow_negative_numbers(true) } else { arg };
    let mut command = Cli::command().mut_subcommands(|command| command.mut_args(heed));
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

fn main() -> ExitCode {
    let Cli { command } = read().unwrap_or_else(|error| error.exit());
    let outcome = match command {
        Command::Bench(bench) => bench::run(&bench),
        Command::S1(options) => s1::run(&options),
        Command::S2(options) => s2_segments::run(&options),
        Command::S2Kernel(part) => s2_segments::kernel::run(&part),
        Command::S3(s3) => s3::run(&s3),
        Command::S3Kernel(part) => s3::kernel::run(&part),
        Command::S4(options) => s4_send::run(&options),
        Command::Coherence(options) => coherence::run(&options),
        Command::CoherencePart(part) => coherence::part::run(&part),
        Command::Model(options) => model::run(&options),
        Command::S5(options) => s5::run(&options),
        Command::Memcached(options) => s5::memcached::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::remark(format_args!("{failure}"));
            failure.exit_code()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A remark about an example is one for the shell too, and fits beside it or above it on a terminal of 80 columns.
    #[test]
    fn examples_run_as_they_stand() {
        let mut tried = 0;
        for command in Cli::command().get_subcommands() {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in after.lines() {
                assert!(line.chars().count() <= 80, "{line}");
                for part in line.split('#').next().unwrap_or_default().split(';') {
                    let words = part.split_whitespace().skip_while(|word| *word == "sudo");
                    let words: Vec<&str> = words.take_while(|word| !matches!(*word, "&" | "|" | ">")).collect();
                    if words.first() == Some(&"laneway-lab") {
                        let parsed = Cli::try_parse_from(&words).map(drop).map_err(|error| error.to_string());
                        assert_eq!(parsed, Ok(()), "{line}");
                        tried += 1;
                    }
                }
            }
        }
        assert!(tried > 20, "{tried} examples were found");
    }
}
