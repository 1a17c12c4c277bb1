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
    PreconditionFailed,
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
            Status::PreconditionFailed => "412 Precondition Failed",
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
    /// When that was.
    pub now: SystemTime,
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

/// Whether the conditions can be met by what is there: `Ok`, or why there is no body, in the order of RFC 9110 section 13.2.2. What has no
/// stamp is there, too; but no tag is its, and it was changed at no time that is known.
pub fn condition(request: &Request<'_>, stamp: Option<&Stamp>) -> Status {
    let etag = stamp.map(|stamp| stamp.etag.as_bytes());
    let modified = stamp.map(|stamp| whole_seconds(stamp.modified));
    let since = |field| date(field).zip(modified);
    let is_same = match (&request.if_match, request.if_unmodified_since) {
        (Some(tags), _) => is_listed(tags, |tag| Some(tag) == etag),
        (None, Some(field)) => since(field).is_none_or(|(since, modified)| modified <= since),
        (None, None) => true,
    };
    let is_known = match (&request.if_none_match, request.if_modified_since) {
        (Some(tags), _) => is_listed(tags, |tag| Some(tag.strip_prefix(b"W/").unwrap_or(tag)) == etag),
        (None, Some(field)) => since(field).is_some_and(|(since, modified)| modified <= since),
        (None, None) => false,
    };
    match (is_same, is_known) {
        (false, _) => Status::PreconditionFailed,
        (true, true) => Status::NotModified,
        (true, false) => Status::Ok,
    }
}

/// Conditions and ranges of a file.
pub fn select(request: &Request<'_>, stamp: &Stamp) -> Selected {
    let status = |status| Selected { status, bytes: 0..0 };
    let met = condition(request, Some(stamp));
    if met != Status::Ok {
        return status(met);
    }
    let asked = match request.if_range {
        // Section 14.2: a range means something to GET alone.
        _ if request.head_only => Asked::All,
        Some(validator) if !is_current(validator, stamp) => Asked::All,
        _ => range::parse(request.range, stamp.len),
    };
    match asked {
        Asked::All => Selected { status: Status::Ok, bytes: 0..stamp.len },
        Asked::Part(bytes) => Selected { status: Status::PartialContent, bytes },
        Asked::Unsatisfiable => status(Status::RangeNotSatisfiable),
    }
}

/// Whether a list has a tag that is equal, strongly or weakly (RFC 9110 section 8.8.3.2), or is `*`, which equals all. Within
/// its quotes a tag may have commas, and a `*` between them; none of ours has, and what is left of one that was cut there equals none.
fn is_listed(list: &[u8], equal: impl Fn(&[u8]) -> bool) -> bool {
    list == b"*" || list.split(|b| *b == b',').map(<[u8]>::trim_ascii).any(equal)
}

/// A date, if it is one: else its field is to be ignored.
fn date(text: &[u8]) -> Option<SystemTime> {
    std::str::from_utf8(text).ok().and_then(|text| httpdate::parse_http_date(text).ok())
}

/// Strong comparison, by tag or by date (RFC 9110 section 13.1.5).
fn is_current(validator: &[u8], stamp: &Stamp) -> bool {
    if validator.starts_with(b"\"") {
        return validator == stamp.etag.as_bytes();
    }
    date(validator).is_some_and(|date| date == whole_seconds(stamp.modified))
}

fn whole_seconds(time: SystemTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Writes the head of an answer with a file, or with a part of it.
pub fn file_head(out: &mut Vec<u8>, selected: &Selected, stamp: &Stamp, mime: &str, manner: &Manner<'_>) {
    begin(out, selected.status, manner);
    field(out, "ETag", &stamp.etag);
    //= https://www.rfc-editor.org/rfc/rfc9110#section-8.8.2.1
    //# If the last modification time is derived from implementation-specific metadata that evaluates to some time in the future, according to the
    //# origin server's clock, then the origin server MUST replace that value with the message origination date.
    field(out, "Last-Modified", if stamp.modified > manner.now { manner.date } else { &stamp.modified_text });
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
