//! One participant: a program in a host, spoken to by lines.

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

use crate::bench::rig;

/// A system to be measured: how its participant is started.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct System {
    pub(crate) name: String,
    pub(crate) settings: String,
    program: String,
    arguments: Vec<String>,
}

impl FromStr for System {
    type Err = String;

    /// `NAME=COMMAND LINE` or `NAME:key=value,key=value=COMMAND LINE`.
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
            // This program plays its part.
            let path = std::env::current_exe().map_err(|error| error.to_string())?;
            system.program = path.to_string_lossy().into_owned();
            system.arguments.splice(0..0, ["bench".to_owned(), "ricochet".to_owned()]);
        }
        Ok(system)
    }
}

/// Participants work in a directory of their own, so a path is made absolute.
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

/// A program that runs in a host; it is killed when this is dropped.
pub(crate) struct Participant {
    label: String,
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    directory: PathBuf,
    /// What it has said with `stat`.
    pub(crate) stats: Vec<(String, f64)>,
}

impl Participant {
    /// Starts it in a directory of its own.
    pub(crate) fn start(
        host: &Namespace,
        label: String,
        mut command: Command,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let errors = fs::File::create(directory.join("stderr")).context("making a file for what it says")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).current_dir(directory);
        let mut child = host.spawn(command)?;
        let input = child.stdin.take().context("a participant has an input")?;
        let output = child.stdout.take().context("a participant has an output")?;
        let (tell, lines) = channel();
        // It ends with the program's output.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { label, child, input, lines, directory: directory.to_owned(), stats: Vec::new() })
    }

    /// Sends it a line.
    pub(crate) fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        let told = writeln!(self.input, "{line}").and_then(|()| self.input.flush());
        told.with_context(|| format!("telling {} {line:?}: {}", self.label, self.complaint()))
    }

    /// Waits until it says a line that begins with `word`; counters that it tells meanwhile are kept.
    pub(crate) fn expect(&mut self, word: &str, patience: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let line = match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => anyhow::bail!(
                    "{} did not say {word:?} within {} s: {}",
                    self.label,
                    patience.as_secs(),
                    self.complaint()
                ),
                Err(RecvTimeoutError::Disconnected) => {
                    anyhow::bail!("{} ended before {word:?}: {}", self.label, self.complaint())
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

    /// Processor seconds so far, of its children too.
    pub(crate) fn cpu_s(&self) -> anyhow::Result<f64> {
        let own = rig::cpu_s(self.child.id()).with_context(|| self.complaint())?;
        // A child that has just ended is no reason to stop.
        Ok(own + children(self.child.id()).into_iter().filter_map(|pid| rig::cpu_s(pid).ok()).sum::<f64>())
    }

    /// The end of what it wrote to stderr.
    fn complaint(&self) -> String {
        let text = fs::read(self.directory.join("stderr")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join(" | ")
    }
}

/// All descendants of a process that live.
fn children(pid: u32) -> Vec<u32> {
    const MOST: usize = 1_000;
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() && found.len() < MOST {
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
    fn a_system_is_a_name_settings_and_a_command() {
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
