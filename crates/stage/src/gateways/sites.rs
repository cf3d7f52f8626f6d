//! Two sites, and the ends of their traffic.

use std::process::Command;

use anyhow::{Context as _, ensure};
use loss::LossModel;
use netlab::LabError;
use netlab::emulator::EmulatorConfig;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::Between;
use simnet::link::LinkConfig;

/// Builds two sites on a link of `rate_bps` (`None`: unlimited) and `delay_us` one way, with `loss` both
/// ways.
///
/// # Errors
/// If privilege is missing or a number is out of range.
pub fn sites(
    rate_bps: Option<u64>,
    delay_us: u64,
    loss: &LossModel,
    seed: u64,
) -> Result<TwoSites, LabError> {
    let link = LinkConfig { rate_bps, delay_us, loss: loss.clone(), seed, ..LinkConfig::default() };
    TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link))
}

/// Returns the traffic's ends: site A's first host and site B's.
pub fn between(sites: &TwoSites) -> Between<'_> {
    Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) }
}

/// Deletes the routes by which gateways know each other's hosts, so that tunnels can lead there.
///
/// # Errors
/// If a route is missing.
pub fn part(sites: &TwoSites) -> anyhow::Result<()> {
    for (near, far) in [(&sites.a, &sites.b), (&sites.b, &sites.a)] {
        for network in far.networks() {
            let family = if network.addr().is_ipv4() { "-4" } else { "-6" };
            let delete = [family, "route", "del", &network.to_string()];
            let status = near.gateway.run(|| Command::new("ip").args(delete).status());
            let status = status.context("running `ip`")?;
            ensure!(status.success(), "`ip {}` failed", delete.join(" "));
        }
    }
    Ok(())
}
