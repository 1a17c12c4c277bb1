//! Owns how counters are shown: by name and value, as `nstat` does, or as JSON.

use laneway::on_lane::Counters;
use serde_json::json;

/// Mean sizes of packets, super-packets whole, where octets and packets are both among these.
pub fn octets_per_packet<'a>(counters: impl Iterator<Item = (&'a str, u64)> + Clone) -> Vec<(&'static str, f64)> {
    let value = |name| counters.clone().find(|(n, _)| *n == name).map_or(0, |(_, value)| value);
    let pairs = [("IpIn", "IpExtInOctets", "IpInReceives"), ("IpOut", "IpExtOutOctets", "IpOutRequests")];
    let size = |(name, octets, packets)| {
        let (octets, packets) = (value(octets), value(packets));
        (octets > 0 && packets > 0).then(|| (name, octets as f64 / packets as f64))
    };
    pairs.into_iter().filter_map(size).collect()
}

/// How such a size is said.
pub fn size_line(name: &str, size: f64) -> String {
    format!("#{:<31}{size:<20.1}", format!("{name} octets per packet"))
}

/// Every counter that is not zero.
fn grown(counters: &Counters) -> Vec<(String, u64)> {
    counters.iter().collect()
}

fn sizes(grown: &[(String, u64)]) -> Vec<(&'static str, f64)> {
    octets_per_packet(grown.iter().map(|(name, value)| (name.as_str(), *value)))
}

/// One line per counter that is not zero, and what two of them come to.
pub fn table(counters: &Counters) -> String {
    let grown = grown(counters);
    let mut text = String::from("#laneway\n");
    for (name, value) in &grown {
        text += &format!("{name:<32}{value:<20}\n");
    }
    for (name, size) in sizes(&grown) {
        text += &size_line(name, size);
        text.push('\n');
    }
    text
}

/// The same as members of an object, under `nstat`'s names.
pub fn json(counters: &Counters) -> serde_json::Value {
    let grown = grown(counters);
    let sizes: serde_json::Map<_, _> =
        sizes(&grown).into_iter().map(|(name, size)| (name.to_owned(), json!(size))).collect();
    let counters: serde_json::Map<_, _> = grown.into_iter().map(|(name, value)| (name, value.into())).collect();
    json!({"event": "counters", "counters": counters, "octets_per_packet": sizes})
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway::on_lane::Mib;

    #[test]
    fn a_server_says_sizes_as_nstat_does() {
        let mut counters = Counters::default();
        for (mib, value) in [(Mib::IpInReceives, 2), (Mib::IpExtInOctets, 125), (Mib::IpOutRequests, 4)] {
            counters.add(mib, value);
        }
        let table = table(&counters);
        assert!(table.lines().any(|line| line.trim_end() == "#IpIn octets per packet         62.5"), "{table}");
        assert!(!table.contains("#IpOut"), "none was counted: {table}");
        let words: Vec<_> = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        for line in [&["#laneway"][..], &["IpInReceives", "2"], &["IpExtInOctets", "125"], &["IpOutRequests", "4"]] {
            assert!(words.iter().any(|words| words == line), "{line:?}: {table}");
        }
        assert_eq!((words.len(), table.ends_with('\n')), (5, true));
        counters.add(Mib::IpExtOutOctets, 1);
        assert!(self::table(&counters).contains("#IpOut octets per packet"), "though it is a quarter of one");
        let no_packets = octets_per_packet([("IpExtInOctets", 9)].into_iter());
        assert_eq!(no_packets, [], "octets of no packets have no mean");
        let said = json(&counters);
        assert_eq!(
            (&said["counters"]["IpExtInOctets"], &said["octets_per_packet"]["IpIn"]),
            (&125.into(), &62.5.into())
        );
    }
}
