//! All measurements that a page quotes, one after another.
//!
//! The commands are those in backquotes on the page. A command that is a pattern, with `…` or a letter in
//! place of a value, cannot be run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;
use clap::Args;
use undrop::interrupt::EXIT_INTERRUPTED;
use undrop::output;

use super::guard::Machine;

/// Run all measurements whose commands a page quotes.
///
/// The output of each command becomes a file in the directory; a command that has its file is not run again.
/// The last line of a file tells whether the machine was disturbed.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Page with the commands
    #[arg(long, value_name = "FILE", default_value = "docs/bench.md")]
    page: PathBuf,
    /// Directory of the outputs
    #[arg(long, value_name = "DIR", default_value = "bench-all")]
    out: PathBuf,
    /// Only commands that contain one of these texts
    #[arg(long, value_delimiter = ',', value_name = "TEXT,...")]
    only: Vec<String>,
    /// List the commands, and run nothing
    #[arg(long)]
    list: bool,
}

/// A command of this program on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quoted {
    /// Arguments of `undrop-lab`.
    pub(crate) words: Vec<String>,
}

impl Quoted {
    /// Returns whether a word stands for a value.
    pub(crate) fn is_pattern(&self) -> bool {
        let is_value = |word: &String| {
            let last = word.rsplit(':').next().unwrap_or_default();
            word.contains('…') || (last.len() == 1 && last.chars().all(char::is_uppercase))
        };
        self.words.iter().any(is_value)
    }

    /// Returns a name for the file of its output.
    fn file_name(&self) -> String {
        let text: String = self
            .words
            .join(" ")
            .chars()
            .map(|char| if char.is_ascii_alphanumeric() { char } else { '-' })
            .collect();
        let parts: Vec<&str> = text.split('-').filter(|part| !part.is_empty()).collect();
        parts.join("-").chars().take(120).collect::<String>() + ".txt"
    }
}

/// Returns the commands of this program in the backquotes of a page, in order, each once.
pub(crate) fn quoted(page: &str) -> Vec<Quoted> {
    let mut found: Vec<Quoted> = Vec::new();
    for text in page.split('`').skip(1).step_by(2) {
        let words: Vec<&str> = text.split_whitespace().collect();
        let words = match words.as_slice() {
            ["cargo", "xtask", task @ ("bench" | "demo" | "figures"), rest @ ..] => [&[*task], rest].concat(),
            ["undrop-lab", rest @ ..] if !rest.is_empty() => rest.to_vec(),
            _ => continue,
        };
        let quoted = Quoted { words: words.into_iter().map(str::to_owned).collect() };
        if !found.contains(&quoted) {
            found.push(quoted);
        }
    }
    found
}

/// Runs the commands that have no output yet.
pub(crate) fn run(
    program: impl FnOnce() -> anyhow::Result<PathBuf>,
    plan: &Plan,
) -> anyhow::Result<ExitCode> {
    let page = fs::read_to_string(&plan.page).with_context(|| format!("reading {}", plan.page.display()))?;
    let is_wanted =
        |text: &str| plan.only.is_empty() || plan.only.iter().any(|part| text.contains(part.as_str()));
    let mut is_whole = true;
    let program = program()?;
    for command in quoted(&page) {
        let text = command.words.join(" ");
        if !is_wanted(&text) {
            continue;
        }
        let file = plan.out.join(command.file_name());
        if command.is_pattern() {
            output::line(&format!("pattern  {text}"))?;
        } else if file.exists() {
            output::line(&format!("done     {text}"))?;
        } else if plan.list {
            output::line(&format!("missing  {text}"))?;
        } else {
            output::note(format_args!("running  {text}"));
            match execute(&program, &command, &file)? {
                Some(code) if code == i32::from(EXIT_INTERRUPTED) => {
                    return Ok(ExitCode::from(EXIT_INTERRUPTED));
                }
                Some(0) => output::line(&format!("done     {text}"))?,
                code => {
                    is_whole = false;
                    output::line(&format!("FAILED   {text} (exit code {code:?})"))?;
                }
            }
        }
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a command and keeps its output if it succeeds; returns its exit code.
fn execute(program: &Path, command: &Quoted, file: &Path) -> anyhow::Result<Option<i32>> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    }
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let before = Machine::now()?;
    let output = Command::new(own)
        .arg("--program")
        .arg(program)
        .args(&command.words)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("running a command of the page")?;
    let load = Machine::now()?.since(&before);
    if output.status.success() {
        let machine = match load.reasons() {
            reasons if reasons.is_empty() => "calm".to_owned(),
            reasons => format!("disturbed: {}", reasons.join("; ")),
        };
        let text = format!(
            "undrop-lab {}\n\n{}\nmachine: {machine}\n",
            command.words.join(" "),
            String::from_utf8_lossy(&output.stdout)
        );
        let part = file.with_extension("part");
        fs::write(&part, text)
            .and_then(|()| fs::rename(&part, file))
            .with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(output.status.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_across_lines_and_patterns_are_told_apart() {
        let page = "Use `cargo xtask bench tcp --runs\n  3`, `--loss none` or `undrop-lab multicast bench --groups D`;\n\
                    again `cargo xtask bench tcp --runs 3`; `cargo xtask demo --congestion …`; `cargo xtask test`;\n\
                    `undrop-lab link --loss uniform:P`, the program `undrop-lab`, and `cargo xtask bench all`.";
        let found = quoted(page);
        let texts: Vec<String> = found.iter().map(|command| command.words.join(" ")).collect();
        let expected = [
            "bench tcp --runs 3",
            "multicast bench --groups D",
            "demo --congestion …",
            "link --loss uniform:P",
            "bench all",
        ];
        assert_eq!(texts, expected);
        let patterns: Vec<bool> = found.iter().map(Quoted::is_pattern).collect();
        assert_eq!(patterns, [false, true, true, true, false]);
        assert_eq!(found[0].file_name(), "bench-tcp-runs-3.txt");
    }
}
