//! Owns what the seed measured: `tcpaccept.d` on the illumos machine of 2011, 37 rows of one second each.

use crate::wall::rows::{Row, Rows};

/// The names of the columns, in their order.
pub const COLUMNS: [&str; 6] = ["ListenDrop", "ListenDropQ0", "TCPaccept", "TCPrefused", "SCAccept", "SCAF"];
/// Where `TCPaccept` is among them.
pub const ACCEPTS: usize = 2;

const ROWS: &str = include_str!("../../seed/s3_tcpaccept.csv");

/// Second by second.
pub fn seconds() -> Vec<[f64; 6]> {
    let line = |line: &str| {
        let mut values = line.split(',').skip(1).map(|value| value.trim().parse::<f64>());
        let mut row = [0.0; 6];
        for value in &mut row {
            *value = values.next()?.ok()?;
        }
        Some(row)
    };
    ROWS.lines().skip(1).map_while(line).collect()
}

/// Where.
const MACHINE: &str = "illumos, 2011";

/// As rows of the variant `seed`: second by second, and how even they are.
pub fn push(rows: &mut Rows) {
    let mut seed = Rows::new(None);
    for (second, values) in seconds().iter().enumerate() {
        super::series::push_second(&mut seed, "seed", second, values);
    }
    let accepts: Vec<f64> = seconds().iter().map(|row| row[ACCEPTS]).collect();
    push_spread(&mut seed, "seed", "wall", &accepts);
    rows.rows.extend(seed.rows.into_iter().map(|row| row.published(MACHINE)));
}

/// Standard deviation over mean, and the greatest value over the least.
pub fn spread(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64;
    let most = values.iter().copied().fold(0.0, f64::max);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (variance.sqrt() / mean, most / least)
}

/// `cv` and `max_over_min` of one series, where there is such a number.
pub fn push_spread(rows: &mut Rows, variant: &str, of: &str, values: &[f64]) {
    let (cv, over) = spread(values);
    for (metric, value) in [("cv", cv), ("max_over_min", over)].into_iter().filter(|(_, value)| value.is_finite()) {
        rows.push(Row::measured(variant, metric, value, "").at("of", of));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_says_that_it_is_not_of_this_machine() {
        let mut rows = Rows::new(None);
        push(&mut rows);
        assert_eq!(rows.rows.len(), 37 * 6 + 2);
        let elsewhere = crate::wall::rows::Value::from("illumos, 2011, as published");
        assert!(rows.rows.iter().all(|row| row.axis("machine") == Some(&elsewhere)));
    }

    #[test]
    fn the_table_is_whole_and_gives_the_figures_that_it_is_known_for() {
        let all = seconds();
        assert_eq!(all.len(), 37);
        let accepts: Vec<f64> = all.iter().map(|row| row[ACCEPTS]).collect();
        let mean = accepts.iter().sum::<f64>() / 37.0;
        let (cv, over) = spread(&accepts);
        assert!((mean - 11_500.0).abs() < 100.0, "{mean}");
        assert!((cv - 0.75).abs() < 0.02 && (over - 16.7).abs() < 0.05, "{cv} {over}");
    }

    /// A row has a value: a second in which nothing was accepted, or a series of nothing, is no number.
    #[test]
    fn what_has_no_ratio_has_no_row() {
        let spreads = |values: &[f64]| {
            let mut rows = Rows::new(None);
            push_spread(&mut rows, "lane", "wall", values);
            rows.rows.into_iter().map(|row| (row.metric, row.value)).collect::<Vec<_>>()
        };
        assert_eq!(spreads(&[1.0, 3.0]), [("cv".to_owned(), 0.5), ("max_over_min".to_owned(), 3.0)]);
        assert_eq!(spreads(&[0.0, 2.0]), [("cv".to_owned(), 1.0)]);
        assert_eq!(spreads(&[0.0, 0.0]), []);
    }
}
