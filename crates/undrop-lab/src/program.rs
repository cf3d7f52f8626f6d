//! The program that runs the gateways of demonstrations and measurements.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use xxhash_rust::xxh3::xxh3_64;

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

/// Returns a number that another build of a program does not have.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn fingerprint(program: &Path) -> anyhow::Result<u64> {
    let bytes = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    Ok(xxh3_64(&bytes))
}
