//! What is said is said at most once a second, and nothing that happened meanwhile is forgotten.

use super::*;
use laneway_device::memory::{LinkConfig, link};
use laneway_device::{Rx, Tx, TxMeta};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps every event as `field=value` words.
#[derive(Clone, Default)]
pub(in crate::runtime) struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    pub(in crate::runtime) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no test panics while it holds it"))
    }
}

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

impl Subscriber for Heard {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut words = Words(format!("{} ", event.metadata().level()));
        event.record(&mut words);
        self.0.lock().expect("no test panics while it holds it").push(words.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn at(ms: u64) -> Instant {
    Instant::from_us(ms * 1_000)
}

#[test]
fn slow_polls_are_summed_up_once_a_second() {
    let heard = Heard::default();
    tracing::subscriber::with_default(heard.clone(), || {
        let (mut aloud, counters) = (Aloud::new(3), Counters::default());
        aloud.slow_poll(at(5_000), 12_000);
        let said = heard.take();
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("WARN "), "{said:?}");
        for part in ["lane=3", "polls=1", "longest_us=12000"] {
            assert!(said[0].contains(part), "{part} is not in {said:?}");
        }
        aloud.slow_poll(at(5_100), 90_000);
        aloud.slow_poll(at(5_999), 11_000);
        assert_eq!(heard.take(), [""; 0], "the second is not over");
        assert!(aloud.is_due(at(6_000)));
        aloud.look(at(6_000), &counters);
        let said = heard.take();
        assert!(said.len() == 1 && said[0].contains("polls=2") && said[0].contains("longest_us=90000"), "{said:?}");
        assert!(!aloud.is_due(at(6_999)));
        aloud.look(at(7_500), &counters);
        assert_eq!(heard.take(), [""; 0], "there is nothing new");
    });
}

#[test]
fn those_turned_away_are_spoken_of_while_there_are_more() {
    let heard = Heard::default();
    tracing::subscriber::with_default(heard.clone(), || {
        let (mut aloud, mut counters) = (Aloud::new(0), Counters::default());
        aloud.look(at(1_000), &counters);
        assert_eq!(heard.take(), [""; 0]);
        counters.add(Mib::TcpExtListenOverflows, 7);
        counters.add(Mib::TcpExtListenDrops, 9);
        aloud.look(at(2_000), &counters);
        let said = heard.take();
        assert!(said.len() == 1 && said[0].contains("overflows=7") && said[0].contains("drops=9"), "{said:?}");
        aloud.look(at(3_000), &counters);
        assert_eq!(heard.take(), [""; 0], "nothing new");
        counters.add(Mib::TcpExtListenDrops, 5);
        aloud.look(at(4_000), &counters);
        let said = heard.take();
        assert!(
            said.len() == 1 && said[0].contains("drops=5") && said[0].contains("too many are half open"),
            "{said:?}"
        );
    });
}

#[test]
fn a_capture_that_has_ended_is_spoken_of_once() {
    /// A disk that is full behind the head of the file.
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or_else(|| std::io::Error::other("no space left"))?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let capture = Capture::new(Full(150)).expect("there is room for the head");
    let (mut ours, mut theirs) = link(LinkConfig::default());
    let mut queue = capture.tap("lane 0", ours.remove(0));
    let heard = Heard::default();
    tracing::subscriber::with_default(heard.clone(), || {
        let (mut first, mut second) = (Aloud::new(0), Aloud::new(1));
        first.look_at_capture(&capture);
        assert_eq!(heard.take(), [""; 0]);
        for _ in 0..2 {
            assert!(queue.tx.reserve(100).is_some());
            queue.tx.commit(100, TxMeta::default());
            second.look_at_capture(&capture);
            first.look_at_capture(&capture);
        }
        let said = heard.take();
        assert!(said.len() == 1 && said[0].starts_with("WARN ") && said[0].contains("no space left"), "{said:?}");
    });
    queue.tx.flush();
    assert_eq!(theirs[0].rx.poll(64), 2, "what is not captured is sent all the same");
}
