//! The node's configuration file, for the commands that read it.

use std::path::Path;

use anyhow::anyhow;
use ricochet::{Config, ConfigError};

use crate::failure::Advice as _;
use crate::output;

/// Reads the configuration. Prints every mistake in it to stderr.
pub(super) fn load(file: &Path) -> anyhow::Result<Config> {
    Config::load(file).or_else(|error| {
        let ConfigError::Invalid(report) = error else { return Err(error.into()) };
        output::note(report);
        let remedy = format!("fix it, then run `undrop multicast check --config {}`", file.display());
        Err(anyhow!("the configuration has mistakes")).advise(remedy)
    })
}
