//! Owns how counters are shown: by name and value, as `nstat` does, or as JSON.

use laneway::on_lane::{Counters, Mib};

/// How large the packets are that leave, super-segments whole; `None` if none has left.
fn octets_per_packet(counters: &Counters) -> Option<f64> {
    let packets = counters.get(Mib::IpOutRequests);
    (packets > 0).then(|| counters.get(Mib::IpExtOutOctets) as f64 / packets as f64)
}

/// One line per counter that is not zero, and what two of them come to.
pub fn table(counters: &Counters) -> String {
    let mut text = String::from("#laneway\n");
    for (name, value) in counters.iter() {
        text += &format!("{name:<32}{value:<20}\n");
    }
    if let Some(octets) = octets_per_packet(counters) {
        text += &format!("#octets per IP packet sent      {octets:.0}\n");
    }
    text
}

/// An object of every counter that is not zero.
pub fn json(counters: &Counters) -> serde_json::Value {
    counters
        .iter()
        .map(|(name, value)| (name, serde_json::Value::from(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
