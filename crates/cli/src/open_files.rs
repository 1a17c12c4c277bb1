//! Owns how many files this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Asks for as many as may be had: a shell usually allows fewer, so that programs which wait with `select` do not break. How many it
/// may be now; `None`: any number.
pub fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // Where that is refused, it stays as it was.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_may_be_had() {
        let most = getrlimit(Resource::Nofile).maximum;
        assert_eq!((raise(), getrlimit(Resource::Nofile).current), (most, most));
    }
}
