//! Style rules that neither rustfmt nor clippy checks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::process::root;
use crate::{habits, links, wings};

/// Maximum number of lines of a file above its tests.
const FILE_LINES_MAX: usize = 500;

/// Maximum number of characters in a line of a comment, as `rustfmt.toml` has it for code. Rows of tables may
/// be longer.
const COMMENT_WIDTH_MAX: usize = 110;

/// Directories whose files are checked, in addition to the files in the root itself.
const PLACES: [&str; 6] = ["bench", "bindings", "crates", "docs", "fuzz/targets", "xtask"];

/// Extensions of the files that are checked.
const KINDS: [&str; 8] = ["c", "cpp", "go", "hpp", "md", "py", "rs", "toml"];

/// Checks all files; returns whether they obey the rules.
///
/// With `record`, the present counts of writing habits become the limits of the files.
pub(crate) fn run(record: bool) -> anyhow::Result<bool> {
    let root = root();
    let mut files = Vec::new();
    for place in PLACES {
        collect(&root.join(place), true, &mut files)?;
    }
    collect(&root, false, &mut files)?;
    files.sort();
    let mut complaints = wings::complaints()?;
    let mut habits = BTreeMap::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let name = file.strip_prefix(&root).unwrap_or(file).display().to_string();
        if name.ends_with(".rs") {
            complaints.extend(check(&name, &text));
        }
        // This file contains the list of habits.
        if name != "xtask/src/habits.rs" {
            habits.insert(name, habits::find(&text));
        }
    }
    let names: Vec<String> = habits.keys().cloned().collect();
    complaints.extend(links::complaints(&root, &names));
    let counts: habits::Counts = habits.iter().map(|(name, found)| (name.clone(), found.len())).collect();
    let total: usize = counts.values().sum();
    if record {
        habits::record(&root, &counts)?;
    } else {
        let recorded = habits::recorded(&root)?;
        complaints.extend(habits::complaints(&habits, &recorded));
        if total < recorded.values().sum() {
            println!(
                "style: fewer habits of writing than recorded; `cargo xtask style --record` lowers the limits"
            );
        }
    }
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    println!("style: {} files, {} complaints, {total} habits of writing", files.len(), complaints.len());
    Ok(complaints.is_empty())
}

fn collect(directory: &Path, is_deep: bool, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        let kind = path.extension().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            let is_built = name == "target" || name == "build" || name == "node_modules";
            if is_deep && !is_built && !name.to_string_lossy().starts_with('.') {
                collect(&path, true, files)?;
            }
        } else if KINDS.contains(&&*kind) {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the complaints about one file.
fn check(name: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let is_test = name.contains("/tests/") || name.ends_with("/tests.rs");
    let lines = lines_above_tests(text);
    if !is_test && lines > FILE_LINES_MAX {
        complaints.push(format!(
            "{name}: expected at most {FILE_LINES_MAX} lines above the tests, saw {lines}; split the file by type or stage"
        ));
    }
    if !is_test && !text.starts_with("//!") && !text.starts_with("#!") {
        complaints.push(format!("{name}:1: expected a first line `//!` with the purpose of the file"));
    }
    for (number, line) in text.lines().enumerate() {
        let (comment, width) = (line.trim_start(), line.chars().count());
        if comment.starts_with("//") && !comment.contains('|') && width > COMMENT_WIDTH_MAX {
            let number = number + 1;
            complaints.push(format!(
                "{name}:{number}: expected a comment of at most {COMMENT_WIDTH_MAX} characters, saw {width}; wrap it"
            ));
        }
    }
    if !is_test && !may_be_unsafe(name) {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            if code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl") {
                let number = number + 1;
                complaints
                    .push(format!("{name}:{number}: expected safe code; unsafe code belongs to netio, fec's SIMD kernels, bindings/c, one file of bindings/python and two of netlab"));
            }
        }
    }
    complaints
}

fn lines_above_tests(text: &str) -> usize {
    text.lines().take_while(|line| line.trim_end() != "#[cfg(test)]").count()
}

fn may_be_unsafe(name: &str) -> bool {
    [
        "bindings/c/",
        "bindings/python/src/message.rs",
        "crates/netio/",
        "crates/fec/",
        "crates/netlab/src/config_lock.rs",
        "crates/netlab/src/process.rs",
        "xtask/src/style.rs",
    ]
    .iter()
    .any(|place| name.starts_with(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_obeys_the_rules() {
        assert!(run(false).unwrap());
    }

    #[test]
    fn a_long_file_is_reported_but_its_tests_do_not_count() {
        let head = "//! A file.\n";
        let long = head.to_owned() + &"x\n".repeat(FILE_LINES_MAX);
        assert_eq!(check("crates/a/src/b.rs", &long).len(), 1);
        let tested = format!("{head}#[cfg(test)]\n{long}");
        assert!(check("crates/a/src/b.rs", &tested).is_empty());
        assert!(check("crates/a/tests/b.rs", &long).is_empty());
        assert!(check("crates/a/src/b/tests.rs", &long).is_empty());
    }

    #[test]
    fn a_file_begins_with_its_purpose() {
        assert_eq!(check("crates/a/src/b.rs", "fn main() {}\n").len(), 1);
    }

    #[test]
    fn a_long_comment_is_reported_unless_it_is_a_row_of_a_table() {
        let long = "x".repeat(COMMENT_WIDTH_MAX);
        assert_eq!(check("crates/a/src/b.rs", &format!("//! A file.\n    // {long}\n")).len(), 1);
        assert!(check("crates/a/src/b.rs", &format!("//! A file.\n//! | {long} |\n")).is_empty());
    }

    #[test]
    fn unsafe_code_is_reported_outside_its_places() {
        let text = "//! A file.\nfn a() { unsafe { b() } }\n// unsafe { in words }\n";
        assert_eq!(check("crates/undrop/src/b.rs", text).len(), 1);
        assert!(check("crates/netio/src/b.rs", text).is_empty());
    }
}
