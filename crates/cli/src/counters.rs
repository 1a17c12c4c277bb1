//! Owns how counters are shown: by name and value, as `nstat` does, or as JSON.

use laneway::on_lane::Counters;

/// One line per counter that is not zero.
pub fn table(counters: &Counters) -> String {
    let mut text = String::from("#laneway\n");
    for (name, value) in counters.iter() {
        text += &format!("{name:<32}{value:<20}\n");
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
