//! Owns the answer: which status, which fields. What is asked for goes in, a head goes out.

use super::files::Stamp;
use super::range::{self, Asked};
use super::request::Request;
use std::io::Write;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The statuses that this server uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Status {
    Ok,
    PartialContent,
    MovedPermanently,
    NotModified,
    BadRequest,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    ContentTooLarge,
    UriTooLong,
    RangeNotSatisfiable,
    FieldsTooLarge,
    InternalServerError,
    NotImplemented,
    ServiceUnavailable,
    VersionNotSupported,
}

impl Status {
    /// Number and reason.
    pub fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::PartialContent => "206 Partial Content",
            Status::MovedPermanently => "301 Moved Permanently",
            Status::NotModified => "304 Not Modified",
            Status::BadRequest => "400 Bad Request",
            Status::Forbidden => "403 Forbidden",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::RequestTimeout => "408 Request Timeout",
            Status::ContentTooLarge => "413 Content Too Large",
            Status::UriTooLong => "414 URI Too Long",
            Status::RangeNotSatisfiable => "416 Range Not Satisfiable",
            Status::FieldsTooLarge => "431 Request Header Fields Too Large",
            Status::InternalServerError => "500 Internal Server Error",
            Status::NotImplemented => "501 Not Implemented",
            Status::ServiceUnavailable => "503 Service Unavailable",
            Status::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// The parts of a head that are the same for every answer to one request.
#[derive(Clone, Copy)]
pub struct Manner<'a> {
    /// The value of `Date`.
    pub date: &'a str,
    /// The connection goes on.
    pub keep_alive: bool,
    /// The client must be told so.
    pub is_http10: bool,
}

/// Which bytes of a file are the body, and under which status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selected {
    /// The status.
    pub status: Status,
    /// The bytes; empty without a body.
    pub bytes: Range<u64>,
}

/// Conditions and ranges, in the order of RFC 9110 section 13.2.2.
pub fn select(request: &Request<'_>, stamp: &Stamp) -> Selected {
    let status = |status| Selected { status, bytes: 0..0 };
    match (request.if_none_match, request.if_modified_since) {
        (Some(tags), _) => {
            if has_tag(tags, &stamp.etag) {
                return status(Status::NotModified);
            }
        }
        (None, Some(since)) => {
            let since = std::str::from_utf8(since).ok().and_then(|text| httpdate::parse_http_date(text).ok());
            if since.is_some_and(|since| whole_seconds(stamp.modified) <= since) {
                return status(Status::NotModified);
            }
        }
        (None, None) => {}
    }
    let asked = match request.if_range {
        Some(validator) if !is_current(validator, stamp) => Asked::All,
        _ => range::parse(request.range, stamp.len),
    };
    match asked {
        Asked::All => Selected { status: Status::Ok, bytes: 0..stamp.len },
        Asked::Part(bytes) => Selected { status: Status::PartialContent, bytes },
        Asked::Unsatisfiable => status(Status::RangeNotSatisfiable),
    }
}

/// Weak comparison (RFC 9110 section 8.8.3.2) with each tag of a list.
fn has_tag(list: &[u8], etag: &str) -> bool {
    list.split(|b| *b == b',')
        .map(<[u8]>::trim_ascii)
        .any(|tag| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes())
}

/// Strong comparison, by tag or by date (RFC 9110 section 13.1.5).
fn is_current(validator: &[u8], stamp: &Stamp) -> bool {
    if validator.starts_with(b"\"") {
        return validator == stamp.etag.as_bytes();
    }
    let date = std::str::from_utf8(validator).ok().and_then(|text| httpdate::parse_http_date(text).ok());
    date.is_some_and(|date| date == whole_seconds(stamp.modified))
}

fn whole_seconds(time: SystemTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Writes the head of an answer with a file, or with a part of it.
pub fn file_head(out: &mut Vec<u8>, selected: &Selected, stamp: &Stamp, mime: &str, manner: &Manner<'_>) {
    begin(out, selected.status, manner);
    field(out, "ETag", &stamp.etag);
    field(out, "Last-Modified", &stamp.modified_text);
    if selected.status == Status::NotModified {
        return out.extend_from_slice(b"\r\n");
    }
    let Range { start, end } = selected.bytes;
    if selected.status == Status::PartialContent {
        let _ = write!(out, "Content-Range: bytes {start}-{}/{}\r\n", end - 1, stamp.len);
    }
    out.extend_from_slice(b"Accept-Ranges: bytes\r\n");
    field(out, "Content-Type", mime);
    let _ = write!(out, "Content-Length: {}\r\n\r\n", end - start);
}

/// Writes the head of an answer whose body is `len` bytes made by us.
pub fn page_head(
    out: &mut Vec<u8>,
    status: Status,
    mime: &str,
    len: usize,
    extra: &[(&str, &str)],
    manner: &Manner<'_>,
) {
    begin(out, status, manner);
    for (name, value) in extra {
        field(out, name, value);
    }
    field(out, "Content-Type", mime);
    let _ = write!(out, "Content-Length: {len}\r\n\r\n");
}

fn begin(out: &mut Vec<u8>, status: Status, manner: &Manner<'_>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.line().as_bytes());
    out.extend_from_slice(b"\r\nServer: laneway\r\nDate: ");
    out.extend_from_slice(manner.date.as_bytes());
    out.extend_from_slice(b"\r\nX-Content-Type-Options: nosniff\r\n");
    if !manner.keep_alive {
        field(out, "Connection", "close");
    } else if manner.is_http10 {
        field(out, "Connection", "keep-alive");
    }
}

fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}
