//! Owns the difference between code and what only looks like it: comments and literals.

#[cfg(test)]
mod tests;

/// The code of a Rust file with every comment, string and character blanked out, line by line. Lengths do not change,
/// so a place in the result is the same place in the file.
pub fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => end_of_line(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => end_of_block_comment(bytes, at),
            b'"' => end_of_string(bytes, at),
            b'r' | b'b' | b'c' if !is_word_before(bytes, at) => match end_of_prefixed(bytes, at) {
                Some(end) => end,
                None => {
                    at = end_of_word(bytes, at);
                    continue;
                }
            },
            b'\'' => match end_of_char(bytes, at) {
                Some(end) => end,
                None => {
                    at += 1; // a lifetime
                    continue;
                }
            },
            byte if is_word(byte) => {
                at = end_of_word(bytes, at);
                continue;
            }
            _ => {
                at += 1;
                continue;
            }
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    // Only whole literals and comments were overwritten, with spaces; what is left is the old text.
    String::from_utf8_lossy(&out).into_owned()
}

/// The words of a line of code (`[A-Za-z0-9_]+`), with where they begin.
pub fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = line.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && !is_word(bytes[at]) {
            at += 1;
        }
        let start = at;
        at = end_of_word(bytes, at);
        (start < at).then(|| (start, &line[start..at]))
    })
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_word_before(bytes: &[u8], at: usize) -> bool {
    at > 0 && is_word(bytes[at - 1])
}

fn end_of_word(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| !is_word(*byte)).map_or(bytes.len(), |n| at + n)
}

fn end_of_line(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |n| at + n)
}

/// Block comments nest.
fn end_of_block_comment(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// `r"…"`, `r#"…"#`, `b"…"`, `br"…"`, `c"…"`, `b'…'`.
fn end_of_prefixed(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    while at < bytes.len() && matches!(bytes[at], b'r' | b'b' | b'c') {
        at += 1;
    }
    let raw = bytes[start..at].contains(&b'r');
    let hashes = bytes[at..].iter().take_while(|byte| **byte == b'#').count();
    match bytes.get(at + hashes) {
        Some(b'"') if raw => {
            let closing: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
            let body = at + hashes + 1;
            let found = bytes[body..].windows(closing.len()).position(|window| window == closing);
            Some(found.map_or(bytes.len(), |n| body + n + closing.len()))
        }
        Some(b'"') if hashes == 0 => Some(end_of_string(bytes, at)),
        Some(b'\'') if hashes == 0 && &bytes[start..at] == b"b" => end_of_char(bytes, at),
        _ => None,
    }
}

/// `'x'` and `'\n'`, but not the lifetime `'a`.
fn end_of_char(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        let closing = bytes[at + 3..].iter().position(|byte| *byte == b'\'')?;
        return Some(at + 3 + closing + 1);
    }
    // One character, of up to four bytes, and the closing quote.
    let rest = std::str::from_utf8(bytes.get(at + 1..)?).ok()?;
    let length = rest.chars().next()?.len_utf8();
    (bytes.get(at + 1 + length) == Some(&b'\'')).then_some(at + length + 2)
}
