//! Three gateways, each with two peers, behind a backbone.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use ipnet::IpNet;
use keyfile::KeyText;
use loss::LossModel;
use maelstrom::status::{self, PeerStatus, Status};
use netlab::Namespace;
use netlab::emulator::{Emulator, EmulatorConfig};
use netlab::namespace::{Child, Route};
use netlab::traffic::Between;
use nix::sys::signal::Signal;
use simnet::link::LinkConfig;

use super::pair::make_directory;

/// Number of sites.
const SITES: usize = 3;
/// Loss of each of the two links that lie between two sites.
const LOSS: f64 = 0.01;
/// Rate and one-way delay of each link.
const RATE_BPS: u64 = 100_000_000;
const DELAY_US: u64 = 5_000;
/// Time in which gateways find each other.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the gateways reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modes {
    /// The first two are passive toward each other, and reach the third by tunnels.
    Mixed,
    /// All by tunnels.
    Tunnels,
    /// The first two have a tunnel to the third alone, which forwards between them.
    Star,
    /// The first two have a link each to the third, which forwards between them. All are passive.
    Hub,
}

impl Modes {
    /// Whether the first two have one peer each, the third.
    fn is_star(self) -> bool {
        matches!(self, Self::Star | Self::Hub)
    }
}

/// Three sites. Each has one host. All of it vanishes when this is dropped.
///
/// ```text
/// host ── gateway 1 ══ link ══ backbone ══ link ══ gateway 2 ── host
///   10.81.1.0/24   10.83.1.0/24   ║   10.83.2.0/24   10.81.2.0/24
///                                link
///                              gateway 3 ── host 10.81.3.0/24
/// ```
///
/// In [`Modes::Hub`], gateway 3 is in the place of the backbone.
pub struct ThreeSites {
    program: PathBuf,
    modes: Modes,
    processes: Vec<Option<Child>>,
    links: Vec<Emulator>,
    gateways: Vec<Namespace>,
    hosts: Vec<Namespace>,
    directory: PathBuf,
}

impl Drop for ThreeSites {
    fn drop(&mut self) {
        self.processes.clear();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl ThreeSites {
    /// Builds the sites and starts their gateways. Each file of a gateway ends with `sections`.
    ///
    /// # Errors
    /// If privilege is missing, or a gateway does not find the others; the error contains the logs.
    pub fn start(program: &Path, modes: Modes, sections: &str, seed: u64) -> anyhow::Result<Self> {
        let backbone = Namespace::create(if modes == Modes::Hub { "gateway-3" } else { "backbone" })?;
        prepare_router(&backbone)?;
        let mut lab = Self {
            program: program.to_owned(),
            modes,
            processes: (0..SITES).map(|_| None).collect(),
            links: Vec::new(),
            gateways: Vec::new(),
            hosts: Vec::new(),
            directory: make_directory()?,
        };
        for site in 1..=if modes == Modes::Hub { 2 } else { SITES } {
            lab.add_site(site, &backbone, seed)?;
        }
        // The path of passive pairs. Nobody but their peers knows the other sites.
        for site in if matches!(modes, Modes::Mixed | Modes::Hub) { &[1, 2][..] } else { &[] } {
            let via = format!("10.83.{site}.2").parse().context("an address of the laboratory")?;
            backbone.add_route(&Route::to(network(*site)?).via(via).interface(&wan(*site)))?;
        }
        if modes == Modes::Hub {
            lab.add_host(3, &backbone)?;
            lab.gateways.push(backbone);
        }
        lab.write_files(sections)?;
        for site in 1..=SITES {
            lab.launch(site)?;
        }
        lab.wait_until_up()?;
        Ok(lab)
    }

    fn add_site(&mut self, site: usize, backbone: &Namespace, seed: u64) -> anyhow::Result<()> {
        let address =
            |text: String| -> anyhow::Result<IpNet> { text.parse().context("a network of the laboratory") };
        let gateway = Namespace::create(&format!("gateway-{site}"))?;
        prepare_router(&gateway)?;
        self.add_host(site, &gateway)?;
        let link = LinkConfig {
            rate_bps: Some(RATE_BPS),
            delay_us: DELAY_US,
            loss: LossModel::Uniform(LOSS),
            seed: 40 + 10 * seed + site as u64,
            ..LinkConfig::default()
        };
        let config = EmulatorConfig { interface: wan(site), ..EmulatorConfig::symmetric(link) };
        self.links.push(Emulator::start(&gateway, backbone, &config)?);
        backbone.add_address(&wan(site), address(format!("10.83.{site}.1/24"))?)?;
        gateway.add_address(&wan(site), address(format!("10.83.{site}.2/24"))?)?;
        let via = format!("10.83.{site}.1").parse()?;
        let everywhere = address("0.0.0.0/0".to_owned())?;
        gateway.add_route(&Route::to(everywhere).via(via).interface(&wan(site)))?;
        self.gateways.push(gateway);
        Ok(())
    }

    fn add_host(&mut self, site: usize, gateway: &Namespace) -> anyhow::Result<()> {
        let host = Namespace::create(&format!("host-{site}"))?;
        host.add_veth("eth0", gateway, "lan0", 1300)?;
        gateway.add_address("lan0", format!("10.81.{site}.1/24").parse()?)?;
        host.add_address("eth0", format!("10.81.{site}.2/24").parse()?)?;
        host.add_route(&Route::to("0.0.0.0/0".parse()?).via(format!("10.81.{site}.1").parse()?))?;
        self.hosts.push(host);
        Ok(())
    }

    fn write_files(&self, sections: &str) -> anyhow::Result<()> {
        for (one, other) in [(1, 2), (1, 3), (2, 3)] {
            let file = self.directory.join(format!("{one}-{other}.key"));
            KeyText::generate().context("drawing a key")?.write_new(&file).context("writing a key file")?;
        }
        for site in 1..=SITES {
            let is_star = self.modes.is_star();
            let is_hub = self.modes == Modes::Hub;
            let mut text = format!(
                "[gateway]\nwan = \"{}\"\nlisten = \"{}\"\ncontrol = \"{}\"\n",
                wan(if is_hub && site == 3 { 1 } else { site }),
                self.listen(site),
                self.control(site).display()
            );
            for peer in (1..=SITES).filter(|&peer| peer != site && (!is_star || site == 3 || peer == 3)) {
                let (one, other) = (site.min(peer), site.max(peer));
                let is_passive = is_hub || self.modes == Modes::Mixed && other != 3;
                let mode = if is_passive { "passive" } else { "tunnel" };
                let is_behind = |&at: &usize| if is_star && site != 3 { at != site } else { at == peer };
                let networks = (1..=SITES).filter(is_behind).map(network);
                let networks = networks.collect::<anyhow::Result<Vec<_>>>()?;
                write!(
                    text,
                    "[[peer]]\nname = \"site-{peer}\"\naddress = \"{}\"\n\
                     networks = [{}]\nmode = \"{mode}\"\nkey_file = \"{one}-{other}.key\"\n",
                    self.listen(peer),
                    networks.iter().map(|network| format!("\"{network}\"")).collect::<Vec<_>>().join(", ")
                )?;
                if is_hub && (site, peer) == (3, 2) {
                    writeln!(text, "wan = \"{}\"", wan(2))?;
                }
            }
            text += sections;
            fs::write(self.file(site), text).context("writing a gateway's configuration")?;
        }
        Ok(())
    }

    fn launch(&mut self, site: usize) -> anyhow::Result<()> {
        let log =
            fs::File::create(self.directory.join(format!("gateway-{site}.log"))).context("making a log")?;
        let mut command = Command::new(&self.program);
        let file = self.file(site);
        command.args(["gateway", "run", "--config"]).arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let started = self.gateways[site - 1].spawn(command);
        let child = started.with_context(|| format!("starting {}", self.program.display()))?;
        self.processes[site - 1] = Some(child);
        Ok(())
    }

    fn wait_until_up(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let is_up = |site| self.status(site).is_ok_and(|status| status.peers.iter().all(|peer| peer.up));
        while !(1..=SITES).all(is_up) {
            ensure!(
                Instant::now() < deadline,
                "the gateways did not find each other within {PATIENCE:?}; their logs:\n{}",
                self.logs()
            );
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Address of the repair channel of a site's gateway.
    fn listen(&self, site: usize) -> String {
        let is_hub = self.modes == Modes::Hub && site == 3;
        if is_hub { "10.83.1.1:4700".to_owned() } else { format!("10.83.{site}.2:4700") }
    }

    /// The configuration of a site's gateway.
    pub fn file(&self, site: usize) -> PathBuf {
        self.directory.join(format!("gateway-{site}.toml"))
    }

    /// The namespace of a site's gateway.
    pub fn gateway(&self, site: usize) -> &Namespace {
        &self.gateways[site - 1]
    }

    /// Lets the gateway of a site read its file again.
    ///
    /// # Errors
    /// If it does not run.
    pub fn reload(&mut self, site: usize) -> anyhow::Result<()> {
        let process = self.processes[site - 1].as_mut().context("the gateway does not run")?;
        process.signal(Signal::SIGHUP).context("asking for a reload")
    }

    /// Kills the gateway of a site, without cleanup, and starts it again.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn restart(&mut self, site: usize) -> anyhow::Result<()> {
        // Dropping a child kills it and waits for its end.
        drop(self.processes[site - 1].take());
        self.launch(site)
    }

    fn control(&self, site: usize) -> PathBuf {
        self.directory.join(format!("gateway-{site}.sock"))
    }

    /// The status of the gateway of a site, 1 to 3.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn status(&self, site: usize) -> anyhow::Result<Status> {
        status::read(&self.control(site)).context("reading a gateway's status")
    }

    /// The status of `peer` at the gateway of `site`.
    ///
    /// # Errors
    /// If the gateway does not answer, or does not know the peer.
    pub fn peer(&self, site: usize, peer: usize) -> anyhow::Result<PeerStatus> {
        let name = Some(format!("site-{peer}"));
        let found = self.status(site)?.peers.into_iter().find(|status| status.name == name);
        found.with_context(|| format!("expected a peer site-{peer} at site {site}, saw none"))
    }

    /// The logs of all gateways.
    pub fn logs(&self) -> String {
        let log = |site| fs::read_to_string(self.directory.join(format!("gateway-{site}.log")));
        (1..=SITES).map(|site| format!("-- site {site}\n{}", log(site).unwrap_or_default())).collect()
    }

    /// The host of a site.
    pub fn host(&self, site: usize) -> &Namespace {
        &self.hosts[site - 1]
    }

    /// The address of a site's host.
    pub fn address(&self, site: usize) -> IpAddr {
        IpAddr::from([10, 81, site as u8, 2])
    }

    /// Traffic from the host of one site to that of another.
    pub fn between(&self, from: usize, to: usize) -> Between<'_> {
        Between { from: self.host(from), to: self.host(to), address: self.address(to) }
    }

    /// Each ordered pair of sites.
    pub fn pairs() -> impl Iterator<Item = (usize, usize)> {
        (1..=SITES).flat_map(|from| (1..=SITES).filter(move |&to| to != from).map(move |to| (from, to)))
    }

    /// Asks all gateways to stop and waits until they have.
    ///
    /// # Errors
    /// If one does not end by itself, or with an error.
    pub fn stop(mut self) -> anyhow::Result<()> {
        for at in 0..SITES {
            let Some(mut process) = self.processes[at].take() else { continue };
            let ended = process.terminate(Duration::from_secs(10)).context("stopping a gateway")?;
            if !ended.success() {
                bail!("a gateway ended with {ended}; logs:\n{}", self.logs());
            }
        }
        Ok(())
    }
}

fn prepare_router(namespace: &Namespace) -> anyhow::Result<()> {
    for (key, value) in [
        ("net.ipv4.ip_forward", "1"),
        ("net.ipv4.conf.all.rp_filter", "2"),
        ("net.ipv4.conf.default.rp_filter", "2"),
    ] {
        namespace.sysctl(key, value)?;
    }
    Ok(())
}

fn network(site: usize) -> anyhow::Result<IpNet> {
    format!("10.81.{site}.0/24").parse().context("a network of the laboratory")
}

fn wan(site: usize) -> String {
    format!("wan{site}")
}
