//! Tasks that run an optimised build: the demonstration, the figures and the benchmarks.

use std::process::Command;

use crate::process::{cargo, succeeds, target};

/// Builds both programs with optimisation and runs `undrop-lab TASK ARGS` with the gateways of `undrop`.
pub(crate) fn lab(task: &str, args: &[String]) -> anyhow::Result<bool> {
    let packages = ["build", "--release", "--package", "undrop", "--package", "undrop-lab"];
    if !succeeds(&mut cargo(&packages))? {
        return Ok(false);
    }
    let programs = target().join("release");
    let mut command = Command::new(programs.join("undrop-lab"));
    succeeds(command.arg("--program").arg(programs.join("undrop")).arg(task).args(args))
}
