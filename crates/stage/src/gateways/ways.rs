//! TCP between two sites by each way: without gateways, past passive ones, through their tunnel, and ended by
//! gateways.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use loss::LossModel;
use maelstrom::status::Status;
use netlab::LabError;
use netlab::emulator::EmulatorConfig;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{Course, TcpFetch, TcpReport, TcpTransfer, Watcher, tcp_fetch, tcp_transfer};
use nix::sys::signal::Signal;
use simnet::link::LinkConfig;

use super::pair::{End, GatewayPair, Setting, SplitSetting};
use super::sites::{between, part};

/// Port of the servers.
const PORT: u16 = 8_080;

/// The way of connections from one site to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// There are no gateways.
    Direct,
    /// Gateways recover lost packets.
    Passive,
    /// Connections end at the gateways, whose carriers are protected. Clients are answered at once.
    Split,
    /// The same, and clients are answered when their servers have answered.
    SplitLate,
    /// Packets travel in datagrams of the gateways, which recover lost ones.
    Tunnel,
}

impl Way {
    /// All ways.
    pub const ALL: [Self; 5] = [Self::Direct, Self::Passive, Self::Split, Self::SplitLate, Self::Tunnel];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Passive => "passive",
            Self::Split => "split",
            Self::SplitLate => "split-late",
            Self::Tunnel => "tunnel",
        }
    }

    /// Returns whether connections end at the gateways.
    pub fn is_split(self) -> bool {
        matches!(self, Self::Split | Self::SplitLate)
    }
}

/// A link, its hosts, and the way of their connections.
#[derive(Clone, Debug, PartialEq)]
pub struct WayPlan {
    /// The way.
    pub way: Way,
    /// Rate of the link in bit/s.
    pub rate_bps: u64,
    /// One-way delay of the link in microseconds.
    pub delay_us: u64,
    /// Losses of the link in both directions.
    pub loss: LossModel,
    /// Congestion control of the hosts.
    pub congestion: String,
    /// Receive buffer of the hosts in bytes; `None` for the kernel's, which grows.
    pub receive_buffer: Option<usize>,
    /// Bytes up to which the buffers of hosts grow.
    pub buffer_max: u64,
    /// Buffer of the gateways for split connections, such as `64MiB`.
    pub split_buffer: String,
}

impl WayPlan {
    /// Returns the gateways, if there are any.
    pub fn setting(&self) -> Option<Setting> {
        let split = SplitSetting {
            port: PORT,
            is_late: self.way == Way::SplitLate,
            buffer: self.split_buffer.clone(),
            congestion: "bbr".to_owned(),
        };
        match self.way {
            Way::Direct => None,
            Way::Passive => Some(Setting::default()),
            Way::Split | Way::SplitLate => Some(Setting { split: Some(split), ..Setting::default() }),
            Way::Tunnel => Some(Setting::tunnel()),
        }
    }

    /// Builds the sites and starts the gateways.
    ///
    /// # Errors
    /// If privilege is missing, or a gateway does not start; the error contains the logs.
    pub fn build(&self, program: &Path, seed: u64) -> anyhow::Result<WayStage> {
        let link = LinkConfig {
            rate_bps: Some(self.rate_bps),
            delay_us: self.delay_us,
            loss: self.loss.clone(),
            seed,
            ..LinkConfig::default()
        };
        let config = TwoSitesConfig { tcp_buffer_max: self.buffer_max, ..TwoSitesConfig::default() };
        let sites = TwoSites::build(&config, &EmulatorConfig::symmetric(link).for_measurement())?;
        let setting = self.setting();
        if self.way == Way::Tunnel {
            part(&sites)?;
        }
        let pair =
            setting.map(|setting| GatewayPair::start(program, &End::of(&sites), &setting)).transpose()?;
        Ok(WayStage { pair, sites, plan: self.clone() })
    }
}

/// Two sites and the gateways of a way.
pub struct WayStage {
    // Dropped before its namespaces.
    pair: Option<GatewayPair>,
    sites: TwoSites,
    plan: WayPlan,
}

impl WayStage {
    /// Sends from the first site to the second for this time, on several connections.
    ///
    /// # Errors
    /// Those of [`tcp_transfer`].
    pub fn transfer(
        &self,
        flows: usize,
        duration: Duration,
        watcher: Watcher<'_>,
    ) -> Result<TcpReport, LabError> {
        let transfer = TcpTransfer {
            congestion: Some(self.plan.congestion.clone()),
            duration,
            flows,
            port: PORT,
            receive_buffer: self.plan.receive_buffer,
            ..TcpTransfer::default()
        };
        tcp_transfer(between(&self.sites), &transfer, watcher)
    }

    /// Moves bytes on a connection from the first site to the second, and returns the time in microseconds;
    /// `None` if the patience ends before.
    ///
    /// # Errors
    /// Those of [`tcp_fetch`].
    pub fn fetch(
        &self,
        bytes: u64,
        course: Course,
        patience: Duration,
        watcher: Watcher<'_>,
    ) -> Result<Option<u64>, LabError> {
        let fetch = TcpFetch {
            congestion: Some(self.plan.congestion.clone()),
            bytes,
            course,
            port: PORT,
            receive_buffer: self.plan.receive_buffer,
            patience,
        };
        tcp_fetch(between(&self.sites), &fetch, watcher)
    }

    /// Returns the address of servers at the second site whose connections take the way.
    pub fn server(&self) -> SocketAddr {
        SocketAddr::new(self.sites.b.host_v4(0), PORT)
    }

    /// Lets a gateway read its file again.
    ///
    /// # Errors
    /// If there is none, or it has ended.
    pub fn reload(&mut self, side: usize) -> anyhow::Result<()> {
        let child = self.pair.as_mut().and_then(|pair| pair.child(side));
        child.context("expected a gateway on this side, saw none")?.signal(Signal::SIGHUP)?;
        Ok(())
    }

    /// Returns the sites.
    pub fn sites(&self) -> &TwoSites {
        &self.sites
    }

    /// Returns the status of both gateways, if there are any.
    ///
    /// # Errors
    /// If one does not answer.
    pub fn statuses(&self) -> anyhow::Result<Option<[Status; 2]>> {
        let Some(pair) = &self.pair else { return Ok(None) };
        Ok(Some([pair.status(0)?, pair.status(1)?]))
    }

    /// Stops the gateways.
    ///
    /// # Errors
    /// If one ends with an error.
    pub fn close(self) -> anyhow::Result<()> {
        self.pair.map_or(Ok(()), GatewayPair::stop)
    }
}
