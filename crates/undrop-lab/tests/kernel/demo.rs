//! `undrop-lab demo` on a slower link and for a shorter time.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::{env, fs, process};

use netlab::privilege;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A directory of this test, for the plot and the temporary files of the demo.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("undrop-demo-test-{}-{name}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn demo(directory: &Directory, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undrop-lab"));
    // The plot is written to the current directory.
    command.arg("demo").args(arguments).current_dir(&directory.0).env("TMPDIR", &directory.0);
    command
}

#[test]
fn the_acts_end_in_an_outcome_two_plots_and_no_other_file() {
    if !privilege::available_or_skip("the_acts_end_in_an_outcome_two_plots_and_no_other_file") {
        return;
    }
    let directory = Directory::new("acts");
    let arguments =
        ["--rate", "50mbit", "--delay", "5ms", "--seconds", "3", "--loss", "uniform:2%", "--json"];
    let output = demo(&directory, &arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let outcome: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e} in the outcome; {said}"));
    // The speed of TCP depends on the machine; the exit code agrees with the verdict.
    let masked = outcome["verdict"]["masked"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!masked)), "{outcome:#}");
    for act in ["lossless", "alone", "masked"] {
        assert!(outcome[act]["bulk"]["received_bytes"].as_u64() > Some(0), "{act}: {outcome:#}");
        assert_eq!(outcome[act]["messages"]["latencies_ms"].as_array().unwrap().len(), 200, "{act}");
    }
    assert_eq!(outcome["lossless"]["link"]["lost"], 0);
    assert!(outcome["alone"]["link"]["lost"].as_u64() > Some(0), "{outcome:#}");
    assert_eq!(outcome["alone"]["gateways"], Value::Null);
    let gateways = &outcome["masked"]["gateways"];
    assert!(gateways["recovered"].as_u64() > Some(0), "{outcome:#}");
    assert!(gateways["lost"].as_u64() >= gateways["queue_drops"].as_u64(), "{outcome:#}");
    let changes = &outcome["changes"];
    let points = |act: &str| changes[act]["points"].as_array().unwrap().clone();
    // Six seconds; a busy machine may miss some moments.
    assert!(points("alone").len() > 4 && points("masked").len() > 4, "{changes:#}");
    let has_lost = |from_s: f64, to_s: f64| {
        let within = |point: &&Value| (from_s..to_s).contains(&point["at_s"].as_f64().unwrap());
        points("masked").iter().filter(within).any(|point| point["link_loss_percent"].as_f64() > Some(0.0))
    };
    // No loss before 1.5 s, then 2 %, then 10 %.
    assert!(!has_lost(0.0, 1.4) && has_lost(1.6, 6.0), "{changes:#}");
    assert!(changes["masked"]["overhead_percent"].as_f64() > Some(0.0), "{changes:#}");
    let mut files = directory.files();
    files.sort();
    assert_eq!(files, ["undrop-demo-changes.svg", "undrop-demo.svg"]);
    let plot = fs::read_to_string(directory.0.join("undrop-demo-changes.svg")).unwrap();
    for text in ["10 % lost", "without gateways", "bytes added by repairs"] {
        assert!(plot.contains(text), "{text}: {plot}");
    }
    let plot = fs::read_to_string(directory.0.join("undrop-demo.svg")).unwrap();
    for text in ["2 % loss, with gateways", "50mbit", "goodput", "delivery latency"] {
        assert!(plot.contains(text), "{text}: {plot}");
    }
}

/// Kills the demo when a test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_interrupt_ends_everything() {
    if !privilege::available_or_skip("an_interrupt_ends_everything") {
        return;
    }
    let directory = Directory::new("interrupt");
    let mut command = demo(&directory, &["--seconds", "60"]);
    let mut running = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut progress = BufReader::new(running.0.stderr.take().unwrap()).lines();
    assert!(progress.any(|line| line.unwrap().contains("bulk TCP")), "the first act begins");
    assert!(!directory.files().is_empty(), "the link writes what it drops");
    kill(Pid::from_raw(running.0.id().cast_signed()), Signal::SIGINT).unwrap();
    // Reads on, because a demo that cannot write its progress would block.
    progress.for_each(drop);
    assert_eq!(running.0.wait().unwrap().code(), Some(130));
    assert_eq!(directory.files(), [""; 0]);
}

#[test]
fn invalid_arguments_are_refused_at_once() {
    let directory = Directory::new("refused");
    for (arguments, reason) in [
        (["--loss", "none"], "loses none"),
        (["--loss", "uniform:2"], "rate"),
        (["--rate", "0"], "bit rate"),
        (["--seconds", "1"], "3..=3600"),
        (["--out", "/dev/null"], "cannot write"),
    ] {
        let output = demo(&directory, &arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{arguments:?}: {said}");
    }
}
