//! Owns a model of the seed's machine: 24 cores that do nothing but connect. A model, with what it assumes said beside it.
//!
//! # What is assumed
//! * A connect takes [`REST_NS`] besides choosing its port, in which it shares nothing.
//! * It locks as many buckets as linear probing needs at that occupancy (Knuth: (1 + 1 / (1 - a)²) / 2 for FIFO churn).
//! * Neighbouring ports are in neighbouring buckets. Of the packed ones four share a line, so only every fourth lock of a
//!   walk needs another line; of the padded ones every lock does.
//! * A line was written last by any core with equal probability: with n cores it comes from another one with (n-1)/n, and
//!   that takes the measured time of a transfer. Lines serve one core at a time, in the order of arrival.
//! * Walking a chain takes [`NODE_NS`] for each flow in it, under the lock; twice as many buckets make chains half as long.
//! * The hint is one further line, written once by each connect.
//!
//! The network of lines and thinking cores is closed and balanced, so mean value analysis solves it: the core that arrives
//! sees the queue that one core less would leave (Reiser and Lavenberg, 1980).

use super::sharing::Costs;
use crate::wall::rows::{Row, Rows};

/// What a connect takes besides the choice of its port. The seed's machine was busy for 100 µs a connection (24 cores, a
/// tenth of them busy, 25,000 a second), node.js and both ends included; a fifth of that is taken for `connect` alone.
const REST_NS: f64 = 20_000.0;
/// Reading one node of a chain, which another core wrote.
const NODE_NS: f64 = 20.0;
/// Ports of the seed's range (32768 to 65535).
const PORTS: f64 = 32_768.0;
/// Numbers of cores, its own last.
const MODELLED: [usize; 8] = [1, 2, 4, 8, 12, 16, 20, 24];

/// A shape of the array of locks.
struct Shape {
    name: &'static str,
    buckets: f64,
    /// Buckets that share a line.
    per_line: f64,
}

/// Mean probes of linear probing.
fn probes(occupancy: f64) -> f64 {
    let free = 1.0 - occupancy;
    (1.0 + 1.0 / (free * free)) / 2.0
}

/// A place where cores queue: how often each connect comes, how many of it there are, how long each visit takes.
struct Station {
    visits: f64,
    alike: f64,
    service_ns: f64,
}

/// Connects per second of so many cores.
fn throughput(cores: usize, stations: &[Station]) -> f64 {
    let mut queues = vec![0.0; stations.len()];
    let mut per_ns = 0.0;
    for n in 1..=cores {
        let waits: Vec<f64> = stations.iter().zip(&queues).map(|(s, queue)| s.service_ns * (1.0 + queue)).collect();
        let inside: f64 = stations.iter().zip(&waits).map(|(s, wait)| s.visits * wait).sum();
        per_ns = n as f64 / (REST_NS + inside);
        for ((station, wait), queue) in stations.iter().zip(&waits).zip(&mut queues) {
            *queue = per_ns * station.visits * wait / station.alike;
        }
    }
    per_ns * 1e9
}

fn connects_per_s(shape: &Shape, cores: usize, occupancy: f64, costs: Costs) -> f64 {
    let foreign = (cores - 1) as f64 / cores as f64;
    let locks = probes(occupancy);
    // A visit to a line: it is fetched once, and then so many of its locks are taken in turn.
    let locks_a_visit = locks.min(shape.per_line);
    let chain_ns = PORTS * occupancy / shape.buckets / 2.0 * NODE_NS;
    let lines = Station {
        visits: locks / locks_a_visit,
        alike: shape.buckets / shape.per_line,
        service_ns: foreign * costs.transfer_ns + locks_a_visit * (costs.local_ns + chain_ns),
    };
    let hint = Station { visits: 1.0, alike: 1.0, service_ns: foreign * costs.transfer_ns };
    throughput(cores, &[lines, hint])
}

/// Both shapes of the seed, from one core to its 24, at three occupancies.
pub fn run(costs: &Costs, rows: &mut Rows) {
    let shapes =
        [Shape { name: "b0", buckets: 512.0, per_line: 4.0 }, Shape { name: "b1", buckets: 1_024.0, per_line: 1.0 }];
    for occupancy in [0.0, 0.5, 0.9] {
        for cores in MODELLED {
            // It shares nothing, so there is nothing to queue for.
            let row = Row::model("lane", "connects_per_s", throughput(cores, &[]), "connects/s");
            rows.push(row.at("occupancy", occupancy * 100.0).at("cores", cores));
        }
        for shape in &shapes {
            for cores in MODELLED {
                let value = connects_per_s(shape, cores, occupancy, *costs);
                let row = Row::model(shape.name, "connects_per_s", value, "connects/s");
                rows.push(row.at("occupancy", occupancy * 100.0).at("cores", cores));
            }
        }
    }
    rows.remark(format!(
        "model: {:.0} ns to transfer a line, {:.1} ns for a lock whose line is there, {REST_NS} ns of other work in a connect, {NODE_NS} ns for a node of a chain; see docs/walls/s3.md for the rest",
        costs.transfer_ns, costs.local_ns
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { local_ns: 10.0, transfer_ns: 100.0 };
    const B0: Shape = Shape { name: "b0", buckets: 512.0, per_line: 4.0 };
    const B1: Shape = Shape { name: "b1", buckets: 1_024.0, per_line: 1.0 };

    #[test]
    fn one_core_waits_for_nobody() {
        let alone = connects_per_s(&B1, 1, 0.0, COSTS);
        assert!((alone - 1e9 / (REST_NS + COSTS.local_ns)).abs() < 1.0, "{alone}");
    }

    #[test]
    fn cores_never_do_more_than_so_many_times_one_nor_more_than_a_line_can_serve() {
        for cores in [2, 8, 24, 500] {
            let rate = connects_per_s(&B0, cores, 0.9, COSTS);
            assert!(rate < cores as f64 * connects_per_s(&B0, 1, 0.9, COSTS));
            assert!(rate < 1e9 / COSTS.transfer_ns * 500.0 / 499.0, "the hint is one line: {rate}");
        }
    }

    #[test]
    fn what_costs_most_is_the_number_of_probes_and_padding_does_not_change_that() {
        let slower = |shape: &Shape| connects_per_s(shape, 24, 0.0, COSTS) / connects_per_s(shape, 24, 0.9, COSTS);
        assert!(slower(&B0) > 2.0 && slower(&B1) > 1.5, "{} {}", slower(&B0), slower(&B1));
        assert!((probes(0.9) - 50.5).abs() < 1e-9);
    }
}
