//! `laneway-lab`: measures Laneway, and what a user might pick instead, on the same work in the same run.
#![forbid(unsafe_code)]

mod bench;
#[allow(dead_code)] // each wall takes what it needs
mod wall;

use clap::Parser;
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
}

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    let outcome = match command {
        Command::Bench(bench) => bench::run(&bench),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("laneway-lab: {failure}");
            failure.exit_code()
        }
    }
}
