//! Tasks that run an optimised build: the demonstration, the figures and the benchmarks.

use std::process::{Command, ExitCode};

use anyhow::Context as _;

use crate::process::{cargo, succeeds, target};

/// Builds both programs with optimisation and runs `undrop-lab TASK ARGS` with the gateways of `undrop`;
/// returns its exit code.
pub(crate) fn lab(task: &str, args: &[String]) -> anyhow::Result<ExitCode> {
    let packages = ["build", "--release", "--package", "undrop", "--package", "undrop-lab"];
    if !succeeds(&mut cargo(&packages))? {
        return Ok(ExitCode::FAILURE);
    }
    let programs = target().join("release");
    let mut command = Command::new(programs.join("undrop-lab"));
    command.arg("--program").arg(programs.join("undrop")).arg(task).args(args);
    let status = command.status().context("cannot start undrop-lab")?;
    // A signal has no exit code.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
