//! Owns the list of exceptions: what lies in one line on purpose, each with its reason.
//!
//! One exception a line: a name as `findfalse` prints it, blanks, the reason. A name is a structure's field
//! (`crate::module::Type.field`), a structure, or a variable. Lines that begin with `#` are for readers.

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exception {
    /// What is allowed.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// Fewer words than this are no reason.
const LEAST_WORDS: usize = 3;

/// Reads the list. The error names the line and says what would be right.
pub fn parse(file: &str, text: &str) -> Result<Vec<Exception>, String> {
    let mut exceptions: Vec<Exception> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = format!("{file}:{}", number + 1);
        let (name, reason) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let reason = reason.trim();
        if reason.split_whitespace().count() < LEAST_WORDS {
            return Err(format!("{place}: '{name}' has no reason; write it behind the name, on the same line"));
        }
        if exceptions.iter().any(|exception| exception.name == name) {
            return Err(format!("{place}: '{name}' is there twice; keep one of the two"));
        }
        exceptions.push(Exception { name: name.to_owned(), reason: reason.to_owned() });
    }
    Ok(exceptions)
}
