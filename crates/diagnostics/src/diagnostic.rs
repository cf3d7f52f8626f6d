//! One finding: its severity, its place, and its remedy.

use serde::Serialize;

use crate::span::Span;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The program cannot run with this configuration.
    Error,
    /// The program runs, but the operator loses something.
    Warning,
    /// An explanation that needs no action.
    Note,
}

impl Severity {
    /// The severity in lower case, as in the output.
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// One finding: the mistake, its place, the expected and the seen value, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Severity of the finding.
    pub severity: Severity,
    /// Stable identifier of the kind of mistake, for programs.
    pub code: &'static str,
    /// The mistake in one sentence.
    pub message: String,
    /// Place in the file; `None` if no text in the file belongs to the finding.
    pub span: Option<Span>,
    /// A second place that belongs to the finding, and its description.
    pub related: Option<(Span, String)>,
    /// The values that would be right.
    pub expected: Option<String>,
    /// The value that was found.
    pub seen: Option<String>,
    /// Consequences and background.
    pub notes: Vec<String>,
    /// Remedies: advice, or command lines ready to use.
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

    /// Creates an error.
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message)
    }

    /// Creates a warning.
    pub fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, message)
    }

    /// Creates a finding of severity [`Severity::Note`].
    pub fn remark(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Note, code, message)
    }

    /// Sets the place.
    #[must_use]
    pub fn at(mut self, span: impl Into<Option<Span>>) -> Self {
        self.span = span.into();
        self
    }

    /// Sets the second place and its description; does nothing if there is no such place.
    #[must_use]
    pub fn related(mut self, span: Option<Span>, what: impl Into<String>) -> Self {
        self.related = span.map(|span| (span, what.into()));
        self
    }

    /// Sets the values that would be right.
    #[must_use]
    pub fn expected(mut self, text: impl Into<String>) -> Self {
        self.expected = Some(text.into());
        self
    }

    /// Sets the value that was found.
    #[must_use]
    pub fn seen(mut self, text: impl Into<String>) -> Self {
        self.seen = Some(text.into());
        self
    }

    /// Adds a note.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Adds a remedy.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help.push(text.into());
        self
    }
}
