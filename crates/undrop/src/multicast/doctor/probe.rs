//! A probe: joins the groups as a node does, and sends a datagram to itself.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use netio::multicast::{GroupSocket, InterfaceFacts, IpVersion, Joiner, OwnConfig, OwnSocket};
use ricochet::Config;

use super::findings::{Finding, Severity, is_ipv6};

const ABOUT: &str = "datagram to oneself";
/// Longest wait for the datagram. The kernel returns it at once, but a busy machine may be slow.
const PATIENCE: Duration = Duration::from_secs(1);
/// Payload of the probe. No node mistakes it for a datagram of its protocol.
const PROBE: &[u8] = b"undrop multicast doctor";

/// Tests whether a multicast datagram comes back to its sender.
pub(super) fn echo(interface: &str, config: &Config) -> Finding {
    match try_echo(interface, config) {
        Ok(true) => Finding::ok(ABOUT, "came back"),
        Ok(false) => Finding::new(Severity::Error, ABOUT, "did not come back").remedy(
            "look for a packet filter that drops multicast (nft list ruleset), and for a route to the groups",
        ),
        Err(error) => Finding::new(Severity::Error, ABOUT, format!("{error:#}"))
            .remedy("if the network has no multicast at all, set `node.unicast = true`"),
    }
}

fn try_echo(interface: &str, config: &Config) -> anyhow::Result<bool> {
    let version = if is_ipv6(config) { IpVersion::V6 } else { IpVersion::V4 };
    let facts = InterfaceFacts::read(interface)?;
    let fits = |address: &IpAddr| IpVersion::of(*address) == version;
    let address = config.node.address.or_else(|| facts.addresses.iter().copied().find(fits));
    let Some(address) = address else {
        anyhow::bail!("expected an address of {version} on {interface}, saw none")
    };
    let mut joiner = Joiner::new(interface, version, usize::from(config.node.group_addresses))?;
    // All groups are joined, so that the probe finds a limit on memberships.
    for group in config.group_addresses() {
        joiner.join(group.ip())?;
    }
    let mut groups = GroupSocket::bind(config.node.group_port, version, interface, 1 << 16)?;
    let own = OwnSocket::bind(&OwnConfig::new(SocketAddr::new(address, 0), interface))?;
    let from = own.local_address();
    if let Some(group) = config.group_addresses().next() {
        own.sending().send_now(group, &[PROBE])?;
    }
    #[expect(clippy::disallowed_methods, reason = "no core: the probe has a timeout")]
    let start = Instant::now();
    let mut returned = false;
    while !returned && start.elapsed() < PATIENCE {
        groups.recv(|sender, _, datagram| returned |= sender.port() == from.port() && *datagram == *PROBE)?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(returned)
}
