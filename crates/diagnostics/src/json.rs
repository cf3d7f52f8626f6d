//! The report as JSON.

use serde::Serialize;

use crate::diagnostic::{Diagnostic, Severity};
use crate::report::Report;
use crate::source::Source;

/// Schema of the document, with its version: it rises when a field is removed or gets another meaning.
const SCHEMA: &str = "undrop.check/1";

/// All findings about one configuration.
#[derive(Serialize)]
struct JsonReport<'a> {
    /// Name and version of this schema.
    schema: &'static str,
    /// Path of the file; empty for settings that come from no file.
    file: String,
    /// Number of errors; without any, the program can run.
    errors: usize,
    /// Number of warnings.
    warnings: usize,
    /// The findings, by place in the file; those without a place come last.
    diagnostics: Vec<JsonDiagnostic<'a>>,
}

/// One finding.
#[derive(Serialize)]
struct JsonDiagnostic<'a> {
    /// Its severity.
    severity: Severity,
    /// Stable identifier of the kind of mistake.
    code: &'a str,
    /// The mistake in one sentence.
    message: &'a str,
    /// Line in the file, from 1; null if no text in the file belongs to the finding.
    line: Option<usize>,
    /// Column of the place in characters, from 1.
    column: Option<usize>,
    /// Length of the place in characters.
    length: Option<usize>,
    /// The values that would be right.
    expected: Option<&'a str>,
    /// The value that was found.
    seen: Option<&'a str>,
    /// Consequences and background.
    notes: &'a [String],
    /// Remedies: advice, or command lines ready to use.
    help: &'a [String],
    /// A second place that belongs to the finding.
    related: Option<JsonRelated<'a>>,
}

/// A second place that belongs to a finding.
#[derive(Serialize)]
struct JsonRelated<'a> {
    /// Line in the file, from 1.
    line: usize,
    /// Column in characters, from 1.
    column: usize,
    /// Its description.
    what: &'a str,
}

impl Report {
    /// The report for programs: `{"schema", "file", "errors", "warnings", "diagnostics": [{"severity",
    /// "code", "message", "line", "column", "length", "expected", "seen", "notes", "help",
    /// "related"}]}`; a part that does not apply is null or empty.
    pub fn to_json(&self) -> String {
        let body = JsonReport {
            schema: SCHEMA,
            file: self.source.file().map_or(String::new(), |file| file.display().to_string()),
            errors: self.errors(),
            warnings: self.warnings(),
            diagnostics: self
                .diagnostics()
                .iter()
                .map(|finding| JsonDiagnostic::new(&self.source, finding))
                .collect(),
        };
        serde_json::to_string_pretty(&body).expect("text and numbers always serialize")
    }
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
