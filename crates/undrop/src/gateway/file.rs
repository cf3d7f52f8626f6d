//! The configuration file of a gateway that does not run yet, as a command line states it.

use std::path::{Path, PathBuf};

use maelstrom::config;

/// The configuration that a command reads.
#[derive(Debug, clap::Args)]
pub(super) struct FileArgs {
    /// The gateway's configuration
    #[arg(value_name = "FILE", default_value = config::FILE_DEFAULT)]
    file: PathBuf,
    /// The gateway's configuration, in place of the argument FILE
    #[arg(long, short, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

impl FileArgs {
    pub(super) fn path(&self) -> &Path {
        self.config.as_deref().unwrap_or(&self.file)
    }
}
