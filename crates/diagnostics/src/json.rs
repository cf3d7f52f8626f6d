//! The report as JSON.

use serde::Serialize;

use crate::diagnostic::{Diagnostic, Severity};
use crate::report::Report;
use crate::source::Source;

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

impl Report {
    /// The report for programs: `{"file", "errors", "warnings", "diagnostics": [{"severity", "code",
    /// "message", "line", "column", "length", "expected", "seen", "notes", "help", "related"}]}`; a part that
    /// does not apply is null or empty.
    pub fn to_json(&self) -> String {
        let body = JsonReport {
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
