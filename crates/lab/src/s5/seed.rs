//! Owns what the seed measured: memtier 1:100 against memcached on the same host, three machines, of the patch series of
//! February 2023.

use crate::wall::rows::{Row, Rows};

/// Variant, and requests per second in thousands on machines A, B and C.
const TABLE: [(&str, [f64; 3]); 4] = [
    ("r0", [10_702.0, 6_156.0, 11_993.0]),
    ("r1", [12_505.0, 13_994.0, 24_997.0]),
    ("r2", [11_843.0, 9_590.0, 15_434.0]),
    ("r3", [22_888.0, 22_080.0, 25_048.0]),
];

/// As rows of their own machines, beside ours: the seed's numbers as they stand, and as multiples of its `r0`.
pub fn push(rows: &mut Rows) {
    for (at, machine) in ["A", "B", "C"].into_iter().enumerate() {
        for (variant, values) in &TABLE {
            let name = format!("seed {variant}");
            rows.push(Row::measured(&name, "memtier_score", values[at], "").published(machine));
            rows.push(Row::measured(&name, "times_r0", values[at] / TABLE[0].1[at], "").published(machine));
        }
    }
    let retries = Row::measured("seed r0", "retries_per_op", 8.0, "retries").at("cores", 112usize);
    rows.push(retries.published("A of 112 processors"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_multiples_are_those_that_the_seed_printed() {
        let mut rows = Rows::new(None);
        push(&mut rows);
        let times = |name: &str, machine: &str| {
            let machine = format!("{machine}, as published");
            rows.value(name, "times_r0", "machine", machine.as_str()).expect("it is there")
        };
        for (name, machine, printed) in [
            ("seed r3", "A", 2.13),
            ("seed r3", "B", 3.58),
            ("seed r3", "C", 2.08),
            ("seed r1", "B", 2.27),
            ("seed r2", "C", 1.28),
        ] {
            assert!((times(name, machine) - printed).abs() < 0.015, "{name} {machine}: {}", times(name, machine));
        }
    }
}
