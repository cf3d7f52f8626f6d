//! Two sites, and who talks to whom.

use loss::LossModel;
use netlab::LabError;
use netlab::emulator::EmulatorConfig;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::Between;
use simnet::link::LinkConfig;

/// Two sites on a link of `rate_bps` (none: as fast as it goes) and `delay_us` one way that loses by `loss`, both ways.
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

/// From site A's first host to site B's.
#[must_use]
pub fn between(sites: &TwoSites) -> Between<'_> {
    Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) }
}
