//! `undrop-lab figures` on the real kernel: stopped midway, and continued.
#![allow(missing_docs, reason = "tests are named by what they show")]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;
use std::{env, fs, process};

use netlab::privilege;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The cheapest figure of the real kernel: two runs of a few seconds.
const FIGURE: &str = "3.15";
const KEPT: &str = "out/thesis-3.15.quick.runs.jsonl";

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("undrop-figures-test-{}-{name}", process::id()));
        fs::create_dir_all(path.join("tmp")).unwrap();
        Self(path)
    }

    fn figures(&self, id: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undrop-lab"));
        command.args(["figures", "--quick", "--out", "out", "--only", id]);
        command.current_dir(&self.0).env("TMPDIR", self.0.join("tmp"));
        command
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that ends with the test, also if the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The end of a command.
struct Ended {
    is_success: bool,
    text: String,
}

impl Ended {
    fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
        // The gate counts figures that were skipped.
        print!("{output_text}");
        Self {
            is_success: output.status.success(),
            text: output_text + &String::from_utf8_lossy(&output.stderr),
        }
    }
}

/// Returns the number of kept runs: the lines after the head.
fn runs(directory: &Directory) -> usize {
    directory.text(KEPT).lines().count().saturating_sub(1)
}

#[test]
fn a_real_figure_that_is_stopped_leaves_no_files_and_continues_with_its_runs() {
    if !privilege::available_or_skip(
        "a_real_figure_that_is_stopped_leaves_no_files_and_continues_with_its_runs",
    ) {
        return;
    }
    let directory = Directory::new("stopped");
    let mut command = directory.figures(FIGURE);
    let mut first = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    // A minute at most.
    for _ in 0..3_000 {
        if runs(&directory) > 0 {
            break;
        }
        assert!(first.0.try_wait().unwrap().is_none(), "it ended before it was stopped");
        sleep(Duration::from_millis(20));
    }
    kill(Pid::from_raw(first.0.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(first.0.wait().unwrap().code(), Some(130));
    assert_eq!(runs(&directory), 1, "{}", directory.text(KEPT));
    let left: Vec<_> = fs::read_dir(directory.0.join("tmp")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    let kept = directory.text(KEPT);

    let second = Ended::of(&mut directory.figures(FIGURE));
    // Whatever its verdict, it is whole.
    assert!(!directory.0.join(KEPT).exists(), "a whole figure needs no runs; {}", second.text);
    assert!(directory.text("out.md").contains("| real, "), "{}", directory.text("out.md"));
    // A value of the first run is in the figure, to the last bit.
    let first_value = kept.split("\"y\":").nth(1).and_then(|rest| rest.split('}').next()).unwrap();
    let outcome = directory.text("out/thesis-3.15.json");
    assert!(outcome.contains(first_value), "{first_value} is missing");
    // The verdict depends on the machine; the exit code agrees with it.
    let verdict = if second.is_success { "holds" } else { "FAILS" };
    assert!(second.text.contains(verdict), "{}", second.text);
}
