//! Owns the text protocol: what a line asks for, what is answered, and in which words memcached's clients are told that something
//! is wrong (memcached's `protocol.txt`).

use super::store::{Counted, Store, Stored, When};
use std::io::Write;

/// Longest key.
const KEY_MAX: usize = 250;
/// Longest value.
pub const VALUE_MAX: usize = 1 << 20;
/// Longest line. memcached's limit is the same, but for `get` with many keys.
pub const LINE_MAX: usize = 2_048;
/// An answer that grows beyond this is cut short by an error: one line may name the longest value many times.
const ANSWER_MAX: usize = 8 << 20;

/// How far a look at the input came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// So many bytes were a command; its answer has been written.
    Done(usize),
    /// What there is, is not yet a command.
    More,
    /// So many bytes of a value that is too long are to be passed over.
    Swallow(usize),
    /// The client says goodbye, or talks something else: close.
    Close,
}

const BAD_LINE: &[u8] = b"CLIENT_ERROR bad command line format\r\n";

/// Does the first command of `input`, if it is there whole.
pub fn step(input: &[u8], store: &Store, out: &mut Vec<u8>) -> Step {
    let Some(end) = input.iter().take(LINE_MAX).position(|byte| *byte == b'\n') else {
        if input.len() < LINE_MAX {
            return Step::More;
        }
        out.extend_from_slice(b"CLIENT_ERROR line too long\r\n");
        return Step::Close;
    };
    let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let command = words.next().unwrap_or(b"");
    let rest: Vec<&[u8]> = words.take(LINE_MAX).collect();
    match command {
        b"get" => read(&rest, store, /* with_cas= */ false, out),
        b"gets" => read(&rest, store, /* with_cas= */ true, out),
        b"set" | b"add" | b"replace" | b"cas" => return write(command, &rest, &input[end + 1..], end + 1, store, out),
        b"delete" => delete(&rest, store, out),
        b"incr" => count(&rest, store, /* up= */ true, out),
        b"decr" => count(&rest, store, /* up= */ false, out),
        b"version" => out.extend_from_slice(concat!("VERSION laneway-", env!("CARGO_PKG_VERSION"), "\r\n").as_bytes()),
        b"verbosity" if (1..=2).contains(&rest.len()) => say(&rest, b"OK\r\n", out),
        b"quit" => return Step::Close,
        _ => out.extend_from_slice(b"ERROR\r\n"),
    }
    Step::Done(end + 1)
}

/// Unless the line ends with `noreply`.
fn say(words: &[&[u8]], answer: &[u8], out: &mut Vec<u8>) {
    if words.last() != Some(&&b"noreply"[..]) {
        out.extend_from_slice(answer);
    }
}

fn is_key(key: &[u8]) -> bool {
    (1..=KEY_MAX).contains(&key.len()) && key.iter().all(|byte| *byte > b' ' && *byte != 0x7f)
}

fn number<N: std::str::FromStr>(word: &[u8]) -> Option<N> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn read(keys: &[&[u8]], store: &Store, with_cas: bool, out: &mut Vec<u8>) {
    if keys.is_empty() {
        return out.extend_from_slice(b"ERROR\r\n");
    }
    if !keys.iter().all(|key| is_key(key)) {
        return out.extend_from_slice(BAD_LINE);
    }
    let began = out.len();
    for key in keys {
        store.get(key, |item| {
            out.extend_from_slice(b"VALUE ");
            out.extend_from_slice(key);
            // A vector takes everything.
            let _ = write!(out, " {} {}", item.flags, item.data.len());
            if with_cas {
                let _ = write!(out, " {}", item.cas);
            }
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(&item.data);
            out.extend_from_slice(b"\r\n");
        });
        if out.len() - began > ANSWER_MAX {
            out.truncate(began);
            return out.extend_from_slice(b"SERVER_ERROR out of memory writing get response\r\n");
        }
    }
    out.extend_from_slice(b"END\r\n");
}

fn write(command: &[u8], words: &[&[u8]], after: &[u8], line_len: usize, store: &Store, out: &mut Vec<u8>) -> Step {
    let is_cas = command == b"cas";
    let fields = if is_cas { 5 } else { 4 };
    let noreply = words.len() == fields + 1 && words[fields] == b"noreply";
    if words.len() != fields && !noreply {
        out.extend_from_slice(b"ERROR\r\n");
        return Step::Done(line_len);
    }
    let parsed = (number::<u32>(words[1]), number::<i64>(words[2]), number::<usize>(words[3]));
    let cas = if is_cas { number::<u64>(words[4]) } else { Some(0) };
    let (Some(flags), Some(exptime), Some(len)) = parsed else {
        out.extend_from_slice(BAD_LINE);
        return Step::Done(line_len);
    };
    if len > VALUE_MAX {
        out.extend_from_slice(b"SERVER_ERROR object too large for cache\r\n");
        // Nobody waits for more than that: it is no longer this protocol.
        return if len <= 1 << 30 { Step::Swallow(line_len + len + 2) } else { Step::Close };
    }
    // As memcached does: what follows such a line is looked at as if it were commands.
    let (Some(cas), true) = (cas, is_key(words[0])) else {
        out.extend_from_slice(BAD_LINE);
        return Step::Done(line_len);
    };
    let Some(block) = after.get(..len + 2) else { return Step::More };
    if &block[len..] != b"\r\n" {
        out.extend_from_slice(b"CLIENT_ERROR bad data chunk\r\n");
        // So long a text was announced, and what follows it is a command.
        return Step::Done(line_len + len + 2);
    }
    let when = match command {
        b"add" => When::Absent,
        b"replace" => When::Present,
        b"cas" => When::Unchanged(cas),
        _ => When::Always,
    };
    let answer: &[u8] = match store.set(words[0], flags, exptime, &block[..len], when) {
        Stored::Yes => b"STORED\r\n",
        Stored::No => b"NOT_STORED\r\n",
        Stored::Exists => b"EXISTS\r\n",
        Stored::NotFound => b"NOT_FOUND\r\n",
        Stored::NoRoom => b"SERVER_ERROR out of memory storing object\r\n",
    };
    if !noreply {
        out.extend_from_slice(answer);
    }
    Step::Done(line_len + len + 2)
}

fn delete(words: &[&[u8]], store: &Store, out: &mut Vec<u8>) {
    match words {
        [] | [_, _, _, _, ..] => out.extend_from_slice(b"ERROR\r\n"),
        [_] | [_, b"0"] | [_, b"noreply"] | [_, b"0", b"noreply"] if !is_key(words[0]) => {
            out.extend_from_slice(BAD_LINE);
        }
        [key] | [key, b"0"] | [key, b"noreply"] | [key, b"0", b"noreply"] => {
            let answer: &[u8] = if store.delete(key) { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" };
            say(words, answer, out);
        }
        _ => out.extend_from_slice(b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"),
    }
}

fn count(words: &[&[u8]], store: &Store, up: bool, out: &mut Vec<u8>) {
    let ([key, by] | [key, by, b"noreply"]) = words else { return out.extend_from_slice(b"ERROR\r\n") };
    if !is_key(key) {
        return out.extend_from_slice(BAD_LINE);
    }
    let Some(by) = number::<u64>(by) else {
        return out.extend_from_slice(b"CLIENT_ERROR invalid numeric delta argument\r\n");
    };
    let answer = match store.count(key, by, up) {
        Counted::Now(number) => format!("{number}\r\n"),
        Counted::NotFound => "NOT_FOUND\r\n".to_owned(),
        Counted::NotANumber => "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".to_owned(),
    };
    say(words, answer.as_bytes(), out);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that a client sends, in one go; what it is answered.
    fn talk(store: &Store, mut input: &[u8]) -> String {
        let mut out = Vec::new();
        while !input.is_empty() {
            match step(input, store, &mut out) {
                Step::Done(n) => input = &input[n..],
                Step::Swallow(n) => input = input.get(n..).unwrap_or(&[]),
                Step::More => panic!("not whole: {}", String::from_utf8_lossy(input)),
                Step::Close => break,
            }
        }
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn what_was_set_is_got_and_what_was_deleted_is_not() {
        let store = Store::new(1 << 20);
        assert_eq!(talk(&store, b"set a 7 0 5\r\nhello\r\nget a b\r\n"), "STORED\r\nVALUE a 7 5\r\nhello\r\nEND\r\n");
        assert_eq!(talk(&store, b"gets a\r\n"), "VALUE a 7 5 1\r\nhello\r\nEND\r\n");
        assert_eq!(
            talk(&store, b"cas a 0 0 1 9\r\nx\r\ncas a 0 0 1 1\r\nx\r\ncas b 0 0 1 1\r\nx\r\n"),
            "EXISTS\r\nSTORED\r\nNOT_FOUND\r\n"
        );
        assert_eq!(talk(&store, b"add a 0 0 1\r\ny\r\nreplace b 0 0 1\r\ny\r\n"), "NOT_STORED\r\nNOT_STORED\r\n");
        assert_eq!(talk(&store, b"delete a\r\ndelete a\r\nget a\r\n"), "DELETED\r\nNOT_FOUND\r\nEND\r\n");
        assert_eq!(
            talk(&store, b"set n 0 0 2 noreply\r\n41\r\nincr n 1\r\ndecr n 50\r\nincr a 1\r\n"),
            "42\r\n0\r\nNOT_FOUND\r\n"
        );
        assert_eq!(talk(&store, b"set a 0 -1 1\r\nx\r\nget a\r\n"), "STORED\r\nEND\r\n", "expired at once");
        assert!(talk(&store, b"version\r\nquit\r\nget a\r\n").starts_with("VERSION laneway-"));
        assert_eq!(talk(&store, b"get n\nquit\n"), "VALUE n 0 1\r\n0\r\nEND\r\n", "a bare line feed will do");
    }

    #[test]
    fn what_is_wrong_is_said_in_the_words_that_clients_know() {
        let store = Store::new(1 << 12);
        let long = [b"get ".as_slice(), &[b'k'; 251], b"\r\n"].concat();
        let huge = [b"set a 0 0 2000000\r\n".as_slice(), &vec![b'x'; 2_000_000], b"\r\nversion\r\n"].concat();
        let much = [b"set a 0 0 5000\r\n".as_slice(), &[b'x'; 5_000], b"\r\n"].concat();
        for (sent, answer) in [
            (b"flush\r\n".as_slice(), "ERROR\r\n"),
            (b"\r\n", "ERROR\r\n"),
            (b"get\r\n", "ERROR\r\n"),
            (b"set a 0 0\r\n", "ERROR\r\n"),
            (b"set a x 0 1\r\n", "CLIENT_ERROR bad command line format\r\n"),
            (b"set a 0 0 -1\r\n", "CLIENT_ERROR bad command line format\r\n"),
            (b"set a 0 0 1\r\nxyz\r\nversions\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\nERROR\r\n"),
            (b"delete a 10\r\n", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"),
            (b"delete a b c d\r\n", "ERROR\r\n"),
            (b"verbosity\r\n", "ERROR\r\n"),
            (b"cas a 0 0 1 z\r\nversions\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
            (b"incr a b\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"),
            (
                b"set a 0 0 1\r\nx\r\nincr a 1\r\n",
                "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            ),
            (&long, "CLIENT_ERROR bad command line format\r\n"),
            (&[b'x'; 4_000], "CLIENT_ERROR line too long\r\n"),
            (&much, "SERVER_ERROR out of memory storing object\r\n"),
        ] {
            assert_eq!(talk(&store, sent), answer, "{}", String::from_utf8_lossy(&sent[..sent.len().min(60)]));
        }
        assert!(talk(&store, &huge).starts_with("SERVER_ERROR object too large for cache\r\nVERSION"));
    }

    #[test]
    fn half_a_command_waits_for_its_other_half() {
        let store = Store::new(1 << 20);
        let whole = b"set a 0 0 5\r\nhello\r\n";
        for cut in 0..whole.len() {
            let mut out = Vec::new();
            assert_eq!((step(&whole[..cut], &store, &mut out), out.len()), (Step::More, 0));
        }
        assert_eq!(step(whole, &store, &mut Vec::new()), Step::Done(whole.len()));
    }
}
