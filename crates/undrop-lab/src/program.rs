//! The program whose processes are the gateways of demonstrations and measurements.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Returns the absolute path of `given`, or of this program, which contains the same gateway.
///
/// # Errors
/// If there is no such file.
pub(crate) fn find(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    match given {
        Some(path) => {
            path.canonicalize().with_context(|| format!("--program: cannot find `{}`", path.display()))
        }
        None => std::env::current_exe().context("cannot find the path of this program"),
    }
}
