//! Help and wrong usage on terminals of several widths.

use std::process::{Command, Output, Stdio};

use crate::cli::{subcommands, text};

/// Runs the command beside a terminal of this width, or beside none.
fn undrop(args: &[&str], columns: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undrop"));
    command.args(args).stdin(Stdio::null()).env_remove("RUST_LOG").env_remove("COLUMNS");
    command.envs(columns.map(|columns| ("COLUMNS", columns))).output().unwrap()
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn help_fits_a_terminal_of_eighty_columns_and_loses_no_word() {
    let (mut waiting, mut broken) = (vec![Vec::new()], 0);
    while let Some(command) = waiting.pop() {
        for flag in ["--help", "-h"] {
            let args: Vec<&str> = command.iter().map(String::as_str).chain([flag]).collect();
            let (whole, narrow) = (undrop(&args, None), undrop(&args, Some("80")));
            assert_eq!([whole.status.code(), narrow.status.code()], [Some(0); 2], "{command:?}");
            let (whole, narrow) = (text(&whole.stdout), text(&narrow.stdout));
            assert_eq!(words(whole), words(narrow), "{command:?}");
            for line in narrow.lines().filter(|line| line.chars().count() > 80) {
                let is_command = line.trim_start().starts_with("undrop ");
                assert!(is_command || words(line).len() == 1, "{command:?}: {line}");
            }
            broken += usize::from(narrow.lines().count() > whole.lines().count());
        }
        let shown = undrop(&command.iter().map(String::as_str).chain(["--help"]).collect::<Vec<_>>(), None);
        let names = subcommands(text(&shown.stdout));
        waiting.extend(names.into_iter().map(|name| [command.clone(), vec![name]].concat()));
    }
    assert!(broken > 10, "expected long lines in the help of most commands, saw {broken}");
}

#[test]
fn wrong_usage_is_broken_too_and_keeps_its_exit_code() {
    let args = ["fec", "simulate", "--scheme", "sliding-window-of-an-unknown-kind"];
    let (whole, narrow) = (undrop(&args, None), undrop(&args, Some("60")));
    assert_eq!([whole.status.code(), narrow.status.code()], [Some(2); 2]);
    assert!(narrow.stdout.is_empty());
    let (whole, narrow) = (text(&whole.stderr), text(&narrow.stderr));
    assert!(whole.lines().any(|line| line.len() > 60), "{whole}");
    assert!(narrow.lines().all(|line| line.len() <= 60), "{narrow}");
    assert_eq!(words(whole), words(narrow));
    // A width that no text fits is none.
    assert_eq!(text(&undrop(&args, Some("0")).stderr), whole);
}
