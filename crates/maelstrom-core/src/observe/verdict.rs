//! The verdict about a peer: protected, degraded or down, why, and the losses of the link.

use std::fmt;

use foundation::reasons;

use super::event::fate;
use super::windows::{Fates, SPANS_S, Window};
use crate::controller::Percent;
use crate::findings::Findings;

/// Share of packets that may stay lost.
const RESIDUAL_SHARE: f64 = 1e-3;
/// Number of packets that stay lost below which nothing is said about their share.
const RESIDUAL_MIN: u64 = 5;
/// Place of the last minutes among the windows.
pub(super) const MINUTES: usize = 1;
/// Number of packets from which the last seconds show what the link does.
const PACKETS_MIN: u64 = 1_000;

reasons! {
    /// Reason why a peer is not fully protected.
    Concern, Concerns {
        /// The repair channel does not work.
        PeerDown = "the repair channel does not work",
        /// Packets from the peer stay lost.
        ResidualIn = "packets from the peer stay lost",
        /// Packets to the peer stay lost.
        ResidualOut = "packets to the peer stay lost",
        /// Recovery pauses.
        RecoveryPaused = "recovery pauses",
        /// The path differs from the configuration, so that nothing is recovered here.
        PathIn = "the path from the peer differs from the configuration",
        /// The path differs from the configuration, so that nothing is recovered there.
        PathOut = "the path to the peer differs from the configuration",
        /// A gateway lacks time, so that whole flows are not protected.
        Overload = "not all flows are protected, for lack of time",
        /// One of several paths to the peer is dead.
        PathDead = "a path to the peer is dead",
    }
}

/// Condition of a peer or of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// Packets are protected in both directions.
    Protected,
    /// Packets are protected, but not all that should be recovered is.
    Degraded,
    /// Nothing is protected.
    #[default]
    Down,
}

impl Condition {
    /// Returns its name: stable, in snake case.
    pub fn id(self) -> &'static str {
        match self {
            Self::Protected => "protected",
            Self::Degraded => "degraded",
            Self::Down => "down",
        }
    }
}

/// The verdict about one peer. Displayed as `protected, 1.9 % lost, all recovered, +2.5 ms`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// The condition.
    pub condition: Condition,
    /// Reasons why the peer is not fully protected.
    pub concerns: Vec<Concern>,
    /// Whether packets to the peer travel in a tunnel, and by nothing else.
    pub is_tunnel: bool,
    /// Differences from the configuration on the path from the peer, and on that to the peer.
    pub findings: [Findings; 2],
    /// Time in microseconds in which recovery paused, in the last minutes.
    pub paused_us: u64,
    /// Packets of both directions in the last seconds, or, if they were few, in the last minutes.
    pub fates: Fates,
    /// Length of that time in seconds.
    pub span_s: u64,
    /// Median delay of the packets recovered in that time.
    pub delay_us: Option<u64>,
}

impl Verdict {
    pub(super) fn new(
        concerns: Vec<Concern>,
        findings: [Findings; 2],
        windows: &[Window; SPANS_S.len()],
    ) -> Self {
        let condition = match concerns.as_slice() {
            [] => Condition::Protected,
            some if some.contains(&Concern::PeerDown) => Condition::Down,
            _ => Condition::Degraded,
        };
        let both = windows.map(|window| sum(window.counts.here, window.counts.there));
        let at = usize::from(both[0].packets < PACKETS_MIN);
        Self {
            condition,
            concerns,
            is_tunnel: false,
            findings,
            paused_us: windows[MINUTES].counts.paused_us,
            fates: both[at],
            span_s: SPANS_S[at],
            delay_us: windows[at].counts.delay_us(),
        }
    }

    /// Returns a concern of this verdict as a sentence, with its cause if that is known.
    pub fn sentence(&self, concern: Concern) -> String {
        let [here, there] = self.findings;
        match concern {
            Concern::PeerDown if self.is_tunnel => format!("{concern}: {}", fate(true)),
            Concern::PathIn => with_findings(concern, here),
            Concern::PathOut => with_findings(concern, there),
            Concern::RecoveryPaused => {
                let (seconds, span_s) = (self.paused_us as f64 / 1e6, SPANS_S[MINUTES]);
                format!("{concern}: for {seconds:.1} s of the last {span_s} s")
            }
            _ => concern.to_string(),
        }
    }
}

fn with_findings(concern: Concern, findings: Findings) -> String {
    let findings: Vec<String> = findings.iter().map(|finding| finding.to_string()).collect();
    format!("{concern}: {}", findings.join(", "))
}

fn sum(here: Fates, there: Fates) -> Fates {
    // Half of it is what the peer says.
    Fates {
        packets: here.packets.saturating_add(there.packets),
        lost: here.lost.saturating_add(there.lost),
        recovered: here.recovered.saturating_add(there.recovered),
        left: here.left.saturating_add(there.left),
        repairs: here.repairs.saturating_add(there.repairs),
    }
}

/// Whether more packets stay lost than the threshold allows.
pub(super) fn stays_lost(fates: &Fates) -> bool {
    let residual = fates.residual();
    residual >= RESIDUAL_MIN && residual as f64 > RESIDUAL_SHARE * fates.packets as f64
}

/// Whether clearly fewer packets stay lost than the threshold allows.
pub(super) fn is_recovered(fates: &Fates) -> bool {
    4.0 * fates.residual() as f64 <= RESIDUAL_SHARE * fates.packets as f64
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.condition.id())?;
        if self.condition == Condition::Down {
            return Ok(());
        }
        let Fates { packets, lost, left, .. } = self.fates;
        if packets == 0 {
            return f.write_str(", no traffic");
        }
        if lost == 0 {
            return f.write_str(", nothing lost");
        }
        write!(f, ", {} lost", Percent(lost as f64 / packets as f64))?;
        match self.fates.residual() {
            0 if left == 0 => f.write_str(", all recovered")?,
            0 => f.write_str(", all but those of a full queue recovered")?,
            residual => write!(f, ", {residual} of {lost} not recovered")?,
        }
        self.delay_us.map_or(Ok(()), |us| write!(f, ", +{:.1} ms", us as f64 / 1e3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Finding;
    use crate::observe::Sample;

    fn windows(here: Fates) -> [Window; SPANS_S.len()] {
        let mut delays = [0; super::super::DELAY_BUCKETS];
        delays[9] = here.recovered as u32;
        let counts = Sample { here, delays, ..Sample::default() };
        [Window { covered_us: 1, counts }; 3]
    }

    #[test]
    fn a_verdict_is_one_line() {
        let fates = |packets, lost, recovered| Fates { packets, lost, recovered, ..Fates::default() };
        for (concerns, fates, text) in [
            (vec![], fates(10_000, 190, 190), "protected, 1.9 % lost, all recovered, +1.9 ms"),
            (vec![], fates(10_000, 0, 0), "protected, nothing lost"),
            (vec![], fates(0, 0, 0), "protected, no traffic"),
            (
                vec![Concern::ResidualIn],
                fates(1_000, 20, 8),
                "degraded, 2.0 % lost, 12 of 20 not recovered, +1.9 ms",
            ),
            (vec![Concern::PeerDown, Concern::ResidualIn], fates(1_000, 20, 8), "down"),
            (
                vec![],
                Fates { left: 10, ..fates(1_000, 20, 10) },
                "protected, 2.0 % lost, all but those of a full queue recovered, +1.9 ms",
            ),
        ] {
            assert_eq!(Verdict::new(concerns, [Findings::NONE; 2], &windows(fates)).to_string(), text);
        }
    }

    /// A peer with the key may report any counts.
    #[test]
    fn counts_of_a_liar_end_no_gateway() {
        let most =
            Fates { packets: u64::MAX, lost: u64::MAX, recovered: 0, left: u64::MAX, repairs: u64::MAX };
        for here in [Fates::default(), Fates { packets: 1, lost: 1, left: 1, repairs: 1, recovered: 1 }, most]
        {
            let counts = Sample { here, there: most, ..Sample::default() };
            let lies = [Window { covered_us: 1, counts }; 3];
            let verdict = Verdict::new(vec![Concern::ResidualOut], [Findings::NONE; 2], &lies);
            assert!(verdict.to_string().starts_with("degraded"), "{verdict}");
            verdict.sentence(Concern::ResidualOut);
        }
    }

    #[test]
    fn a_sentence_names_the_cause_of_a_concern() {
        let of = |findings: &[Finding]| {
            let mut set = Findings::NONE;
            findings.iter().for_each(|&finding| set.set(finding, true));
            set
        };
        let verdict = Verdict {
            findings: [of(&[Finding::Rewritten]), of(&[Finding::PartlyElsewhere, Finding::SlowPath])],
            paused_us: 5_430_000,
            ..Verdict::default()
        };
        for (concern, text) in [
            (
                Concern::PathIn,
                "the path from the peer differs from the configuration: packets are rewritten on the way",
            ),
            (
                Concern::PathOut,
                "the path to the peer differs from the configuration: some packets take another path, some packets \
                 take a slower path",
            ),
            (Concern::RecoveryPaused, "recovery pauses: for 5.4 s of the last 300 s"),
            (Concern::PathDead, "a path to the peer is dead"),
            (Concern::PeerDown, "the repair channel does not work"),
        ] {
            assert_eq!(verdict.sentence(concern), text);
        }
        let closed = Verdict { is_tunnel: true, ..verdict };
        let text = "the repair channel does not work: packets to its networks are dropped, and none leaves in the clear";
        assert_eq!(closed.sentence(Concern::PeerDown), text);
    }

    #[test]
    fn a_single_lost_packet_is_no_residual_loss() {
        let fates = |packets, lost| Fates { packets, lost, ..Fates::default() };
        assert!(!stays_lost(&fates(10, 4)) && stays_lost(&fates(10, 5)));
        assert!(!stays_lost(&fates(10_000, 10)) && stays_lost(&fates(10_000, 11)));
        assert!(is_recovered(&fates(0, 0)) && is_recovered(&fates(10_000, 2)));
        assert!(!is_recovered(&fates(10_000, 3)) && !stays_lost(&fates(10_000, 3)), "neither, between");
    }
}
