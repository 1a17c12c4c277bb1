//! Owns that what others say stays text on a terminal: names and sentences of a stack may be anybody's, and a terminal obeys control
//! characters.

use std::fmt::{self, Write};

/// Writes control characters as JSON does, `\u001b`, except the ends of lines and tabs. The form is one for people and for JSON, in
/// which some of them may stand as they are.
pub struct Plain<W>(pub W);

impl<W: Write> Write for Plain<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| c.is_control() && !matches!(c, '\n' | '\t')) {
            self.0.write_str(&rest[..at])?;
            write!(self.0, "\\u{:04x}", u32::from(c))?;
            rest = &rest[at + c.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_spelt_out() {
        let said = |text: &str| {
            let mut said = String::new();
            Plain(&mut said).write_str(text).expect("a string takes anything");
            said
        };
        assert_eq!(said("käse\tand\n日本"), "käse\tand\n日本");
        assert_eq!(said("\x1b]0;x\x07a\r\u{9b}2J\x7f"), r"\u001b]0;x\u0007a\u000d\u009b2J\u007f");
    }
}
