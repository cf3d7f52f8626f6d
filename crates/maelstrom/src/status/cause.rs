//! Troubles and findings in the status, each with its remedy.

use maelstrom_core::wire::Report;
use maelstrom_core::{Finding, Findings, Trouble};
use serde::{Deserialize, Serialize};

/// Something that an operator should change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseStatus {
    /// Its name: stable, in snake case.
    #[serde(default)]
    pub id: String,
    /// The problem.
    pub cause: String,
    /// Its solution.
    pub remedy: String,
}

/// Findings of an ingress about the path of the packets that arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathStatus {
    /// Whether recovered packets are injected, as far as the path is concerned.
    pub recovering: bool,
    /// Differences from the configuration.
    pub findings: Vec<CauseStatus>,
}

impl From<Trouble> for CauseStatus {
    fn from(trouble: Trouble) -> Self {
        Self { id: trouble.id().to_owned(), cause: trouble.to_string(), remedy: trouble.remedy().to_owned() }
    }
}

impl From<Finding> for CauseStatus {
    fn from(finding: Finding) -> Self {
        Self { id: finding.id().to_owned(), cause: finding.to_string(), remedy: finding.remedy().to_owned() }
    }
}

impl PathStatus {
    pub(super) fn of(findings: Findings, recovering: bool) -> Self {
        Self { recovering, findings: findings.iter().map(CauseStatus::from).collect() }
    }

    pub(super) fn of_far(report: &Report) -> Self {
        Self::of(report.findings, report.is_recovering)
    }
}

/// The cause and the remedy of a path that carries less than configured.
pub(crate) fn narrow_path(mtu: usize) -> CauseStatus {
    CauseStatus {
        id: "narrow_path".to_owned(),
        cause: format!("the path carries packets of at most {mtu} bytes, less than `wan_mtu`"),
        remedy: format!(
            "set `wan_mtu = {mtu}`, and lower the MTU of the sites or of the route to the far site as `undrop gateway \
             check` then says; longer packets are not protected, and longer repairs are cut in two. With `mtu = \
             \"manage\"`, the packets of new TCP connections fit by themselves"
        ),
    }
}
