//! Owns making a story short that the two worlds tell differently.

use crate::call::Story;

/// The story without calls that it does not need to be told differently.
pub fn shrunk(mut story: Story, mut differs: impl FnMut(&Story) -> bool) -> Story {
    let mut len = story.calls.len().div_ceil(2);
    loop {
        let mut at = 0;
        while at < story.calls.len() {
            let mut shorter = story.clone();
            shorter.calls.drain(at..(at + len).min(story.calls.len()));
            if differs(&shorter) {
                story = shorter;
            } else {
                at += len;
            }
        }
        if len == 1 {
            return story;
        }
        len = len.div_ceil(2);
    }
}
