//! The options that all commands with a node share, and the node that they start.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::ValueEnum;
use ricochet::{Builder, Config, Follow, Node, RepairMode, StartError, key_remedy, parse_follow};

use super::config;
use super::isolation::Named;
use crate::failure::Advice as _;

/// Options of a node. They take precedence over the configuration.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Node")]
pub(super) struct NodeArgs {
    /// Interface on which the node joins groups and sends to them
    #[arg(long, short, value_name = "NAME")]
    interface: Option<String>,
    /// Seed address: that of a live node through which this node joins the cluster; may be repeated
    #[arg(long, value_name = "ADDRESS:PORT")]
    seed: Vec<String>,
    /// The node's configuration, in TOML; `undrop multicast check --help` lists all keys
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of this node [default: the interface's first]
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// UDP port of this node [default: 7900 if it is free, else any free port]
    #[arg(long)]
    port: Option<u16>,
    /// UDP port of all groups, the same for the whole cluster
    #[arg(long, value_name = "PORT")]
    group_port: Option<u16>,
    /// Use IPv6 instead of IPv4
    #[arg(long)]
    ipv6: bool,
    /// Send a copy of each message to each member, without IP multicast
    #[arg(long)]
    unicast: bool,
    /// File with the cluster key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Contents of repairs
    #[arg(long, value_enum)]
    repair: Option<Repair>,
    /// Readers to follow when sending: all, quorum:K, max or off
    #[arg(long, value_name = "READERS", value_parser = follow)]
    flow: Option<Follow>,
    /// Unix socket for `undrop multicast status`
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Repair {
    /// The XOR of packets, which recovers without a round trip
    Xor,
    /// The names of packets; a node that lacks a named packet requests it
    Digest,
    /// The better of the two, by round-trip time, packet size and loss
    Auto,
}

impl NodeArgs {
    /// Returns the configuration, with these options on top.
    pub(super) fn config(&self) -> anyhow::Result<Config> {
        let mut config = match &self.config {
            Some(file) => config::load(file)?,
            None => Config::default(),
        };
        let node = &mut config.node;
        if let Some(interface) = &self.interface {
            node.interface.clone_from(interface);
        }
        node.address = self.address.or(node.address);
        if let Some(address) = node.address.filter(|address| self.ipv6 && address.is_ipv4()) {
            return Err(anyhow!("expected an IPv6 address with `--ipv6`, saw {address}"))
                .advise("leave out `--ipv6`, or name an IPv6 address with `--address`")
                .wrong_usage();
        }
        node.port = self.port.or(node.port);
        node.group_port = self.group_port.unwrap_or(node.group_port);
        node.ipv6 |= self.ipv6;
        node.unicast |= self.unicast;
        if self.control.is_some() {
            node.control.clone_from(&self.control);
        }
        if !self.seed.is_empty() {
            config.membership.seeds.clone_from(&self.seed);
        }
        if self.key.is_some() {
            config.key.file.clone_from(&self.key);
        }
        if let Some(repair) = self.repair {
            config.repair.mode = match repair {
                Repair::Xor => RepairMode::Xor,
                Repair::Digest => RepairMode::Digest,
                Repair::Auto => RepairMode::Auto,
            };
        }
        config.flow.follow = self.flow.unwrap_or(config.flow.follow);
        if config.node.interface.is_empty() {
            return Err(anyhow!("expected an interface, saw none"))
                .advise("name one with `--interface eth0` (`ip link` lists them), or set `node.interface` in the configuration")
                .wrong_usage();
        }
        Ok(config)
    }

    /// Returns what names other nodes to this one; nothing if the configuration cannot be read.
    pub(super) fn named(&self) -> Named {
        self.config().map(|config| Named::of(&config.membership)).unwrap_or_default()
    }

    /// Starts the node.
    pub(super) fn start(&self) -> anyhow::Result<Node> {
        let config = self.config()?;
        let interface = config.node.interface.clone();
        Builder::from(config).start().or_else(|error| {
            let remedy = match &error {
                StartError::Key { file, error } => key_remedy(file, error),
                StartError::Seed { .. } => "name a live node, as `--seed 10.0.0.7:7900`".to_owned(),
                _ => format!("run `undrop multicast doctor {interface}` to find the cause"),
            };
            Err(error).advise(remedy)
        })
    }
}

/// Parses the readers to follow.
fn follow(text: &str) -> Result<Follow, String> {
    parse_follow(text)
        .ok_or_else(|| format!("expected all, quorum:K for K readers, max or off, saw {text:?}"))
}

/// Parses a number of seconds, which may have a fraction.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 =
        text.parse().map_err(|_| format!("expected a number of seconds, such as 2 or 0.5, saw {text:?}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("expected 0 seconds or more, saw {text}"))
}
