//! tools
fn main() {}
