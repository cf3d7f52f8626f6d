//! Mistakes with their place, and how they are shown: as text with the line itself, or as JSON.

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Byte range in the configuration file.
pub type Span = Range<usize>;

/// Longest stretch of a source line that is shown, in characters.
const EXCERPT_CHARS_MAX: usize = 120;

/// More diagnostics than this are counted but not kept: nobody reads them, and a file may hold a million mistakes.
const DIAGNOSTICS_MAX: usize = 200;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The gateway cannot run like this.
    Error,
    /// It runs, with a loss that the operator should know of.
    Warning,
    /// Nothing to do; explains what will happen.
    Note,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// One finding: what is wrong, where, what was expected and seen, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Stable name of the kind of mistake, for programs.
    pub code: &'static str,
    /// One sentence.
    pub message: String,
    /// Where in the file; none for a finding about the machine that no key stands for.
    pub span: Option<Span>,
    /// Another place that belongs to it, and what it is.
    pub related: Option<(Span, String)>,
    /// What would have been right.
    pub expected: Option<String>,
    /// What was there.
    pub seen: Option<String>,
    /// Why it matters.
    pub notes: Vec<String>,
    /// What to do: advice, or command lines that can be used as they are.
    pub help: Vec<String>,
}

impl Diagnostic {
    fn new(severity: Severity, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity,
            code,
            message: message.into(),
            span: None,
            related: None,
            expected: None,
            seen: None,
            notes: Vec::new(),
            help: Vec::new(),
        }
    }

    pub(super) fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message)
    }

    pub(super) fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, message)
    }

    pub(super) fn remark(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Note, code, message)
    }

    pub(super) fn at(mut self, span: impl Into<Option<Span>>) -> Self {
        self.span = span.into();
        self
    }

    pub(super) fn related(mut self, span: Option<Span>, what: impl Into<String>) -> Self {
        self.related = span.map(|span| (span, what.into()));
        self
    }

    pub(super) fn expected(mut self, text: impl Into<String>) -> Self {
        self.expected = Some(text.into());
        self
    }

    pub(super) fn seen(mut self, text: impl Into<String>) -> Self {
        self.seen = Some(text.into());
        self
    }

    pub(super) fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    pub(super) fn help(mut self, text: impl Into<String>) -> Self {
        self.help.push(text.into());
        self
    }
}

/// The file under examination: its name and its text.
#[derive(Clone, Debug)]
pub struct Source {
    file: PathBuf,
    text: String,
}

impl Source {
    pub(super) fn new(file: &Path, text: &str) -> Self {
        Self { file: file.to_owned(), text: text.to_owned() }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Resolves a path of the configuration, which is relative to the file's directory.
    pub(super) fn resolve(&self, path: &Path) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }

    fn place(&self, span: &Span) -> Place<'_> {
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

/// A place as people count it: line, column and length in characters, all from 1.
struct Place<'a> {
    line: usize,
    column: usize,
    length: usize,
    text: &'a str,
}

impl Place<'_> {
    /// The line, or the stretch around the place if it is long, and the column in it (from 0). Control characters
    /// become blanks: they would move the caret, and could drive the terminal.
    fn excerpt(&self) -> (String, usize) {
        let skip = self.column.saturating_sub(EXCERPT_CHARS_MAX / 2);
        let shown = self.text.chars().skip(skip).take(EXCERPT_CHARS_MAX);
        let shown: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
        (shown.trim_end().to_owned(), self.column - 1 - skip)
    }
}

/// Findings as they are collected.
#[derive(Debug, Default)]
pub(super) struct Findings {
    list: Vec<Diagnostic>,
    dropped: [usize; 3],
}

impl Findings {
    pub(super) fn add(&mut self, diagnostic: Diagnostic) {
        if self.list.len() < DIAGNOSTICS_MAX {
            self.list.push(diagnostic);
        } else {
            self.dropped[diagnostic.severity as usize] += 1;
        }
    }

    /// Sorts by place: the file from top to bottom, then the machine.
    pub(super) fn into_report(mut self, source: Source) -> Report {
        self.list.sort_by_key(|finding| finding.span.as_ref().map_or(usize::MAX, |span| span.start));
        Report { source, diagnostics: self.list, dropped: self.dropped }
    }
}

/// Everything found in one file, and on the machine if that was asked for.
///
/// Its `Display` is the text for people, line by line as a compiler does.
#[derive(Clone, Debug)]
pub struct Report {
    source: Source,
    diagnostics: Vec<Diagnostic>,
    dropped: [usize; 3],
}

impl Report {
    /// The findings, by place in the file, those about the machine alone last.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Number of errors; with none, the gateway can run.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    /// Number of warnings.
    #[must_use]
    pub fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    fn count(&self, severity: Severity) -> usize {
        let kept = self.diagnostics.iter().filter(|finding| finding.severity == severity).count();
        kept + self.dropped[severity as usize]
    }

    /// The report for programs: `{"file", "errors", "warnings", "diagnostics": [{"severity", "code", "message", "line",
    /// "column", "length", "expected", "seen", "notes", "help", "related"}]}`; what does not apply is null or empty.
    #[must_use]
    pub fn to_json(&self) -> String {
        let body = JsonReport {
            file: self.source.file.display().to_string(),
            errors: self.errors(),
            warnings: self.warnings(),
            diagnostics: self
                .diagnostics
                .iter()
                .map(|finding| JsonDiagnostic::new(&self.source, finding))
                .collect(),
        };
        serde_json::to_string_pretty(&body).expect("text and numbers always serialise")
    }

    fn show(&self, finding: &Diagnostic, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}[{}]: {}", finding.severity.word(), finding.code, finding.message)?;
        let place = finding.span.as_ref().map(|span| self.source.place(span));
        let number = place.as_ref().map_or(String::new(), |place| place.line.to_string());
        let gutter = " ".repeat(number.len());
        if let Some(place) = &place {
            let (excerpt, column) = place.excerpt();
            let room = excerpt.chars().count().saturating_sub(column).max(1);
            writeln!(f, "{gutter}--> {}:{}:{}", self.source.file.display(), place.line, place.column)?;
            writeln!(f, "{gutter} |")?;
            writeln!(f, "{number} | {excerpt}")?;
            writeln!(f, "{gutter} | {}{}", " ".repeat(column), "^".repeat(place.length.min(room)))?;
        }
        self.show_facts(finding, &gutter, f)
    }

    fn show_facts(&self, finding: &Diagnostic, gutter: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut facts: Vec<(&str, String)> = Vec::new();
        facts.extend(finding.expected.iter().map(|text| ("expected", text.clone())));
        facts.extend(finding.seen.iter().map(|text| ("seen", text.clone())));
        if let Some((span, what)) = &finding.related {
            let place = self.source.place(span);
            facts.push(("note", format!("{what} (line {}, column {})", place.line, place.column)));
        }
        facts.extend(finding.notes.iter().map(|text| ("note", text.clone())));
        facts.extend(finding.help.iter().map(|text| ("help", text.clone())));
        for (label, text) in facts {
            let mut lines = text.lines();
            writeln!(f, "{gutter} = {label}: {}", lines.next().unwrap_or(""))?;
            for line in lines {
                writeln!(f, "{gutter}   {line}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.diagnostics {
            self.show(finding, f)?;
            writeln!(f)?;
        }
        let dropped: usize = self.dropped.iter().sum();
        if dropped > 0 {
            writeln!(f, "... and {dropped} more\n")?;
        }
        let mut verdict = String::new();
        match self.errors() {
            0 => verdict.push_str("no errors"),
            1 => verdict.push_str("1 error"),
            n => write!(verdict, "{n} errors")?,
        }
        match self.warnings() {
            0 => {}
            1 => verdict.push_str(", 1 warning"),
            n => write!(verdict, ", {n} warnings")?,
        }
        write!(f, "{}: {verdict}", self.source.file.display())
    }
}

impl std::error::Error for Report {}

#[derive(Serialize)]
struct JsonReport<'a> {
    file: String,
    errors: usize,
    warnings: usize,
    diagnostics: Vec<JsonDiagnostic<'a>>,
}

#[derive(Serialize)]
struct JsonDiagnostic<'a> {
    severity: Severity,
    code: &'a str,
    message: &'a str,
    line: Option<usize>,
    column: Option<usize>,
    length: Option<usize>,
    expected: Option<&'a str>,
    seen: Option<&'a str>,
    notes: &'a [String],
    help: &'a [String],
    related: Option<JsonRelated<'a>>,
}

#[derive(Serialize)]
struct JsonRelated<'a> {
    line: usize,
    column: usize,
    what: &'a str,
}

impl<'a> JsonDiagnostic<'a> {
    fn new(source: &Source, finding: &'a Diagnostic) -> Self {
        let place = finding.span.as_ref().map(|span| source.place(span));
        let related = finding.related.as_ref().map(|(span, what)| {
            let place = source.place(span);
            JsonRelated { line: place.line, column: place.column, what }
        });
        Self {
            severity: finding.severity,
            code: finding.code,
            message: &finding.message,
            line: place.as_ref().map(|place| place.line),
            column: place.as_ref().map(|place| place.column),
            length: place.as_ref().map(|place| place.length),
            expected: finding.expected.as_deref(),
            seen: finding.seen.as_deref(),
            notes: &finding.notes,
            help: &finding.help,
            related,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn report(text: &str, finding: Diagnostic) -> String {
        let mut findings = Findings::default();
        findings.add(finding);
        findings.into_report(Source::new(Path::new("a.toml"), text)).to_string()
    }

    #[test]
    fn the_caret_stands_under_the_place_also_behind_tabs_and_wide_letters() {
        let text = "a = 1\n\tb = \"é\" # x\n";
        let at = text.find('#').unwrap();
        let shown = report(text, Diagnostic::error("c", "m").at(at..at + 1));
        assert_eq!(
            shown,
            "error[c]: m\n --> a.toml:2:10\n  |\n2 |  b = \"é\" # x\n  |          ^\n\na.toml: 1 error"
        );
    }

    #[test]
    fn a_long_line_is_shown_around_the_place() {
        let text = format!("a = \"{}\" #", "x".repeat(5000));
        let shown = report(&text, Diagnostic::error("c", "m").at(text.len() - 1..text.len()));
        assert!(shown.lines().all(|line| line.chars().count() < 140), "{shown}");
        assert!(shown.contains(":5008\n"), "{shown}");
    }

    #[test]
    fn a_flood_of_mistakes_is_counted_but_not_kept() {
        let mut findings = Findings::default();
        for _ in 0..1000 {
            findings.add(Diagnostic::error("c", "m"));
        }
        let report = findings.into_report(Source::new(Path::new("a.toml"), ""));
        assert_eq!(report.errors(), 1000);
        assert_eq!(report.diagnostics().len(), DIAGNOSTICS_MAX);
        assert!(report.to_string().contains("... and 800 more"));
    }

    proptest! {
        #[test]
        fn any_span_in_any_text_can_be_shown(text: String, start in 0_usize..200, length in 0_usize..50) {
            let finding = Diagnostic::warning("c", "m").at(start..start + length);
            let shown = report(&text, finding.clone());
            prop_assert!(shown.contains("warning[c]: m"));
            let mut findings = Findings::default();
            findings.add(finding);
            let json = findings.into_report(Source::new(Path::new("a.toml"), &text)).to_json();
            serde_json::from_str::<serde_json::Value>(&json).unwrap();
        }
    }
}
