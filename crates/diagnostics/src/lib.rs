//! Configuration files: tables of keys, and every mistake in a file with its place, its cause and its remedy.
//!
//! | file | contents |
//! |---|---|
//! | `source.rs`, `span.rs` | [`Source`]: a file's name and text, lines and columns |
//! | `diagnostic.rs` | [`Diagnostic`]: one finding |
//! | `report.rs`, `json.rs` | [`Findings`] and [`Report`]: all findings, as text or as JSON |
//! | `suggest.rs` | the known word nearest to a misspelt one |
//! | `text.rs` | values quoted, escaped and bounded for a message |
//! | [`mod@settings`] | reading a TOML file by a table of its keys |
//!
//! The crate does no I/O: a caller reads the bytes of a file and passes them to [`Source::decode`].
//!
//! ```
//! use diagnostics::{Diagnostic, Findings, Source};
//! use std::path::Path;
//!
//! let mut findings = Findings::default();
//! let finding = Diagnostic::error("out-of-range", "`r` is out of range").at(4..6);
//! findings.add(finding.help("set it to 64 or less"));
//! let report = findings.into_report(Source::new(Path::new("a.toml"), "r = 65"));
//! assert!(report.to_string().contains("a.toml:1:5"));
//! ```
#![forbid(unsafe_code)]

mod diagnostic;
mod json;
mod report;
pub mod settings;
mod source;
mod span;
mod suggest;
mod text;

pub use diagnostic::{Diagnostic, Severity};
pub use report::{Findings, Report};
pub use source::Source;
pub use span::Span;
pub use suggest::nearest;
pub use text::{quoted, shell_word};
