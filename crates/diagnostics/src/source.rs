//! A file under examination: its name, its text, and places in it.

use std::io;
use std::path::{Path, PathBuf};

use crate::diagnostic::Diagnostic;
use crate::span::Span;

/// Longest part of a source line in an excerpt, in characters.
const EXCERPT_CHARS_MAX: usize = 120;

/// A file's name and text. A configuration that a program has put together has neither.
#[derive(Clone, Debug)]
pub struct Source {
    file: Option<PathBuf>,
    text: String,
}

impl Source {
    /// A file with this name and text.
    pub fn new(file: &Path, text: &str) -> Self {
        Self { file: Some(file.to_owned()), text: text.to_owned() }
    }

    /// The source of settings that come from no file.
    pub fn none() -> Self {
        Self { file: None, text: String::new() }
    }

    /// Turns the bytes of a file into a source. `bytes` should have been read up to one byte more than
    /// `bytes_max`, so that a larger file is recognized; `purpose` says what the file is for: "the gateway's
    /// configuration".
    ///
    /// # Errors
    /// The finding, if the file could not be read, is too large, or is not UTF-8.
    pub fn decode(
        file: &Path,
        bytes: io::Result<Vec<u8>>,
        bytes_max: u64,
        purpose: &str,
    ) -> Result<Self, Box<Diagnostic>> {
        let shown = file.display();
        let fail = |message: String, help: String| {
            Box::new(Diagnostic::error("unreadable-file", message).help(help))
        };
        let bytes = bytes.map_err(|error| {
            fail(
                format!("cannot read `{shown}`: {error}"),
                format!("give the path of {purpose} with `--config FILE`"),
            )
        })?;
        if bytes.len() as u64 > bytes_max {
            let message = format!("`{shown}` is larger than {bytes_max} bytes");
            return Err(fail(message, format!("check the path: this file is not {purpose}")));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self { file: Some(file.to_owned()), text }),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let message = format!("`{shown}` is not UTF-8 text: byte {at} is the first invalid one");
                Err(fail(message, "save the file as UTF-8".to_owned()))
            }
        }
    }

    /// The text of the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The file's name; `None` if the settings come from no file.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The text that the first line with `key = "…"` gives to a key, for a file whose syntax is wrong.
    pub fn text_by_line(&self, key: &str) -> Option<&str> {
        self.text.lines().find_map(|line| {
            let value = line.trim_start().strip_prefix(key)?.trim_start().strip_prefix('=')?.trim_start();
            let quote = value.chars().next().filter(|quote| ['"', '\''].contains(quote))?;
            value[1..].split(quote).next().filter(|text| !text.is_empty())
        })
    }

    /// Resolves a path that the file mentions: a relative one is relative to the file's directory.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.file().and_then(Path::parent).unwrap_or(Path::new("")).join(path)
    }

    /// The place of a byte range. Any range is valid; it is clamped to the text.
    pub(crate) fn place(&self, span: &Span) -> Place<'_> {
        let mut start = span.start.min(self.text.len());
        while !self.text.is_char_boundary(start) {
            start -= 1;
        }
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line = self.text[line_start..].split('\n').next().unwrap_or("");
        let line = line.strip_suffix('\r').unwrap_or(line);
        let mut end = span.end.clamp(start, (line_start + line.len()).max(start));
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        Place {
            line: self.text[..start].matches('\n').count() + 1,
            column: self.text[line_start..start].chars().count() + 1,
            length: self.text[start..end].chars().count().max(1),
            text: line,
        }
    }
}

/// A place for people: line, column and length in characters, counted from 1.
pub(crate) struct Place<'a> {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) length: usize,
    text: &'a str,
}

impl Place<'_> {
    /// The line, or a part of a long line with the place in it, and the column in it, counted from 0. Control
    /// characters become blanks, because they would move the caret and could drive the terminal.
    pub(crate) fn excerpt(&self) -> (String, usize) {
        let skip = self.column.saturating_sub(EXCERPT_CHARS_MAX / 2);
        let shown = self.text.chars().skip(skip).take(EXCERPT_CHARS_MAX);
        let shown: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
        (shown.trim_end().to_owned(), self.column - 1 - skip)
    }
}
