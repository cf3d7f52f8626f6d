//! Two sites, and the ends of their traffic.

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
