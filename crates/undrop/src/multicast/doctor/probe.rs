//! Joining as a node does, and a datagram to oneself.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use netio::multicast::{GroupSocket, InterfaceFacts, IpVersion, Joiner, OwnConfig, OwnSocket};
use ricochet::Config;

use super::findings::{Finding, Severity, is_ipv6};

const ABOUT: &str = "datagram to oneself";
/// The kernel hands it back at once; a busy machine may look late.
const PATIENCE: Duration = Duration::from_secs(1);
/// No node takes it for one of its own protocol's.
const PROBE: &[u8] = b"undrop multicast doctor";

/// Whether a multicast datagram that leaves comes back.
pub(super) fn echo(interface: &str, config: &Config) -> Finding {
    match try_echo(interface, config) {
        Ok(true) => Finding::ok(ABOUT, "came back"),
        Ok(false) => Finding::new(Severity::Error, ABOUT, "did not come back").remedy(
            "look for a packet filter that drops multicast (nft list ruleset), and for a route of the groups",
        ),
        Err(error) => Finding::new(Severity::Error, ABOUT, format!("{error:#}"))
            .remedy("where the network has no multicast at all, set `node.unicast = true`"),
    }
}

fn try_echo(interface: &str, config: &Config) -> anyhow::Result<bool> {
    let version = if is_ipv6(config) { IpVersion::V6 } else { IpVersion::V4 };
    let facts = InterfaceFacts::read(interface)?;
    let fits = |address: &IpAddr| IpVersion::of(*address) == version;
    let address = config.node.address.or_else(|| facts.addresses.iter().copied().find(fits));
    let Some(address) = address else { anyhow::bail!("{interface} has no address of {version}") };
    let mut joiner = Joiner::new(interface, version, usize::from(config.node.group_addresses))?;
    // All of them: a limit is found here, not when the node is in its hundredth group.
    for group in config.group_addresses() {
        joiner.join(group.ip())?;
    }
    let mut groups = GroupSocket::bind(config.node.group_port, version, interface, 1 << 16)?;
    let own = OwnSocket::bind(&OwnConfig::new(SocketAddr::new(address, 0), interface))?;
    let from = own.local_address();
    if let Some(group) = config.group_addresses().next() {
        own.sending().send_now(group, &[PROBE])?;
    }
    #[expect(clippy::disallowed_methods, reason = "no core: somebody waits for the answer")]
    let start = Instant::now();
    let mut came = false;
    while !came && start.elapsed() < PATIENCE {
        groups.recv(|sender, _, datagram| came |= sender.port() == from.port() && *datagram == *PROBE)?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(came)
}
