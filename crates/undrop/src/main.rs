//! The `undrop` program; `lib.rs` says where each subcommand is.

use std::process::ExitCode;

fn main() -> ExitCode {
    undrop::main()
}
