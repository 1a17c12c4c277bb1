//! Owns byte ranges (RFC 9110 section 14): one range, from the front or from the end.

use std::ops::Range;

/// What a `Range` field asks for, of a representation of known length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// All of it: there is no field, or none that must be understood. Several ranges at once are answered so too.
    All,
    /// These bytes.
    Part(Range<u64>),
    /// Nothing that there is.
    Unsatisfiable,
}

/// Reads the value of a `Range` field.
pub fn parse(field: Option<&[u8]>, len: u64) -> Asked {
    let Some(field) = field.and_then(|f| std::str::from_utf8(f).ok()) else { return Asked::All };
    let Some((unit, set)) = field.split_once('=') else { return Asked::All };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Asked::All;
    }
    let Some((first, last)) = set.trim().split_once('-') else { return Asked::All };
    // A number that does not fit means "beyond any file".
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    match (number(first.trim()), number(last.trim())) {
        (None, Some(0)) if first.trim().is_empty() => Asked::Unsatisfiable,
        // The last bytes of nothing can be had (RFC 9110 section 14.1.2), but no `Content-Range` can name them.
        (None, Some(_)) if len == 0 => Asked::All,
        (None, Some(suffix)) if first.trim().is_empty() => Asked::Part(len.saturating_sub(suffix)..len),
        (Some(first), None) if last.trim().is_empty() => from(first, u64::MAX, len),
        (Some(first), Some(last)) if first <= last => from(first, last, len),
        _ => Asked::All,
    }
}

fn from(first: u64, last: u64, len: u64) -> Asked {
    if first >= len {
        return Asked::Unsatisfiable;
    }
    Asked::Part(first..last.saturating_add(1).min(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form() {
        let ask = |field: &str| parse(Some(field.as_bytes()), 1_000);
        assert_eq!(ask("bytes=0-99"), Asked::Part(0..100));
        assert_eq!(ask("bytes=900-"), Asked::Part(900..1_000));
        assert_eq!(ask("bytes=900-5000"), Asked::Part(900..1_000));
        assert_eq!(ask("bytes=-10"), Asked::Part(990..1_000));
        assert_eq!(ask("bytes=-5000"), Asked::Part(0..1_000));
        assert_eq!(ask("Bytes = 5-5"), Asked::Part(5..6));
        assert_eq!(ask("bytes=0-18446744073709551615"), Asked::Part(0..1_000));
        assert_eq!(ask("bytes=0-99999999999999999999999"), Asked::Part(0..1_000));
        for unsatisfiable in ["bytes=1000-", "bytes=1000-1001", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(ask(unsatisfiable), Asked::Unsatisfiable, "{unsatisfiable}");
        }
        for ignored in [
            "bytes=5-4",
            "bytes=0-1,5-6",
            "bytes=-1,5-6",
            "bytes=5-,-1",
            "lines=1-2",
            "bytes",
            "bytes=a-b",
            "bytes=--1",
            "bytes=-",
            "bytes=1",
        ] {
            assert_eq!(ask(ignored), Asked::All, "{ignored}");
        }
        assert_eq!(parse(None, 5), Asked::All);
        assert_eq!(parse(Some(b"bytes=0-"), 0), Asked::Unsatisfiable);
        assert_eq!(parse(Some(b"bytes=-1"), 0), Asked::All);
        assert_eq!(parse(Some(b"bytes=a-0"), 0), Asked::All);
        assert_eq!(parse(Some(b"bytes=-0"), 0), Asked::Unsatisfiable);
        assert_eq!(parse(Some(b"bytes=\xff-"), 9), Asked::All);
    }
}
