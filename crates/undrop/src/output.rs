//! Output to stdout, which may be a pipe that closes early, and notes on stderr.

use std::fmt::Display;
use std::io::{self, Write as _};

use anyhow::Context as _;

/// Writes the text and a line end to stdout, and flushes.
pub fn line(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.write_all(b"\n"));
    written.and_then(|()| stdout.flush()).context("cannot write to stdout")
}

/// Writes the text and a line end to stderr. If stderr does not take them, the text is lost, and the command
/// goes on.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}
