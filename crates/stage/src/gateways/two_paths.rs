//! Two sites with two links between their gateways, and tunnels over one of them or both.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use ipnet::IpNet;
use netlab::emulator::{Emulator, EmulatorConfig};
use netlab::topology::{TwoSites, TwoSitesConfig};
use simnet::link::LinkConfig;

use super::pair::{End, GatewayPair, Setting};
use super::sites::part;

/// Interface of a gateway toward the second link.
const SECOND: &str = "wan1";
/// Time in which gateways find each other.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two sites with two links between their gateways, which know no other way to each other's hosts. On the
/// second link, gateway A is 10.82.9.1 and gateway B 10.82.9.2.
#[derive(Debug)]
pub struct TwoPaths {
    /// The second link; first, so that it is dropped before the sites.
    pub second: Emulator,
    /// The sites, with the first link.
    pub sites: TwoSites,
}

impl TwoPaths {
    /// Builds the sites and both links, each the same in both directions.
    ///
    /// # Errors
    /// If privilege is missing or a number is out of range.
    pub fn build(first: LinkConfig, second: LinkConfig) -> anyhow::Result<Self> {
        let sites = TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(first))?;
        let config = EmulatorConfig { interface: SECOND.to_owned(), ..EmulatorConfig::symmetric(second) };
        let second = Emulator::start(&sites.a.gateway, &sites.b.gateway, &config)?;
        for (near, own) in [(&sites.a, 1), (&sites.b, 2)] {
            let address: IpNet =
                format!("10.82.9.{own}/24").parse().context("an address of the laboratory")?;
            near.gateway.add_address(SECOND, address)?;
        }
        part(&sites)?;
        Ok(Self { second, sites })
    }

    /// Writes the files of gateways in tunnel mode, over both links with this `use`, or over the first alone.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn prepare(&self, program: &Path, path_use: Option<&str>) -> anyhow::Result<GatewayPair> {
        let pair = GatewayPair::prepare(program, &End::of(&self.sites), &Setting::tunnel())?;
        for (side, [own, other]) in [[1, 2], [2, 1]].into_iter().enumerate() {
            let text = fs::read_to_string(pair.config(side)).context("reading a gateway's configuration")?;
            let mut text = text;
            if let Some(path_use) = path_use {
                let paths = format!(
                    "use = \"{path_use}\"\npaths = [{{ address = \"10.82.9.{other}:4701\", local = \
                     \"10.82.9.{own}:4701\", interface = \"{SECOND}\" }}]\nkey_file ="
                );
                text = text.replace("key_file =", &paths);
            }
            fs::write(pair.config(side), text).context("writing a gateway's configuration")?;
        }
        Ok(pair)
    }

    /// Starts prepared gateways, and waits until each has found the other.
    ///
    /// # Errors
    /// If a gateway ends or does not find its peer; the error contains the logs.
    pub fn launch(&self, pair: &mut GatewayPair) -> anyhow::Result<()> {
        for (side, end) in End::of(&self.sites).iter().enumerate() {
            pair.launch(side, end.namespace)?;
        }
        pair.wait_until_up(PATIENCE)
    }
}
