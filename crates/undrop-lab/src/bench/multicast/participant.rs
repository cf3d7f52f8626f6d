//! A participant: a program in a host that exchanges lines with the bench.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use netlab::Namespace;
use netlab::namespace::Child;

use crate::bench::{rig, stop};

/// Longest wait between two looks whether a stop is requested.
const LOOK: Duration = Duration::from_millis(100);

/// A system under measurement, with the command that starts its participant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct System {
    pub(crate) name: String,
    pub(crate) settings: String,
    program: String,
    arguments: Vec<String>,
}

impl FromStr for System {
    type Err = String;

    /// Parses `NAME=COMMAND LINE` or `NAME:key=value,key=value=COMMAND LINE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected NAME=COMMAND or NAME:key=value=COMMAND, saw {text:?}");
        let mut words = text.split_ascii_whitespace();
        let (name, program) = words.next().and_then(|word| word.rsplit_once('=')).ok_or_else(wrong)?;
        let (name, settings) = name.split_once(':').unwrap_or((name, ""));
        if name.is_empty() || program.is_empty() || name.contains('=') {
            return Err(wrong());
        }
        let mut system = Self {
            name: name.to_owned(),
            settings: settings.to_owned(),
            program: from_here(program),
            arguments: words.map(from_here).collect(),
        };
        if program == "@ricochet" {
            // This program contains the participant.
            let path = std::env::current_exe().map_err(|error| error.to_string())?;
            system.program = path.to_string_lossy().into_owned();
            system.arguments.splice(0..0, ["bench".to_owned(), "ricochet".to_owned()]);
        }
        Ok(system)
    }
}

/// Makes the path of an existing file absolute, because each participant works in its own directory.
fn from_here(word: &str) -> String {
    let path = word.contains('/').then(|| fs::canonicalize(word).ok()).flatten();
    path.map_or_else(|| word.to_owned(), |path| path.to_string_lossy().into_owned())
}

impl System {
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command
    }
}

/// A program that runs in a host. Dropping the participant kills the program.
pub(crate) struct Participant {
    label: String,
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    directory: PathBuf,
    /// Counters that the participant has printed with `stat`.
    pub(crate) stats: Vec<(String, f64)>,
}

impl Participant {
    /// Starts the participant in its own directory.
    pub(crate) fn start(
        host: &Namespace,
        label: String,
        mut command: Command,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let errors = fs::File::create(directory.join("stderr"))
            .context("cannot create the file for stderr of a participant")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).current_dir(directory);
        let mut child = host.spawn(command)?;
        let input = child.stdin.take().context("expected a pipe to the participant")?;
        let output = child.stdout.take().context("expected a pipe from the participant")?;
        let (sender, lines) = channel();
        // The thread ends with the program's output.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { label, child, input, lines, directory: directory.to_owned(), stats: Vec::new() })
    }

    /// Sends a line to the participant.
    pub(crate) fn send(&mut self, line: &str) -> anyhow::Result<()> {
        let sent = writeln!(self.input, "{line}").and_then(|()| self.input.flush());
        sent.with_context(|| format!("cannot send {line:?} to {}: {}", self.label, self.complaint()))
    }

    /// Waits for a line that begins with `word`. Keeps the counters that the participant prints meanwhile.
    pub(crate) fn expect(&mut self, word: &str, patience: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            stop::check()?;
            let left = deadline.saturating_duration_since(Instant::now());
            let line = match self.lines.recv_timeout(left.min(LOOK)) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) if left > LOOK => continue,
                Err(RecvTimeoutError::Timeout) => anyhow::bail!(
                    "expected {word:?} from {} within {} s, saw no such line; end of its stderr: {}",
                    self.label,
                    patience.as_secs(),
                    self.complaint()
                ),
                Err(RecvTimeoutError::Disconnected) => {
                    anyhow::bail!(
                        "expected {word:?} from {}, saw its end; end of its stderr: {}",
                        self.label,
                        self.complaint()
                    )
                }
            };
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some(first) if first == word => return Ok(()),
                Some("stat") => {
                    let value = |word: &str| word.parse::<f64>().ok();
                    if let (Some(name), Some(value)) = (words.next(), words.next().and_then(value)) {
                        self.stats.push((name.to_owned(), value));
                    }
                }
                _ => eprintln!("  {}: {line}", self.label),
            }
        }
    }

    /// Returns the counter of this name that the participant printed last.
    pub(crate) fn stat(&self, name: &str) -> Option<f64> {
        self.stats.iter().rev().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Kills the participant.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().with_context(|| format!("cannot kill {}", self.label))
    }

    /// Returns the resident memory of the participant in bytes, without that of its descendants.
    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        rig::resident_bytes(self.child.id()).with_context(|| self.complaint())
    }

    /// Returns the processor time in seconds that the participant and its descendants have used.
    pub(crate) fn cpu_s(&self) -> anyhow::Result<f64> {
        let own = rig::cpu_s(self.child.id()).with_context(|| self.complaint())?;
        // A descendant may have ended since it was found; its time is left out.
        Ok(own + children(self.child.id()).into_iter().filter_map(|pid| rig::cpu_s(pid).ok()).sum::<f64>())
    }

    /// Returns the last lines that the participant wrote to stderr.
    fn complaint(&self) -> String {
        let text = fs::read(self.directory.join("stderr")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join(" | ")
    }
}

/// Returns the living descendants of a process.
fn children(pid: u32) -> Vec<u32> {
    const COUNT_MAX: usize = 1_000;
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() && found.len() < COUNT_MAX {
        let tasks = fs::read_dir(format!("/proc/{}/task", found[next])).into_iter().flatten().flatten();
        for task in tasks {
            let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        next += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_parsed_as_name_settings_and_command() {
        let plain: System = "raw=participant --quick".parse().unwrap();
        assert_eq!((plain.name.as_str(), plain.settings.as_str()), ("raw", ""));
        assert_eq!((plain.program.as_str(), plain.arguments.len()), ("participant", 1));
        let tuned: System = "dds:tuning=best,heartbeat_ms=5=dds".parse().unwrap();
        assert_eq!((tuned.name.as_str(), tuned.settings.as_str()), ("dds", "tuning=best,heartbeat_ms=5"));
        assert_eq!(tuned.program, "dds");
        for wrong in ["", "raw", "=participant", "raw="] {
            assert!(wrong.parse::<System>().unwrap_err().contains("NAME=COMMAND"), "{wrong:?}");
        }
    }
}
