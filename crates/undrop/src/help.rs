//! Help and wrong usage, wrapped to the width of the terminal.
//!
//! `clap` lays the text out, but breaks lines only with a feature that brings three crates along
//! (the tree of the program has at most 90). A broken line continues below its own beginning.

use std::env;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use netio::terminal;

/// Narrowest width to which text is wrapped.
const WIDTH_MIN: usize = 20;
/// Widest one: longer lines are hard to read.
const WIDTH_MAX: usize = 110;

/// Parses the command line of this process.
///
/// # Errors
/// Wrong usage, or the help or version that was asked for: [`print()`] shows it, and the process ends with
/// [`exit_code`].
pub fn parse<C: Parser>() -> Result<C, clap::Error> {
    let command = C::command();
    let mut command = match width() {
        Some(width) => command.term_width(width),
        None => command,
    };
    let mut matches = command.try_get_matches_from_mut(env::args_os())?;
    C::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Prints an error of [`parse`]: help and version to stdout, wrong usage to stderr. If nobody takes it, it
/// is lost.
pub fn print(error: &clap::Error) {
    let text = error.render().to_string();
    let text = match width() {
        Some(width) if error.kind() != ErrorKind::DisplayVersion => wrap(&text, width),
        _ => text,
    };
    let _ = if error.use_stderr() {
        io::stderr().lock().write_all(text.as_bytes())
    } else {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
    };
}

/// Returns the exit code after [`print()`]: 2 for wrong usage.
pub fn exit_code(error: &clap::Error) -> ExitCode {
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Returns the width to which text is wrapped; `None` if no person reads it. The terminal is that of stdout,
/// or of stderr if stdout leads to a pager.
fn width() -> Option<usize> {
    let terminal = || terminal::columns(&io::stdout()).or_else(|| terminal::columns(&io::stderr()));
    let stated = || env::var("COLUMNS").ok()?.parse().ok();
    let columns = terminal().map(usize::from).or_else(stated)?;
    (columns >= WIDTH_MIN).then_some(columns.min(WIDTH_MAX))
}

/// Breaks all lines that are longer than `width` columns.
fn wrap(text: &str, width: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        wrap_line(line, width, &mut wrapped);
    }
    wrapped
}

fn wrap_line(line: &str, width: usize, wrapped: &mut String) {
    let (indent, from) = hanging(line, width);
    let (mut rest, mut from) = (line.to_owned(), from);
    while rest.trim_end().chars().count() > width {
        let blanks = rest.char_indices().enumerate().filter(|(_, (_, letter))| *letter == ' ');
        let mut blanks = blanks.skip_while(|(column, _)| *column < from);
        // The last blank that fits, or the first one behind a word that does not.
        let mut cut = blanks.next();
        for blank in blanks.take_while(|(column, _)| *column <= width) {
            cut = Some(blank);
        }
        let Some((_, (at, _))) = cut else { break };
        let (head, tail) = rest.split_at(at);
        let tail = tail.trim_start_matches(' ');
        if tail.trim_end().is_empty() {
            break;
        }
        wrapped.push_str(head.trim_end());
        wrapped.push('\n');
        rest = format!("{:indent$}{tail}", "");
        from = indent;
    }
    wrapped.push_str(&rest);
}

/// Returns the column at which a broken line continues, and the one from which on it may be broken.
fn hanging(line: &str, width: usize) -> (usize, usize) {
    let indent = line.chars().take_while(|&letter| letter == ' ').count();
    let text = line.trim_start_matches(' ');
    // A term and its description: the first gap of two blanks or more. The term is not broken.
    let gap = text.split_once("  ").map(|(term, rest)| {
        let gap = 2 + rest.chars().take_while(|&letter| letter == ' ').count();
        let end = indent + term.chars().count();
        (end, end + gap)
    });
    match gap {
        Some((_, column)) if column <= width * 2 / 3 => return (column, column),
        // A command line that can be copied only whole.
        Some((end, _)) if text.starts_with("undrop") => return (indent + 4, end),
        None if text.starts_with("undrop") => return (indent, usize::MAX),
        _ => {}
    }
    let further = match text {
        _ if text.starts_with("Usage: ") => "Usage: ".len(),
        // An entry of a list, and a paragraph below an option.
        _ if text.starts_with("- ") => 2,
        _ if indent == 0 || indent > 4 => 0,
        // A line of a list without marks.
        _ => 2,
    };
    (indent + further, indent + further)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_line_continues_below_its_own_beginning() {
        for (line, wrapped) in [
            ("short\n", "short\n"),
            ("\n", "\n"),
            ("one two three four five six\n", "one two three four\nfive six\n"),
            ("          one two three\n", "          one two\n          three\n"),
            ("  key: one two three four\n", "  key: one two three\n    four\n"),
            ("      - xor: one two three", "      - xor: one two\n        three"),
            ("  -h  one two three four\n", "  -h  one two three\n      four\n"),
            ("Usage: undrop a b --other <O>\n", "Usage: undrop a b\n       --other <O>\n"),
            (
                "  undrop gateway check --config gateway.toml\n",
                "  undrop gateway check --config gateway.toml\n",
            ),
            ("  undrop top --once      one screen\n", "  undrop top --once\n      one screen\n"),
            ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\nb"),
            ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa   \n", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa   \n"),
            ("a long term that has  its text here\n", "a long term that has\nits text here\n"),
            ("über über über über\n", "über über über über\n"),
        ] {
            assert_eq!(wrap(line, 20), wrapped);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_word_is_lost_or_cut(text in "[ a-z\n-]{0,200}", width in 20..60_usize) {
            let wrapped = wrap(&text, width);
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            proptest::prop_assert_eq!(words(&wrapped), words(&text));
            // A line that is too long has no blank at which it could have been broken.
            for line in wrapped.lines().filter(|line| line.trim_end().chars().count() > width) {
                let (_, from) = hanging(line, width);
                let rest: String = line.trim_end().chars().skip(from).collect();
                proptest::prop_assert!(!rest.trim_start().contains(' '), "{:?}", line);
            }
        }
    }
}
