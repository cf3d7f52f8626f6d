//! `undrop gateway genkey`: a key for a pair of gateways.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::key;

const EXAMPLES: &str = "\
Examples:
  undrop gateway genkey --out peer.key   write a new file that only you can read
  scp peer.key far:/etc/undrop/          both gateways of a pair have the same key
  undrop gateway genkey                  print a key, for a secret store";

/// Make a secret key for a pair of gateways.
///
/// The key is 32 bytes from the operating system's random source, as one line of base64. Each pair of
/// gateways needs a key of its own.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Write the key to a new file with mode 0600, in place of printing it; an existing file is never
    /// overwritten
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    key::make(args.out.as_deref(), "copy it to the far gateway over a secure channel")
}
