//! Comparison of the configuration with the live machine: what is absent, down, too small or forbidden.
//!
//! `facts.rs` reads the machine once. The other files judge these facts, and their tests make up machines.

mod behind;
mod budget;
mod bypass;
mod facts;
mod filters;
mod injection;
mod lead;
mod multicast;
mod names;
mod netlink;
mod network;
mod paths;
mod rack;
pub(crate) mod record;
mod route;
mod ruleset;
mod running;
mod split;
mod system;
mod tunnel_routes;

use diagnostics::Findings;
use maelstrom_core::Schedule;

use super::draft::Draft;
use facts::Facts;
pub(crate) use lead::{Lead, leads_to};

/// Adds what this machine lacks to run the draft, as far as the draft could be read.
pub(super) fn check_draft(draft: &Draft, findings: &mut Findings) {
    let draft = &names::looked_up(draft.clone(), findings);
    let facts = Facts::gather(draft);
    judge(draft, &facts, Schedule::repair_overhead, findings);
    bypass::check(draft, &facts, findings);
    running::check(draft, findings);
}

/// `overhead(schedule, ipv6)` is the number of bytes by which a repair exceeds the largest packet in it,
/// toward a peer of that IP version.
fn judge(draft: &Draft, facts: &Facts, overhead: impl Fn(&Schedule, bool) -> usize, findings: &mut Findings) {
    network::check(draft, facts, findings);
    budget::check(draft, facts, overhead, findings);
    system::check(draft, facts, findings);
    injection::check(draft, facts, findings);
    behind::check(draft, facts, findings);
    record::check(draft, facts, findings);
    paths::check(draft, facts, findings);
    split::check(draft, facts, findings);
    rack::check(draft, facts, findings);
    multicast::check(draft, facts, findings);
}

#[cfg(test)]
mod tests;
