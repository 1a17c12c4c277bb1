//! Owns the running of the programs that look from outside: valgrind, objdump, addr2line.

use super::part::Part;
use crate::bench::failure::Failure;
use std::path::Path;
use std::process::Command;

/// The part of this program that does the operations, by itself.
pub fn alone(part: &Part) -> Result<Command, Failure> {
    let mut command = Command::new(own()?);
    arguments(&mut command, part);
    Ok(command)
}

fn own() -> Result<std::path::PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::Machine(format!("this program cannot find itself: {error}")))
}

fn arguments(command: &mut Command, part: &Part) {
    command.args(["coherence-part", part.unit.name(), part.variant.name()]);
    command.args(["--ops", &part.ops.to_string(), "--warm-up", &part.warm_up.to_string()]);
    for (is_set, option) in [(part.traced, "--traced"), (part.watched, "--watched")] {
        if is_set {
            command.arg(option);
        }
    }
}

/// Valgrind with one of its tools, on that part. More options go before [`program`](Valgrind::program).
pub struct Valgrind(Command);

/// Begins one.
pub fn valgrind(tool: &str) -> Valgrind {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--fair-sched=try", &format!("--tool={tool}")]);
    // Valgrind takes "rep stosb" byte by byte: most of a short run would be the C library's memset of empty rings.
    command.env("GLIBC_TUNABLES", "glibc.cpu.x86_rep_stosb_threshold=2147483647");
    Valgrind(command)
}

impl Valgrind {
    /// One more option of the tool.
    #[must_use]
    pub fn option(mut self, option: &str) -> Self {
        self.0.arg(option);
        self
    }

    /// An option that names a file.
    #[must_use]
    pub fn file(mut self, option: &str, file: &Path) -> Self {
        self.0.arg(format!("{option}={}", file.display()));
        self
    }

    /// What is to be run.
    pub fn program(mut self, part: &Part) -> Result<Command, Failure> {
        self.0.arg(own()?);
        arguments(&mut self.0, part);
        Ok(self.0)
    }
}

/// Why a program could not be run, and which package has it.
pub fn missing(program: &str, package: &str, error: &std::io::Error) -> Failure {
    Failure::Machine(format!("{program} cannot be run ({error}); install it with: apt-get install {package}"))
}

/// What a program writes.
pub fn output(command: &mut Command, program: &str, package: &str) -> Result<String, Failure> {
    let done = command.output().map_err(|error| missing(program, package, &error))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(Failure::Machine(format!("{program} failed: {}", said.trim())));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// A number as programs write it.
fn parsed(number: &str) -> Option<u64> {
    match number.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => number.parse().ok(),
    }
}

/// The numbers behind a word at the beginning of a line, for each such line.
pub fn lines_of<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = Vec<u64>> + 'a {
    let behind = move |line: &'a str| line.strip_prefix(word)?.strip_prefix(' ');
    text.lines().filter_map(behind).filter_map(|numbers| numbers.split(' ').map(parsed).collect())
}

/// The number behind a word at the beginning of a line.
pub fn number(text: &str, word: &str) -> Result<u64, Failure> {
    let number = lines_of(text, word).next().and_then(|numbers| numbers.first().copied());
    number.ok_or_else(|| Failure::Machine(format!("the counted part did not say '{word}'; it said: {}", text.trim())))
}
