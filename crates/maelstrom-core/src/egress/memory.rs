//! The knowledge of the link that one process of a gateway leaves to the next one.

use super::Egress;
use crate::choice::Choice;
use crate::wire::Report;

impl Egress {
    /// Knowledge of the link; empty if the configuration fixes the code.
    pub(crate) fn memory(&self) -> Vec<u64> {
        self.auto.as_ref().map(Choice::memory).unwrap_or_default()
    }

    /// Takes what another process knew of the link when it had this report. One without `numbers` knew
    /// nothing.
    pub(crate) fn recall(&mut self, now_us: u64, numbers: &[u64], report: &Report) {
        if let Some(auto) = &mut self.auto {
            auto.recall(now_us, numbers, report);
        }
        self.apply_rate();
    }
}
