//! Where the routes of this machine lead, for networks that a peer says are behind it.

use ipnet::IpNet;

use super::facts::first_host;
use super::netlink::Netlink;

/// Where a network lies, seen from this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lead {
    /// There is no route to it.
    Nowhere,
    /// Behind a router on this interface.
    Routed(String),
    /// On this interface, without a router between; or on this machine itself.
    Direct,
    /// The routes cannot be read.
    Unknown,
}

/// Returns where each network lies.
pub(crate) fn leads_to(networks: &[IpNet]) -> Vec<Lead> {
    let netlink = Netlink::open().ok();
    let interfaces = netlink.as_ref().and_then(|netlink| netlink.interfaces().ok());
    let (Some(netlink), Some(interfaces)) = (netlink, interfaces) else {
        return vec![Lead::Unknown; networks.len()];
    };
    let lead = |network| match netlink.route(first_host(network), &interfaces) {
        Err(_) => Lead::Unknown,
        Ok(None) => Lead::Nowhere,
        Ok(Some(route)) if route.gateway.is_some() => Lead::Routed(route.interface),
        Ok(Some(_)) => Lead::Direct,
    };
    networks.iter().map(lead).collect()
}

impl Lead {
    /// Why a network cannot be behind this machine, whose long-haul link is at `wan`; `None` if it can.
    pub(crate) fn problem(&self, wan: &str) -> Option<String> {
        match self {
            Self::Nowhere => Some("this machine has no route to it".to_owned()),
            Self::Routed(interface) if interface == wan => {
                Some(format!("the route of this machine leads back to {wan}"))
            }
            Self::Routed(_) | Self::Direct | Self::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_route_away_from_the_wan_leads_to_the_site() {
        let routed = |interface: &str| Lead::Routed(interface.to_owned());
        for (lead, is_problem) in [
            (Lead::Nowhere, true),
            (routed("wan0"), true),
            (routed("lan0"), false),
            (Lead::Direct, false),
            (Lead::Unknown, false),
        ] {
            assert_eq!(lead.problem("wan0").is_some(), is_problem, "{lead:?}");
        }
    }
}
