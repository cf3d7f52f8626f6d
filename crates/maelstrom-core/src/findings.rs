//! Differences between the configuration and the path from the far site, as an ingress finds them out.

use std::fmt;

/// A way in which the path from the far site differs from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// Named packets never arrive, while packets that no repair names do.
    Rewritten,
    /// Hardly any named packet arrives, while repairs do.
    Elsewhere,
    /// More packets are missing than the loss of repairs explains.
    PartlyElsewhere,
    /// Packets arrive in fragments that a router made.
    Fragmented,
    /// Packets that open TCP connections arrive with other content.
    OpeningRewritten,
    /// Packets arrive long after the repairs that name them.
    SlowPath,
}

impl Finding {
    /// All findings.
    pub const ALL: [Self; 6] = [
        Self::Rewritten,
        Self::Elsewhere,
        Self::PartlyElsewhere,
        Self::Fragmented,
        Self::OpeningRewritten,
        Self::SlowPath,
    ];

    /// Returns its name: stable, in snake case.
    pub fn id(self) -> &'static str {
        match self {
            Self::Rewritten => "rewritten",
            Self::Elsewhere => "elsewhere",
            Self::PartlyElsewhere => "partly_elsewhere",
            Self::Fragmented => "fragmented",
            Self::OpeningRewritten => "opening_rewritten",
            Self::SlowPath => "slow_path",
        }
    }

    /// Returns what an operator can do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Rewritten => {
                "move the gateways to the outer side of the NAT or middle box, or exempt the traffic between the \
                 sites from it; recovery resumes by itself"
            }
            Self::Elsewhere | Self::PartlyElsewhere | Self::SlowPath => {
                "route all traffic between the sites over the WAN interfaces of both gateways, or configure only the \
                 networks whose traffic takes this path; recovery resumes by itself"
            }
            Self::Fragmented => {
                "lower the MTU of the sites or of the route to the far site to the MTU of the path, or set \
                 `wan_mtu` to it"
            }
            Self::OpeningRewritten => {
                "none is needed unless connections open slowly: lost SYNs are not recovered; clamp the MSS at the \
                 gateway instead of on the way"
            }
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rewritten => "packets are rewritten on the way",
            Self::Elsewhere => "packets take another path",
            Self::PartlyElsewhere => "some packets take another path",
            Self::Fragmented => "packets are fragmented on the way",
            Self::OpeningRewritten => "TCP SYNs are rewritten on the way",
            Self::SlowPath => "some packets take a slower path",
        })
    }
}

/// A set of findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Findings(u8);

impl Findings {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Adds a finding, or removes it.
    pub fn set(&mut self, finding: Finding, holds: bool) {
        self.0 = if holds { self.0 | finding.bit() } else { self.0 & !finding.bit() };
    }

    /// Whether the set contains a finding.
    pub fn contains(self, finding: Finding) -> bool {
        self.0 & finding.bit() != 0
    }

    /// Whether there is no finding.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the findings in order of declaration.
    pub fn iter(self) -> impl Iterator<Item = Finding> {
        Finding::ALL.into_iter().filter(move |&finding| self.contains(finding))
    }

    /// Returns the byte on the wire.
    pub fn to_wire(self) -> u8 {
        self.0
    }

    /// Reads the byte on the wire; unknown findings are dropped.
    pub fn from_wire(byte: u8) -> Self {
        Self(byte & ((1 << Finding::ALL.len()) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_survives_the_wire() {
        let mut findings = Findings::default();
        findings.set(Finding::Elsewhere, true);
        findings.set(Finding::SlowPath, true);
        findings.set(Finding::Elsewhere, false);
        assert_eq!(Findings::from_wire(findings.to_wire()), findings);
        assert!(findings.iter().eq([Finding::SlowPath]));
        assert_eq!(Findings::from_wire(0xff).iter().count(), Finding::ALL.len());
    }
}
