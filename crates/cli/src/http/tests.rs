//! The server as a client meets it: bytes of requests in, bytes of answers out, over an in-memory network.

use super::files::{Files, Found, Root, resolve};
use super::listing::PAGES_MAX;
use super::patience::Patience;
use super::respond::Status;
use super::server::Server;
use super::warm::Warmer;
use laneway::on_lane::{Address, App, CloseReason, ConnId, Context, Device, Stack, Waker};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

mod replaced;
mod slow;
mod starved;

/// Pieces of a request; each is sent in a poll of its own.
type Script = Vec<Vec<u8>>;

/// Sends what it is given, half-closes, and tells all that came back.
struct Client {
    jobs: Arc<Mutex<VecDeque<Script>>>,
    tell: Sender<(Vec<u8>, CloseReason)>,
    running: Option<(ConnId, VecDeque<Vec<u8>>)>,
    received: Vec<u8>,
}

impl App for Client {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        if self.running.is_none()
            && let Some(script) = self.jobs.lock().unwrap().pop_front()
        {
            let id = cx.connect(None, Address::from_v4([10, 0, 0, 1]), 80, 0).unwrap();
            self.running = Some((id, script.into()));
        }
        if let Some((id, script)) = &mut self.running
            && cx.state(*id).is_synchronized()
            && let Some(piece) = script.pop_front()
        {
            cx.send(*id, &piece);
            if script.is_empty() {
                cx.shutdown(*id);
            }
        }
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        self.received.extend_from_slice(data);
        data.len()
    }
    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, _: u64, reason: CloseReason) {
        self.running = None;
        let _ = self.tell.send((std::mem::take(&mut self.received), reason));
    }
}

struct Site {
    dir: PathBuf,
    jobs: Arc<Mutex<VecDeque<Script>>>,
    answers: Receiver<(Vec<u8>, CloseReason)>,
    waker: Waker,
    _stacks: [Stack; 2],
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn big() -> Vec<u8> {
    (0..3_000_000u32).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

impl Site {
    fn new(name: &str) -> Site {
        let dir = std::env::temp_dir().join(format!("laneway-http-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("www/sub/deep")).unwrap();
        std::fs::create_dir_all(dir.join("www/with index")).unwrap();
        std::fs::write(dir.join("secret"), "secret").unwrap();
        std::fs::write(dir.join("www/hello.txt"), "hello, world").unwrap();
        std::fs::write(dir.join("www/empty"), "").unwrap();
        std::fs::write(dir.join("www/big.bin"), big()).unwrap();
        std::fs::write(dir.join("www/sub/<b>&\"x.txt"), "odd").unwrap();
        std::fs::write(dir.join("www/sub/.hidden"), "hidden").unwrap();
        std::fs::write(dir.join("www/with index/index.html"), "<p>index").unwrap();
        std::os::unix::fs::symlink("../secret", dir.join("www/leak")).unwrap();
        std::os::unix::fs::symlink("hello.txt", dir.join("www/link")).unwrap();
        let (here, there) = Device::memory_pair(1).unwrap();
        let warmer = Warmer::start(1).unwrap();
        let root = Root::open(&dir.join("www")).unwrap();
        let server = Stack::builder(here)
            .address("10.0.0.1/24")
            .unwrap()
            .pin(false)
            .start(|_| Server::new(root.clone(), warmer.clone(), Patience::default()))
            .unwrap();
        warmer.attach(server.waker());
        server.listen("0.0.0.0:80".parse().unwrap(), 64).unwrap();
        let jobs = Arc::new(Mutex::new(VecDeque::new()));
        let (tell, answers) = channel();
        let client = Stack::builder(there).address("10.0.0.2/24").unwrap().pin(false);
        let client = client
            .start(|_| Client { jobs: Arc::clone(&jobs), tell: tell.clone(), running: None, received: Vec::new() })
            .unwrap();
        Site { dir, jobs, answers, waker: client.waker(), _stacks: [client, server] }
    }

    /// Sends pieces one after the other, and returns all that came back until the server closed.
    fn pieces(&self, pieces: Script) -> Vec<u8> {
        self.jobs.lock().unwrap().push_back(pieces);
        self.waker.wake_all();
        let (answer, reason) = self.answers.recv_timeout(Duration::from_secs(20)).expect("no end of the connection");
        assert_eq!(
            reason,
            CloseReason::Normal,
            "after {:?}",
            String::from_utf8_lossy(&answer[..answer.len().min(500)])
        );
        answer
    }

    fn ask(&self, request: &str) -> String {
        String::from_utf8(self.pieces(vec![request.as_bytes().to_vec()])).unwrap()
    }

    /// Status line, head and body of a GET with more fields.
    fn get(&self, path: &str, fields: &str) -> (String, String, Vec<u8>) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n");
        split(&self.pieces(vec![request.into_bytes()]))
    }

    fn status(&self, path: &str) -> String {
        self.get(path, "").0
    }
}

fn split(answer: &[u8]) -> (String, String, Vec<u8>) {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.lines().next().unwrap().strip_prefix("HTTP/1.1 ").unwrap().to_owned();
    (status, head, answer[end..].to_vec())
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[test]
fn files_directories_and_what_is_not_there() {
    let site = Site::new("files");
    let (status, head, body) = site.get("/hello.txt", "");
    assert_eq!((status.as_str(), &body[..]), ("200 OK", &b"hello, world"[..]));
    assert_eq!(field(&head, "Content-Length"), Some("12"));
    assert_eq!(field(&head, "Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(field(&head, "Connection"), Some("close"));
    assert_eq!(site.get("/big.bin", "").2, big());
    assert_eq!(site.get("/empty", "").2, b"");
    assert_eq!(site.get("/link", "").2, b"hello, world");
    assert_eq!(site.get("/with%20index/", "").2, b"<p>index");
    let (status, head, _) = site.get("//with%20index", "");
    assert_eq!((status.as_str(), field(&head, "Location")), ("301 Moved Permanently", Some("/with%20index/")));
    std::fs::create_dir(site.dir.join("www/café")).unwrap();
    for (path, location) in [
        ("/sub?a=1&b=/../#c", "/sub/?a=1&b=/../"),
        ("http://x/sub?", "/sub/?"),
        ("/sub#c", "/sub/"),
        ("/café?é", "/caf%C3%A9/?%C3%A9"),
    ] {
        assert_eq!(field(&site.get(path, "").1, "Location"), Some(location), "{path}");
    }
    assert_eq!(site.status("http://x?a/b"), "200 OK");
    let (status, _, page) = site.get("/sub/", "");
    let page = String::from_utf8(page).unwrap();
    assert_eq!(status, "200 OK");
    assert!(
        page.contains("&lt;b&gt;&amp;&quot;x.txt") && page.contains("./%3Cb%3E%26%22x.txt") && page.contains("./deep/"),
        "{page}"
    );
    assert!(!page.contains("hidden"), "{page}");
    assert_eq!(site.get("/sub/%3Cb%3E%26%22x.txt?query=1", "").2, b"odd");
    assert_eq!(site.get("http://x/hello.txt", "").2, b"hello, world");
    for (path, says) in [
        ("/none", "404 Not Found"),
        ("/hello.txt/", "404 Not Found"),
        ("/hello.txt/x", "404 Not Found"),
        ("/%00", "400 Bad Request"),
        ("hello.txt", "400 Bad Request"),
        ("*", "400 Bad Request"),
        ("http:///hello.txt", "400 Bad Request"),
        ("http://:80/hello.txt", "400 Bad Request"),
        ("http://[bad", "400 Bad Request"),
        ("http://user@x/hello.txt", "400 Bad Request"),
        ("http://[fd00::1]:80/hello.txt", "200 OK"),
    ] {
        assert_eq!(site.status(path), says, "{path}");
    }
}

/// A directory of its own that is looked through without a stack.
struct Shelf(PathBuf);

impl Shelf {
    fn new(name: &str) -> (Shelf, Files) {
        // Tests of one name run side by side in one process, and each removes its own.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Relaxed);
        let dir = std::env::temp_dir().join(format!("laneway-shelf-{name}-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        let files = Files::new(Root::open(&dir).unwrap());
        (Shelf(dir), files)
    }

    fn touch(&self, name: &str) {
        std::fs::write(self.0.join(name), "").unwrap();
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn page(found: Found) -> Arc<[u8]> {
    match found {
        Found::Page(page) => page,
        Found::Nothing(status) => panic!("{status:?} instead of a page"),
        _ => panic!("no page"),
    }
}

/// Whoever takes a large file slowly keeps it open. As many as there are connections must not use up what may be open.
#[test]
fn a_large_file_is_open_once_for_all_who_read_it() {
    let (shelf, mut files) = Shelf::new("shared");
    let path = shelf.0.join("big");
    std::fs::write(&path, vec![1; 100_000]).unwrap();
    let find = |files: &mut Files, target: &[u8]| match files.find(target, 0) {
        Found::Large { file, .. } => file,
        Found::Nothing(status) => panic!("{}: {status:?}", String::from_utf8_lossy(target)),
        _ => panic!("no large file"),
    };
    let open = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        all.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(&shelf.0) && to != shelf.0)).count()
    };
    let mut readers: Vec<_> = (0..2_000).map(|_| find(&mut files, b"/big")).collect();
    readers.push(find(&mut files, b"/./%62ig"));
    assert_eq!(open(), 1);
    // Who comes later reads what is there now, and the others what they began with.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, vec![2; 100_001]).unwrap();
    let other = find(&mut files, b"/big");
    assert!(!Arc::ptr_eq(&other, &readers[0]));
    assert_eq!(open(), 2);
    drop((readers, other));
    assert_eq!(open(), 0);
    // And those that nobody reads are not remembered for ever.
    for number in 0..1_000 {
        let name = format!("n{number}");
        std::fs::hard_link(&path, shelf.0.join(&name)).unwrap();
        drop(find(&mut files, format!("/{name}").as_bytes()));
    }
    assert!(files.remembered() <= 64);
}

#[test]
fn a_large_directory_is_shown_in_part() {
    let (shelf, mut files) = Shelf::new("large");
    let count = |page: &[u8]| String::from_utf8_lossy(page).matches("<li>").count();
    (0..1_000).for_each(|i| shelf.touch(&format!("{i}.txt")));
    let all = page(files.find(b"/", 0));
    assert_eq!((count(&all), String::from_utf8_lossy(&all).contains("and more")), (1_000, false));
    shelf.touch("one more");
    let part = page(files.find(b"/", 1_000_000));
    assert_eq!((count(&part), String::from_utf8_lossy(&part).contains("and more: only 1000 names")), (1_000, true));
    // Names that are not shown cost as much to look at.
    let (shelf, mut files) = Shelf::new("hidden");
    (0..4_001).for_each(|i| shelf.touch(&format!(".{i}")));
    let none = page(files.find(b"/", 0));
    assert_eq!((count(&none), String::from_utf8_lossy(&none).contains("and more")), (0, true));
}

/// A file is kept under the name that it was asked for by, and a stranger has as many names for it as he likes.
#[test]
fn what_is_kept_in_memory_is_bounded_whatever_it_is_called() {
    let (shelf, _) = Shelf::new("kept");
    std::fs::write(shelf.0.join("small"), "x").unwrap();
    std::fs::write(shelf.0.join("long"), vec![1; 60_000]).unwrap();
    for (name, most, most_bytes) in [("small", 4_096, 4_096), ("long", 559, 559 * 60_000)] {
        let (mut files, mut held) = (Files::new(Root::open(&shelf.0).unwrap()), (0, 0));
        for number in 0..5_000 {
            let target = format!("/{number:013b}").replace('0', "./").replace('1', "/") + name;
            assert!(matches!(files.find(target.as_bytes(), 0), Found::Small(_)), "{target}");
            let (count, bytes, counted) = files.kept();
            assert_eq!(bytes, counted, "the bytes of {count} files");
            held = held.max((count, bytes));
        }
        assert_eq!(held, (most, most_bytes), "{name}");
        // What is kept anew is not counted twice.
        std::fs::write(shelf.0.join(name), "changed").unwrap();
        let target = format!("/{:013b}", 4_999).replace('0', "./").replace('1', "/") + name;
        files.find(target.as_bytes(), 1_000_000);
        let (_, bytes, counted) = files.kept();
        assert_eq!(bytes, counted, "{name}");
    }
}

/// Without the right to list it, a directory is one still: what it has to show to everybody is its `index.html`.
#[test]
fn a_directory_that_may_not_be_listed_has_its_index_all_the_same() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    use std::os::unix::fs::PermissionsExt;
    let (shelf, mut files) = Shelf::new("unlisted");
    for name in ["with", "without"] {
        std::fs::create_dir(shelf.0.join(name)).unwrap();
    }
    for name in ["with/index.html", "with/other", "with/private"] {
        std::fs::write(shelf.0.join(name), name).unwrap();
    }
    let allow = |name: &str, mode| {
        std::fs::set_permissions(shelf.0.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for (name, mode) in [("with/private", 0o300), ("with", 0o300), ("without", 0o300)] {
        allow(name, mode);
    }
    // To root nothing is forbidden, as long as this thread may do as root may.
    let all = capabilities(None).unwrap();
    let mut fewer = all;
    fewer.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
    set_capabilities(None, fewer).unwrap();
    let mut said = |target: &str| match files.find(target.as_bytes(), 0) {
        Found::Small(small) => String::from_utf8_lossy(&small.bytes).into_owned(),
        Found::NeedsSlash => "slash".to_owned(),
        Found::Nothing(status) => status.line().to_owned(),
        _ => "a page".to_owned(),
    };
    let targets = ["/with", "/with/", "/with/other", "/with/private", "/with/private/", "/without", "/without/"];
    let all_said = targets.map(&mut said);
    set_capabilities(None, all).unwrap();
    ["with", "without"].iter().for_each(|name| allow(name, 0o700));
    let no = "403 Forbidden";
    assert_eq!(all_said, ["slash", "with/index.html", "with/other", no, no, "slash", no]);
}

#[test]
fn a_page_is_made_once_for_all_who_ask() {
    let (shelf, mut files) = Shelf::new("shared");
    std::fs::create_dir(shelf.0.join("sub")).unwrap();
    let first = page(files.find(b"/sub/", 0));
    for spelling in [&b"/sub/"[..], b"//sub/", b"/./sub//", b"/%73ub/"] {
        assert!(Arc::ptr_eq(&first, &page(files.find(spelling, 400_000))), "{}", spelling.escape_ascii());
    }
    // Later it is looked again; what has not changed is shared on with those who still take it.
    assert!(Arc::ptr_eq(&first, &page(files.find(b"/sub/", 600_000))));
    shelf.touch("sub/new");
    let second = page(files.find(b"/sub/", 1_200_000));
    assert!(!Arc::ptr_eq(&first, &second) && String::from_utf8_lossy(&second).contains("./new"));
}

#[test]
fn pages_that_nobody_takes_do_not_pile_up() {
    let (shelf, mut files) = Shelf::new("pile");
    (0..1_000).for_each(|i| shelf.touch(&format!("{i:0>250}")));
    let (mut held, mut bytes, mut now_us) = (Vec::new(), 0, 0);
    let refused = loop {
        // Each page differs from the one before, and each is still being sent.
        std::fs::rename(shelf.0.join(format!("{:0>250}", held.len())), shelf.0.join(format!("x{}", held.len())))
            .unwrap();
        match files.find(b"/", now_us) {
            Found::Page(page) => {
                bytes += page.len();
                held.push(page);
            }
            Found::Nothing(status) => break status,
            _ => panic!("no page"),
        }
        assert!(bytes < 2 * PAGES_MAX, "{bytes} bytes of pages");
        now_us += 1_000_000;
    };
    assert_eq!(refused, Status::ServiceUnavailable);
    assert!(bytes >= PAGES_MAX, "{bytes} bytes of pages are no reason to refuse");
    held.clear();
    page(files.find(b"/", now_us));
}

#[test]
fn there_is_no_way_out() {
    let site = Site::new("out");
    for path in [
        "/../secret",
        "/sub/../../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/sub/%2E%2E%2F%2e%2e/secret",
        "//../secret",
        "/leak",
        "/sub/../hello.txt",
        "/./../secret",
    ] {
        let (status, _, body) = site.get(path, "");
        assert!(status.starts_with("40"), "{path}: {status}");
        assert!(!body.windows(6).any(|w| w == b"secret"), "{path}");
    }
    assert_eq!(resolve(b"/a//./b/"), Some(b"a/b".to_vec()));
    assert_eq!(resolve(b"/a/.../b"), Some(b"a/.../b".to_vec()));
    assert_eq!(resolve(b"/a/%2e%2E/b"), None);
}

/// RFC 9110 section 8.8.2.1: by the server's own clock nothing was changed later than now, whatever a file says.
#[test]
fn what_is_from_the_future_is_from_now() {
    let site = Site::new("future");
    let file = std::fs::File::options().write(true).open(site.dir.join("www/hello.txt")).unwrap();
    file.set_modified(std::time::SystemTime::now() + Duration::from_secs(100_000)).unwrap();
    for fields in ["", "Range: bytes=1-\r\n", "If-None-Match: *\r\n"] {
        let (status, head, _) = site.get("/hello.txt", fields);
        assert_eq!(field(&head, "Last-Modified"), field(&head, "Date"), "{status}");
        let since = format!("If-Modified-Since: {}\r\n", field(&head, "Last-Modified").unwrap());
        assert_eq!(site.get("/hello.txt", &since).0, "200 OK", "it may have been changed since");
    }
}

#[test]
fn ranges_and_conditions() {
    let site = Site::new("ranges");
    let (status, head, body) = site.get("/hello.txt", "Range: bytes=7-\r\n");
    assert_eq!(
        (status.as_str(), &body[..], field(&head, "Content-Range")),
        ("206 Partial Content", &b"world"[..], Some("bytes 7-11/12"))
    );
    assert_eq!(site.get("/hello.txt", "Range: bytes=-5\r\n").2, b"world");
    assert_eq!(site.get("/big.bin", "Range: bytes=1000000-1999999\r\n").2, big()[1_000_000..2_000_000]);
    let (status, head, _) = site.get("/hello.txt", "Range: bytes=12-\r\n");
    assert_eq!((status.as_str(), field(&head, "Content-Range")), ("416 Range Not Satisfiable", Some("bytes */12")));
    let (_, head, _) = site.get("/hello.txt", "");
    let (etag, date) = (field(&head, "ETag").unwrap().to_owned(), field(&head, "Last-Modified").unwrap().to_owned());
    for condition in [
        format!("If-None-Match: {etag}"),
        format!("If-None-Match: \"x\", W/{etag}"),
        format!("If-None-Match: {etag}\r\nIf-None-Match: \"x\""),
        "If-None-Match: *".into(),
        format!("If-Modified-Since: {date}"),
    ] {
        let (status, _, body) = site.get("/hello.txt", &format!("{condition}\r\n"));
        assert_eq!((status.as_str(), body.len()), ("304 Not Modified", 0), "{condition}");
    }
    for condition in [
        "If-None-Match: \"x\"".to_owned(),
        "If-None-Match: \"x,*,y\"".into(),
        "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT".into(),
        "If-Modified-Since: nonsense".into(),
        format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {date}"),
    ] {
        assert_eq!(site.get("/hello.txt", &format!("{condition}\r\n")).0, "200 OK", "{condition}");
    }
    // What must still be the same comes first.
    let long_ago = "Thu, 01 Jan 1970 00:00:00 GMT";
    for (condition, says) in [
        (format!("If-Match: {etag}"), "200 OK"),
        (format!("If-Match: \"x\", {etag}"), "200 OK"),
        (format!("If-Match: {etag}\r\nIf-Match: \"x\""), "200 OK"),
        ("If-Match: *".into(), "200 OK"),
        ("If-Match: \"x\"".into(), "412 Precondition Failed"),
        ("If-Match: \"x,*,y\"".into(), "412 Precondition Failed"),
        (format!("If-Match: W/{etag}"), "412 Precondition Failed"),
        (format!("If-Unmodified-Since: {date}"), "200 OK"),
        (format!("If-Unmodified-Since: {long_ago}"), "412 Precondition Failed"),
        ("If-Unmodified-Since: nonsense".into(), "200 OK"),
        (format!("If-Match: {etag}\r\nIf-Unmodified-Since: {long_ago}"), "200 OK"),
        (format!("If-Match: \"x\"\r\nIf-None-Match: {etag}"), "412 Precondition Failed"),
        (format!("If-Match: {etag}\r\nIf-None-Match: {etag}"), "304 Not Modified"),
        ("If-Match: \"x\"\r\nRange: bytes=99-".into(), "412 Precondition Failed"),
    ] {
        assert_eq!(site.get("/hello.txt", &format!("{condition}\r\n")).0, says, "{condition}");
    }
    assert_eq!(site.get("/none", "If-Match: *\r\n").0, "404 Not Found");
    // The page of a directory is there, and has neither tag nor date.
    for (condition, says) in [
        ("If-Match: *", "200 OK"),
        ("If-Match: \"x\"", "412 Precondition Failed"),
        ("If-Match: \"x\", \"\"", "412 Precondition Failed"),
        ("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT", "200 OK"),
        ("If-None-Match: \"x\"", "200 OK"),
        ("If-None-Match: *", "304 Not Modified"),
        ("If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT", "200 OK"),
    ] {
        let (status, _, body) = site.get("/sub/", &format!("{condition}\r\n"));
        assert_eq!((status.as_str(), body.is_empty()), (says, says.starts_with("304")), "{condition}");
    }
    assert_eq!(site.get("/sub", "If-Match: \"x\"\r\n").0, "301 Moved Permanently");
    let part = |validator: &str| site.get("/hello.txt", &format!("Range: bytes=0-0\r\nIf-Range: {validator}\r\n")).0;
    assert_eq!(
        (part(&etag).as_str(), part(&date).as_str(), part("\"x\"").as_str()),
        ("206 Partial Content", "206 Partial Content", "200 OK")
    );
    // A part of what has changed meanwhile would be put behind the beginning of something else.
    for other in [&format!("W/{etag}"), long_ago, "Fri, 31 Dec 9999 23:59:59 GMT", "nonsense", ""] {
        assert_eq!(part(other), "200 OK", "{other}");
    }
    // RFC 9110 section 15.4.5: what has not changed has its names, and a length would be that of the file.
    let (_, head, _) = site.get("/hello.txt", &format!("If-None-Match: {etag}\r\n"));
    let names = ["ETag", "Last-Modified", "Content-Length", "Accept-Ranges"].map(|name| field(&head, name));
    assert_eq!(names, [Some(&*etag), Some(&*date), None, None]);
}

#[test]
fn refusals() {
    let site = Site::new("refusals");
    let status = |request: &str| site.ask(request).lines().next().unwrap_or("nothing").to_owned();
    for (request, says) in [
        ("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "405"),
        ("BREW / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "501"),
        ("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "501"),
        ("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n", "400"),
        ("PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", "413"),
        ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", "413"),
        // What is wrong with these is the method.
        ("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", "405"),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1x\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400"),
        ("GET / HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: u@x\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x:http\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: [x]:80\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x%2\r\n\r\n", "400"),
        ("GET / HTTP/1.0\r\nHost: fd00::1\r\n\r\n", "400"),
        ("GET / HTTP/2.0\r\nHost: x\r\n\r\n", "505"),
        ("GET / HTTP/1.20\r\nHost: x\r\n\r\n", "505"),
        ("GET / HTTP/1.2\r\nHost: x\r\nHost: y\r\n\r\n", "400"),
        ("BREW / HTTP/1.9\nHost: x\nConnection: close\n\n", "501"),
        // What stands where a version belongs is none: mostly the target has a space that is not encoded.
        ("GET /with index/ HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        ("GET /hello.txt  HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        ("GET / http/1.1\r\nHost: x\r\n\r\n", "400"),
        ("GET / HTTP/x.1\r\nHost: x\r\n\r\n", "400"),
        ("GET / HTTP/1\r\nHost: x\r\n\r\n", "505"),
        ("nonsense\r\n\r\n", "400"),
        ("\x00\x01\x02\r\n\r\n", "400"),
    ] {
        let line = status(request);
        assert!(line.starts_with(&format!("HTTP/1.1 {says} ")), "{request:?}: {line}");
    }
    let refused =
        site.ask("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((refused.contains("Connection: close"), refused.matches("HTTP/1.1 ").count()), (true, 1), "{refused}");
    for host in ["", "x:", "X-1_y.z:80", "10.0.0.1:80", "[fd00::1]", "[fd00::1]:80", "[fe80::2%25lw0]", "%7Ex"] {
        let line = status(&format!("GET /hello.txt HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        assert!(line.contains(" 200 "), "{host}: {line}");
    }
    // RFC 9110 section 2.5: a later minor version is served as the highest that we know.
    assert!(status("GET /hello.txt HTTP/1.2\r\nHost: x\r\nConnection: close\r\n\r\n").contains(" 200 "));
    // Whoever asks for a head gets none but the head, however bad the question.
    for bad in ["Host: x\r\nHost: y\r\n", "Host: x\r\nTransfer-Encoding: gzip\r\n", "\x01\r\n"] {
        let answer = site.ask(&format!("HEAD / HTTP/1.1\r\n{bad}\r\n"));
        assert!(answer.contains("Content-Length: ") && answer.ends_with("\r\n\r\n"), "{answer}");
    }
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(9_000));
    assert!(status(&long).contains(" 431 "));
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(200));
    assert!(status(&many).contains(" 431 "));
    let uri = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "y".repeat(9_000));
    assert!(status(&uri).contains(" 414 "));
}

/// As much as is taken is taken, and one more is told what it has too much of.
#[test]
fn as_much_as_is_taken_and_one_more() {
    let site = Site::new("bounds");
    let status = |pieces: &[&str]| {
        let answer = site.pieces(pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect());
        split(&answer).0[..3].to_owned()
    };
    let start = "GET /hello.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    for (len, says) in [(8_192, "200"), (8_193, "431")] {
        let head = format!("{start}X: {}\r\n\r\n", "y".repeat(len - start.len() - 7));
        assert_eq!(head.len(), len);
        let (most, last) = head.split_at(len - 1);
        assert_eq!([status(&[&head]), status(&[most, last])], [says; 2], "a head of {len} bytes");
    }
    for (fields, says) in [(64, "200"), (65, "431")] {
        let head = format!("{start}{}\r\n", "X: y\r\n".repeat(fields - 2));
        assert_eq!(status(&[&head]), says, "{fields} fields");
    }
    for (len, says) in [(1 << 20, "200"), ((1 << 20) + 1, "413")] {
        let head = format!("{start}Content-Length: {len}\r\n\r\n");
        assert_eq!(status(&[&head]), says, "a body of {len} bytes");
    }
}

#[test]
fn keep_alive_and_pipelines() {
    let site = Site::new("pipeline");
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    // The third waits in the stack until the second's three megabytes are out.
    let answer = site.pieces(vec![format!("{}{}{}", get("/hello.txt"), get("/big.bin"), get("/none")).into_bytes()]);
    let (status, _, rest) = split(&answer);
    assert_eq!((status.as_str(), &rest[..12]), ("200 OK", &b"hello, world"[..]));
    let (status, _, rest) = split(&rest[12..]);
    assert!(status == "200 OK" && rest[..3_000_000] == big());
    let (status, head, _) = split(&rest[3_000_000..]);
    assert_eq!((status.as_str(), field(&head, "Connection")), ("404 Not Found", None));
    // A body that nobody wanted is read over, and the next request is found behind it.
    let answer =
        site.ask(&format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nGET /x HTTP{}", get("/hello.txt")));
    assert_eq!(
        (
            answer.matches("HTTP/1.1 405 ").count(),
            answer.matches("HTTP/1.1 ").count(),
            answer.ends_with("hello, world")
        ),
        (1, 2, true)
    );
    // Who asks first whether to send a body may leave it out after such an answer: what comes next is a body or a request, and is not guessed.
    for (method, says) in [("GET", "200"), ("HEAD", "200"), ("POST", "405"), ("BREW", "501")] {
        let expecting = |len| {
            format!("{method} /hello.txt HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: {len}\r\n\r\n")
        };
        let answers = |answer: String| {
            assert!(answer.starts_with(&format!("HTTP/1.1 {says} ")), "{method}: {answer}");
            (answer.matches("HTTP/1.1 ").count(), answer.matches("Connection: close").count())
        };
        assert_eq!(answers(site.ask(&format!("{}{}", expecting(3), get("/hello.txt")))), (1, 1), "{method}");
        assert_eq!(answers(site.ask(&format!("{}{}", expecting(0), get("/hello.txt")))), (2, 0), "{method}");
    }
    // Nor is it looked for where a body in chunks ends: the answer comes, and the end of the connection.
    for (method, says) in [("GET", "200"), ("HEAD", "200"), ("POST", "405")] {
        for version in ["1.1", "1.0\r\nConnection: keep-alive"] {
            let head = format!("{method} /hello.txt HTTP/{version}\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n");
            for body in ["5\r\nGET /\r\n0\r\n\r\n", "", "none\r\n"] {
                let answer = site.ask(&format!("{head}{body}{}", get("/hello.txt")));
                assert!(answer.starts_with(&format!("HTTP/1.1 {says} ")), "{head}{body}: {answer}");
                let count = |what| answer.matches(what).count();
                assert_eq!((count("HTTP/1.1 "), count("Connection: close")), (1, 1), "{head}{body}: {answer}");
            }
        }
    }
    // HTTP/1.0 closes, unless it asks not to.
    let answer = site.ask("GET /hello.txt HTTP/1.0\r\n\r\nGET /hello.txt HTTP/1.0\r\n\r\n");
    assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 1);
    let keep = "GET /hello.txt HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n";
    let answer = site.ask(&format!("{keep}{keep}"));
    assert_eq!((answer.matches("HTTP/1.1 200 ").count(), answer.matches("Connection: keep-alive").count()), (2, 2));
    for both in ["close, keep-alive", "Keep-Alive, Close", "close\r\nConnection: keep-alive"] {
        let keep = format!("GET /hello.txt HTTP/1.0\r\nConnection: {both}\r\n\r\n");
        let answer = site.ask(&format!("{keep}{keep}"));
        assert_eq!(
            (answer.matches("HTTP/1.1 200 ").count(), answer.matches("Connection: close").count()),
            (1, 1),
            "{both:?}"
        );
    }
    // HEAD has everything but the body, and knows no ranges.
    let head = site.ask("HEAD /hello.txt HTTP/1.1\r\nHost: x\r\nRange: bytes=0-0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("Content-Length: 12\r\n"), "{head}");
    let answer = site.ask("HEAD /big.bin HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.contains("Content-Length: 3000000\r\n") && answer.ends_with("\r\n\r\n"));
}

#[test]
fn byte_by_byte() {
    let site = Site::new("bytes");
    let request = b"GET /hello.txt HTTP/1.1\r\nHost: x\r\n\r\nGET /empty HTTP/1.1\r\nHost: x\r\n\r\n";
    let answer = String::from_utf8(site.pieces(request.iter().map(|b| vec![*b]).collect())).unwrap();
    assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 2, "{answer}");
}

#[test]
fn a_later_version_that_comes_in_two_pieces() {
    let site = Site::new("later");
    for (end, says) in [("\r\n", "200"), ("\n", "200"), ("0\r\n", "505")] {
        let request = format!("GET /hello.txt HTTP/1.2{end}Host: x\r\n\r\n");
        for cut in request.len() - 20..request.len() {
            let (first, second) = request.as_bytes().split_at(cut);
            let answer = String::from_utf8(site.pieces(vec![first.to_vec(), second.to_vec()])).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {says} ")), "{request:?} cut at {cut}: {answer}");
        }
    }
}

#[test]
fn many_pipelined_requests_in_pieces_of_any_size() {
    let site = Site::new("pieces");
    let one = b"GET /hello.txt HTTP/1.1\r\nHost: x\r\nUser-Agent: somebody with a rather long name\r\n\r\n";
    let all: Vec<u8> = one.repeat(300);
    for size in [7, 100, 1_000, 5_000] {
        let answer = String::from_utf8(site.pieces(all.chunks(size).map(<[u8]>::to_vec).collect())).unwrap();
        assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 300, "in pieces of {size}");
    }
}
