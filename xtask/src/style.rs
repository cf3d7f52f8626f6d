//! Style rules that neither rustfmt nor clippy know.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::process::root;

/// Lines of a file above its tests.
const FILE_LINES_MAX: usize = 500;

/// Where Rust files of ours are.
const PLACES: [&str; 3] = ["crates", "xtask", "fuzz"];

/// Checks all files; whether they keep the rules.
pub(crate) fn run() -> anyhow::Result<bool> {
    let mut complaints = Vec::new();
    let mut files = Vec::new();
    for place in PLACES {
        collect(&root().join(place), &mut files)?;
    }
    files.sort();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let name = file.strip_prefix(root()).unwrap_or(file).display().to_string();
        complaints.extend(check(&name, &text));
    }
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    println!("style: {} files, {} complaints", files.len(), complaints.len());
    Ok(complaints.is_empty())
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            if name != "target" {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// What is wrong with one file.
fn check(name: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let is_test = name.contains("/tests/") || name.ends_with("/tests.rs");
    let lines = lines_above_tests(text);
    if !is_test && lines > FILE_LINES_MAX {
        complaints.push(format!(
            "{name}: expected at most {FILE_LINES_MAX} lines above the tests, seen {lines}: which object would own a part?"
        ));
    }
    if !is_test && !text.starts_with("//!") && !text.starts_with("#!") {
        complaints.push(format!("{name}:1: expected a `//!` line that says what the file is for"));
    }
    if !is_test && !may_be_unsafe(name) {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            if code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl") {
                let number = number + 1;
                complaints
                    .push(format!("{name}:{number}: unsafe code belongs to netio, fec's SIMD kernels and netlab/src/process.rs"));
            }
        }
    }
    complaints
}

fn lines_above_tests(text: &str) -> usize {
    text.lines().take_while(|line| line.trim_end() != "#[cfg(test)]").count()
}

fn may_be_unsafe(name: &str) -> bool {
    ["crates/netio/", "crates/fec/", "crates/netlab/src/process.rs", "xtask/src/style.rs"]
        .iter()
        .any(|place| name.starts_with(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_repository_keeps_the_rules() {
        assert!(run().unwrap());
    }

    #[test]
    fn a_long_file_is_found_but_its_tests_do_not_count() {
        let head = "//! A file.\n";
        let long = head.to_owned() + &"x\n".repeat(FILE_LINES_MAX);
        assert_eq!(check("crates/a/src/b.rs", &long).len(), 1);
        let tested = format!("{head}#[cfg(test)]\n{long}");
        assert!(check("crates/a/src/b.rs", &tested).is_empty());
        assert!(check("crates/a/tests/b.rs", &long).is_empty());
        assert!(check("crates/a/src/b/tests.rs", &long).is_empty());
    }

    #[test]
    fn a_file_says_what_it_is_for() {
        assert_eq!(check("crates/a/src/b.rs", "fn main() {}\n").len(), 1);
    }

    #[test]
    fn unsafe_code_stays_in_its_rooms() {
        let text = "//! A file.\nfn a() { unsafe { b() } }\n// unsafe { in words }\n";
        assert_eq!(check("crates/undrop/src/b.rs", text).len(), 1);
        assert!(check("crates/netio/src/b.rs", text).is_empty());
    }
}
