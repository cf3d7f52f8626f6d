//! Settings of a node, and their TOML file, which is read and checked in one pass
//! that collects every mistake.
//!
//! `sections.rs` is the table of keys, `draft.rs` the file as far as it could be understood, `cross.rs`
//! compares values with each other, and `core.rs` turns the settings into those of the core.
//!
//! ```
//! let config = ricochet::Config::parse(r#"
//!     [node]
//!     interface = "eth0"
//!     [membership]
//!     seeds = ["10.0.0.7:7900"]
//!     [repair]
//!     mode = "digest"
//!     max_delay_ms = 2.5
//! "#)?;
//! assert_eq!(config.repair.r, 8);
//! let error = ricochet::Config::parse("[repair]\nr = 0\nmod = \"xor\"").unwrap_err().to_string();
//! assert!(error.contains("expected: an integer from 1 to 64") && error.contains("did you mean `mode`?"));
//! # Ok::<(), ricochet::ConfigError>(())
//! ```

mod core;
mod cross;
mod draft;
mod flow;
mod history;
mod membership;
mod sections;
mod types;

use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ::membership::MemberFile;
use diagnostics::settings::{Section as _, parse};
use diagnostics::{Diagnostic, Findings, Report, Source, shell_word};
use keyfile::KeyError;
use thiserror::Error;

pub use draft::Config;
pub(crate) use flow::follow_text;
pub use flow::{FlowSection, parse_follow};
pub use history::HistorySection;
pub use membership::MembershipSection;
pub use sections::{
    AnnounceSection, BuffersSection, FifoSection, KeySection, NakSection, NodeSection, RepairSection,
};
pub(crate) use types::HOUR;
pub use types::{GROUP_ADDRESSES_MAX, GROUP_PORT, PORT, RepairMode};

use crate::addresses::GroupAddresses;
use crate::key::ClusterKey;
use draft::Draft;

/// Largest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Name of a configuration that is not a file.
const NO_FILE: &str = "configuration";

/// Mistakes in a configuration.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read, or it has mistakes, or settings of a program are wrong.
    /// The report has all mistakes.
    #[error(transparent)]
    Invalid(#[from] Box<Report>),
    /// The core refused the settings.
    #[error(transparent)]
    Node(#[from] ricochet_core::node::NodeConfigError),
}

/// A configuration file that has been read, with everything found in it.
struct Reading {
    source: Source,
    findings: Findings,
    /// `None` if the file cannot be read, or its syntax is wrong.
    draft: Option<Draft>,
}

impl Reading {
    fn of_file(path: &Path) -> Self {
        match Source::decode(path, read_bytes(path), FILE_BYTES_MAX, "the node's configuration") {
            Ok(source) => Self::of_source(source),
            Err(finding) => {
                let mut findings = Findings::default();
                findings.add(*finding);
                Self { source: Source::new(path, ""), findings, draft: None }
            }
        }
    }

    fn of_source(source: Source) -> Self {
        let mut findings = Findings::default();
        let table = parse(source.text(), &mut findings);
        let draft = table.map(|table| Draft::read(&table, &mut findings));
        if let Some(draft) = &draft {
            cross::check(draft, &mut findings);
        }
        Self { source, findings, draft }
    }

    fn control(&self) -> Option<PathBuf> {
        match &self.draft {
            Some(draft) => draft.node.control.clone()?.value,
            None => self.source.text_by_line("control").map(PathBuf::from),
        }
    }

    fn config(self) -> Result<Config, ConfigError> {
        match self.draft {
            Some(draft) if self.findings.errors() == 0 => Ok(draft.finish()),
            _ => Err(Box::new(self.findings.into_report(self.source)).into()),
        }
    }
}

impl Config {
    /// Reads a TOML file.
    ///
    /// # Errors
    /// [`ConfigError`] with all mistakes. A missing interface is none: it may be set later.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Reading::of_file(path).config()
    }

    /// The control socket that a TOML file names. Other mistakes in the file do not matter, because a node
    /// runs on while its file is being changed.
    ///
    /// # Errors
    /// [`ConfigError`] with all mistakes, if the file names no socket and has some.
    pub fn control(path: &Path) -> Result<Option<PathBuf>, ConfigError> {
        let reading = Reading::of_file(path);
        match reading.control() {
            Some(control) => Ok(Some(control)),
            None => reading.config().map(|_| None),
        }
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Reading::of_source(Source::new(Path::new(NO_FILE), text)).config()
    }

    /// Checks settings that a program has put together: every range, and the values against each other.
    ///
    /// # Errors
    /// [`ConfigError`] with all mistakes.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut findings = Findings::default();
        cross::check(&Draft::of(self, &mut findings), &mut findings);
        match findings.errors() {
            0 => Ok(()),
            _ => Err(Box::new(findings.into_report(Source::none())).into()),
        }
    }

    /// Checks a TOML file, and the key file and the member file that it names. Returns every mistake.
    pub fn check_file(path: &Path) -> Report {
        let mut reading = Reading::of_file(path);
        if let Some(draft) = &reading.draft {
            check_key_file(draft, &mut reading.findings);
            check_member_file(draft, &mut reading.findings);
        }
        reading.findings.into_report(reading.source)
    }

    /// All keys of the TOML file as text, with their values, their defaults and their meaning.
    pub fn describe() -> String {
        sections::layout().describe()
    }

    /// The multicast addresses, with the port, over which the cluster's groups are spread.
    ///
    /// ```
    /// let addresses: Vec<_> = ricochet::Config::default().group_addresses().collect();
    /// assert_eq!((addresses.len(), addresses[0].to_string()), (64, "239.255.79.0:7911".to_owned()));
    /// ```
    pub fn group_addresses(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        let node = &self.node;
        GroupAddresses::new(node.groups_base, node.is_ipv6(), node.group_addresses, node.group_port)
            .addresses()
    }
}

/// Reads the file up to one byte more than it may have.
fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the remedy for a key file. Only where there is no file may a key be made: a node with another key
/// than its cluster hears nobody.
pub fn key_remedy(path: &Path, error: &KeyError) -> String {
    let shown = shell_word(path);
    match error {
        KeyError::Unreadable(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            format!("chgrp {{group of this process}} {shown} && chmod 640 {shown}, as root")
        }
        KeyError::Unreadable(error) if error.kind() == io::ErrorKind::NotFound => {
            format!(
                "copy the key file of the cluster from another host to {shown}; for a new cluster, make a key with \
                 `undrop multicast genkey --out {shown}`, and copy it to all hosts"
            )
        }
        KeyError::Unreadable(_) => format!("let this process read {shown}"),
        KeyError::Mode { .. } => format!("chmod 600 {shown}"),
        KeyError::Owner { .. } => format!("chown {{user of this process}} {shown}"),
        KeyError::Link => "name the file that the link leads to".to_owned(),
        _ => format!("copy the key file of the cluster from another host to {shown} again"),
    }
}

fn check_key_file(draft: &Draft, findings: &mut Findings) {
    let Some(setting) = &draft.key.file else { return };
    let Some(path) = &setting.value else { return };
    let Err(error) = ClusterKey::read_all(path) else { return };
    let help = key_remedy(path, &error);
    let message = format!("`file` in {} names a file without a usable key: {error}", KeySection::HEADER);
    findings.add(Diagnostic::error("key-file", message).at(setting.span.clone()).help(help));
}

fn check_member_file(draft: &Draft, findings: &mut Findings) {
    let Some(setting) = &draft.membership.file else { return };
    let Some(path) = &setting.value else { return };
    let error = match read_bytes(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) {
        Ok(text) => MemberFile::parse(&text).err().map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(error) = error {
        let header = MembershipSection::HEADER;
        let message = format!("`file` in {header} names a file without usable members: {error}");
        let help = format!("fix {}, or leave `file` out to find members by gossip", shell_word(path));
        findings.add(Diagnostic::error("member-file", message).at(setting.span.clone()).help(help));
    }
}

#[cfg(test)]
mod tests;
