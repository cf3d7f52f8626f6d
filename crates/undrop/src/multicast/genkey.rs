//! `undrop multicast genkey`: a key for a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::key;

const EXAMPLES: &str = "\
Examples:
  undrop multicast genkey --out cluster.key   write a new file that only you can read; copy it to all hosts
  undrop multicast genkey --append cluster.key  add a key to the file: nodes accept it, and still sign with the first
  undrop multicast genkey                     print a key, for a secret store

To change the key of a running cluster: 1. add a key with --append, and copy the file to all hosts; 2. move the new line to
the front of the file, and copy it to all hosts; 3. delete the old line, and copy it again. Nodes read the file again within
a second after it changes. Wait before each step until `undrop multicast status` shows that all nodes have the keys.";

/// Make a secret key for a cluster. Nodes ignore all datagrams that are not authenticated with it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Write the key to a new file with mode 0600, in place of printing it; an existing file is never
    /// overwritten
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Add a new key as the last line of a file that has keys; nodes accept all keys and sign with the first
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    append: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.append {
        return key::append(file, "copy it to the other hosts over a secure channel");
    }
    key::make(args.out.as_deref(), "copy it to the other hosts over a secure channel")
}
