//! The gateway's configuration: one TOML file, read in one pass that collects every mistake.
//!
//! The way of a file through this module:
//!
//! 1. [`load`] reads the file; [`Source`] knows its lines;
//! 2. `read` walks the spanned TOML table, section by section (`gateway`, `code`, `peer`), against the list of
//!    [`knobs`], into a `draft`, in which each value keeps the place it came from;
//! 3. `cross` holds the values against each other (overlapping networks, address families, keys in common), `memory` adds
//!    up what they take;
//! 4. a draft without error becomes a [`GatewayConfig`]; anything else becomes a [`Report`];
//! 5. `machine` holds the draft against the live machine. It looks only: it sends nothing and changes nothing.
//!
//! ```
//! use std::path::{Path, PathBuf};
//! let report = maelstrom::config::parse(Path::new("gateway.toml"), "[gateway]\nwam = \"wan0\"\n").unwrap_err();
//! assert!(report.to_string().contains("did you mean `wan`?"));
//! ```

mod cross;
mod draft;
pub mod knobs;
mod machine;
pub(crate) mod memory;
mod read;
mod report;
mod sections;
mod types;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

pub use maelstrom_core::{PeerKey, RepairRate, Schedule};
pub use memory::MEMORY_MAX;
pub use report::{Diagnostic, Report, Severity, Source, Span};
pub use types::{Code, Gateway, GatewayConfig, Loaded, Mode, Peer, TapChoice};

use draft::Draft;
use keyfile::KeyError;
use report::Findings;
use sections::ReadKey;

/// Largest configuration file that is read, in bytes: a thousand peers fit twice over.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads and parses the configuration file at `path`, and the key files it names.
///
/// # Errors
/// A [`Report`] with every mistake found, of which at least one is an error. Warnings alone do not fail: they are in
/// [`Loaded::report`].
pub fn load(path: &Path) -> Result<Loaded, Box<Report>> {
    let source = read_source(path)?;
    let mut findings = Findings::default();
    let draft = examine(&source, &mut findings, &mut read_key);
    conclude(source, findings, draft)
}

/// Parses `text` as the contents of the configuration file `file` (which need not exist), and reads the key files it
/// names. Paths in it that are relative are relative to the directory of `file`.
///
/// # Errors
/// As [`load`].
pub fn parse(file: &Path, text: &str) -> Result<Loaded, Box<Report>> {
    let source = Source::new(file, text);
    let mut findings = Findings::default();
    let draft = examine(&source, &mut findings, &mut read_key);
    conclude(source, findings, draft)
}

/// Checks the configuration file at `path` and this machine against each other, in one pass: the mistakes in the file,
/// and what the machine lacks to run it as far as the file can be understood. Sends nothing and changes nothing.
pub fn check(path: &Path) -> Report {
    let source = match read_source(path) {
        Ok(source) => source,
        Err(report) => return *report,
    };
    let mut findings = Findings::default();
    if let Some(draft) = examine(&source, &mut findings, &mut read_key) {
        machine::check_draft(&draft, &mut findings);
    }
    findings.into_report(source)
}

/// The control socket that the configuration file at `path` names: for those who may read the file but not its keys.
///
/// # Errors
/// A [`Report`] if the file cannot be read, or what it says of `control` is wrong.
pub fn control_of(path: &Path) -> Result<PathBuf, Box<Report>> {
    let source = read_source(path)?;
    let mut findings = Findings::default();
    let draft = examine(&source, &mut findings, &mut read_key);
    let control = draft.and_then(|draft| draft.gateway.control);
    control.map(|control| control.value).ok_or_else(|| Box::new(findings.into_report(source)))
}

/// Reads the text of the file, bounded.
fn read_source(path: &Path) -> Result<Source, Box<Report>> {
    let fail = |message: String, help: &str| {
        let mut findings = Findings::default();
        findings.add(Diagnostic::error("unreadable-file", message).help(help));
        Box::new(findings.into_report(Source::new(path, "")))
    };
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        let help = "give the path of the gateway's configuration with `--config FILE`";
        return Err(fail(format!("cannot read `{}`: {error}", path.display()), help));
    }
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("`{}` is larger than {FILE_BYTES_MAX} bytes", path.display());
        return Err(fail(message, "this is not a gateway's configuration: check the path"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(path, &text)),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let message = format!("`{}` is not UTF-8 text: byte {at} is the first wrong one", path.display());
            Err(fail(message, "save the file as UTF-8"))
        }
    }
}

/// The whole parse: syntax, sections, cross checks. No draft when the syntax gives nothing to go by.
fn examine(source: &Source, findings: &mut Findings, read_key: ReadKey<'_>) -> Option<Draft> {
    let table = read::parse_table(source.text(), findings)?;
    let draft = sections::read_sections(&table, source, findings, read_key);
    cross::check(&draft, findings);
    Some(draft)
}

/// A configuration if nothing is wrong, else the report.
fn conclude(source: Source, findings: Findings, draft: Option<Draft>) -> Result<Loaded, Box<Report>> {
    let report = findings.into_report(source);
    if report.errors() > 0 {
        return Err(Box::new(report));
    }
    let draft = draft.expect("a file without a draft has an error");
    Ok(Loaded { config: draft.finish(), report })
}

fn read_key(path: &Path) -> Result<PeerKey, KeyError> {
    keyfile::read(path).map(|secret| PeerKey::new(*secret.bytes()))
}

#[cfg(test)]
mod tests;
