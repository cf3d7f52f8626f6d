//! Gateways at both ends of an emulated link, and the fingerprint of what runs there.

use std::ops::ControlFlow;

use netlab::TwoSites;
use netlab::emulator::EmulatorConfig;
use netlab::topology::TwoSitesConfig;
use netlab::traffic::Progress;
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};

use crate::plan::{Lab, RunError};

/// Longest symbol of a code whose symbols are not read.
const SYMBOL_MAX: usize = 1_500;

/// Which code runs on the machine.
#[derive(Clone, Copy, Debug)]
pub(super) enum Program<'a> {
    /// Gateways, of this setting.
    Gateways(&'a Setting),
    /// Ricochet's nodes.
    Nodes,
}

/// Returns a number for what the gateways' code or the nodes do in a small run in virtual time; the same
/// behaviour has the same number. It does not cover the rest of their programs.
pub(super) fn behaviour(of: Program<'_>) -> String {
    let number = match of {
        Program::Gateways(Setting { schedule, delayed, max_delay_ms, .. }) => {
            let code = schedule.code(*delayed, u64::from(*max_delay_ms) * 1_000, SYMBOL_MAX);
            crate::maelstrom::behaviour_of(code)
        }
        Program::Nodes => crate::ricochet::setting::behaviour(true),
    };
    format!("behaviour {number:x}")
}

/// Returns everything that surrounds a transfer apart from its link, for the fingerprint.
pub(super) fn surroundings(setting: Option<&Setting>) -> String {
    let (sites, link) = (TwoSitesConfig::default(), EmulatorConfig::symmetric(LinkConfig::default()));
    let code = setting.map(|setting| behaviour(Program::Gateways(setting)));
    format!("gateways {setting:?} {code:?}, {sites:?}, otherwise {link:?}")
}

/// Starts gateways at both ends of the link.
pub(super) fn gateways(lab: &Lab<'_>, sites: &TwoSites, setting: &Setting) -> Result<GatewayPair, RunError> {
    GatewayPair::start(lab.program, &End::of(sites), setting)
        .map_err(|error| RunError::Failed(format!("{error:#}")))
}

/// Stops gateways, and fails if one of them failed.
pub(super) fn stop(pair: Option<GatewayPair>) -> Result<(), RunError> {
    let Some(pair) = pair else { return Ok(()) };
    pair.stop().map_err(|error| RunError::Failed(format!("{error:#}")))
}

/// Returns an observer that ends traffic when the user wants to stop.
pub(super) fn watcher<'a>(lab: &'a Lab<'_>) -> impl FnMut(Progress) -> ControlFlow<()> + 'a {
    |_| if (lab.is_stopped)() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Fails if the kernel lacks this congestion control.
pub(super) fn require_congestion(name: &str) -> Result<(), RunError> {
    const OFFERED: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let offered = std::fs::read_to_string(OFFERED).unwrap_or_default();
    if offered.split_whitespace().any(|offer| offer == name) {
        return Ok(());
    }
    Err(RunError::Unable(format!(
        "expected a kernel with TCP {name}, saw {}; run modprobe tcp_{name}",
        offered.trim()
    )))
}

#[cfg(test)]
mod tests {
    use maelstrom::config::Schedule;

    use super::*;

    #[test]
    fn the_surroundings_of_gateways_contain_their_codes_behaviour() {
        let of = |interleaves: &[u16]| {
            let schedule = Schedule::Layered { r: 8, interleaves: interleaves.to_vec() };
            behaviour(Program::Gateways(&Setting { schedule, ..Setting::default() }))
        };
        assert_eq!(of(&[1, 11, 19]), of(&[1, 11, 19]));
        assert_ne!(of(&[1, 11, 19]), of(&[1, 10, 20]));
        assert!(surroundings(Some(&Setting::layered())).contains(&of(&[1, 11, 19])));
        assert!(!surroundings(None).contains("behaviour"));
    }
}
