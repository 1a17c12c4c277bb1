//! Owns what is said without waiting for who reads it: a thread of its own writes it, in the order in which it came. What
//! finds no room any more is lost, and it is said how much that was.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

/// Pieces that may wait for who reads slowly.
const WAITING_MAX: usize = 1_024;
/// How often one who may wait looks for room.
const LOOK: Duration = Duration::from_millis(5);

/// Takes pieces of text, and never waits. Clones speak with one voice.
#[derive(Clone)]
pub struct Aside {
    pieces: SyncSender<Piece>,
    /// Pieces that were lost since the last one that was not.
    lost: Arc<AtomicU64>,
}

struct Piece {
    /// So many were lost before it.
    lost: u64,
    what: What,
}

enum What {
    Text(Vec<u8>),
    /// Tell when everything before is written.
    End(Sender<()>),
}

impl Aside {
    /// Begins to write to `out`; `missed` makes the sentence about so many pieces that were lost.
    pub fn start(
        name: &str,
        out: impl Write + Send + 'static,
        missed: impl Fn(u64) -> String + Send + 'static,
    ) -> io::Result<Aside> {
        let (pieces, waiting) = sync_channel(WAITING_MAX);
        std::thread::Builder::new().name(name.into()).spawn(move || write(&waiting, out, missed))?;
        Ok(Aside { pieces, lost: Arc::default() })
    }

    /// Says this, if there is room.
    pub fn say(&self, text: &[u8]) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if self.pieces.try_send(Piece { lost, what: What::Text(text.to_vec()) }).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is written, but no longer than `patience`.
    pub fn finish(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let (tell, told) = channel();
        let mut piece = Piece { lost: self.lost.swap(0, Ordering::Relaxed), what: What::End(tell) };
        while let Err(TrySendError::Full(back)) = self.pieces.try_send(piece) {
            if Instant::now() >= until {
                self.lost.fetch_add(back.lost, Ordering::Relaxed);
                return;
            }
            std::thread::sleep(LOOK);
            piece = back;
        }
        let _ = told.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

impl Write for Aside {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.say(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(waiting: &Receiver<Piece>, mut out: impl Write, missed: impl Fn(u64) -> String) {
    while let Ok(Piece { lost, what }) = waiting.recv() {
        // Nobody may be listening any more; that is no reason to end.
        if lost > 0 {
            let _ = out.write_all(missed(lost).as_bytes());
        }
        match what {
            What::Text(text) => drop(out.write_all(&text).and_then(|()| out.flush())),
            What::End(tell) => {
                let _ = out.flush();
                let _ = tell.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn who_speaks_waits_for_no_reader_and_what_is_lost_is_counted_where_it_is_missing() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let aside = Aside::start("aside", writer, |lost| format!("missed {lost}\n")).expect("a thread");
        let line = |i: usize| format!("{i:0100}\n");
        let (said, began) = (10_000, Instant::now());
        (0..said).for_each(|i| aside.say(line(i).as_bytes()));
        // Nobody reads: the end is not waited for without end either.
        aside.finish(Duration::from_millis(50));
        assert!(began.elapsed() < Duration::from_secs(5));
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        aside.finish(Duration::from_secs(10));
        aside.say(b"last\n");
        drop(aside);
        let text = reading.join().expect("no panic").expect("it is text");
        let (mut next, mut missed) = (0, 0);
        for got in text.lines().filter(|got| *got != "last") {
            if let Some(number) = got.strip_prefix("missed ") {
                let number: usize = number.parse().expect("a number");
                (next, missed) = (next + number, missed + number);
            } else {
                assert_eq!(got, line(next).trim_end());
                next += 1;
            }
        }
        assert!(next == said && text.ends_with("last\n"), "{next} of {said} are accounted for");
        assert!(missed > said / 2, "a pipe and the queue have not so much room: {missed}");
    }
}
