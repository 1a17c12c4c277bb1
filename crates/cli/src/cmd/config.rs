//! `laneway config`: is a configuration right, and what holds under it.

use crate::ask::Out;
use crate::failure::Failure;
use crate::settings::{self, Settings};
use laneway::on_lane::Cidr;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Checks a configuration file, or shows what holds and where each value comes from.
///
/// The command line goes before the file, the file before what the interface says of itself. Files are read only if they
/// are named: --config FILE.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

const EXAMPLE: &str = "Examples:\n  laneway config check laneway.toml\n  laneway config show --config laneway.toml --json\n\nA file:\n  [interface]\n  tun = \"lw0\"\n  addr = [\"10.9.0.2/24\", \"fd09::2/64\"]\n  [sysctl]\n  tcp_fin_timeout = 30\n  tcp_rmem = [131072, 6291456]\n  net.ipv4.ip_local_reserved_ports = \"8080,9000-9010\"\n  msl = \"15s\"";

#[derive(clap::Subcommand)]
enum What {
    /// Says whether a file is right, and if not, everything that is wrong with it.
    #[command(after_help = "Example:\n  laneway config check laneway.toml")]
    Check {
        /// The file.
        file: PathBuf,
        /// Say it as JSON: one object.
        #[arg(long)]
        json: bool,
    },
    /// Shows every setting with its value and where that comes from.
    #[command(after_help = "Example:\n  laneway config show --config laneway.toml")]
    Show {
        /// The file; without one, the defaults.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Say it as JSON, one object per line.
        #[arg(long)]
        json: bool,
    },
}

/// Checks or shows.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut out = Out::new();
    match args.what {
        What::Check { file, json } => {
            let outcome = settings::read(&file);
            if json {
                let wrong: Vec<String> = match &outcome {
                    Ok(_) => Vec::new(),
                    Err(failure) => failure.to_string().split("\nlaneway: ").map(str::to_owned).collect(),
                };
                out.line(json!({"file": file.to_string_lossy(), "right": wrong.is_empty(), "wrong": wrong}))?;
                out.flush()?;
            }
            let settings = outcome?;
            if !json {
                out.line(format_args!("{} is right; settings: {}", file.display(), settings.lines.len()))?;
            }
        }
        What::Show { config, json } => {
            let settings = match config {
                Some(path) => settings::read(&path)?,
                None => Settings::default(),
            };
            show(&settings, json, &mut out)?;
        }
    }
    out.flush()
}

fn show(settings: &Settings, json: bool, out: &mut Out) -> Result<(), Failure> {
    let interface = &settings.interface;
    let strings = |all: &[Cidr]| json!(all.iter().map(ToString::to_string).collect::<Vec<_>>());
    let rows = [
        ("tun", json!(interface.tun), "command line"),
        ("addr", strings(&interface.addr), "command line, or from the interface"),
        ("host_addr", strings(&interface.host_addr), "from addr, or from the interface"),
        ("gateway", json!(interface.gateway), "the kernel's end"),
        ("lanes", json!(interface.lanes), "one for every second core"),
        ("mtu", json!(interface.mtu), "from the interface"),
        ("spin", json!(interface.spin_us.map(|us| format!("{us}us"))), "50us, or 0us with a lane on every core"),
        ("control", json!(interface.control.as_ref().map(|path| path.to_string_lossy())), "the usual place"),
    ];
    if !json {
        out.line("[interface]")?;
    }
    for (name, value, otherwise) in rows {
        say(out, json, "interface", name, &value, &settings.source(name, otherwise))?;
    }
    if !json {
        out.line("[sysctl]")?;
    }
    for (tunable, value, source) in settings.tunables() {
        say(out, json, "sysctl", tunable.name, &value, &source)?;
    }
    Ok(())
}

fn say(out: &mut Out, json: bool, section: &str, name: &str, value: &Value, from: &str) -> Result<(), Failure> {
    if json {
        return out.line(json!({"section": section, "name": name, "value": value, "from": from}));
    }
    // What no file says stands beside a mark of TOML's, so that the whole can be a file again.
    let (name, value) = match value {
        Value::Null => (format!("# {name}"), "-".to_owned()),
        value => (name.to_owned(), settings::show(value)),
    };
    out.line(format_args!("{name:<24} = {value:<24} # {from}"))
}
