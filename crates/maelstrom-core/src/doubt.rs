//! Flows of which packets may have arrived unseen. Packets of them that a repair recovers are withheld
//! for a while.

use crate::flow::Flow;

/// Maximum number of such flows of one peer. If there are more, those that came first are forgotten.
const FLOWS_MAX: usize = 64;

/// The flows in doubt, each with the time until which it is.
#[derive(Debug, Default)]
pub(crate) struct Doubtful {
    flows: Vec<(Flow, u64)>,
}

impl Doubtful {
    /// Notes that packets of `flow` may have arrived unseen, which repairs may name until `until_us`.
    pub(crate) fn add(&mut self, now_us: u64, flow: Flow, until_us: u64) {
        self.flows.retain(|&(other, until_us)| other != flow && until_us > now_us);
        if self.flows.len() == FLOWS_MAX {
            self.flows.remove(0);
        }
        self.flows.push((flow, until_us));
    }

    /// Whether packets of `flow` may have arrived unseen.
    pub(crate) fn contains(&self, now_us: u64, flow: Flow) -> bool {
        self.flows.iter().any(|&(other, until_us)| other == flow && until_us > now_us)
    }

    /// Forgets the flows whose time is over.
    pub(crate) fn expire(&mut self, now_us: u64) {
        self.flows.retain(|&(_, until_us)| until_us > now_us);
    }

    /// Number of flows in doubt, as of the last call of [`Doubtful::expire`].
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_in_doubt_for_its_time_and_others_are_not() {
        let mut doubtful = Doubtful::default();
        doubtful.add(0, Flow(1), 1_000);
        assert!(doubtful.contains(999, Flow(1)));
        assert!(!doubtful.contains(1_000, Flow(1)) && !doubtful.contains(0, Flow(2)));
        // A flood of flows is bounded, and an old flow stays no longer than its time.
        (0..=255).for_each(|flow| doubtful.add(10, Flow(flow), 2_000));
        assert_eq!(doubtful.len(), FLOWS_MAX);
        assert!(doubtful.contains(11, Flow(255)) && !doubtful.contains(11, Flow(1)));
        doubtful.expire(2_000);
        assert_eq!(doubtful.len(), 0);
    }
}
