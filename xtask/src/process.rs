//! Starts cargo and other tools, and finds the directories of the build.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// Returns the root of the repository.
pub(crate) fn root() -> PathBuf {
    root_above(std::env::var_os("CARGO_MANIFEST_DIR"))
}

/// Returns the directory above the one in which cargo says that this task is. Two copies of the repository
/// may share a target directory, and the program that cargo finds there may be built from the other copy.
fn root_above(stated: Option<OsString>) -> PathBuf {
    let built_in = || env!("CARGO_MANIFEST_DIR").into();
    let xtask = PathBuf::from(stated.unwrap_or_else(built_in));
    xtask.parent().expect("xtask is a directory in the root").to_owned()
}

/// Returns cargo's target directory.
pub(crate) fn target() -> PathBuf {
    // A relative path starts at the root, where cargo runs its aliases.
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |target| root().join(target))
}

/// Returns a command that runs in the root, with the same cargo that runs this task.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Runs a command to its end; returns whether it succeeded.
pub(crate) fn succeeds(command: &mut Command) -> anyhow::Result<bool> {
    let status =
        command.status().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    Ok(status.success())
}

/// Returns whether a command succeeds, to find out whether a tool is installed.
pub(crate) fn is_there(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_that_of_the_copy_that_cargo_runs() {
        assert_eq!(root_above(Some("/a/copy/xtask".into())), PathBuf::from("/a/copy"));
        assert!(root_above(None).join("Cargo.toml").is_file());
    }
}
