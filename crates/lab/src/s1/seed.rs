//! Owns the figures of the seed, FreeBSD's PR 183659: what was seen there is said beside what is seen here, never among it.

use crate::wall::rows::Rows;

/// What was seen, of one kernel: its name, acquisitions of the lock by connection, contended share, microseconds held and
/// waited by connection, the longest wait in microseconds, and connections a second.
const SEEN: [(&str, f64, f64, f64, f64, f64, &str); 4] = [
    ("FreeBSD 9.2", 7.16, 0.933, 30.2, 224.0, 43_262.0, "52,000 on one queue, 56,000 on four"),
    ("FreeBSD 10.0", 6.70, 0.975, 25.3, 159.0, 321_900.0, "40,000 without a drop"),
    ("FreeBSD 10.0 with PCBGROUP", 6.71, 0.975, 25.1, 164.0, f64::NAN, "40,000 without a drop"),
    ("FreeBSD 10.0 with accept and timewait", 6.06, 0.982, 26.2, 87.6, 297.0, "56,800 without a drop"),
];

/// Says it.
pub fn remarks(rows: &mut Rows) {
    for (kernel, taken, contended, held, waited, longest, rate) in SEEN {
        let longest = if longest.is_nan() { "not said".to_owned() } else { format!("{longest:.0} us") };
        rows.remark(format!(
            "the seed, {kernel}: the lock taken {taken} times a connection, {:.1} % contended, {held} us held and {waited} us waited a connection, longest wait {longest}; connections a second: {rate}",
            contended * 100.0
        ));
    }
    rows.remark("the seed had four queues, 2,000 connections at a time and servers on cores of their own; here two lanes share two cores with the client");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_said_has_no_unit() {
        let mut rows = Rows::new(None);
        remarks(&mut rows);
        let waits: Vec<&str> = rows.remarks.iter().filter_map(|remark| remark.split("longest wait ").nth(1)).collect();
        assert!(waits[0].starts_with("43262 us;") && waits[2].starts_with("not said;"), "{waits:?}");
    }
}
