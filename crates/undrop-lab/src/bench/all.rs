//! All measurements that a page quotes, one after another.
//!
//! The commands are those in backquotes on the page. A command that is a pattern, with `…` or a letter in
//! place of a value, cannot be run, and one whose first words are left out is refused.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use undrop::interrupt::EXIT_INTERRUPTED;
use undrop::output;
use xxhash_rust::xxh3::xxh3_64;

use super::guard::Machine;
use super::stop;
use crate::program::fingerprint;

/// Most characters of a command in the name of its file.
const NAME_MAX: usize = 100;
/// Interval between looks whether a command has ended, or has to.
const LOOK: Duration = Duration::from_millis(100);

/// Run all measurements whose commands a page quotes.
///
/// The output of each command becomes a file in the directory, whose first line is the command; a command
/// that has its file is not run again. The last lines tell whether the machine was disturbed, and which build
/// of the gateways ran.
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

    /// Returns a name for the file of its output. The hash tells commands apart that begin alike, or differ
    /// in other characters than letters and digits alone.
    fn file_name(&self) -> String {
        let text = self.words.join(" ");
        let parts = text.split(|char: char| !char.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
        let name: String = parts.collect::<Vec<_>>().join("-").chars().take(NAME_MAX).collect();
        format!("{name}-{:016x}.txt", xxh3_64(text.as_bytes()))
    }

    /// Returns the first line of the file of its output.
    fn title(&self) -> String {
        format!("undrop-lab {}", self.words.join(" "))
    }

    /// Returns whether a file has its output.
    fn is_in(&self, file: &Path) -> bool {
        let first = File::open(file).ok().and_then(|file| BufReader::new(file).lines().next());
        first.is_some_and(|line| line.is_ok_and(|line| line == self.title()))
    }
}

/// Returns the commands of this program in the backquotes of a page, in order, each once.
///
/// # Errors
/// If the first words of a command are left out: nothing would run it.
pub(crate) fn quoted(page: &str) -> anyhow::Result<Vec<Quoted>> {
    let mut found: Vec<Quoted> = Vec::new();
    for text in page.split('`').skip(1).step_by(2) {
        let words: Vec<&str> = text.split_whitespace().collect();
        ensure!(words.first() != Some(&"…"), "expected a command with its first words, saw `{text}`");
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
    Ok(found)
}

/// Runs the commands that have no output yet.
pub(crate) fn run(
    program: impl FnOnce() -> anyhow::Result<PathBuf>,
    plan: &Plan,
) -> anyhow::Result<ExitCode> {
    let page = fs::read_to_string(&plan.page).with_context(|| format!("reading {}", plan.page.display()))?;
    let is_wanted =
        |text: &str| plan.only.is_empty() || plan.only.iter().any(|part| text.contains(part.as_str()));
    let commands = quoted(&page).with_context(|| format!("in {}", plan.page.display()))?;
    stop::listen()?;
    let mut is_whole = true;
    let program = program()?;
    let build = format!("build: {:016x}", fingerprint(&program)?);
    for command in commands {
        let text = command.words.join(" ");
        if !is_wanted(&text) {
            continue;
        }
        let file = plan.out.join(command.file_name());
        if command.is_pattern() {
            output::line(&format!("pattern  {text}"))?;
        } else if command.is_in(&file) {
            let note = if has_line(&file, &build) { "" } else { " (by another build)" };
            output::line(&format!("done     {text}{note}"))?;
        } else if plan.list {
            output::line(&format!("missing  {text}"))?;
        } else {
            output::note(format_args!("running  {text}"));
            match execute(&program, &build, &command, &file)? {
                code if stop::is_requested() || code == Some(EXIT_INTERRUPTED.into()) => {
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

/// Runs a command to its end, or asks it to stop when a stop is requested.
///
/// The command has a process group of its own: the terminal's Ctrl-C would be a second signal, which ends it
/// at once and leaves its files behind.
fn output_of(mut line: Command) -> anyhow::Result<Output> {
    let mut child = line.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).spawn()?;
    let mut pipe = child.stdout.take().context("expected a pipe from the command")?;
    let reading = thread::spawn(move || {
        let mut stdout = Vec::new();
        pipe.read_to_end(&mut stdout).map(|_| stdout)
    });
    let mut is_asked = false;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if stop::is_requested() && !is_asked {
            kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM)?;
            is_asked = true;
        }
        thread::sleep(LOOK);
    };
    let stdout = reading.join().map_err(|_| anyhow::anyhow!("the reader of the output panicked"))??;
    Ok(Output { status, stdout, stderr: Vec::new() })
}

fn has_line(file: &Path, line: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.lines().any(|other| other == line))
}

/// Runs a command and keeps its output if it succeeds; returns its exit code.
fn execute(program: &Path, build: &str, command: &Quoted, file: &Path) -> anyhow::Result<Option<i32>> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    }
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let before = Machine::now()?;
    let mut line = Command::new(own);
    line.arg("--program").arg(program).args(&command.words);
    let output = output_of(line).context("running a command of the page")?;
    let load = Machine::now()?.since(&before);
    if output.status.success() {
        let machine = match load.reasons() {
            reasons if reasons.is_empty() => "calm".to_owned(),
            reasons => format!("disturbed: {}", reasons.join("; ")),
        };
        let text = format!(
            "{}\n\n{}\n{build}\nmachine: {machine}\n",
            command.title(),
            String::from_utf8_lossy(&output.stdout),
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
        let found = quoted(page).unwrap();
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
        assert!(found[0].file_name().starts_with("bench-tcp-runs-3-"), "{}", found[0].file_name());
    }

    fn command(text: &str) -> Quoted {
        Quoted { words: text.split_whitespace().map(str::to_owned).collect() }
    }

    #[test]
    fn each_command_of_the_published_pages_is_whole_and_has_a_file_of_its_own() {
        let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"));
        for page in ["bench.md", "load.md"] {
            let commands = quoted(&fs::read_to_string(docs.join(page)).unwrap()).unwrap();
            let mut names: Vec<String> = commands.iter().map(Quoted::file_name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), commands.len(), "{page}");
        }
        assert!(quoted("run `… soak --scheme layered`").unwrap_err().to_string().contains("first words"));
    }

    #[test]
    fn commands_that_begin_alike_or_differ_in_signs_have_other_files() {
        let long = format!("bench multicast --system {}", "a".repeat(200));
        let pairs = [
            [format!("{long} --size 1"), format!("{long} --size 2")],
            ["a --b 1", "a -b=1"].map(String::from),
        ];
        for pair in pairs {
            let [one, other] = pair.map(|text| command(&text).file_name());
            assert_ne!(one, other);
            assert!(one.len() < 150, "{one}");
        }
    }

    #[test]
    fn only_a_file_that_begins_with_the_command_is_its_output() {
        let command = command("bench tcp --runs 3");
        let file = std::env::temp_dir().join(format!("undrop-all-{}", std::process::id()));
        assert!(!command.is_in(&file), "no file");
        for (text, is_its) in [
            ("undrop-lab bench tcp --runs 3\n\n| 1 |\n", true),
            ("undrop-lab bench tcp --runs 30\n\n| 1 |\n", false),
            ("", false),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(command.is_in(&file), is_its, "{text}");
        }
        fs::remove_file(&file).unwrap();
    }
}
