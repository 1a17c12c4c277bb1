//! Owns what a thread can do, and how often it does what.

use crate::dice::Dice;

#[derive(Clone, Copy)]
pub enum Act {
    Listen,
    Unlisten,
    Connect,
    Crowd,
    Accept,
    Say,
    Hear,
    Shut,
    Nodelay,
    Buffers,
    Mark,
    CallOff,
    Leave,
    Move,
    Bind,
    Unbind,
    Tell,
}

/// How often each, among all.
const OFTEN: [(Act, usize); 10] = [
    (Act::Listen, 3),
    (Act::Unlisten, 1),
    (Act::Connect, 6),
    (Act::Accept, 4),
    (Act::Say, 6),
    (Act::Hear, 3),
    (Act::Leave, 2),
    (Act::Shut, 1),
    (Act::Bind, 1),
    (Act::Tell, 2),
];
/// Now and then, and how often any of them.
const RARE: [Act; 7] = [Act::Move, Act::Unbind, Act::Nodelay, Act::Buffers, Act::Mark, Act::Crowd, Act::CallOff];
const RARE_TIMES: usize = 3;

/// What is done next.
pub fn pick(dice: &mut Dice) -> Act {
    let mut at = dice.below(OFTEN.iter().map(|(_, times)| times).sum::<usize>() + RARE_TIMES);
    for (act, times) in OFTEN {
        match at.checked_sub(times) {
            Some(rest) => at = rest,
            None => return act,
        }
    }
    dice.pick(&RARE)
}
