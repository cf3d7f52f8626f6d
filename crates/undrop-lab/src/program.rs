//! The program that runs the gateways of demonstrations and measurements.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Returns the absolute path of `given`, or else of this program, which contains the same gateway.
///
/// # Errors
/// If the file does not exist, or the path of this program is unknown.
pub(crate) fn find(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    match given {
        Some(path) => {
            path.canonicalize().with_context(|| format!("--program: cannot find `{}`", path.display()))
        }
        None => std::env::current_exe().context("cannot find the path of this program"),
    }
}
