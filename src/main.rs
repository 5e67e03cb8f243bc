//! The `ronde` program.
fn main() {}
