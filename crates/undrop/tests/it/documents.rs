//! The commands in the documents and in the help texts are commands of this program, and the sessions in the
//! documents print what the documents show.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::error::ErrorKind;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All documents for users, with their names.
fn documents() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for directory in ["", "docs", "docs/book", "bindings/python", "bindings/c"] {
        let entries = fs::read_dir(root().join(directory)).unwrap();
        for path in entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|kind| kind == "md"))
        {
            let name = Path::new(directory).join(path.file_name().unwrap());
            found.push((name.display().to_string(), fs::read_to_string(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// The blocks of code in a document: the word behind the fence, and the text.
fn blocks(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let fenced = text.split("\n```").skip(1).step_by(2);
    fenced.filter_map(|block| block.split_once('\n')).map(|(kind, code)| (kind.trim(), code))
}

/// The words of a command as a shell reads them, up to a comment, a pipe or a redirection; `None` if a part
/// is left open with `…`.
fn words(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (quote, letter) {
            (_, '…') => return None,
            (Some(end), letter) if letter == end => quote = None,
            (Some(_), letter) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(letter);
            }
            (None, ' ') => words.extend(word.take()),
            (None, '#') if word.is_none() => break,
            (None, '|' | '<' | '>' | '&' | ';') => break,
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Some(words)
}

/// A text with lines that end in a backslash joined with the lines behind them.
fn joined(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start())
}

/// Returns why the program does not take a command.
fn wrong(line: &str, is_whole: bool) -> Option<String> {
    let words = words(line)?;
    let error = undrop::command().try_get_matches_from(words).err()?;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        // The file of an example is not here.
        ErrorKind::ValueValidation if error.to_string().contains("expected a file that can be read") => None,
        // The text names a command without its arguments, or with names in their place.
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::ValueValidation
        | ErrorKind::InvalidValue
            if !is_whole =>
        {
            None
        }
        _ => Some(format!("`{line}`: {error}")),
    }
}

/// Texts that look like commands and are none: inputs of hashes.
const OTHERS: [&str; 3] = ["undrop maelstrom 1", "undrop ricochet key name", "undrop ricochet key"];

#[test]
fn the_commands_in_the_documents_are_commands_of_this_program() {
    let (mut complaints, mut count) = (Vec::new(), 0);
    for (name, text) in documents().into_iter().map(|(name, text)| (name, joined(&text))) {
        let in_blocks = blocks(&text).filter(|(kind, _)| ["sh", "console"].contains(kind));
        let lines =
            in_blocks.flat_map(|(_, code)| code.lines()).map(|line| line.strip_prefix("$ ").unwrap_or(line));
        let whole = lines.filter(|line| line.starts_with("undrop ")).map(|line| (line.to_owned(), true));
        // A command may be broken into two lines of the text.
        let flowing = text.replace('\n', " ");
        let inline =
            flowing.split('`').skip(1).filter(|part| part.starts_with("undrop ") && !OTHERS.contains(part));
        for (line, is_whole) in whole.chain(inline.map(|line| (line.to_owned(), false))) {
            count += 1;
            complaints.extend(wrong(&line, is_whole).map(|why| format!("{name}: {why}")));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(count > 100, "expected commands in the documents, saw {count}");
}

/// The examples behind the help of a command and of its subcommands.
fn examples(command: &clap::Command, found: &mut Vec<String>) {
    for help in [command.get_after_help(), command.get_after_long_help()].into_iter().flatten() {
        let help = joined(&help.to_string());
        let lines = help
            .lines()
            .filter_map(|line| line.strip_prefix("  "))
            .filter(|line| line.starts_with("undrop "));
        // Two spaces separate a command from its description.
        found.extend(lines.map(|line| line.split("  ").next().unwrap_or(line).to_owned()));
    }
    command.get_subcommands().for_each(|command| examples(command, found));
}

#[test]
fn the_examples_in_the_help_are_commands_of_this_program() {
    let mut found = Vec::new();
    examples(&undrop::command(), &mut found);
    let complaints: Vec<String> = found.iter().filter_map(|line| wrong(line, true)).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(found.len() > 40, "expected examples in the help, saw {}", found.len());
}

/// A command of a session, its exit code, and what it prints.
struct Step {
    command: String,
    code: i32,
    output: String,
}

/// The steps of a session: lines `$ COMMAND`, then `? CODE` unless it is 0, then the output.
fn steps(session: &str) -> Vec<Step> {
    let commands = format!("\n{session}");
    let steps = commands.split("\n$ ").skip(1).map(|step| {
        let (command, rest) = step.split_once('\n').unwrap_or((step, ""));
        let stated = rest.strip_prefix("? ").and_then(|rest| rest.split_once('\n'));
        let (code, output) = stated.map_or((0, rest), |(code, output)| (code.parse().unwrap(), output));
        Step { command: command.to_owned(), code, output: output.to_owned() }
    });
    steps.collect()
}

/// Whether an output is as expected: `...` stands for any lines, `[..]` for anything in a line.
fn is_like(expected: &[&str], seen: &[&str]) -> bool {
    match expected {
        [] => seen.is_empty(),
        ["...", rest @ ..] => (0..=seen.len()).any(|skipped| is_like(rest, &seen[skipped..])),
        [line, rest @ ..] => seen
            .split_first()
            .is_some_and(|(first, others)| is_line_like(line, first) && is_like(rest, others)),
    }
}

fn is_line_like(expected: &str, seen: &str) -> bool {
    let Some((start, rest)) = expected.split_once("[..]") else { return expected == seen };
    seen.strip_prefix(start).is_some_and(|seen| {
        (0..=seen.len()).any(|at| seen.get(at..).is_some_and(|seen| is_line_like(rest, seen)))
    })
}

/// A directory for the sessions of a document, removed at the end.
struct Room(PathBuf);

impl Room {
    fn new(name: &str) -> Self {
        let room = env::temp_dir().join(format!(
            "undrop-documents-{}-{}",
            name.replace('/', "-"),
            std::process::id()
        ));
        let _ = fs::remove_dir_all(&room);
        fs::create_dir(&room).unwrap();
        Self(room)
    }

    /// Runs a command in a shell that finds this program; returns its exit code and what it printed.
    fn run(&self, command: &str) -> (Option<i32>, String) {
        let program = Path::new(env!("CARGO_BIN_EXE_undrop")).parent().unwrap();
        let path = env::var("PATH").unwrap_or_default();
        let output = Command::new("sh")
            .args(["-c", &format!("exec 2>&1; {command}")])
            .current_dir(&self.0)
            .env("PATH", format!("{}:{path}", program.display()))
            .env("NO_COLOR", "1")
            .env_remove("RUST_LOG")
            .env_remove("COLUMNS")
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn sessions_in_the_documents_print_what_they_show() {
    let mut count = 0;
    for (name, text) in documents() {
        let room = Room::new(&name);
        let mut files = BTreeMap::new();
        for (kind, code) in blocks(&text) {
            // A file whose name is in its first line.
            let first = code.lines().next().and_then(|line| line.strip_prefix("# "));
            if let Some(file) =
                first.filter(|file| kind == "toml" && file.ends_with(".toml") && !file.contains('/'))
            {
                files.insert(file.to_owned(), code.to_owned());
            }
            for step in if kind == "console" { steps(code) } else { Vec::new() } {
                for (file, content) in &files {
                    fs::write(room.0.join(file), content).unwrap();
                }
                let (code, output) = room.run(&step.command);
                let lines = |text: &str| text.trim_end().lines().map(str::to_owned).collect::<Vec<_>>();
                let (expected, seen) = (lines(&step.output), lines(&output));
                let [expected, seen] =
                    [&expected, &seen].map(|lines| lines.iter().map(String::as_str).collect::<Vec<_>>());
                assert!(
                    code == Some(step.code) && is_like(&expected, &seen),
                    "{name}: {}\nexpected exit code {} and\n{}\nsaw exit code {code:?} and\n{output}",
                    step.command,
                    step.code,
                    step.output
                );
                count += 1;
            }
        }
    }
    assert!(count >= 4, "expected sessions in the documents, saw {count}");
}

#[test]
fn outputs_that_differ_from_a_session_are_found() {
    let like = |expected: &str, seen: &str| {
        is_like(&expected.lines().collect::<Vec<_>>(), &seen.lines().collect::<Vec<_>>())
    };
    assert!(like("a\n...\nd [..] f", "a\nb\nc\nd e f") && like("...\nx", "x") && like("[..]b[..]", "abc"));
    for (expected, seen) in
        [("a", "b"), ("a\n...\nd", "a\nb"), ("a [..] c", "a c"), ("a", "a\nb"), ("a\nb", "a")]
    {
        assert!(!like(expected, seen), "{expected:?} {seen:?}");
    }
    let words = |line| words(line).map(|words| words.join("|"));
    assert_eq!(words("undrop a 'b c' \"\" --d=e # f").as_deref(), Some("undrop|a|b c||--d=e"));
    assert_eq!(words("undrop a < b").as_deref(), Some("undrop|a"));
    assert_eq!(words("undrop a --b …"), None);
}
