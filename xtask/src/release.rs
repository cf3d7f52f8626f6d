//! Tasks that run an optimised build: the demonstration and the benchmark.

use std::path::PathBuf;
use std::process::Command;

use crate::process::{cargo, root, succeeds};

/// `cargo xtask demo ARGS`: `undrop demo ARGS`.
pub(crate) fn demo(args: &[String]) -> anyhow::Result<bool> {
    Ok(build()? && succeeds(Command::new(program()).arg("demo").args(args))?)
}

/// `cargo xtask bench ARGS`: the benchmark, which runs gateways of the program just built.
pub(crate) fn bench(args: &[String]) -> anyhow::Result<bool> {
    if !build()? {
        return Ok(false);
    }
    let mut bench = cargo(&["run", "--release", "--package", "undrop", "--example", "bench", "--"]);
    succeeds(bench.arg("--program").arg(program()).args(args))
}

fn build() -> anyhow::Result<bool> {
    succeeds(&mut cargo(&["build", "--release", "--package", "undrop", "--bin", "undrop"]))
}

fn program() -> PathBuf {
    // Cargo runs in the root, so a relative directory is relative to that.
    let target = root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into()));
    target.join("release/undrop")
}
