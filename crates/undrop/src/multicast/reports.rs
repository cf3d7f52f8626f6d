//! Reports of the commands that carry what other programs send.
//!
//! A thread of its own writes them. A full disk, a reader that has gone and one that does not read cost
//! reports, and delay nothing else.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::mem;
use std::os::fd::AsFd as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde::Serialize;

use crate::failure::Advice as _;
use crate::output;

/// Longest wait for the last report to be taken.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where reports go: lines of JSON to stdout, or texts to stderr. A text that stderr does not take is lost.
pub(super) struct Reports {
    is_json: bool,
    texts: Sender<String>,
    results: Receiver<io::Result<()>>,
    /// Number of reports that are not written yet.
    waiting: usize,
    /// Whether the last report was not written.
    has_failed: bool,
}

impl Reports {
    /// Starts the thread.
    pub(super) fn start(is_json: bool) -> anyhow::Result<Self> {
        let stdout = io::stdout().as_fd().try_clone_to_owned().context("cannot write to stdout")?;
        Self::start_with(is_json, File::from(stdout))
    }

    fn start_with(is_json: bool, out: impl Write + Send + 'static) -> anyhow::Result<Self> {
        let (texts, to_write) = channel::<String>();
        let (written, results) = channel();
        let mut lines = Lines { out, is_torn: false };
        let work = move || {
            for text in to_write {
                let result = if is_json {
                    lines.write(&text)
                } else {
                    output::note(text);
                    Ok(())
                };
                if written.send(result).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("reports".to_owned()).spawn(work).context("cannot start a thread")?;
        Ok(Self { is_json, texts, results, waiting: 0, has_failed: false })
    }

    /// Writes a report in passing. It is left out while nobody reads the one before it.
    pub(super) fn pass(&mut self, status: &impl Serialize, text: impl FnOnce() -> String) {
        while let Ok(written) = self.results.try_recv() {
            self.waiting -= 1;
            self.note(written);
        }
        if self.waiting > 0 {
            return self.note(Err(io::Error::new(ErrorKind::TimedOut, "nobody reads the one before it")));
        }
        let handed_over = self.hand_over(status, text);
        if handed_over.is_err() {
            self.note(handed_over);
        }
    }

    /// Writes the last report, and waits until it is written.
    pub(super) fn finish(
        mut self,
        status: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let mut written = self.hand_over(status, text);
        while self.waiting > 0 {
            self.waiting -= 1;
            let Ok(result) = self.results.recv_timeout(PATIENCE) else {
                written = Err(io::Error::new(ErrorKind::TimedOut, "nobody reads it"));
                break;
            };
            written = result;
        }
        if !self.is_json {
            return Ok(());
        }
        // A new error, because a closed pipe as the cause of one would be a success.
        written
            .map_err(|error| anyhow!("cannot write the last report to stdout: {error}"))
            .advise("let the reader of stdout run until this command has ended, or make room on its disk")
    }

    /// Hands a report over to the thread.
    fn hand_over(&mut self, status: &impl Serialize, text: impl FnOnce() -> String) -> io::Result<()> {
        let text = if self.is_json { serde_json::to_string(status)? } else { text() };
        self.texts.send(text).map_err(|_| io::Error::other("the thread that writes reports has ended"))?;
        self.waiting += 1;
        Ok(())
    }

    /// Says that reports are not written, once until one is again.
    fn note(&mut self, written: io::Result<()>) {
        let had_failed = mem::replace(&mut self.has_failed, written.is_err());
        // A log that goes to stderr would wait for the reader that a text there waits for.
        if let Err(error) = written
            && self.is_json
            && !had_failed
        {
            tracing::warn!(%error, "stdout does not take a report; this command goes on");
        }
    }
}

/// Lines of a file that may take a part of one.
struct Lines<W> {
    out: W,
    /// Whether the file ends with a part of a line.
    is_torn: bool,
}

impl<W: Write> Lines<W> {
    fn write(&mut self, line: &str) -> io::Result<()> {
        let begin = if self.is_torn { "\n" } else { "" };
        let bytes = format!("{begin}{line}\n").into_bytes();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match self.out.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    rest = &rest[count..];
                    self.is_torn = !rest.is_empty();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    type Written = Arc<Mutex<Vec<u8>>>;

    /// A file that takes each piece when it may.
    struct Gate {
        may_write: Receiver<io::Result<usize>>,
        written: Written,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // It is open once nobody keeps it.
            let count = self.may_write.recv().unwrap_or(Ok(usize::MAX))?.min(bytes.len());
            self.written.lock().unwrap().extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gate() -> (Gate, Sender<io::Result<usize>>, Written) {
        let ((keeper, may_write), written) = (channel(), Arc::default());
        (Gate { may_write, written: Arc::clone(&written) }, keeper, written)
    }

    #[test]
    fn reports_that_nobody_reads_are_left_out_and_wait_for_nothing() {
        let (gate, keeper, written) = gate();
        let mut reports = Reports::start_with(true, gate).unwrap();
        (0..100).for_each(|number| reports.pass(&number, String::new));
        assert_eq!(reports.waiting, 1);
        drop(keeper);
        reports.finish(&100, String::new).unwrap();
        assert_eq!(*written.lock().unwrap(), b"0\n100\n");
    }

    #[test]
    fn a_report_that_fails_costs_that_report_alone() {
        let (gate, keeper, written) = gate();
        let mut lines = Lines { out: gate, is_torn: false };
        for (may_write, is_taken) in [(Ok(100), true), (Ok(2), false), (Ok(100), true), (Ok(100), true)] {
            keeper.send(may_write).unwrap();
            if !is_taken {
                keeper.send(Err(ErrorKind::StorageFull.into())).unwrap();
            }
            assert_eq!(lines.write("1234").is_ok(), is_taken);
        }
        assert_eq!(*written.lock().unwrap(), b"1234\n12\n1234\n1234\n");
    }

    #[test]
    fn a_last_report_that_nobody_can_read_is_a_failure() {
        let (gate, keeper, _) = gate();
        keeper.send(Err(ErrorKind::BrokenPipe.into())).unwrap();
        let reports = Reports::start_with(true, gate).unwrap();
        let error = reports.finish(&7, String::new).unwrap_err();
        assert!(error.to_string().contains("stdout"), "{error}");
        assert_eq!(crate::failure::report(&error), std::process::ExitCode::FAILURE);
    }
}
