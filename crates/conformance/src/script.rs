//! Owns what a script says, once it has been read.

use crate::packet::Packet;

/// A whole script.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its name, for messages.
    pub name: String,
    /// `--name=value` lines.
    pub settings: Vec<Setting>,
    /// What happens, in order.
    pub events: Vec<Event>,
}

/// One `--name=value` line.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Line in the file, from 1.
    pub line: usize,
    /// Before the equals sign.
    pub name: String,
    /// Behind it.
    pub value: String,
}

/// When an event happens. Microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Since the start of the script.
    At(u64, u64),
    /// Since the event before.
    After(u64, u64),
    /// Whenever it comes.
    Any,
    /// In the same poll as the event before.
    SamePoll,
}

/// One line that does something.
#[derive(Clone, Debug)]
pub struct Event {
    /// Line in the file, from 1.
    pub line: usize,
    /// The line itself, for messages.
    pub text: String,
    /// When.
    pub when: When,
    /// What.
    pub action: Action,
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Action {
    /// The peer sends.
    Inbound(Packet),
    /// We must send.
    Outbound(Packet),
    /// The application does something, or somebody looks.
    Call(Call),
}

/// A call and its result.
#[derive(Clone, Debug)]
pub struct Call {
    /// The verb.
    pub verb: String,
    /// Its arguments, as written.
    pub args: Vec<String>,
    /// What it must answer, as written: `0`, `-1 EAGAIN`, `ESTABLISHED`. `None`: anything.
    pub result: Option<String>,
}
