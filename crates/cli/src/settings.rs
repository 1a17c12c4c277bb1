//! Owns the configuration file: which settings there are, under the kernel's names where the kernel has one, what values
//! they may have, and where each effective value comes from.
//!
//! The command line goes before the file, and the file before what the interface says of itself by netlink.

mod interface;

use interface::check_whole_name;
pub use interface::complete;

use crate::failure::Failure;
use crate::parse;
use laneway::control::ControlSocket;
use laneway::on_lane::{Cidr, Config, check_addresses, check_gateways, check_host_addresses};
use laneway_stack::proto::tcp::buffer::LARGEST;
use laneway_stack::proto::tcp::congestion::Algorithm;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// The longest file, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// What a file says.
#[derive(Default, Debug)]
pub struct Settings {
    /// The file.
    pub path: Option<PathBuf>,
    /// Tunables, defaults where the file is silent.
    pub config: Config,
    /// The interface.
    pub interface: Interface,
    /// The line of each setting that the file has, by name.
    pub lines: BTreeMap<&'static str, usize>,
}

/// `[interface]`: what the command line may say as well.
#[derive(Default, Clone, Debug)]
pub struct Interface {
    /// `--tun`.
    pub tun: Option<String>,
    /// `--addr`.
    pub addr: Vec<Cidr>,
    /// `--host-addr`.
    pub host_addr: Vec<Cidr>,
    /// `--gateway`.
    pub gateway: Vec<IpAddr>,
    /// `--lanes`.
    pub lanes: Option<usize>,
    /// `--mtu`.
    pub mtu: Option<u16>,
    /// `--spin`, in microseconds.
    pub spin_us: Option<u64>,
    /// `--control`.
    pub control: Option<PathBuf>,
}

/// A tunable.
pub struct Tunable {
    /// Its name, as `sysctl` has it without the path before it.
    pub name: &'static str,
    /// The kernel's path before the name; empty if the kernel has no such setting.
    pub kernel: &'static str,
    get: fn(&Config) -> Value,
    set: fn(&mut Config, &Given<'_>) -> Result<(), String>,
}

const IPV4: &str = "net.ipv4.";
const CORE: &str = "net.core.";

/// A number; the unit is the kernel's.
macro_rules! number {
    ($name:literal, $kernel:expr, $range:expr, $($field:ident).+) => {
        Tunable {
            name: $name,
            kernel: $kernel,
            get: |c| c.$($field).+.into(),
            set: |c, given| { c.$($field).+ = given.number($range)? as _; Ok(()) },
        }
    };
}

/// A time that is kept in microseconds; a bare number is in the kernel's unit, of so many microseconds.
macro_rules! time {
    ($name:literal, $kernel:expr, $unit:expr, $range:expr, $($field:ident).+) => {
        Tunable {
            name: $name,
            kernel: $kernel,
            get: |c| parse::show_us(u64::from(c.$($field).+)).into(),
            set: |c, given| { c.$($field).+ = given.time_us($unit, $range)?; Ok(()) },
        }
    };
}

/// On or off.
macro_rules! switch {
    ($name:literal, $kernel:expr, $($field:ident).+) => {
        Tunable {
            name: $name,
            kernel: $kernel,
            get: |c| c.$($field).+.into(),
            set: |c, given| { c.$($field).+ = given.switch()?; Ok(()) },
        }
    };
}

const S: u64 = 1_000_000;
const MS: u64 = 1_000;
const DAY: u64 = 86_400 * S;

/// Every tunable.
pub const TUNABLES: &[Tunable] = &[
    number!("tcp_syn_retries", IPV4, 1..=127, tcp.tcp_syn_retries),
    number!("tcp_synack_retries", IPV4, 0..=30, tcp.tcp_synack_retries),
    number!("tcp_retries1", IPV4, 1..=100, tcp.tcp_retries1),
    number!("tcp_retries2", IPV4, 1..=100, tcp.tcp_retries2),
    number!("tcp_orphan_retries", IPV4, 1..=100, tcp.tcp_orphan_retries),
    time!("tcp_fin_timeout", IPV4, S, S..=DAY, tcp.tcp_fin_timeout_us),
    time!("tcp_keepalive_time", IPV4, S, S..=30 * DAY, tcp.tcp_keepalive_time_us),
    time!("tcp_keepalive_intvl", IPV4, S, S..=DAY, tcp.tcp_keepalive_intvl_us),
    number!("tcp_keepalive_probes", IPV4, 1..=127, tcp.tcp_keepalive_probes),
    Tunable {
        name: "tcp_rmem",
        kernel: IPV4,
        get: |c| json!([c.tcp.tcp_rmem.0, c.tcp.tcp_rmem.1]),
        set: |c, given| {
            let (initial, most) = given.pair(4_096..=LARGEST as u64)?;
            c.tcp.tcp_rmem = (initial as u32, most as u32);
            Ok(())
        },
    },
    number!("tcp_wmem", IPV4, 4_096..=LARGEST as u64, tcp.tcp_wmem),
    Tunable {
        name: "tcp_congestion_control",
        kernel: IPV4,
        get: |c| c.tcp.tcp_congestion_control.name().into(),
        set: |c, given| {
            let name = given.text("cubic or reno")?;
            c.tcp.tcp_congestion_control = Algorithm::by_name(&name)
                .ok_or_else(|| format!("is \"{name}\", and there is only \"cubic\" and \"reno\""))?;
            Ok(())
        },
    },
    switch!("tcp_window_scaling", IPV4, tcp.tcp_window_scaling),
    switch!("tcp_timestamps", IPV4, tcp.tcp_timestamps),
    switch!("tcp_sack", IPV4, tcp.tcp_sack),
    switch!("tcp_mtu_probing", IPV4, tcp.tcp_mtu_probing),
    number!("tcp_ecn", IPV4, 0..=2, tcp.tcp_ecn),
    switch!("tcp_syncookies", IPV4, tcp.tcp_syncookies),
    time!("tcp_invalid_ratelimit", IPV4, MS, 0..=DAY, tcp.tcp_invalid_ratelimit_us),
    number!("tcp_max_syn_backlog", IPV4, 1..=1 << 24, tcp_max_syn_backlog),
    number!("tcp_max_tw_buckets", IPV4, 1..=1 << 30, tcp_max_tw_buckets),
    number!("tcp_tw_reuse_delay", IPV4, 1..=60_000, tcp_tw_reuse_delay_ms),
    Tunable {
        name: "ip_local_port_range",
        kernel: IPV4,
        get: |c| json!([c.ip_local_port_range.0, c.ip_local_port_range.1]),
        set: |c, given| {
            let (first, last) = given.pair(1..=65_535)?;
            c.ip_local_port_range = (first as u16, last as u16);
            Ok(())
        },
    },
    Tunable {
        name: "ip_local_reserved_ports",
        kernel: IPV4,
        get: |c| show_ports(&c.ip_local_reserved_ports).into(),
        set: |c, given| {
            c.ip_local_reserved_ports = given.ports()?;
            Ok(())
        },
    },
    number!("ip_default_ttl", IPV4, 1..=255, ip_default_ttl),
    number!("somaxconn", CORE, 1..=1 << 24, somaxconn),
    time!("msl", "", S, parse::MSL_US, tcp.msl_us),
    time!("delayed_ack", "", MS, 0..=500 * MS, tcp.delayed_ack_us),
    number!("quick_acks", "", 0..=255, tcp.quick_acks),
    number!("lane_mem", "", 1 << 20..=1 << 40, lane_mem),
    number!("connections", "", 1..=1 << 26, connections),
    switch!("software_checksums", "", software_checksums),
];

/// Settings of the interface, by name.
const INTERFACE: &[&str] = &["tun", "addr", "host_addr", "gateway", "lanes", "mtu", "spin", "control"];

/// A value as a file has it. What is text, a number or a list to JSON is that to TOML, too.
pub fn show(value: &Value) -> String {
    match value {
        Value::Array(all) => format!("[{}]", all.iter().map(show).collect::<Vec<_>>().join(", ")),
        one => one.to_string(),
    }
}

/// Ports as the kernel writes them: `80,8000-8010`.
fn show_ports(ports: &[u16]) -> String {
    let runs = ports.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let run = |run: &[u16]| match run {
        [first, .., last] => format!("{first}-{last}"),
        one => one.iter().map(u16::to_string).collect(),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

/// A value out of a file.
pub struct Given<'a>(&'a DeValue<'a>);

impl Given<'_> {
    fn integer(&self) -> Option<i64> {
        match self.0 {
            DeValue::Integer(n) => {
                let digits = n.as_str().replace('_', "");
                i64::from_str_radix(&digits, n.radix()).ok()
            }
            _ => None,
        }
    }

    fn number(&self, range: RangeInclusive<u64>) -> Result<u64, String> {
        let right = || format!("must be a number from {} to {}", range.start(), range.end());
        let number = self.integer().and_then(|n| u64::try_from(n).ok());
        number.filter(|n| range.contains(n)).ok_or_else(right)
    }

    fn time_us(&self, unit: u64, range: RangeInclusive<u64>) -> Result<u64, String> {
        let right = || {
            let unit = if unit == S { "seconds" } else { "milliseconds" };
            format!("must be {}; a bare number is in {unit}", parse::time_in(&range))
        };
        let us = match self.0 {
            DeValue::String(text) => parse::any_duration_us(text).ok(),
            _ => self.integer().and_then(|n| u64::try_from(n).ok()).and_then(|n| n.checked_mul(unit)),
        };
        us.filter(|us| range.contains(us)).ok_or_else(right)
    }

    fn switch(&self) -> Result<bool, String> {
        match (self.0, self.integer()) {
            (DeValue::Boolean(on), _) => Ok(*on),
            (_, Some(0)) => Ok(false),
            (_, Some(1)) => Ok(true),
            _ => Err("must be true or false (or 1 or 0, as the kernel writes it)".into()),
        }
    }

    /// Two numbers, the first not above the second.
    fn pair(&self, range: RangeInclusive<u64>) -> Result<(u64, u64), String> {
        let right = || {
            format!(
                "must be two numbers from {} to {}, the smaller first: [{}, {}]",
                range.start(),
                range.end(),
                range.start(),
                range.end()
            )
        };
        let DeValue::Array(values) = self.0 else { return Err(right()) };
        let numbers: Option<Vec<u64>> =
            values.iter().map(|value| Given(value.get_ref()).number(range.clone()).ok()).collect();
        match numbers.as_deref() {
            Some([a, b]) if a <= b => Ok((*a, *b)),
            _ => Err(right()),
        }
    }

    /// Ports, in order: as the kernel writes them, or a list of numbers.
    fn ports(&self) -> Result<Vec<u16>, String> {
        let right = || "must be ports from 1 to 65535, for example \"8080,9000-9010\" or [8080, 9000]".to_owned();
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(right);
        let mut ports = Vec::new();
        match self.0 {
            DeValue::String(text) => {
                for part in text.split(',').filter(|_| !text.trim().is_empty()) {
                    let (first, last) = part.split_once('-').unwrap_or((part, part));
                    let (first, last) = (port(first)?, port(last)?);
                    if first > last {
                        return Err(right());
                    }
                    ports.extend(first..=last);
                }
            }
            DeValue::Array(values) => {
                for value in values.iter() {
                    ports.push(Given(value.get_ref()).number(1..=65_535).map_err(|_| right())? as u16);
                }
            }
            _ => return Err(right()),
        }
        ports.sort_unstable();
        ports.dedup();
        Ok(ports)
    }

    fn text(&self, what: &str) -> Result<String, String> {
        match self.0 {
            DeValue::String(text) => Ok(text.to_string()),
            _ => Err(format!("must be a text in quotes: {what}")),
        }
    }

    /// One text or several.
    fn list<T>(&self, what: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
        let one = |value: &DeValue<'_>| Given(value).text(what).and_then(|text| parse(&text));
        match self.0 {
            DeValue::Array(values) => values.iter().map(|value| one(value.get_ref())).collect(),
            value => one(value).map(|one| vec![one]),
        }
    }
}

/// Reads a file, and says everything that is wrong with it, a sentence each.
pub fn read(path: &Path) -> Result<Settings, Failure> {
    let mut bytes = Vec::new();
    // Not all that has a name has an end.
    let outcome = File::open(path).and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes));
    let why = match outcome {
        Ok(_) if bytes.len() as u64 > FILE_MAX => Some(format!("it has more than {FILE_MAX} bytes")),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = why {
        return Err(Failure::Misuse(format!(
            "the configuration {} cannot be read: {why}; name another file",
            path.display()
        )));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let line = line_of(&bytes, error.valid_up_to());
        Failure::Misuse(format!(
            "{}:{line}: what is here is no UTF-8, which TOML is written in: save the file in that encoding",
            path.display()
        ))
    })?;
    let settings = parse(path, text).map_err(|wrong| Failure::Misuse(wrong.join("\nlaneway: ")))?;
    tracing::info!(path = %path.display(), settings = settings.lines.len(), "the configuration is loaded");
    Ok(settings)
}

/// The number of the line in which this byte is.
fn line_of(text: &[u8], byte: usize) -> usize {
    text.iter().take(byte).filter(|byte| **byte == b'\n').count() + 1
}

/// What a file of this text says.
pub fn parse(path: &Path, text: &str) -> Result<Settings, Vec<String>> {
    let at = |byte: usize| line_of(text.as_bytes(), byte);
    let place = |(line, what): (usize, String)| format!("{}:{line}: {what}", path.display());
    let document = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| at(span.start));
        vec![place((line, format!("that is not TOML: {}", error.message())))]
    })?;
    let mut settings = Settings { path: Some(path.to_owned()), ..Settings::default() };
    let mut wrong = Vec::new();
    for (key, value) in document.get_ref() {
        let section = key.get_ref().as_ref();
        let line = at(key.span().start);
        let known = ["interface", "sysctl"];
        let DeValue::Table(table) = value.get_ref() else {
            let what = if let Some((_, home)) = all_names().find(|(name, _)| *name == section) {
                format!("'{section}' stands in no section: put it under [{home}]")
            } else if known.contains(&section) {
                format!("{section} must be a section: write [{section}] on a line of its own, and once")
            } else if let (None, Some((name, home))) = (near(section, known), near_setting(section)) {
                format!("'{section}' is no setting, and stands in no section; did you mean '{name}', under [{home}]?")
            } else {
                format!("'{section}' is no section{}", suggest(section, known))
            };
            wrong.push((line, what));
            continue;
        };
        let mut given = Vec::new();
        leaves("", table, &mut given);
        // A table knows no order, and the later of two is the one too many.
        given.sort_by_key(|(_, start, _)| *start);
        if !known.contains(&section) {
            let full = |name: &str| format!("{section}.{name}");
            wrong.push(match given.iter().find(|(name, ..)| tunable(&full(name)).is_some()) {
                Some((name, start, _)) => {
                    (at(*start), format!("'{}' stands in no section: put it under [sysctl]", full(name)))
                }
                None => (line, format!("[{section}] is no section{}", suggest(section, known))),
            });
            continue;
        }
        for (name, start, value) in given {
            let line = at(start);
            if let Err(what) = settings.take(section, &name, value, line) {
                wrong.push((line, what));
            }
        }
    }
    for (name, what) in settings.interface.check() {
        let line = settings.lines.get(name).copied().unwrap_or(1);
        wrong.push((line, format!("{name}: {what}")));
    }
    if wrong.is_empty() {
        return Ok(settings);
    }
    // As whoever goes through the file from its top meets them.
    wrong.sort_by_key(|(line, _)| *line);
    Err(wrong.into_iter().map(place).collect())
}

impl Interface {
    /// What whoever starts a stack would say of these, and of which. What the file leaves to the command line is not missed.
    fn check(&self) -> impl Iterator<Item = (&'static str, String)> {
        let tun =
            self.tun.as_deref().map_or(Ok(()), |tun| check_whole_name(tun).map_err(|error| ("tun", error.to_string())));
        // Each is judged by those before it.
        let addresses = check_addresses(&self.addr)
            .map_err(|error| ("addr", error.to_string()))
            .and_then(|()| check_gateways(&self.addr, &self.gateway).map_err(|error| ("gateway", error.to_string())))
            .and_then(|()| {
                check_host_addresses(&self.addr, &self.host_addr, &self.gateway)
                    .map_err(|error| ("host_addr", error.to_string()))
            });
        let control = self
            .control
            .as_ref()
            .map_or(Ok(()), |path| ControlSocket::At(path.clone()).path().map(drop).map_err(|what| ("control", what)));
        [tun, addresses, control].into_iter().filter_map(Result::err)
    }
}

/// The settings in a table, each with its name and where that begins. The kernel's names have dots, which are tables to TOML.
fn leaves<'a, 't>(path: &str, table: &'t DeTable<'a>, into: &mut Vec<(String, usize, &'t DeValue<'a>)>) {
    for (key, value) in table {
        let name = format!("{path}{}", key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) if !inner.is_empty() => leaves(&format!("{name}."), inner, into),
            value => into.push((name, key.span().start, value)),
        }
    }
}

/// The tunable of this name, with or without the kernel's path before it.
fn tunable(name: &str) -> Option<&'static Tunable> {
    let short = short(name);
    TUNABLES
        .iter()
        .find(|tunable| tunable.name == short && (short == name || name.strip_suffix(short) == Some(tunable.kernel)))
}

fn short(name: &str) -> &str {
    name.strip_prefix(IPV4).or_else(|| name.strip_prefix(CORE)).unwrap_or(name)
}

fn all_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let interface = INTERFACE.iter().map(|name| (*name, "interface"));
    interface.chain(TUNABLES.iter().map(|tunable| (tunable.name, "sysctl")))
}

/// Which of these somebody meant, as far as it can be told.
fn near<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let all = known.into_iter().map(|name| (strsim::damerau_levenshtein(wrong, name), name));
    all.min().filter(|(distance, _)| *distance <= 1 + wrong.len() / 3).map(|(_, name)| name)
}

/// The same of all settings, with the section where that one belongs.
fn near_setting(wrong: &str) -> Option<(&'static str, &'static str)> {
    let meant = near(wrong, all_names().map(|(name, _)| name))?;
    all_names().find(|(name, _)| *name == meant)
}

/// `; did you mean …?`, or all that there is if it is little.
fn suggest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match near(wrong, known.iter().copied()) {
        Some(name) => format!("; did you mean '{name}'?"),
        None if known.len() <= 8 => format!("; there are {}", known.join(", ")),
        None => "; `laneway config show` lists them all".into(),
    }
}

impl Settings {
    fn take(&mut self, section: &str, key: &str, value: &DeValue<'_>, line: usize) -> Result<(), String> {
        let given = Given(value);
        let named = |what: String| format!("{key} {what}");
        if section == "sysctl" {
            let Some(tunable) = tunable(key) else {
                let near = suggest(short(key), TUNABLES.iter().map(|tunable| tunable.name));
                return Err(format!("there is no setting '{key}'{near}"));
            };
            if let Some(other) = self.lines.get(tunable.name) {
                return Err(format!("{key} is given in line {other} already: remove one"));
            }
            (tunable.set)(&mut self.config, &given).map_err(named)?;
            self.lines.insert(tunable.name, line);
            return Ok(());
        }
        let cidr = "an address with its network, for example \"10.0.0.2/24\"";
        let interface = &mut self.interface;
        let name = match key {
            "tun" => {
                interface.tun = Some(given.text("the name of a TUN interface").map_err(named)?);
                "tun"
            }
            "addr" => {
                interface.addr = given.list(cidr, str::parse).map_err(named)?;
                "addr"
            }
            "host_addr" => {
                interface.host_addr = given.list(cidr, str::parse).map_err(named)?;
                "host_addr"
            }
            "gateway" => {
                let right = "write it as 10.9.0.1 or fd09::1";
                let parse = |text: &str| text.parse().map_err(|_| format!("'{text}' is no IP address: {right}"));
                interface.gateway = given.list("an IP address", parse).map_err(named)?;
                "gateway"
            }
            "lanes" => {
                interface.lanes = Some(given.number(1..=256).map_err(named)? as usize);
                "lanes"
            }
            "mtu" => {
                let mtu = given.number(parse::MTU).map_err(|what| named(format!("{what}: {}", parse::MTU_LEAST)))?;
                interface.mtu = Some(mtu as u16);
                "mtu"
            }
            "spin" => {
                interface.spin_us = Some(given.time_us(MS, parse::SPIN_US).map_err(named)?);
                "spin"
            }
            "control" => {
                interface.control = Some(given.text("a path, or \"none\"").map_err(named)?.into());
                "control"
            }
            _ => return Err(format!("there is no setting '{key}'{}", suggest(key, INTERFACE.iter().copied()))),
        };
        self.lines.insert(name, line);
        Ok(())
    }

    /// Tunables with their values and where these come from.
    pub fn tunables(&self) -> impl Iterator<Item = (&'static Tunable, Value, String)> + '_ {
        TUNABLES.iter().map(|tunable| (tunable, (tunable.get)(&self.config), self.source(tunable.name, "default")))
    }

    /// Where a setting comes from: a line of the file, or else this.
    pub fn source(&self, name: &str, otherwise: &str) -> String {
        match (&self.path, self.lines.get(name)) {
            (Some(path), Some(line)) => format!("{}:{line}", path.display()),
            _ => otherwise.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
