//! `undrop multicast genkey`: a key for a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::key;

const EXAMPLES: &str = "\
Examples:
  undrop multicast genkey --out cluster.key   write a new file that only you can read; copy it to all hosts
  undrop multicast genkey                     print a key, for a secret store";

/// Make a secret key for a cluster. Nodes ignore all datagrams that are not authenticated with it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Write the key to a new file with mode 0600, in place of printing it; an existing file is never
    /// overwritten
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    key::make(args.out.as_deref(), "copy it to the other hosts over a secure channel")
}
