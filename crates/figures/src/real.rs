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

use maelstrom_lab::{End, GatewayPair, Setting};
use netlab::TwoSites;
use netlab::emulator::EmulatorConfig;
use netlab::link::LinkConfig;
use netlab::topology::TwoSitesConfig;
use netlab::traffic::Progress;

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

/// What is around a transfer, whatever its link is like: part of its fingerprint.
fn surroundings(setting: Option<&Setting>) -> String {
    let (sites, link) = (TwoSitesConfig::default(), EmulatorConfig::symmetric(LinkConfig::default()));
    format!("gateways {setting:?}, {sites:?}, otherwise {link:?}")
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
