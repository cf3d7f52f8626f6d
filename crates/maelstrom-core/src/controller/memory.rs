//! The knowledge of the link that one process of a gateway leaves to the next one, as numbers.
//!
//! The numbers are: the form of the rest, the number of candidates, the rate that was wanted, the longest
//! span, and the history (`history.rs`). A process that finds another form begins without knowledge: what the
//! peer has counted since the session began does not show how the link is at present.

use super::history::History;
use super::{Controller, Decision, LADDER, Limit};
use crate::wire::Report;

/// Form of the numbers.
const FORM: u64 = 1;

impl Controller {
    /// Returns what is known of the link, for [`Controller::recall`].
    pub fn memory(&self) -> Vec<u64> {
        let mut numbers = vec![FORM, LADDER.len() as u64, self.wanted as u64, self.longest_span.0];
        self.history.write(&mut numbers);
        numbers
    }

    /// Takes what another process knew of the link when it had this report; returns whether it is understood.
    pub fn recall(&mut self, now_us: u64, numbers: &[u64], report: &Report) -> bool {
        self.last = (report.forecast, report.loss);
        let Some((&[form, candidates, wanted, span], rest)) = numbers.split_first_chunk() else {
            return false;
        };
        if (form, candidates) != (FORM, LADDER.len() as u64) || wanted >= candidates {
            return false;
        }
        let Some(history) = History::read(now_us, rest) else { return false };
        self.history = history;
        self.wanted = wanted as usize;
        self.longest_span = (span.min(u32::MAX.into()), now_us);
        (self.is_congested, self.is_standing) = (report.is_congested, report.is_standing);
        self.decision = Decision { rate: LADDER[self.wanted], limit: Limit::Needed, ..self.decision };
        self.decide(now_us, self.situation);
        true
    }
}
