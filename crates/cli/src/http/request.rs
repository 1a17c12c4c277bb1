//! Owns what a client asks for: the head of a request (RFC 9112), of which only what a static server needs is kept.

use super::respond::Status;
use std::borrow::Cow;
use std::net::Ipv6Addr;

/// The longest head, request line included, in bytes.
pub const HEAD_MAX: usize = 8_192;
/// The most fields.
const FIELDS_MAX: usize = 64;
/// The longest body that is read over, in bytes.
const BODY_MAX: u64 = 1 << 20;

/// A request that can be answered.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// HEAD: the answer has no body.
    pub head_only: bool,
    /// The target as it was written, without query: what a cache may be asked for.
    pub target: &'a [u8],
    /// The query with its question mark, or nothing. Whoever is sent elsewhere takes it along.
    pub query: &'a [u8],
    /// The connection goes on after the answer.
    pub keep_alive: bool,
    /// The client speaks HTTP/1.0, and must be told that the connection goes on.
    pub is_http10: bool,
    /// Bytes of body that follow the head, and are not looked at.
    pub body_len: u64,
    /// `Range`.
    pub range: Option<&'a [u8]>,
    /// `If-Range`.
    pub if_range: Option<&'a [u8]>,
    /// `If-Match`, all lines of it.
    pub if_match: Option<Cow<'a, [u8]>>,
    /// `If-Unmodified-Since`.
    pub if_unmodified_since: Option<&'a [u8]>,
    /// `If-None-Match`, all lines of it.
    pub if_none_match: Option<Cow<'a, [u8]>>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<&'a [u8]>,
}

/// What the bytes turned out to be.
#[derive(Clone, Debug)]
pub enum Read<'a> {
    /// A whole head, so many bytes long.
    Request(Request<'a>, usize),
    /// A whole head that is answered with an error; the connection may go on after `body_len` bytes if that is `Some`.
    Refused(Refusal, usize),
    /// Not a whole head yet.
    Partial,
    /// Nothing that can be understood: answer and close.
    Bad(Bad),
}

/// A request that is understood, and refused.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// Why.
    pub status: Status,
    /// HEAD: the answer has no body.
    pub head_only: bool,
    /// The connection goes on after this many bytes of body.
    pub body_len: Option<u64>,
    /// The client speaks HTTP/1.0.
    pub is_http10: bool,
}

/// What is no request, as far as it can be told.
#[derive(Clone, Copy, Debug)]
pub struct Bad {
    /// What is wrong.
    pub status: Status,
    /// It begins as HEAD does: the answer has no body.
    pub head_only: bool,
}

impl Bad {
    /// Of these bytes.
    pub fn new(status: Status, bytes: &[u8]) -> Bad {
        Bad { status, head_only: bytes.trim_ascii_start().starts_with(b"HEAD ") }
    }
}

/// Reads the head of a request.
pub fn read(bytes: &[u8]) -> Read<'_> {
    let bad = |status| Read::Bad(Bad::new(status, bytes));
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let kept = &bytes[..bytes.len().min(HEAD_MAX + 1)];
    let mut later;
    let parsed = match head.parse(kept) {
        Err(httparse::Error::Version) => {
            later = [httparse::EMPTY_HEADER; FIELDS_MAX];
            parse_later(kept, &mut head, &mut later)
        }
        parsed => parsed,
    };
    let len = match parsed {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() > HEAD_MAX => return bad(too_long(bytes)),
        Ok(httparse::Status::Partial) => return Read::Partial,
        Err(httparse::Error::TooManyHeaders) => return bad(Status::FieldsTooLarge),
        Err(httparse::Error::Version) if is_version(behind_target(kept, &head)) => {
            return bad(Status::VersionNotSupported);
        }
        Err(_) => return bad(Status::BadRequest),
    };
    if len > HEAD_MAX {
        return bad(too_long(bytes));
    }
    let method = head.method.unwrap_or("");
    let head_only = method == "HEAD";
    let is_http10 = head.version == Some(0);
    let mut request = Request {
        head_only,
        target: head.path.unwrap_or("").as_bytes(),
        query: b"",
        keep_alive: !is_http10,
        is_http10,
        body_len: 0,
        range: None,
        if_range: None,
        if_match: None,
        if_unmodified_since: None,
        if_none_match: None,
        if_modified_since: None,
    };
    let (mut hosts, mut is_host, mut lengths, mut codings, mut closes) = (0, true, 0, None, false);
    let mut expects = false;
    for field in head.headers.iter() {
        let value = field.value.trim_ascii();
        match field.name.len() {
            4 if field.name.eq_ignore_ascii_case("host") => {
                hosts += 1;
                is_host &= host(value).is_some();
            }
            5 if field.name.eq_ignore_ascii_case("range") => request.range = Some(value),
            6 if field.name.eq_ignore_ascii_case("expect") => expects |= value.eq_ignore_ascii_case(b"100-continue"),
            8 if field.name.eq_ignore_ascii_case("if-match") => list(&mut request.if_match, value),
            8 if field.name.eq_ignore_ascii_case("if-range") => request.if_range = Some(value),
            10 if field.name.eq_ignore_ascii_case("connection") => {
                for option in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                    closes |= option.eq_ignore_ascii_case(b"close");
                    request.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            13 if field.name.eq_ignore_ascii_case("if-none-match") => list(&mut request.if_none_match, value),
            14 if field.name.eq_ignore_ascii_case("content-length") => {
                lengths += 1;
                let digits =
                    std::str::from_utf8(value).ok().filter(|v| !v.is_empty() && v.bytes().all(|b| b.is_ascii_digit()));
                let Some(digits) = digits else { return bad(Status::BadRequest) };
                request.body_len = digits.parse().unwrap_or(u64::MAX);
            }
            17 if field.name.eq_ignore_ascii_case("if-modified-since") => request.if_modified_since = Some(value),
            19 if field.name.eq_ignore_ascii_case("if-unmodified-since") => request.if_unmodified_since = Some(value),
            17 if field.name.eq_ignore_ascii_case("transfer-encoding") => list(&mut codings, value),
            _ => {}
        }
    }
    // RFC 9112 section 9.3: who says both wants it closed, in whatever order.
    request.keep_alive &= !closes;
    // Who closes behind the answer need not know where a body in chunks ends, and cannot be made to see it elsewhere than a proxy does.
    let is_coded = codings.is_some();
    request.keep_alive &= !is_coded;
    // RFC 9110 section 10.1.1: who asks first whether to send a body, and has an answer, may send it or not. What comes next would be read
    // over as the body, or answered as a request, and it may be the other of the two.
    request.keep_alive &= !expects || request.body_len == 0;
    // RFC 9112 section 3.2: exactly one Host, that can be one. Two lengths, or a length and a coding, are how requests are smuggled.
    if (!is_http10 && hosts != 1) || hosts > 1 || !is_host || lengths > 1 || (is_coded && lengths > 0) {
        return bad(Status::BadRequest);
    }
    if codings.as_deref().is_some_and(|codings| !last_is_chunked(codings)) {
        // RFC 9112 section 6.3: nobody can tell how long its body is.
        return bad(Status::BadRequest);
    }
    let is_read_over = request.body_len <= BODY_MAX;
    let refuse = |status| {
        let body_len = (request.keep_alive && is_read_over).then_some(request.body_len);
        Read::Refused(Refusal { status, head_only, body_len, is_http10 }, len)
    };
    match method {
        "GET" | "HEAD" => {}
        "POST" | "PUT" | "DELETE" | "OPTIONS" | "PATCH" | "TRACE" | "CONNECT" => {
            return refuse(Status::MethodNotAllowed);
        }
        _ => return refuse(Status::NotImplemented),
    }
    // Not before the method: a shorter body, or one that is sent otherwise, would not be taken with a PUT either.
    if !is_read_over {
        return bad(Status::ContentTooLarge);
    }
    if codings.is_some_and(|codings| !codings.eq_ignore_ascii_case(b"chunked")) {
        return bad(Status::NotImplemented);
    }
    match path_and_query(request.target) {
        Some((path, query)) => (request.target, request.query) = (path, query),
        None => return refuse(Status::BadRequest),
    }
    Read::Request(request, len)
}

/// Reads on behind a version that is not known, if it is a later one of HTTP/1 (RFC 9110 section 2.5): as the highest that is.
fn parse_later<'h, 'b>(
    bytes: &'b [u8],
    head: &mut httparse::Request<'h, 'b>,
    fields: &'h mut [httparse::Header<'b>],
) -> httparse::Result<usize> {
    let unknown = Err(httparse::Error::Version);
    let behind = behind_target(bytes, head);
    let version = bytes.len() - behind.len();
    let at = match behind {
        [b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9', b'\r', b'\n', ..] => version + 11,
        [b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9', b'\n', ..] => version + 10,
        // Whether there is another digit, nobody knows before it comes.
        [b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] => return Ok(httparse::Status::Partial),
        [b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9', b'\r'] => return Ok(httparse::Status::Partial),
        _ => return unknown,
    };
    let (len, count) = match httparse::parse_headers(&bytes[at..], fields)? {
        httparse::Status::Complete((len, found)) => (len, found.len()),
        httparse::Status::Partial => return Ok(httparse::Status::Partial),
    };
    (head.version, head.headers) = (Some(1), &mut fields[..count]);
    Ok(httparse::Status::Complete(at + len))
}

/// What stands behind the target, the space before the version first; nothing if there is no target.
fn behind_target<'b>(bytes: &'b [u8], head: &httparse::Request<'_, 'b>) -> &'b [u8] {
    let Some(target) = head.path else { return b"" };
    let at = target.as_ptr().addr() + target.len() - bytes.as_ptr().addr();
    bytes.get(at..).unwrap_or_default()
}

/// Whether this is a version, known or not. What else stands there is the rest of a target with a space in it, mostly, and then its sender
/// must hear of that (RFC 9112 section 3).
fn is_version(behind: &[u8]) -> bool {
    matches!(behind, [b' ', b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', ..])
}

/// A list may come in several lines, which are one (RFC 9110 section 5.2).
fn list<'a>(all: &mut Option<Cow<'a, [u8]>>, line: &'a [u8]) {
    match all {
        None => *all = Some(line.into()),
        Some(all) => all.to_mut().extend([b", ", line].concat()),
    }
}

/// Whether what has these codings says where it ends.
fn last_is_chunked(codings: &[u8]) -> bool {
    codings.rsplit(|b| *b == b',').next().is_some_and(|last| last.trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

fn too_long(bytes: &[u8]) -> Status {
    let line = bytes.iter().take(HEAD_MAX).any(|b| *b == b'\n');
    if line { Status::FieldsTooLarge } else { Status::UriTooLong }
}

/// The host in `name:80`, `10.0.0.1` or `[fd00::1]:80`, which may be empty (RFC 3986 section 3.2.2). `None`: that cannot be one.
fn host(authority: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(authority).ok()?;
    let (host, port) = text.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).unwrap_or((text, ""));
    let is_host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(is_literal),
        None => is_name(host),
    };
    (is_host && port.bytes().all(|b| b.is_ascii_digit())).then_some(host)
}

/// With a zone (RFC 6874), which is the client's affair: the addresses that we say we serve at have one.
fn is_literal(text: &str) -> bool {
    let (address, zone) = text.split_once("%25").unwrap_or((text, ""));
    address.parse::<Ipv6Addr>().is_ok() && is_name(zone)
}

fn is_name(text: &str) -> bool {
    let mut encoded = text.split('%').skip(1).map(|rest| rest.as_bytes().get(..2));
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&b))
        && encoded.all(|digits| digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)))
}

/// The path of a target in origin form (`/a?b`) or absolute form (`http://host/a?b`), and the query.
fn path_and_query(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let target = target.split(|b| *b == b'#').next().unwrap_or(target);
    let rest = if target.first() == Some(&b'/') {
        target
    } else {
        let scheme = target.get(..7).filter(|s| s.eq_ignore_ascii_case(b"http://"))?;
        let rest = &target[scheme.len()..];
        let (authority, rest) = rest.split_at(rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len()));
        // RFC 9110 sections 4.2.1 and 4.2.4: nobody's is none, and a user before it is there to deceive.
        host(authority).filter(|host| !host.is_empty())?;
        rest
    };
    let (path, query) = rest.split_at(rest.iter().position(|b| *b == b'?').unwrap_or(rest.len()));
    Some((if path.is_empty() { b"/" } else { path }, query))
}
