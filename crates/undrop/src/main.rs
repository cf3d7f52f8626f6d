//! The `undrop` command.
fn main() {}
