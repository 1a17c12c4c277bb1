use super::*;
use std::fmt::Write;

const EVENTS: [Event; 10] = [
    Event::Listen,
    Event::Connect,
    Event::Syn,
    Event::SynAck,
    Event::AckOfSyn,
    Event::Close,
    Event::Fin,
    Event::AckOfFin,
    Event::Expire,
    Event::Reset,
];

/// All pairs, so that a changed protocol is seen in review as a changed table.
#[test]
fn transition_table() {
    let mut table = String::new();
    for state in State::ALL {
        for event in EVENTS {
            if let Some(next) = state.on(event) {
                writeln!(table, "{:<12} {:<9} {}", state.name(), format!("{event:?}"), next.name()).unwrap();
            }
        }
    }
    insta::assert_snapshot!(table);
}

/// The same as a Graphviz picture.
#[test]
fn transition_picture() {
    let mut dot = String::from("digraph tcp {\n");
    for state in State::ALL {
        for event in EVENTS {
            if let Some(next) = state.on(event) {
                writeln!(dot, "  \"{}\" -> \"{}\" [label=\"{event:?}\"];", state.name(), next.name()).unwrap();
            }
        }
    }
    dot.push('}');
    insta::assert_snapshot!(dot);
}
