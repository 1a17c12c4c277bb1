//! Owns which histories nobody needs any more: those of stacks that are gone. Whoever comes in a stack's place counts from zero.

use super::ENDING;
use laneway::control::{AskError, Client};
use percent_encoding::percent_decode_str;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// One that was written since is left alone: its stack may be starting again just now, or another call be writing.
const YOUNG: Duration = Duration::from_secs(24 * 3_600);

/// Removes the histories of stacks that are gone. One that cannot be removed is in nobody's way.
pub fn remove(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(stack) = name.to_str().and_then(stack_of) else { continue };
        let written = entry.metadata().and_then(|meta| meta.modified());
        let age = written.ok().and_then(|written| SystemTime::now().duration_since(written).ok());
        if age.is_some_and(|age| age > YOUNG) && is_gone(stack) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The stack that a file of this name is about. What a call was writing when it was ended has the number of its process behind that.
fn stack_of(name: &str) -> Option<&str> {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let whole = name.rsplit_once('.').filter(|(_, last)| is_number(last)).map_or(name, |(before, _)| before);
    whole.strip_suffix(ENDING)
}

/// Nobody answers where it had its control socket. Whatever else is in the way says nothing of it.
fn is_gone(stack: &str) -> bool {
    let path: Vec<u8> = percent_decode_str(stack).collect();
    let path = Path::new(OsStr::from_bytes(&path));
    path.is_absolute() && matches!(Client::connect(path), Err(AskError::NoStack(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_is_about() {
        for name in ["%2Frun%2Fx.sock.nstat.json", "%2Frun%2Fx.sock.nstat.json.4711"] {
            assert_eq!(stack_of(name), Some("%2Frun%2Fx.sock"));
        }
        for other in ["lw0.sock", "notes.json", "nstat.json.old", "x.nstat.json.bak"] {
            assert_eq!(stack_of(other), None, "{other}");
        }
        assert!(!is_gone("x.sock"), "nobody knows where that was");
    }
}
