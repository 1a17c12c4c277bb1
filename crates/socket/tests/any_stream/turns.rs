//! Owns conversations: two ends that speak in turns, each when it has heard all of the other's word. Whoever is not told of one waits for ever, and so
//! does the other.

/// The next thing to be done: to have said, or heard, so many bytes in all.
#[derive(Clone, Copy)]
pub enum Step {
    Say(usize),
    Hear(usize),
}

/// How long a word is. Nearly all are short.
fn word(round: usize, side: usize) -> usize {
    let at = 7 * round + 3 * side;
    if at % 32 == 31 { 2_000 + at } else { 1 + at % 9 }
}

/// What an end says in so many rounds.
pub fn says(rounds: usize, side: usize) -> usize {
    (0..rounds).map(|round| word(round, side)).sum()
}

/// What it does in them.
pub fn steps(rounds: usize, side: usize) -> Vec<Step> {
    let (mut said, mut heard) = (0, 0);
    let round = |round| {
        said += word(round, side);
        heard += word(round, 1 - side);
        let steps = [Step::Say(said), Step::Hear(heard)];
        if side == 0 { steps } else { [steps[1], steps[0]] }
    };
    (0..rounds).flat_map(round).collect()
}
