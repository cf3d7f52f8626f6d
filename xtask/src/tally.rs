//! Counts of a test run: tests passed and failed, and tests skipped because a privilege or a tool is missing.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;

/// Mark by which a test reports that it cannot run here; the rest of the line is the reason.
const SKIPPED: &str = "SKIPPED: ";

/// Counts of all test binaries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    /// Reasons of skipped tests, in the order of the output.
    pub(crate) skipped: Vec<String>,
    /// Outputs of failed tests, each with the name of its test.
    pub(crate) failures: Vec<String>,
}

impl Tally {
    /// Adds the counts of another run.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.skipped.extend(other.skipped);
        self.failures.extend(other.failures);
    }

    /// Prints the counts and the reasons of skipped tests, so that the process that follows this one counts
    /// them.
    pub(crate) fn print_result(&self, success: bool) {
        for reason in &self.skipped {
            println!("{SKIPPED}{reason}");
        }
        let Self { passed, failed, ignored, .. } = self;
        let outcome = if success { "ok" } else { "FAILED" };
        println!("test result: {outcome}. {passed} passed; {failed} failed; {ignored} ignored");
    }

    /// Counts a line of output.
    fn read(&mut self, line: &str) {
        if let Some(at) = line.find(SKIPPED) {
            self.skipped.push(line[at + SKIPPED.len()..].trim_end().to_owned());
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        for part in result.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let (Some(count), Some(what)) = (words.next(), words.next()) else { continue };
            let Ok(count) = count.parse::<u64>() else { continue };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }
}

/// Runs a test command and prints its output line by line; returns whether it succeeded, and the counts.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<(bool, Tally)> {
    let (ended, tally) = follow(command, None, |line| println!("{line}"), |line| eprintln!("{line}"))?;
    Ok((ended.is_success(), tally))
}

/// Result of a command whose output was not printed.
pub(crate) struct Collected {
    pub(crate) success: bool,
    /// How the command ended, and if it was killed, what its threads were waiting for.
    pub(crate) ending: String,
    pub(crate) tally: Tally,
    /// Lines of both stdout and stderr.
    pub(crate) output: String,
}

/// Runs a test command and keeps its output; kills it if it has not ended within `limit`.
pub(crate) fn collect(command: &mut Command, limit: Duration) -> anyhow::Result<Collected> {
    let output = Mutex::new(String::new());
    let keep = |line: &str| {
        let mut output = output.lock().expect("no reader panicked");
        output.push_str(line);
        output.push('\n');
    };
    let (ended, tally) = follow(command, Some(limit), keep, keep)?;
    let output = output.into_inner().expect("no reader panicked");
    Ok(Collected { success: ended.is_success(), ending: ended.to_string(), tally, output })
}

fn follow(
    command: &mut Command,
    limit: Option<Duration>,
    out: impl Fn(&str) + Send,
    err: impl Fn(&str) + Send,
) -> anyhow::Result<(Ended, Tally)> {
    let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let tally = Mutex::new(Tally::default());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let ended = thread::scope(|scope| {
        scope.spawn(|| stdout.map(|pipe| pass_on(pipe, &tally, out)));
        scope.spawn(|| stderr.map(|pipe| pass_on(pipe, &tally, err)));
        match limit {
            None => child.wait().map(Ended::ByItself),
            Some(limit) => wait_or_kill(&mut child, limit),
        }
    });
    let ended = ended.context("cannot wait for the tests")?;
    Ok((ended, tally.into_inner().expect("no reader panicked")))
}

/// End of a command.
enum Ended {
    ByItself(ExitStatus),
    /// It was killed after the limit. The text has a line for each of its threads.
    Killed(Duration, String),
}

impl Ended {
    fn is_success(&self) -> bool {
        matches!(self, Self::ByItself(status) if status.success())
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByItself(status) => write!(f, "{status}"),
            Self::Killed(limit, threads) => {
                write!(
                    f,
                    "killed after {} s; its threads (those of tests have their names):\n{threads}",
                    limit.as_secs()
                )
            }
        }
    }
}

/// Returns a line for each thread of a process: its name, and the kernel's functions in which it waits.
fn threads(process: u32) -> String {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return String::new() };
    let lines = tasks.flatten().map(|task| {
        let read = |what: &str| std::fs::read_to_string(task.path().join(what)).unwrap_or_default();
        // A line of the stack: `[<0>] do_epoll_wait+0x47/0x730`.
        let stack = read("stack");
        let functions = stack.lines().filter_map(|line| line.split_whitespace().nth(1)?.split('+').next());
        format!("{}: {}\n", read("comm").trim_end(), functions.take(6).collect::<Vec<_>>().join(" < "))
    });
    lines.collect()
}

/// Waits for the end of a process, which is killed after `limit`.
fn wait_or_kill(child: &mut Child, limit: Duration) -> io::Result<Ended> {
    const STEP: Duration = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    while waited < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::ByItself(status));
        }
        thread::sleep(STEP);
        waited += STEP;
    }
    let threads = threads(child.id());
    child.kill()?;
    child.wait()?;
    Ok(Ended::Killed(limit, threads))
}

/// Prints and counts each line of a pipe. Tests may print any bytes; invalid UTF-8 is replaced.
fn pass_on(pipe: impl Read, tally: &Mutex<Tally>, print: impl Fn(&str)) {
    let mut reader = BufReader::new(pipe);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_end_matches(['\n', '\r']);
        print(line);
        tally.lock().expect("no reader panicked").read(line);
        bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_binaries_add_up() {
        let mut tally = Tally::default();
        for line in [
            "running 2 tests",
            "test result: ok. 64 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s",
            "test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 3 filtered out; finished in 1.20s",
        ] {
            tally.read(line);
        }
        assert_eq!(tally, Tally { passed: 69, failed: 2, ignored: 1, ..Tally::default() });
    }

    #[test]
    fn the_ending_of_a_command_is_told() {
        let ended = collect(Command::new("sh").args(["-c", "exit 3"]), Duration::from_secs(600)).unwrap();
        assert_eq!((ended.success, ended.ending.as_str()), (false, "exit status: 3"));
    }

    #[test]
    fn a_skipped_test_is_counted_with_its_reason() {
        let mut tally = Tally::default();
        tally.read("SKIPPED: no user namespaces here");
        tally.read("test x ... SKIPPED: no tap: permission denied");
        tally.read("a line on SKIPPED things");
        assert_eq!(tally.skipped, ["no user namespaces here", "no tap: permission denied"]);
    }

    #[test]
    fn both_output_streams_are_counted() {
        let script =
            "echo 'test result: ok. 3 passed; 0 failed'; echo 'SKIPPED: b' >&2; printf '\\377\\n'; exit 1";
        // The lines are not printed, because the gate that runs this test would count them.
        let (ended, tally) = follow(Command::new("sh").args(["-c", script]), None, |_| {}, |_| {}).unwrap();
        assert!(!ended.is_success());
        assert_eq!((tally.passed, tally.skipped), (3, vec!["b".to_owned()]));
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_what_it_said_is_kept() {
        let script = "echo 'test result: ok. 1 passed; 0 failed'; echo here; exec sleep 100";
        // A busy machine may take a while to start the shell.
        let said = [300, 1_000, 5_000, 20_000].into_iter().any(|limit_ms| {
            let mut command = Command::new("sh");
            let collected = collect(command.args(["-c", script]), Duration::from_millis(limit_ms)).unwrap();
            assert!(!collected.success);
            assert!(collected.ending.starts_with("killed after "), "{}", collected.ending);
            collected.output.ends_with("\nhere\n") && collected.ending.contains("\nsleep: ")
        });
        assert!(said, "what a program says before it is killed is lost");
    }
}
