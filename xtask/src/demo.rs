//! `cargo xtask demo`: the demonstration with an optimised build.

use std::process::Command;

use crate::process::{cargo, root, succeeds};

pub(crate) fn run(args: &[String]) -> anyhow::Result<bool> {
    if !succeeds(&mut cargo(&["build", "--release", "--package", "undrop", "--bin", "undrop"]))? {
        return Ok(false);
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into);
    succeeds(Command::new(target.join("release/undrop")).arg("demo").args(args))
}
