//! Owns what the commands of all historic walls share: their options, the rows they give out, the table and the page.
//!
//! A wall measures, puts [`rows::Row`]s into a [`rows::Rows`], draws [`page::Picture`]s of them, and hands both to
//! [`finish`].

pub mod page;
pub mod rows;

use crate::bench::failure::Failure;
use crate::output;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use page::Page;
use rows::Rows;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The options that every wall has.
#[derive(Args, Clone, Debug, Default)]
pub struct WallOptions {
    /// Print rows as JSON: {"unit","machine","rows":[{"variant","metric","value","unit","source",…}]}; the first unit is null
    /// where rows count different operations
    #[arg(long)]
    pub json: bool,
    /// Write a page with pictures, captions, commands and tables, complete in one file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Seconds of each measurement [default: the wall's own]
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// Only these variants, separated by commas or given several times [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub variant: Vec<String>,
    /// Small sizes and short times: shows that everything works, measures nothing well
    #[arg(long)]
    pub quick: bool,
}

impl WallOptions {
    /// The time of one measurement: what was asked for, or `quick` or `usual` seconds.
    pub fn time(&self, usual: f64, quick: f64) -> Result<Duration, Failure> {
        match self.seconds {
            None => Ok(Duration::from_secs_f64(if self.quick { quick } else { usual })),
            Some(s) if (0.001..=3_600.0).contains(&s) => Ok(Duration::from_secs_f64(s)),
            Some(s) => Err(Failure::Misuse(format!("--seconds must be from 0.001 to 3600, not {s}"))),
        }
    }

    /// The variants asked for among `all`, in the order of `all`.
    pub fn variants<'a>(&self, all: &[&'a str]) -> Result<Vec<&'a str>, Failure> {
        if let Some(unknown) = self.variant.iter().find(|name| !all.contains(&name.as_str())) {
            return Err(Failure::Misuse(format!(
                "--variant {unknown}: there is no such variant here; take one of {}",
                all.join(", ")
            )));
        }
        let wanted = |name: &&str| self.variant.is_empty() || self.variant.iter().any(|one| one == name);
        Ok(all.iter().copied().filter(wanted).collect())
    }

    /// Whether the page can be written where it is wanted: asked before minutes are spent on what it shall show.
    pub fn check_report(&self) -> Result<(), Failure> {
        let Some(file) = &self.report else { return Ok(()) };
        if file == Path::new("-") {
            let right =
                "a page goes into a file, beside what standard output says: name one (if it is to be called so, ./-)";
            return Err(Failure::Misuse(format!("--report -: {right}")));
        }
        // Also if it is a link to what is not there yet: the link is not ours to remove.
        let was_there = file.symlink_metadata().is_ok();
        File::options()
            .append(true)
            .create(true)
            .open(file)
            .map_err(|error| Failure::Misuse(not_there(file, &error)))?;
        // Whoever breaks the measurement off shall find no page without a word in it.
        if !was_there {
            let _ = std::fs::remove_file(file);
        }
        Ok(())
    }
}

fn not_there(file: &Path, error: &std::io::Error) -> String {
    format!("--report {}: cannot write there: {error}; choose another place", file.display())
}

/// Gives the results out as the options say, the rows even if the page cannot be written. Fails at the end if a bar was missed.
pub fn finish(options: &WallOptions, rows: &Rows, page: &Page) -> Result<(), Failure> {
    if options.json {
        output::show(format_args!("{}\n", rows.json()))?;
    } else {
        output::show(format_args!("{}", rows.table()))?;
    }
    if let Some(file) = &options.report {
        let arguments = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        let html = page.html(rows, &given(arguments))?;
        std::fs::write(file, html).map_err(|error| Failure::Machine(not_there(file, &error)))?;
        output::remark(format_args!("wrote {}", file.display()));
    }
    match &rows.missed()[..] {
        [] => Ok(()),
        missed => Err(Failure::Missed(format!("what was promised is not kept: {}", missed.join("; ")))),
    }
}

/// The command as it was given: with other options other pictures come out.
fn given(arguments: impl Iterator<Item = String>) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=+.,:/".contains(c);
    let quoted = |word: String| {
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    std::iter::once("laneway-lab".to_owned()).chain(arguments.map(quoted)).collect::<Vec<_>>().join(" ")
}

/// A bar on stderr, and only where that is a terminal.
pub fn progress(steps: usize) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(steps as u64).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_given_again_as_it_stands() {
        let words = |all: &[&str]| given(all.iter().map(|word| (*word).to_owned()));
        assert_eq!(
            words(&["s1", "--lanes=1", "--report", "/tmp/a.html"]),
            "laneway-lab s1 --lanes=1 --report /tmp/a.html"
        );
        assert_eq!(words(&["s1", "--report", "our s1's.html"]), r"laneway-lab s1 --report 'our s1'\''s.html'");
    }

    #[test]
    fn options_choose_times_and_variants() {
        let mut options = WallOptions::default();
        assert_eq!(options.time(2.0, 0.1).expect("usual"), Duration::from_secs(2));
        assert_eq!(options.variants(&["a", "b"]).expect("all"), ["a", "b"]);
        options.quick = true;
        options.variant = vec!["b".into()];
        assert_eq!(options.time(2.0, 0.1).expect("quick"), Duration::from_millis(100));
        assert_eq!(options.variants(&["a", "b"]).expect("one"), ["b"]);
        options.variant = vec!["c".into()];
        assert!(options.variants(&["a", "b"]).expect_err("unknown").to_string().contains("take one of a, b"));
        for wrong in [0.0, 1e-12, f64::NAN, 3_601.0] {
            options.seconds = Some(wrong);
            assert!(options.time(2.0, 0.1).is_err(), "{wrong}");
        }
    }
}
