//! Files that become others of the same name, length and time.

use super::*;
use std::fs::File;
use std::time::{SystemTime, UNIX_EPOCH};

impl Shelf {
    /// Writes a file in place, and sets its time as `cp -p`, `tar` and `rsync -t` do.
    fn put(&self, text: &str) {
        let file = self.0.join("file");
        std::fs::write(&file, text).unwrap();
        File::options().write(true).open(&file).unwrap().set_modified(UNIX_EPOCH).unwrap();
    }
}

fn text(found: Found) -> (String, String) {
    match found {
        Found::Small(small) => (String::from_utf8_lossy(&small.bytes).into_owned(), small.stamp.etag.clone()),
        _ => panic!("no small file"),
    }
}

#[test]
fn a_file_that_is_written_anew_is_read_anew() {
    let (shelf, mut files) = Shelf::new("anew");
    // As fast as can be: some of these changes have the same time on the file system's clock.
    for i in 0..500 {
        let content = format!("{i:04}");
        shelf.put(&content);
        assert_eq!(text(files.find(b"/file", i * 1_000_000)).0, content);
    }
}

#[test]
fn another_content_has_another_tag() {
    let (shelf, mut files) = Shelf::new("tags");
    shelf.put("first");
    let first = text(files.find(b"/file", 0));
    std::thread::sleep(Duration::from_millis(50));
    shelf.put("other");
    let other = text(files.find(b"/file", 1_000_000));
    assert!(first.0 != other.0 && first.1 != other.1, "{first:?} {other:?}");
}

#[test]
fn a_file_that_rests_is_not_read_again() {
    let (shelf, mut files) = Shelf::new("rests");
    shelf.put("text");
    let bytes = |found| match found {
        Found::Small(small) => small.bytes,
        _ => panic!("no small file"),
    };
    let began = SystemTime::now();
    let mut now_us = 0;
    let mut last = bytes(files.find(b"/file", now_us));
    let settled = loop {
        std::thread::sleep(Duration::from_millis(100));
        now_us += 1_000_000;
        let next = bytes(files.find(b"/file", now_us));
        if Arc::ptr_eq(&last, &next) {
            break began.elapsed().unwrap();
        }
        assert!(began.elapsed().unwrap() < Duration::from_secs(20));
        last = next;
    };
    assert!(settled > Duration::from_secs(1), "{settled:?}");
}
