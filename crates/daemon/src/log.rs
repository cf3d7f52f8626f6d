//! A log on stderr that never stops its process: lines that stderr does not take are dropped and counted.
//!
//! The disk may be full, the reader of the pipe may be gone, or it may read no more. In the last case a plain
//! write would wait, and the loop of the process with it.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Maximum number of bytes that a writable pipe takes without waiting (`PIPE_BUF`).
const CHUNK: usize = 4096;

static LOST: AtomicU64 = AtomicU64::new(0);
static UNREPORTED: AtomicU64 = AtomicU64::new(0);

/// Renders the line that tells the number of missing lines.
static MISSING: OnceLock<fn(u64) -> String> = OnceLock::new();

/// Returns the sentence about missing lines.
pub fn missing(count: u64) -> String {
    format!("{count} lines of this log are missing: stderr did not take them")
}

/// Changes the line that tells the number of missing lines, once for the process: a log of JSON objects must
/// contain nothing else.
pub fn report_missing_as(render: fn(u64) -> String) {
    MISSING.get_or_init(|| render);
}

/// Returns the number of log lines that stderr has not taken since the process started.
pub fn lost_lines() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Writer of log lines: each call of [`Write::write`] takes one line and succeeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogLines;

impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        log_line(&mut io::stderr().lock(), line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line if `to` takes it without waiting. The first line after lost ones is preceded by their
/// number.
fn log_line(to: &mut (impl Write + AsFd), line: &[u8]) {
    let unreported = UNREPORTED.load(Ordering::Relaxed);
    if unreported > 0 {
        let report = MISSING.get().map_or_else(|| missing(unreported), |render| render(unreported)) + "\n";
        if put(to, report.as_bytes()) {
            UNREPORTED.fetch_sub(unreported, Ordering::Relaxed);
        }
    }
    if !put(to, line) {
        LOST.fetch_add(1, Ordering::Relaxed);
        UNREPORTED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns whether everything was written.
fn put(to: &mut (impl Write + AsFd), text: &[u8]) -> bool {
    text.chunks(CHUNK).all(|chunk| is_ready(to) && to.write_all(chunk).is_ok()) && to.flush().is_ok()
}

/// Returns whether a write ends at once, be it with an error.
fn is_ready(to: &impl AsFd) -> bool {
    let mut waiting = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
    poll(&mut waiting, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;

    use super::*;

    /// One test, because the counters belong to the process.
    #[test]
    fn lines_that_cannot_be_written_are_counted_and_reported() {
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        log_line(&mut full, b"one\n");
        assert_eq!(lost_lines(), 1);
        // A pipe that nobody reads: no line waits.
        let (mut reader, mut writer) = io::pipe().unwrap();
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        for _ in 0..1_000 {
            log_line(&mut writer, &line);
        }
        let lost = lost_lines();
        assert!((500..1_001).contains(&lost), "{lost}");
        let mut taken = vec![0; 1 << 16];
        let read = reader.read(&mut taken).unwrap();
        assert!(taken[..read].starts_with(b"1 lines of this log are missing"));
        log_line(&mut writer, b"after\n");
        assert_eq!(lost_lines(), lost);
        let mut text = String::new();
        drop(writer);
        reader.read_to_string(&mut text).unwrap();
        let report = format!("{} lines of this log are missing: stderr did not take them\nafter\n", lost - 1);
        assert!(text.ends_with(&report), "{text:?}");
        // The reader is gone.
        let (_, mut writer) = io::pipe().unwrap();
        log_line(&mut writer, b"gone\n");
        assert_eq!(lost_lines(), lost + 1);
    }
}
