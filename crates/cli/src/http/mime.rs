//! Owns what kind of thing a file is, by its name.

/// The media type for a file name.
pub fn of(name: &[u8]) -> &'static str {
    let extension = name.rsplit(|b| *b == b'.').next().unwrap_or(b"");
    if extension.len() == name.len() {
        return UNKNOWN;
    }
    let lower = extension.to_ascii_lowercase();
    let known = TYPES.binary_search_by(|(e, _)| e.as_bytes().cmp(&lower));
    known.map_or(UNKNOWN, |at| TYPES[at].1)
}

const UNKNOWN: &str = "application/octet-stream";

/// Sorted by extension.
const TYPES: &[(&str, &str)] = &[
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("apng", "image/apng"),
    ("avif", "image/avif"),
    ("bin", "application/octet-stream"),
    ("bmp", "image/bmp"),
    ("bz2", "application/x-bzip2"),
    ("c", "text/plain; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("deb", "application/vnd.debian.binary-package"),
    ("epub", "application/epub+zip"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("h", "text/plain; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("iso", "application/octet-stream"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("log", "text/plain; charset=utf-8"),
    ("m4a", "audio/mp4"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpeg", "video/mpeg"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pcap", "application/vnd.tcpdump.pcap"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("rs", "text/plain; charset=utf-8"),
    ("sh", "text/plain; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "text/plain; charset=utf-8"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xml", "application/xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_found_in() {
        assert!(TYPES.windows(2).all(|two| two[0].0 < two[1].0));
        assert_eq!(of(b"a/b/index.HTML"), "text/html; charset=utf-8");
        assert_eq!(of(b"x.tar.gz"), "application/gzip");
        for unknown in [&b"README"[..], b"", b".", b"a.veryverylongextension", b"html"] {
            assert_eq!(of(unknown), UNKNOWN);
        }
    }
}
