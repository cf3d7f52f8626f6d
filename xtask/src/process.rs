//! Running cargo and looking for tools.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask lies in the root").to_owned()
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    // A relative one counts from where cargo was called: cargo runs aliases in the root.
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |target| root().join(target))
}

/// The cargo that runs this task, in the root.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Runs to the end; whether it succeeded.
pub(crate) fn succeeds(command: &mut Command) -> anyhow::Result<bool> {
    let status =
        command.status().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    Ok(status.success())
}

/// Whether a command runs without complaint: how to ask whether a tool is there.
pub(crate) fn is_there(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
