//! Owns `laneway-lab memcached`: the server of S5 on a TUN interface, for clients of other people's making.

use super::VARIANTS;
use crate::bench::failure::Failure;
use crate::kv::server::KvServer;
use crate::kv::store::Store;
use crate::output;
use clap::Args;
use laneway::on_lane::{Cidr, Device, References, Stack};
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const EXAMPLES: &str = "\
Example (needs CAP_NET_ADMIN):
  sudo laneway-lab memcached --tun lw0 --addr 10.9.0.2/24 --seconds 60 &
  printf 'set a 0 0 5\\r\\nhello\\r\\nget a\\r\\nquit\\r\\n' | nc 10.9.0.2 11211";

/// A server of memcached's text protocol on a TUN interface
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Memcached {
    /// Name of the TUN interface; it is created if it does not exist
    #[arg(long, value_name = "NAME")]
    tun: String,
    /// Our address with its network; the kernel's end gets another one of it
    #[arg(long, value_name = "ADDRESS/BITS")]
    addr: Vec<Cidr>,
    /// Port
    #[arg(long, default_value_t = 11_211, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Lanes [default: one for every second core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    lanes: Option<u8>,
    /// What a packet does to its route
    #[arg(long, value_name = "NAME", default_value = "lane")]
    references: String,
    /// Memory for entries, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    memory: u32,
    /// End after so many seconds [default: run until killed]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// Say everything as JSON, one object per line
    #[arg(long)]
    json: bool,
}

fn references(name: &str) -> Result<References, Failure> {
    Ok(match name {
        "r0" => References::R0,
        "r1" => References::R1,
        "r2" => References::R2,
        "r3" => References::R3,
        "arc" => References::Arc,
        "lane" => References::Lane,
        _ => {
            let known = VARIANTS[..6].join(", ");
            return Err(Failure::Misuse(format!("--references {name}: there is no such variant; take one of {known}")));
        }
    })
}

/// Runs until it is killed, or for a time.
pub fn run(asked: &Memcached) -> Result<(), Failure> {
    if asked.addr.is_empty() {
        return Err(Failure::Misuse(
            "--addr is missing: say which address the server shall have, for example --addr 10.9.0.2/24".into(),
        ));
    }
    let store = Arc::new(Store::new((asked.memory as usize) << 20));
    let mut builder = Stack::builder(Device::tun(&asked.tun)).references(references(&asked.references)?);
    builder = asked.addr.iter().fold(builder, |builder, cidr| builder.cidr(*cidr));
    if let Some(lanes) = asked.lanes {
        builder = builder.lanes(lanes.into());
    }
    let stack =
        builder.start(|_| KvServer::new(Arc::clone(&store))).map_err(|error| Failure::Misuse(error.to_string()))?;
    let at = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), asked.port);
    stack.listen(at, 1_024).map_err(|error| Failure::Misuse(error.to_string()))?;
    if asked.json {
        let addresses: Vec<String> = asked.addr.iter().map(|cidr| cidr.address.to_string()).collect();
        output::show(format_args!(
            "{}\n",
            serde_json::json!({"event": "serving", "addresses": addresses, "port": asked.port, "lanes": stack.lanes(), "references": asked.references})
        ))?;
    } else {
        for cidr in &asked.addr {
            output::show(format_args!(
                "serving memcached's protocol at {} port {}, lanes: {}, references {}\n",
                cidr.address,
                asked.port,
                stack.lanes(),
                asked.references
            ))?;
        }
    }
    let began = std::time::Instant::now();
    let end = asked.seconds.map(|seconds| Duration::from_secs(seconds.into()));
    while end.is_none_or(|end| began.elapsed() < end) {
        std::thread::sleep(Duration::from_millis(100));
        if let Some(failure) = stack.failure() {
            return Err(Failure::Stuck(failure));
        }
    }
    let ended = stack.stop();
    ended.failure.map_or(Ok(()), |failure| Err(Failure::Stuck(failure)))
}
