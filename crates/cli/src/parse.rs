//! Owns what arguments mean, durations and percentages, with the limits that a file knows as well.

use clap::builder::{PathBufValueParser, TypedValueParser};
use laneway::on_lane::Rates;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// A duration in microseconds, of a day at the most: `30s`, `500ms`, `50us`, `2m`.
pub fn duration_us(text: &str) -> Result<u64, String> {
    let us = any_duration_us(text)?;
    if us <= 86_400_000_000 { Ok(us) } else { Err(format!("'{text}' is longer than a day: choose a shorter duration")) }
}

/// A duration in microseconds, for who has a limit of his own.
pub fn any_duration_us(text: &str) -> Result<u64, String> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let scale = match unit {
        "us" | "µs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" | "min" => 60e6,
        _ => return Err(format!("'{text}' is no duration: write it as 30s, 500ms or 50us")),
    };
    let number: f64 = number.parse().map_err(|_| format!("'{text}' is no duration: write it as 30s, 500ms or 50us"))?;
    // What is too large for the type is its largest value.
    Ok((number * scale) as u64)
}

/// How long a segment may live, in microseconds: none at all would turn TIME_WAIT off.
pub const MSL_US: RangeInclusive<u64> = 10_000..=600_000_000;
/// How long a lane without work may look for some, in microseconds.
pub const SPIN_US: RangeInclusive<u64> = 0..=1_000_000;

/// A number of this range. What is none, or below zero, is told the range as well.
pub fn number<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone {
    let right = match *range.end() {
        u64::MAX => format!("it must be a number, {} or more", range.start()),
        end => format!("it must be a number from {} to {end}", range.start()),
    };
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match text.parse::<u64>() {
            // It is a number, and more than the start of the range: that there is an end must be said.
            Err(_) if is_digits => format!("it must be a number from {} to {}", range.start(), range.end()),
            _ => right.clone(),
        })
    }
}

/// `--host` and `--gateway`.
pub fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "it must be an IP address, for example 10.9.0.1 or fd09::1".to_owned())
}

/// How long a turn may be, in seconds.
pub fn turn_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=60.0).contains(seconds));
    seconds.ok_or_else(|| "it must be a number of seconds from 0.01 to 60".to_owned())
}

/// Bytes that an interface may carry at once.
pub const MTU: RangeInclusive<u64> = 1_280..=65_535;
/// Why it is not less.
pub const MTU_LEAST: &str = "with less the kernel takes the IPv6 addresses of an interface away";

/// `--mtu`, held to what the file is held to.
pub fn mtu(text: &str) -> Result<u16, String> {
    number(MTU)(text).map_err(|right| format!("{right}: {MTU_LEAST}"))
}

/// `--msl`, held to what the file is held to.
pub fn msl_us(text: &str) -> Result<u64, String> {
    within(text, &MSL_US)
}

/// `--spin`, held to what the file is held to.
pub fn spin_us(text: &str) -> Result<u64, String> {
    within(text, &SPIN_US)
}

fn within(text: &str, range: &RangeInclusive<u64>) -> Result<u64, String> {
    let us = any_duration_us(text)?;
    if range.contains(&us) { Ok(us) } else { Err(format!("it must be {}", time_in(range))) }
}

/// What is right for a time in this range, for a sentence.
pub fn time_in(range: &RangeInclusive<u64>) -> String {
    format!("a time from {} to {}, for example \"{}\"", show_us(*range.start()), show_us(*range.end()), example(range))
}

fn example(range: &RangeInclusive<u64>) -> &'static str {
    let all = [("30s", 30_000_000), ("50us", 50)];
    all.iter().find(|(_, us)| range.contains(us)).map_or("30s", |(text, _)| text)
}

/// A duration as it can be read back.
pub fn show_us(us: u64) -> String {
    match us {
        us if us.is_multiple_of(1_000_000) => format!("{}s", us / 1_000_000),
        us if us.is_multiple_of(1_000) => format!("{}ms", us / 1_000),
        us => format!("{us}us"),
    }
}

/// `--pcap`: a file. Who says `-` means standard output, as elsewhere; but that says other things here, and lanes would wait for who reads
/// it.
pub fn capture() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path == Path::new("-") {
        true => Err("a capture goes into a file, beside what standard output says: name one (if it is to be called so, ./-), or /dev/stdout if both may go there"),
        false => Ok(path),
    })
}

/// Faults: `loss=1%,reorder=1%,corrupt=0.1%,duplicate=0.5%,mark=1%`.
pub fn rates(text: &str) -> Result<Rates, String> {
    let mut rates = Rates::default();
    let right = "write it as loss=1%,reorder=1%,corrupt=0.1%,duplicate=0.5%,mark=1%";
    let mut given = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (name, value) = part.split_once('=').ok_or_else(|| format!("'{part}' has no value; {right}"))?;
        let percent = value.strip_suffix('%').ok_or_else(|| format!("'{value}' is no percentage; {right}"))?;
        let percent: f64 = percent
            .trim()
            .parse()
            .ok()
            .filter(|p| (0.0..=100.0).contains(p))
            .ok_or_else(|| format!("'{value}' is not between 0% and 100%; {right}"))?;
        let ppm = (percent * 1e4).round() as u32;
        let name = name.trim();
        if given.contains(&name) {
            return Err(format!("'{name}' is given twice: leave one out"));
        }
        given.push(name);
        match name {
            "loss" => rates.loss_ppm = ppm,
            "reorder" => rates.reorder_ppm = ppm,
            "corrupt" => rates.corrupt_ppm = ppm,
            "duplicate" => rates.duplicate_ppm = ppm,
            "mark" => rates.mark_ppm = ppm,
            other => return Err(format!("'{other}' is no fault; {right}")),
        }
    }
    Ok(rates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration_us("30s"), Ok(30_000_000));
        assert_eq!(duration_us("1.5ms"), Ok(1_500));
        assert_eq!(duration_us("50us"), Ok(50));
        for bad in ["30", "s", "", "-1s", "1h", "1..2s", "1000000s"] {
            assert!(duration_us(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn faults() {
        let rates = rates("loss=1%, reorder=2%,corrupt=0.1%").unwrap();
        assert_eq!(
            (rates.loss_ppm, rates.reorder_ppm, rates.corrupt_ppm, rates.duplicate_ppm),
            (10_000, 20_000, 1_000, 0)
        );
        for bad in ["", "loss", "loss=1", "loss=101%", "loss=-1%", "delay=1%", "loss=x%", "loss=1%,reorder=1%,loss=2%"]
        {
            assert!(super::rates(bad).is_err(), "{bad}");
        }
    }
}
