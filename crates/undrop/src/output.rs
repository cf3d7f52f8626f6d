//! Output to stdout, which may be a pipe that closes early.

use std::io::{self, Write as _};

/// Writes the text and a line end, and flushes.
pub fn line(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}
