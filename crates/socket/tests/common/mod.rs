//! What several of these tests need.

use laneway::Stack;

/// Has the lanes look at their mail and at the link until nothing is on its way. One that answers has looked.
pub fn rounds(stacks: [&Stack; 2]) {
    for _ in 0..4 {
        for stack in stacks {
            stack.counters().unwrap();
        }
    }
}
