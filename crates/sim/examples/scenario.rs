//! Prints what a seed decides.
fn main() {
    let seed = std::env::args().nth(1).and_then(|s| s.parse().ok()).expect("usage: scenario SEED");
    println!("{:#?}", laneway_sim::Scenario::from_seed(seed));
}
