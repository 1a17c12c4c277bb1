//! Owns what a client asks for: the head of a request (RFC 9112), of which only what a static server needs is kept.

use super::respond::Status;

/// The longest head, request line included, in bytes.
pub const HEAD_MAX: usize = 8_192;
/// The most fields.
const FIELDS_MAX: usize = 64;
/// The longest body that is read over, in bytes.
const BODY_MAX: u64 = 1 << 20;

/// A request that can be answered.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// HEAD: the answer has no body.
    pub head_only: bool,
    /// The target as it was written, without query: what a cache may be asked for.
    pub target: &'a [u8],
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
    /// `If-None-Match`.
    pub if_none_match: Option<&'a [u8]>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<&'a [u8]>,
}

/// What the bytes turned out to be.
#[derive(Clone, Copy, Debug)]
pub enum Read<'a> {
    /// A whole head, so many bytes long.
    Request(Request<'a>, usize),
    /// A whole head that is answered with an error; the connection may go on after `body_len` bytes if that is `Some`.
    Refused(Refusal, usize),
    /// Not a whole head yet.
    Partial,
    /// Nothing that can be understood: answer and close.
    Bad(Status),
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

/// Reads the head of a request.
pub fn read(bytes: &[u8]) -> Read<'_> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let len = match head.parse(&bytes[..bytes.len().min(HEAD_MAX + 1)]) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() > HEAD_MAX => return Read::Bad(too_long(bytes)),
        Ok(httparse::Status::Partial) => return Read::Partial,
        Err(httparse::Error::TooManyHeaders) => return Read::Bad(Status::FieldsTooLarge),
        Err(httparse::Error::Version) => return Read::Bad(Status::VersionNotSupported),
        Err(_) => return Read::Bad(Status::BadRequest),
    };
    if len > HEAD_MAX {
        return Read::Bad(too_long(bytes));
    }
    let method = head.method.unwrap_or("");
    let head_only = method == "HEAD";
    let is_http10 = head.version == Some(0);
    let mut request = Request {
        head_only,
        target: head.path.unwrap_or("").as_bytes(),
        keep_alive: !is_http10,
        is_http10,
        body_len: 0,
        range: None,
        if_range: None,
        if_none_match: None,
        if_modified_since: None,
    };
    let (mut hosts, mut lengths, mut is_coded) = (0, 0, false);
    for field in head.headers.iter() {
        let value = field.value.trim_ascii();
        match field.name.len() {
            4 if field.name.eq_ignore_ascii_case("host") => hosts += 1,
            5 if field.name.eq_ignore_ascii_case("range") => request.range = Some(value),
            8 if field.name.eq_ignore_ascii_case("if-range") => request.if_range = Some(value),
            10 if field.name.eq_ignore_ascii_case("connection") => {
                for option in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                    if option.eq_ignore_ascii_case(b"close") {
                        request.keep_alive = false;
                    } else if option.eq_ignore_ascii_case(b"keep-alive") && is_http10 {
                        request.keep_alive = true;
                    }
                }
            }
            13 if field.name.eq_ignore_ascii_case("if-none-match") => request.if_none_match = Some(value),
            14 if field.name.eq_ignore_ascii_case("content-length") => {
                lengths += 1;
                let digits =
                    std::str::from_utf8(value).ok().filter(|v| !v.is_empty() && v.bytes().all(|b| b.is_ascii_digit()));
                let Some(digits) = digits else { return Read::Bad(Status::BadRequest) };
                request.body_len = digits.parse().unwrap_or(u64::MAX);
            }
            17 if field.name.eq_ignore_ascii_case("if-modified-since") => request.if_modified_since = Some(value),
            17 if field.name.eq_ignore_ascii_case("transfer-encoding") => is_coded = true,
            _ => {}
        }
    }
    // RFC 9112 section 3.2: exactly one Host. Two lengths, or a length and a coding, are how requests are smuggled.
    if (!is_http10 && hosts != 1) || hosts > 1 || lengths > 1 || (is_coded && lengths > 0) {
        return Read::Bad(Status::BadRequest);
    }
    if is_coded {
        return Read::Bad(Status::NotImplemented);
    }
    if request.body_len > BODY_MAX {
        return Read::Bad(Status::ContentTooLarge);
    }
    let refuse = |status| {
        let body_len = request.keep_alive.then_some(request.body_len);
        Read::Refused(Refusal { status, head_only, body_len, is_http10 }, len)
    };
    match method {
        "GET" | "HEAD" => {}
        "POST" | "PUT" | "DELETE" | "OPTIONS" | "PATCH" | "TRACE" | "CONNECT" => {
            return refuse(Status::MethodNotAllowed);
        }
        _ => return refuse(Status::NotImplemented),
    }
    match path_of(request.target) {
        Some(path) => request.target = path,
        None => return refuse(Status::BadRequest),
    }
    Read::Request(request, len)
}

fn too_long(bytes: &[u8]) -> Status {
    let line = bytes.iter().take(HEAD_MAX).any(|b| *b == b'\n');
    if line { Status::FieldsTooLarge } else { Status::UriTooLong }
}

/// The path of a target in origin form (`/a?b`) or absolute form (`http://host/a?b`), without the query.
fn path_of(target: &[u8]) -> Option<&[u8]> {
    let path = if target.first() == Some(&b'/') {
        target
    } else {
        let scheme = target.get(..7).filter(|s| s.eq_ignore_ascii_case(b"http://"))?;
        let rest = &target[scheme.len()..];
        match rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')) {
            Some(at) if rest[at] == b'/' => &rest[at..],
            _ => b"/",
        }
    };
    let end = path.iter().position(|b| matches!(b, b'?' | b'#')).unwrap_or(path.len());
    Some(&path[..end])
}
