//! Owns the page that shows what is in a directory.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Dir, FileType, statat};
use std::fmt::Write;

/// Names that a page shows at most.
const NAMES_MAX: usize = 10_000;

/// What needs no encoding in a path segment.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The page for an open directory that was asked for as `target`. Hidden files are not shown.
pub fn page(directory: BorrowedFd<'_>, target: &[u8]) -> Result<String, rustix::io::Errno> {
    let mut names: Vec<(Vec<u8>, bool, u64)> = Vec::new();
    let mut more = false;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes().starts_with(b".") {
            continue;
        }
        if names.len() == NAMES_MAX {
            more = true;
            break;
        }
        // What a link points to may lie outside, and its properties are nobody's business.
        let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        names.push((name.to_bytes().to_vec(), is_directory, stat.st_size as u64));
    }
    names.sort_by(|a, b| (!a.1, &a.0).cmp(&(!b.1, &b.0)));
    let title = escape(&percent_decode(target).decode_utf8_lossy());
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title></head><body>\n<h1>{title}</h1>\n<table>\n"
    );
    if target != b"/" {
        page += "<tr><td><a href=\"../\">../</a></td><td></td></tr>\n";
    }
    for (name, is_directory, size) in names {
        let slash = if is_directory { "/" } else { "" };
        let text = escape(&String::from_utf8_lossy(&name));
        let _ =
            write!(page, "<tr><td><a href=\"./{}{slash}\">{text}{slash}</a></td><td>", percent_encode(&name, SEGMENT));
        page += &if is_directory { String::new() } else { size.to_string() };
        page += "</td></tr>\n";
    }
    page += "</table>\n";
    if more {
        let _ = writeln!(page, "<p>and more: only {NAMES_MAX} names are shown</p>");
    }
    page += "</body></html>\n";
    Ok(page)
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}
