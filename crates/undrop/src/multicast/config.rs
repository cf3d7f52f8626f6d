//! The node's configuration file, for the commands that read it.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use ricochet::{Config, ConfigError};

use crate::failure::Advice as _;
use crate::output;

/// Reads the configuration. Prints every mistake in it to stderr.
pub(super) fn load(file: &Path) -> anyhow::Result<Config> {
    Config::load(file).or_else(|error| refuse(file, error))
}

/// Reads the control socket of a node that runs, whatever else is wrong in its configuration.
pub(super) fn control(file: &Path) -> anyhow::Result<Option<PathBuf>> {
    Config::control(file).or_else(|error| refuse(file, error))
}

fn refuse<T>(file: &Path, error: ConfigError) -> anyhow::Result<T> {
    let ConfigError::Invalid(report) = error else { return Err(error.into()) };
    output::note(report);
    let remedy = format!("fix it, then run `undrop multicast check {}`", file.display());
    Err(anyhow!("the configuration has mistakes")).advise(remedy)
}
