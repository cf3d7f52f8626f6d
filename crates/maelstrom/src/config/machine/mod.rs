//! The configuration held against the live machine: what is absent, down, too small or forbidden.
//!
//! `facts` looks around once; the rest judges what it saw and is tested with made-up machines.

mod budget;
mod facts;
mod netlink;
mod network;
mod system;

use super::draft::Draft;
use super::report::Findings;
use facts::Facts;
use maelstrom_core::Schedule;

/// Adds what this machine lacks to run the draft, as far as the draft is known.
pub(super) fn check_draft(draft: &Draft, findings: &mut Findings) {
    judge(draft, &Facts::gather(draft), Schedule::repair_overhead, findings);
}

/// `overhead(schedule, ipv6)` is by how many bytes a repair exceeds the largest packet in it, toward such a peer.
fn judge(draft: &Draft, facts: &Facts, overhead: impl Fn(&Schedule, bool) -> usize, findings: &mut Findings) {
    network::check(draft, facts, findings);
    budget::check(draft, facts, overhead, findings);
    system::check(draft, facts, findings);
}

#[cfg(test)]
mod tests;
