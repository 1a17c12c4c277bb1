//! Owns the pages that show what is in a directory: makes them, keeps them for a moment, and bounds what they cost a lane.
//!
//! A page is made on the lane, so it looks at a bounded number of names, and asks of each only what the directory itself
//! says: not its size, for which a disk might have to be read. Everybody who asks meanwhile shares one page. Whoever takes
//! it slowly holds it for long, and the directory may change again and again: so the bytes of all pages are bounded too.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::Errno;
use std::fmt::Write;
use std::sync::Arc;

/// Names that a page shows at most.
const NAMES_MAX: usize = 1_000;
/// Names that are looked at for a page, hidden ones too.
const LOOKS_MAX: usize = 4 * NAMES_MAX;
/// How long a page is believed to be current, in microseconds.
const FRESH_US: u64 = 500_000;
/// Bytes of pages that a lane has at a time, kept or under way.
pub const PAGES_MAX: usize = 8 << 20;
/// What a page counts at least, so that there are not too many small ones to look through.
const COST_MIN: usize = 4_096;

/// What needs no encoding in a path segment.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

struct Page {
    /// Of the directory, beneath the one that is served. Its other spellings lead here too.
    path: Box<[u8]>,
    bytes: Arc<[u8]>,
    /// Believed to be current until then.
    fresh_until_us: u64,
}

impl Page {
    fn cost(&self) -> usize {
        self.bytes.len().max(COST_MIN)
    }

    /// Some connection is still being sent it.
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.bytes) > 1
    }
}

/// The pages of one lane: those that are current, and those that somebody still takes.
#[derive(Default)]
pub struct Pages {
    all: Vec<Page>,
}

impl Pages {
    /// The page for the directory at `path`, if there is one that is current.
    pub fn fresh(&self, path: &[u8], now_us: u64) -> Option<Arc<[u8]>> {
        let found = self.all.iter().find(|page| now_us < page.fresh_until_us && *page.path == *path);
        found.map(|page| Arc::clone(&page.bytes))
    }

    /// Makes the page for an open directory. `NOMEM`: too much of others is under way.
    pub fn make(&mut self, directory: BorrowedFd<'_>, path: &[u8], now_us: u64) -> Result<Arc<[u8]>, Errno> {
        let cost = |pages: &[Page]| pages.iter().map(Page::cost).sum::<usize>();
        self.all.retain(|page| page.is_held() || now_us < page.fresh_until_us);
        if cost(&self.all) >= PAGES_MAX {
            self.all.retain(Page::is_held);
        }
        if cost(&self.all) >= PAGES_MAX {
            return Err(Errno::NOMEM);
        }
        let bytes = page(directory, path)?;
        let fresh_until_us = now_us + FRESH_US;
        // Who still takes a page of a directory that has not changed shares it with those who come.
        let same = self.all.iter_mut().find(|page| *page.path == *path && *page.bytes == *bytes.as_bytes());
        if let Some(page) = same {
            page.fresh_until_us = fresh_until_us;
            return Ok(Arc::clone(&page.bytes));
        }
        let bytes: Arc<[u8]> = bytes.into_bytes().into();
        self.all.push(Page { path: path.into(), bytes: Arc::clone(&bytes), fresh_until_us });
        Ok(bytes)
    }
}

/// The page for an open directory at `path`. Hidden files are not shown.
fn page(directory: BorrowedFd<'_>, path: &[u8]) -> Result<String, Errno> {
    let mut names: Vec<(bool, Vec<u8>)> = Vec::new();
    let mut more = false;
    let entries = Dir::read_from(directory)?.filter(|entry| {
        // The two that every directory has.
        !entry.as_ref().is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
    });
    for (looks, entry) in entries.enumerate() {
        let entry = entry?;
        if looks == LOOKS_MAX || names.len() == NAMES_MAX {
            more = true;
            break;
        }
        let name = entry.file_name();
        if name.to_bytes().starts_with(b".") {
            continue;
        }
        let kind = match entry.file_type() {
            // A file system that keeps kinds elsewhere. What a link points to may lie outside, and is nobody's business.
            FileType::Unknown => match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(_) => continue,
            },
            kind => kind,
        };
        names.push((kind != FileType::Directory, name.to_bytes().to_vec()));
    }
    names.sort();
    let slash = if path.is_empty() { "" } else { "/" };
    let title = escape(&format!("/{}{slash}", String::from_utf8_lossy(path)));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title></head><body>\n<h1>{title}</h1>\n<ul>\n"
    );
    if !path.is_empty() {
        page += "<li><a href=\"../\">../</a></li>\n";
    }
    for (is_file, name) in &names {
        let slash = if *is_file { "" } else { "/" };
        let text = escape(&String::from_utf8_lossy(name));
        let _ = writeln!(page, "<li><a href=\"./{}{slash}\">{text}{slash}</a></li>", percent_encode(name, SEGMENT));
    }
    page += "</ul>\n";
    if more {
        let _ = writeln!(page, "<p>and more: only {} names are shown</p>", names.len());
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
            c if c.is_control() => out.push('\u{fffd}'), // a terminal may show the page as it is, and would obey
            c => out.push(c),
        }
    }
    out
}
