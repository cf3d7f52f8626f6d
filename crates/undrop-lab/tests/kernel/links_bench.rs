//! `undrop-lab bench links` with one short cell, cut off and continued; asserts no speeds.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs, process};

use netlab::privilege;

const TABLE: &str = r#"
rounds = 1

[links]
narrow = { rate = "20mbit", delay = "5ms" }

[workloads]
stream = { datagrams = { per_second = 600, payload = 200 } }

[variants.layered]
title = "layered (8; 1,11,19)"
code = "scheme = \"layered\"\nr = 8\ninterleaves = [1, 11, 19]"

[courses]
step = { loss = "0s none, 500ms uniform:10%", seconds = 2 }

[[group]]
id = "tiny"
title = "A step of loss"
links = ["narrow"]
losses = ["step"]
workloads = ["stream"]
variants = ["layered"]
seconds = 2
columns = ["bare.missing_percent", "layered.missing_percent", "layered.overhead_percent"]
targets = [{ variant = "layered", figure = "stayed_lost", at_most = 0.5, times = "bare" }]
"#;

/// A table of thresholds that adds few bytes until it knows the loss, after a second.
const THRESHOLDS: &str = r#"
rounds = 1

[links]
narrow = { rate = "20mbit", delay = "5ms" }

[workloads]
stream = { datagrams = { per_second = 600, payload = 200 } }

[variants.table]
title = "table of thresholds"
thresholds = [
  { from_percent = 0, code = "scheme = \"reed-solomon\"\nr = 20\nc = 1\nrequests = \"off\"" },
  { from_percent = 1, code = "scheme = \"reed-solomon\"\nr = 20\nc = 10\nrequests = \"off\"" },
]

[[group]]
id = "tiny"
title = "A link that loses packets all the time"
links = ["narrow"]
losses = ["uniform:10%"]
workloads = ["stream"]
variants = ["table"]
seconds = 1
learn = 3
columns = ["table.overhead_percent"]
"#;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str, table: &str) -> Self {
        let path = env::temp_dir().join(format!("undrop-links-test-{}-{name}", process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("cells.toml"), table).unwrap();
        Self(path)
    }

    /// Runs the bench; returns whether all runs count, and what it printed.
    fn bench(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undrop-lab"));
        command.args(["bench", "links", "--table", "cells.toml", "--out", "out", "--attempts", "1"]);
        let output = command.args(arguments).current_dir(&self.0).output().unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(matches!(output.status.code(), Some(0 | 1)), "{text:?}");
        (output.status.success(), text.concat())
    }

    fn sheet(&self) -> String {
        fs::read_to_string(self.0.join("out/runs.csv")).unwrap_or_default()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the rows by column. Only texts in the middle may contain commas, so columns are counted from both
/// ends.
fn rows(sheet: &str) -> Vec<HashMap<&str, &str>> {
    let mut lines = sheet.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let shift = fields.len() - names.len();
            let place = |at: usize| if at < 5 { at } else { at + shift };
            names.iter().enumerate().map(|(at, name)| (*name, fields[place(at)])).collect()
        })
        .collect()
}

#[test]
fn a_cell_that_is_cut_off_continues_with_the_missing_run() {
    if !privilege::available_or_skip("a_cell_that_is_cut_off_continues_with_the_missing_run") {
        return;
    }
    let directory = Directory::new("cut", TABLE);
    let (is_whole, text) = directory.bench(&[]);
    let sheet = directory.sheet();
    let runs = rows(&sheet);
    let variants: Vec<&str> = runs.iter().map(|row| row["variant"]).collect();
    assert_eq!(variants, ["bare", "layered"], "{text}\n{sheet}");
    let count = |row: &HashMap<&str, &str>, name: &str| {
        row[name].parse::<f64>().unwrap_or_else(|_| panic!("{name} is missing: {text}\n{sheet}"))
    };
    let (bare, layered) = (&runs[0], &runs[1]);
    // 900 packets at 10 % loss; the layers recover nearly all of them.
    assert!(count(bare, "stayed_lost") > 30.0, "{sheet}");
    assert!(count(layered, "stayed_lost") < count(bare, "stayed_lost") / 2.0, "{sheet}");
    assert_eq!(
        count(bare, "worst_phase_lost"),
        count(bare, "stayed_lost"),
        "the first half second has no loss"
    );
    assert!(count(layered, "overhead_percent") > 10.0 && bare["overhead_percent"].is_empty(), "{sheet}");
    assert!(count(layered, "latency_p50_ms") >= 5.0, "{sheet}");
    // Runs on a busy machine do not count, and only then the command fails.
    let disturbed = text.matches("does not count").count();
    assert_eq!(is_whole, disturbed == 0, "{text}");
    let courses = fs::read_to_string(directory.0.join("out/courses.jsonl")).unwrap();
    assert_eq!(courses.lines().count(), 2);

    let (_, text) = directory.bench(&[]);
    assert!(text.contains("0 of 2 runs are missing"), "{text}");
    assert_eq!(directory.sheet(), sheet);

    // The writer was killed within the last line.
    fs::write(directory.0.join("out/runs.csv"), &sheet[..sheet.len() - 30]).unwrap();
    let (_, text) = directory.bench(&[]);
    assert!(text.contains("1 of 2 runs are missing"), "{text}");
    let (kept, again) = (sheet.lines().take(2), directory.sheet());
    assert!(kept.eq(again.lines().take(2)) && rows(&again).len() == 2, "{again}");
    assert!(directory.bench(&["--report"]).1.contains("### A step of loss") || disturbed > 0);
}

#[test]
fn a_table_of_thresholds_learns_the_loss_before_the_measured_run() {
    if !privilege::available_or_skip("a_table_of_thresholds_learns_the_loss_before_the_measured_run") {
        return;
    }
    let directory = Directory::new("thresholds", THRESHOLDS);
    let (_, text) = directory.bench(&[]);
    let sheet = directory.sheet();
    let runs = rows(&sheet);
    let table =
        runs.iter().find(|row| row["variant"] == "table").unwrap_or_else(|| panic!("{text}\n{sheet}"));
    // The run takes a second, in which no look at the table comes early enough to matter. One repair in some
    // ten packets adds less, ten repairs add more.
    let overhead: f64 = table["overhead_percent"].parse().unwrap_or_else(|_| panic!("{text}\n{sheet}"));
    assert!(overhead > 40.0, "{overhead} %: {text}\n{sheet}");
}
