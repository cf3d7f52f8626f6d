//! The figures that are measured on the real kernel, through namespaces and an emulated link.
//!
//! | file | what |
//! |---|---|
//! | `bursts.rs`, `stream.rs` | bursts through gateways, packet by packet: 3.17, 3.18 |
//! | `codes.rs` | Reed-Solomon, layered interleaving and a sliding window over a stream: 3.19 |
//! | `cost.rs` | processor time against groups: 4.11 |
//! | `goodput.rs` | TCP beside losses, with and without gateways: 3.11, 3.12 |
//! | `ladder.rs` | repairs, then requests, with real nodes: 4.8 |
//! | `messages.rs` | how late messages come: 3.14, 3.15 |
//! | `overload.rs` | what the kernel drops at a slow receiver: 4.1 |
//!
//! What they measure depends on the machine, and on what else it does: a verdict here leaves wide margins.

mod bursts;
mod codes;
mod cost;
mod goodput;
mod ladder;
pub(crate) mod messages;
mod overload;
mod stream;

use std::ops::ControlFlow;

use netlab::TwoSites;
use netlab::emulator::EmulatorConfig;
use netlab::topology::TwoSitesConfig;
use netlab::traffic::Progress;
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};

use crate::plan::{Figure, Lab, RunError};

pub(crate) fn figures() -> Vec<Figure> {
    [
        goodput::figures(),
        messages::figures(),
        bursts::figures(),
        codes::figures(),
        overload::figures(),
        ladder::figures(),
        cost::figures(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Of a code whose symbols are not looked at.
const SYMBOL_MAX: usize = 1_500;

/// Whose code runs on the machine.
#[derive(Clone, Copy, Debug)]
enum Program<'a> {
    /// Gateways, of this setting.
    Gateways(&'a Setting),
    /// Ricochet's nodes.
    Nodes,
}

/// Part of the fingerprint of what is measured: a number for what the gateways' code or the nodes do in a small run in virtual
/// time. Other code that does the same there has the same number. What else is in their programs it does not tell.
fn behaviour(of: Program<'_>) -> String {
    let number = match of {
        Program::Gateways(Setting { schedule, delayed, max_delay_ms, .. }) => {
            let code = schedule.code(*delayed, u64::from(*max_delay_ms) * 1_000, SYMBOL_MAX);
            crate::maelstrom::behaviour_of(code)
        }
        Program::Nodes => crate::ricochet::behaviour(true),
    };
    format!("behaviour {number:x}")
}

/// What is around a transfer, whatever its link is like: part of its fingerprint.
fn surroundings(setting: Option<&Setting>) -> String {
    let (sites, link) = (TwoSitesConfig::default(), EmulatorConfig::symmetric(LinkConfig::default()));
    let code = setting.map(|setting| behaviour(Program::Gateways(setting)));
    format!("gateways {setting:?} {code:?}, {sites:?}, otherwise {link:?}")
}

/// Gateways at both ends of the link.
fn gateways(lab: &Lab<'_>, sites: &TwoSites, setting: &Setting) -> Result<GatewayPair, RunError> {
    GatewayPair::start(lab.program, &End::of(sites), setting)
        .map_err(|error| RunError::Failed(format!("{error:#}")))
}

/// Their end, which would tell if something went wrong.
fn stop(pair: Option<GatewayPair>) -> Result<(), RunError> {
    let Some(pair) = pair else { return Ok(()) };
    pair.stop().map_err(|error| RunError::Failed(format!("{error:#}")))
}

/// Ends traffic when the user wants to stop.
fn watcher<'a>(lab: &'a Lab<'_>) -> impl FnMut(Progress) -> ControlFlow<()> + 'a {
    |_| if (lab.is_stopped)() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// That the kernel has this sender.
fn has_congestion(name: &str) -> Result<(), RunError> {
    const OFFERED: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let offered = std::fs::read_to_string(OFFERED).unwrap_or_default();
    if offered.split_whitespace().any(|offer| offer == name) {
        return Ok(());
    }
    Err(RunError::Unable(format!(
        "it measures TCP {name}, and the kernel offers {}; modprobe tcp_{name}",
        offered.trim()
    )))
}

#[cfg(test)]
mod tests {
    use maelstrom::config::Schedule;

    use super::*;
    use crate::plan::{Made, Scale};

    #[test]
    fn a_set_up_of_gateways_tells_what_their_code_does_and_one_without_them_nothing_of_it() {
        let of = |interleaves: &[u16]| {
            let schedule = Schedule::Layered { r: 8, interleaves: interleaves.to_vec() };
            behaviour(Program::Gateways(&Setting { schedule, ..Setting::default() }))
        };
        assert_eq!(of(&[1, 11, 19]), of(&[1, 11, 19]));
        assert_ne!(of(&[1, 11, 19]), of(&[1, 10, 20]));
        assert!(surroundings(Some(&Setting::default())).contains(&of(&[1, 11, 19])));
        assert!(!surroundings(None).contains("behaviour"));
    }

    #[test]
    fn every_real_set_up_tells_what_code_does_but_where_none_of_ours_runs() {
        for figure in figures() {
            let jobs = (figure.plan)(Scale::Quick).jobs;
            let real: Vec<_> = jobs.iter().filter(|job| job.made() == Made::Real).collect();
            let telling = real.iter().filter(|job| job.setup.contains("behaviour "));
            // Beside transfers through gateways there are such without.
            let expected = if figure.id == "4.1" { 0..1 } else { 1..real.len() + 1 };
            assert!(expected.contains(&telling.count()), "{}", figure.id);
        }
    }
}
