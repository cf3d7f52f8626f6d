//! The gateway's configuration: one TOML file, read and checked in one pass that collects every mistake.
//!
//! A file goes through these steps:
//!
//! 1. [`read`] takes the file's text; [`Source`] knows its lines;
//! 2. `reader.rs` reads it section by section, by the table of keys in `keys.rs` and the text forms in
//!    `values.rs`, into a draft (`draft.rs`), in which each value keeps its place;
//! 3. `cross.rs` compares the values with each other (overlapping networks, address families, shared keys),
//!    `caps.rs` finds caps that leave packets without repairs, `memory.rs` adds up the memory that they need,
//!    and `split.rs`, `paths.rs`, `tunnel.rs`, `multicast.rs`, `wans.rs` and `rack.rs` check their settings
//!    against the others;
//! 4. [`Reading::config`] turns a draft without errors into a [`GatewayConfig`], which the driver runs;
//! 5. [`Reading::check_machine`] compares the draft with the live machine (`machine`). It only looks: it
//!    sends nothing and changes nothing.
//!
//! ```
//! use std::path::Path;
//! let reading = maelstrom::config::parse(Path::new("gateway.toml"), "[gateway]\nwam = \"wan0\"\n");
//! let report = reading.config().unwrap_err();
//! assert!(report.to_string().contains("did you mean `wan`?"));
//! ```

mod caps;
mod classes;
mod cross;
mod draft;
mod keys;
pub(crate) mod machine;
pub(crate) mod memory;
mod multicast;
mod paths;
mod peer_keys;
mod rack;
mod reader;
mod split;
mod tunnel;
mod types;
mod values;
pub(crate) mod wans;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

pub use diagnostics::{Diagnostic, Report, Severity, Source};
pub use draft::GatewayConfig;
pub use keys::{
    CONTROL_DEFAULT, FILE_DEFAULT, Gateway, NETWORKS_MAX, PEERS_MAX, RATE_MAX, keys_of_schemes, layout,
};
pub use maelstrom_core::SILENCE_US;
pub use maelstrom_core::auto::{LADDER, WINDOW, WINDOW_LONG};
pub use maelstrom_core::controller::SPAN_MIN;
pub use maelstrom_core::controller::Targets;
pub use maelstrom_core::{PeerKey, RepairRate, Schedule, Scheme};
pub use memory::MEMORY_MAX;
pub use multicast::MulticastSection;
pub use rack::Rack;
pub use split::Split;
pub use types::{
    AcceptChoice, Code, FailChoice, Host, InjectionChoice, Mode, MtuChoice, PathChoice, Peer, PeerAddress,
    PeerPath, SchemeChoice, TapChoice, UnknownChoice,
};

use diagnostics::Findings;
use draft::Draft;
use keyfile::KeyError;
use reader::ReadKey;

/// Largest configuration file, in bytes: a thousand peers fit twice over.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// A configuration file that has been read and checked, with everything found in it.
#[derive(Clone, Debug)]
pub struct Reading {
    source: Source,
    /// Whether the file could be read, be its contents what they may.
    is_read: bool,
    findings: Findings,
    /// `None` if the file cannot be read, or its syntax is wrong.
    draft: Option<Draft>,
}

/// Reads and checks the configuration file at `path`, and the key files that it names.
pub fn read(path: &Path) -> Reading {
    let bytes = read_bytes(path);
    let text = bytes.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).ok();
    match Source::decode(path, bytes, FILE_BYTES_MAX, "the gateway's configuration") {
        Ok(source) => examine(source, &mut read_key),
        Err(finding) => {
            let mut findings = Findings::default();
            findings.add(*finding);
            let source = Source::new(path, text.as_deref().unwrap_or_default());
            Reading { source, is_read: text.is_some(), findings, draft: None }
        }
    }
}

/// Checks `text` as the contents of the configuration file `file`, which need not exist, and reads the key
/// files that it names. Relative paths in the text are relative to the directory of `file`.
pub fn parse(file: &Path, text: &str) -> Reading {
    examine(Source::new(file, text), &mut read_key)
}

/// Checks the configuration file at `path` and this machine in one pass: [`read`], then
/// [`Reading::check_machine`].
pub fn check(path: &Path) -> Report {
    read(path).check_machine()
}

impl Reading {
    /// The configuration.
    ///
    /// # Errors
    /// The report, if the file has an error.
    pub fn config(&self) -> Result<GatewayConfig, Box<Report>> {
        match &self.draft {
            Some(draft) if self.findings.errors() == 0 => Ok(draft.clone().finish()),
            _ => Err(Box::new(self.report())),
        }
    }

    /// The control socket that the file names. Other mistakes in the file do not matter: a user who reads the
    /// status may be allowed to read the file but not its key files, and a gateway runs on while its file is
    /// being changed. Where the syntax is wrong, a line that sets `control` counts, or else the default.
    ///
    /// # Errors
    /// The report, if the file cannot be read, or its value of `control` is wrong.
    pub fn control(&self) -> Result<PathBuf, Box<Report>> {
        let control = match &self.draft {
            Some(draft) => draft.gateway.control.clone().map(|control| control.value),
            None if self.is_read => Some(reader::control_by_line(&self.source)),
            None => None,
        };
        control.ok_or_else(|| Box::new(self.report()))
    }

    /// Everything found in the file.
    pub fn report(&self) -> Report {
        self.findings.clone().into_report(self.source.clone())
    }

    /// Compares the configuration, as far as it could be understood, with this machine. Sends nothing and
    /// changes nothing. Returns the findings about the file and about the machine.
    pub fn check_machine(mut self) -> Report {
        if let Some(draft) = &self.draft {
            machine::check_draft(draft, &mut self.findings);
        }
        self.findings.into_report(self.source)
    }
}

/// Reads the file up to one byte more than it may have.
fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Syntax, sections, cross checks.
fn examine(source: Source, read_key: ReadKey<'_>) -> Reading {
    let mut findings = Findings::default();
    let draft = reader::read(&source, &mut findings, read_key);
    if let Some(draft) = &draft {
        cross::check(draft, &mut findings);
    }
    Reading { source, is_read: true, findings, draft }
}

fn read_key(path: &Path) -> Result<PeerKey, KeyError> {
    keyfile::read(path).map(|secret| PeerKey::new(*secret.bytes()))
}

#[cfg(test)]
pub(crate) mod tests;
