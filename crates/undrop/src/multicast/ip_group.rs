//! IP groups of other programs, as options name them.

use std::net::SocketAddr;

use anyhow::anyhow;

use super::node::NodeArgs;
use crate::failure::Advice as _;

/// Parses a multicast address with a port.
pub(super) fn ip_group(text: &str) -> Result<SocketAddr, String> {
    let wrong = || {
        format!(
            "expected a multicast address and a port, such as 239.1.1.1:5000 or [ff15::1]:5000, saw {text:?}"
        )
    };
    let address: SocketAddr = text.parse().map_err(|_| wrong())?;
    if address.ip().is_multicast() && address.port() > 0 { Ok(address) } else { Err(wrong()) }
}

/// Checks that the groups are none of those by which Ricochet itself sends.
pub(super) fn check_ip_groups(groups: &[SocketAddr], node: &NodeArgs) -> anyhow::Result<()> {
    let config = node.config()?;
    let own: Vec<SocketAddr> = config.group_addresses().collect();
    match groups.iter().find(|group| own.contains(group)) {
        None => Ok(()),
        Some(group) => {
            Err(anyhow!("expected a group of other programs, saw {group}, which Ricochet uses itself"))
                .advise("set `node.groups_base` or `node.group_port` to others on all nodes")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_multicast_addresses_with_ports() {
        for good in ["239.1.1.1:5000", "224.0.1.1:1", "[ff15::1]:5000"] {
            assert!(ip_group(good).is_ok(), "{good}");
        }
        for bad in ["239.1.1.1", "10.0.0.1:5000", "239.1.1.1:0", "ff15::1:5000x", "", "239.1.1.1:65536"] {
            assert!(ip_group(bad).unwrap_err().starts_with("expected a multicast address"), "{bad}");
        }
    }
}
