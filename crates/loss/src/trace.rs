//! Recorded losses: a text file, replayed in a loop.
//!
//! A file has one of two forms, given by its first word. `#` starts a comment up to the end of the line;
//! white space separates words.
//! - `fates`, or no such word: a string of digits, one per packet, `0` = passed, `1` = lost; blanks are
//!   ignored;
//! - `runs`: numbers of packets passed and lost, alternately, beginning with passed (which may be 0).
//!
//! Both of these lose the 3rd and the 4th of every 7 packets: `0011000` and `runs 2 2 3`.
//! [`TraceRecorder`] writes the second form.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::LossError;

/// Maximum size of a trace file.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A recorded sequence of fates.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    path: PathBuf,
    /// Numbers of packets passed and lost, alternately. Only the first may be 0, and the number of entries is
    /// even.
    runs: Arc<[u64]>,
}

impl Trace {
    /// Reads a trace file.
    ///
    /// # Errors
    /// If the file cannot be read, is too large, contains anything unexpected, or no packet at all.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, LossError> {
        let path = path.as_ref();
        let wrong = |reason: String| LossError::Trace { path: path.display().to_string(), reason };
        let text = read_text(path, FILE_BYTES_MAX).map_err(wrong)?;
        let runs = parse(&text).map_err(wrong)?;
        Ok(Self { path: path.to_owned(), runs: runs.into() })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of packets before the trace repeats.
    pub fn packets(&self) -> u64 {
        self.runs.iter().sum()
    }

    /// Returns the share of lost packets.
    pub fn rate(&self) -> f64 {
        let lost: u64 = self.runs.iter().skip(1).step_by(2).sum();
        lost as f64 / self.packets() as f64
    }

    pub(crate) fn replay(&self) -> Replay {
        Replay { runs: Arc::clone(&self.runs), index: 0, left: self.runs[0] }
    }
}

/// Reads a file of at most `bytes_max` bytes.
fn read_text(path: &Path, bytes_max: u64) -> Result<String, String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("expected a file that can be read, saw the error: {error}"))?;
    if bytes.len() as u64 > bytes_max {
        return Err(format!("expected at most {bytes_max} bytes, saw more"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("expected text, saw the byte {:#04x} at offset {at}", error.as_bytes()[at])
    })
}

fn parse(text: &str) -> Result<Vec<u64>, String> {
    let mut runs = Runs::default();
    let mut form = None;
    for (number, line) in text.lines().enumerate() {
        let content = line.split('#').next().unwrap_or_default();
        for word in content.split_ascii_whitespace() {
            let at = |reason: &str| format!("line {}: {reason}, saw {word:?}", number + 1);
            match (form, word) {
                (None, "runs" | "fates") => form = Some(word),
                (Some("runs"), _) => {
                    let run: u64 = word.parse().map_err(|_| at("expected a number of packets"))?;
                    runs.turn(run).map_err(at)?;
                }
                _ => {
                    form = Some("fates");
                    for digit in word.bytes() {
                        match digit {
                            b'0' => runs.push(false),
                            b'1' => runs.push(true),
                            _ => return Err(at("expected 0 (passed) and 1 (lost)")),
                        }
                    }
                }
            }
        }
    }
    runs.finish()
        .ok_or_else(|| "expected at least one packet, such as `0011000` or `runs 2 2 3`, saw none".to_owned())
}

/// Builder of run lengths.
#[derive(Debug, Default)]
struct Runs {
    done: Vec<u64>,
    current: u64,
    losing: bool,
    total: u64,
}

impl Runs {
    fn push(&mut self, lost: bool) {
        if lost != self.losing {
            self.done.push(self.current);
            (self.current, self.losing) = (0, lost);
        }
        self.current += 1;
    }

    /// Adds a whole run, of the kind that follows the one before.
    fn turn(&mut self, run: u64) -> Result<(), &'static str> {
        if run == 0 && !self.done.is_empty() {
            return Err("expected 0 only as the first number");
        }
        self.total = self.total.checked_add(run).ok_or("expected fewer packets than 2^64 in all")?;
        self.done.push(run);
        Ok(())
    }

    /// Returns an even number of runs, so that a repetition begins with passed packets.
    fn finish(mut self) -> Option<Vec<u64>> {
        if self.current > 0 {
            self.done.push(self.current);
        }
        if self.done.len() % 2 == 1 {
            self.done.push(0);
        }
        self.done.iter().any(|&run| run > 0).then_some(self.done)
    }
}

/// Position in a trace during replay.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    runs: Arc<[u64]>,
    index: usize,
    left: u64,
}

impl Replay {
    pub(crate) fn lose(&mut self) -> bool {
        // At least one run is not 0 (checked by `parse`), so this ends within one round.
        while self.left == 0 {
            self.index = (self.index + 1) % self.runs.len();
            self.left = self.runs[self.index];
        }
        self.left -= 1;
        self.index % 2 == 1
    }
}

/// Writes a trace as run lengths.
///
/// ```
/// let mut recorder = loss::TraceRecorder::new(Vec::new()).unwrap();
/// for lost in [false, false, true, true, false, false, false] {
///     recorder.record(lost).unwrap();
/// }
/// let text = String::from_utf8(recorder.finish().unwrap()).unwrap();
/// assert!(text.ends_with("runs\n2 2\n3\n"));
/// ```
#[derive(Debug)]
pub struct TraceRecorder<W: Write> {
    out: W,
    run: u64,
    losing: bool,
}

impl<W: Write> TraceRecorder<W> {
    /// Begins a trace. The writer should be buffered.
    ///
    /// # Errors
    /// The writer's error.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"# numbers of packets passed and lost, alternately\nruns\n")?;
        Ok(Self { out, run: 0, losing: false })
    }

    /// Records the fate of the next packet.
    ///
    /// # Errors
    /// The writer's error.
    pub fn record(&mut self, lost: bool) -> io::Result<()> {
        if lost != self.losing {
            self.end_run()?;
            self.losing = lost;
        }
        self.run += 1;
        Ok(())
    }

    /// Ends the trace and returns the writer.
    ///
    /// # Errors
    /// The writer's error.
    pub fn finish(mut self) -> io::Result<W> {
        if self.run > 0 {
            self.end_run()?;
            if !self.losing {
                self.out.write_all(b"\n")?;
            }
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn end_run(&mut self) -> io::Result<()> {
        // Each line has the packets passed, then the packets lost.
        let run = std::mem::take(&mut self.run);
        if self.losing { writeln!(self.out, " {run}") } else { write!(self.out, "{run}") }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::LossModel;

    fn fates(runs: &[u64], packets: usize) -> String {
        let trace = Trace { path: PathBuf::new(), runs: runs.into() };
        let mut replay = trace.replay();
        (0..packets).map(|_| if replay.lose() { '1' } else { '0' }).collect()
    }

    #[test]
    fn both_forms_are_equivalent_and_repeat() {
        for text in ["0011000", "fates 00 11\n000 # a comment 1", "runs 2 2 3", "# first\nruns\n2 2\n3\n"] {
            let runs = parse(text).unwrap();
            assert_eq!(fates(&runs, 21), "001100000110000011000", "{text:?}");
        }
        assert_eq!(fates(&parse("1").unwrap(), 3), "111");
        assert_eq!(fates(&parse("0").unwrap(), 3), "000");
        assert_eq!(fates(&parse("runs 0 1 2").unwrap(), 6), "100100");
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line() {
        for (text, needle) in [
            ("", "at least one packet"),
            ("# only this", "at least one packet"),
            ("runs 0 0", "only as the first"),
            ("0011\n002\n", "line 2"),
            ("runs 5 x", "\"x\""),
            ("runs 18446744073709551615 1", "2^64"),
            ("runs -1", "\"-1\""),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(needle), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_file_that_is_no_text_is_refused_with_what_was_expected_and_seen() {
        let path = std::env::temp_dir().join(format!("loss-trace-wrong-{}", std::process::id()));
        let said = |path: &Path| Trace::read(path).unwrap_err().to_string();
        assert!(said(&path).contains("expected a file that can be read, saw the error: No such file"));
        assert!(said(&std::env::temp_dir()).contains("saw the error: Is a directory"));
        fs::write(&path, b"01\xff").unwrap();
        let error = said(&path);
        fs::remove_file(&path).unwrap();
        assert!(error.contains("expected text, saw the byte 0xff at offset 2"), "{error}");
        // A device without end is not read to its end.
        assert_eq!(read_text(Path::new("/dev/zero"), 9).unwrap_err(), "expected at most 9 bytes, saw more");
    }

    #[test]
    fn a_recorded_trace_replays() {
        let mut loss = LossModel::markov(0.2, 3.0).unwrap().seeded(9);
        let wanted: Vec<bool> = (0..10_000).map(|_| loss.lose()).collect();
        let mut recorder = TraceRecorder::new(Vec::new()).unwrap();
        wanted.iter().for_each(|&lost| recorder.record(lost).unwrap());
        let text = String::from_utf8(recorder.finish().unwrap()).unwrap();
        let directory = std::env::temp_dir().join(format!("netlab-trace-{}", std::process::id()));
        fs::write(&directory, text).unwrap();
        let model: LossModel = format!("trace:{}", directory.display()).parse().unwrap();
        fs::remove_file(&directory).unwrap();
        let LossModel::Trace(trace) = &model else { panic!("expected a trace") };
        assert_eq!(trace.packets(), 10_000);
        let lost = wanted.iter().filter(|&&lost| lost).count();
        assert!((model.rate() - lost as f64 / 1e4).abs() < 1e-12);
        let mut replayed = model.seeded(0);
        assert!(wanted.iter().chain(&wanted).all(|&lost| replayed.lose() == lost));
    }
}
