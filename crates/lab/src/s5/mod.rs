//! Owns the wall S5: what a packet does to the route that it uses. `docs/walls/s5.md` tells it in order.

pub mod flap;
pub mod memcached;
mod micro;
mod picture;
mod seed;
mod traffic;

use crate::bench::failure::Failure;
use crate::wall::page::Page;
use crate::wall::rows::Rows;
use crate::wall::{self, WallOptions};
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  # References by themselves, then under a memcached-like load, beside the
  # table of the seed:
  laneway-lab s5
  laneway-lab s5 --variant r0,r3,lane --ratio 1:100
  # Routes replaced ten thousand times a second under load:
  laneway-lab s5 --flap 10000
  laneway-lab s5 --all --report s5.html  # everything, with pictures
  # The same server, for clients of other people's making:
  sudo laneway-lab memcached --tun lw0 --addr 10.9.0.2/24

What each metric means is in docs/walls/s5.md.";

/// In the order in which they take their turns.
pub const VARIANTS: [&str; 7] = ["r0", "r1", "r2", "r3", "arc", "lane", "lane-aa"];

/// `laneway-lab s5`
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct S5 {
    #[command(flatten)]
    pub wall: WallOptions,
    /// Writes and reads of the closed loop
    #[arg(long, value_name = "SETS:GETS", default_value = "1:100", value_parser = ratio)]
    pub ratio: u64,
    /// Connections of the closed loop
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub conns: usize,
    /// Replace the routes so many times a second under load, and compare with routes that stay
    #[arg(long, value_name = "PER_S")]
    pub flap: Option<u32>,
    /// Routes of each table that is put in place
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub routes: u32,
    /// References, traffic and replacement, one after the other
    #[arg(long)]
    pub all: bool,
    /// So many pairs of get and put by one thread, for counting instructions: plain, or a variant
    #[arg(long, hide = true, num_args = 2, value_names = ["NAME", "PAIRS"])]
    pub pairs: Option<Vec<String>>,
}

/// `1:100`: for one write so many reads.
fn ratio(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("'{text}' is no ratio of writes to reads: write it as 1:100, with 0 to 1000000 reads for one write");
    let gets = text.strip_prefix("1:").ok_or_else(wrong)?.parse::<u64>().map_err(|_| wrong())?;
    if gets <= 1_000_000 { Ok(gets) } else { Err(wrong()) }
}

impl S5 {
    fn check(&self) -> Result<(), Failure> {
        let misuse = |text: String| Err(Failure::Misuse(text));
        if !(2..=10_000).contains(&self.conns) {
            return misuse(format!("--conns must be 2 to 10000, not {}", self.conns));
        }
        if let Some(rate) = self.flap
            && !(1..=1_000_000).contains(&rate)
        {
            return misuse(format!("--flap must be 1 to 1000000 times a second, not {rate}"));
        }
        if self.flap.is_some() && !self.all && !self.wall.variant.is_empty() {
            return misuse("--flap replaces the routes of the product: leave out --variant".into());
        }
        if !(1..=1_000).contains(&self.routes) {
            return misuse(format!("--routes must be 1 to 1000, not {}", self.routes));
        }
        self.wall.variants(&VARIANTS).map(drop)
    }
}

/// Runs what was asked for, and gives it out.
pub fn run(s5: &S5) -> Result<(), Failure> {
    s5.check()?;
    if let Some(pairs) = &s5.pairs {
        return micro::pairs(pairs);
    }
    s5.wall.check_report()?;
    let mut rows = Rows::new(None);
    let mut page = Page::new("S5: what a packet does to the route that it uses");
    page.words = picture::words();
    if s5.all || s5.flap.is_none() {
        micro::run(s5, &mut rows)?;
        traffic::run(s5, &mut rows)?;
        seed::push(&mut rows);
        picture::micro(&rows, &mut page);
        picture::traffic(&rows, &mut page);
    }
    if s5.all || s5.flap.is_some() {
        flap::run(s5, s5.flap.unwrap_or(10_000), &mut rows)?;
        picture::flap(&rows, &mut page);
    }
    wall::finish(&s5.wall, &rows, &page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_one_write() {
        assert_eq!((ratio("1:100"), ratio("1:0")), (Ok(100), Ok(0)));
        for wrong in ["", "100", "2:100", "1:", "1:x", "1:9999999"] {
            assert!(ratio(wrong).expect_err(wrong).contains("1:100"));
        }
    }
}
