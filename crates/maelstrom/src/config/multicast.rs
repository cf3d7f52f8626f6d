//! The sections `[[multicast]]`, and their checks against the rest of the file.

use diagnostics::settings::{Choice, Fallback, Fault, List, Placed, Setting, Text, interface_name};
use diagnostics::{Diagnostic, Findings, quoted};
use ipnet::IpNet;
use maelstrom_core::{MulticastConfig, Wanted, is_of_link};

use super::draft::Draft;
use super::types::Mode;
use super::{tunnel, values};

/// Maximum number of networks of groups in one section.
const GROUPS_MAX: usize = 60;

diagnostics::settings! {
    /// IP groups that cross tunnels: a section `[[multicast]]`.
    #[derive(Clone, Debug)]
    pub(super) struct MulticastKeys(MulticastDraft): "multicast" as "[[multicast]]" {
        /// Interface toward the hosts of this site that send to the groups, or receive them.
        interface: String {
            form: interface_name(),
            default: Fallback::Required,
            example: "interface = \"lan0\"",
        }
        /// Networks of multicast addresses. Packets that hosts of this site send to these groups go to each
        /// peer in tunnel mode whose file names them too, and those that come from there are multicast here.
        groups: Vec<Setting<IpNet>> {
            form: Placed(List {
                expected: format!(
                    "an array of 1 to {GROUPS_MAX} networks of multicast addresses, such as `[\"239.1.0.0/16\"]`"
                ),
                entry: Text::new("", group_network),
                min: 1,
                max: GROUPS_MAX,
            }),
            default: Fallback::Required,
            example: "groups = [\"239.1.0.0/16\"]",
        }
        /// Groups that this site wants from others: with `members`, those which hosts at `interface` have
        /// joined, as their reports say (IGMP, MLD); the gateway asks for these unless another router does.
        /// With `all`, all groups of the section, whether somebody listens or not.
        wanted: Wanted {
            form: Choice(&[("members", Wanted::Members), ("all", Wanted::All)]),
            default: Fallback::Toml("\"members\""),
            example: "wanted = \"members\"",
        }
        /// Highest bit rate of the packets of these groups that go to far sites, each counted once, and of
        /// those that come from there. Packets beyond it are dropped and counted.
        max_rate: u64 {
            form: Text::new(
                "a bit rate from `\"1kbit/s\"` to `\"1000Gbit/s\"`, such as `\"20Mbit/s\"`",
                values::bit_rate,
            ),
            default: Fallback::Toml("\"10Mbit/s\""),
            example: "max_rate = \"10Mbit/s\"",
        }
    }
}

/// IP groups that cross tunnels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastSection {
    /// Interface where hosts of this site send and receive them.
    pub interface: String,
    /// The groups.
    pub groups: Vec<IpNet>,
    /// Which of them this site wants from others.
    pub wanted: Wanted,
    /// Highest bit rate of each direction.
    pub bps_max: u64,
}

impl MulticastSection {
    /// The core's configuration.
    pub(crate) fn core(&self) -> MulticastConfig {
        let (lan, groups) = (self.interface.clone(), self.groups.clone());
        MulticastConfig { lan, groups, wanted: self.wanted, bps_max: self.bps_max }
    }
}

impl MulticastDraft {
    /// The section of a draft without errors.
    pub(super) fn finish(self) -> Option<MulticastSection> {
        let groups = self.groups?.value.into_iter().map(|groups| groups.value).collect();
        let (interface, wanted) = (self.interface?.value, self.wanted?.value);
        Some(MulticastSection { interface, groups, wanted, bps_max: self.max_rate?.value })
    }
}

/// A network of multicast addresses that routers pass on.
fn group_network(text: &str) -> Result<IpNet, Fault> {
    let network = values::any_network(text)?;
    if !network.network().is_multicast() || !network.broadcast().is_multicast() {
        let fault = Fault::bad("holds a network that is none of multicast addresses").seen(quoted(text));
        return Err(
            fault.help("groups lie in 224.0.0.0/4 and ff00::/8; programs inside a site use 239.0.0.0/8")
        );
    }
    if is_of_link(network.network()) && is_of_link(network.broadcast()) {
        let fault = Fault::bad("holds groups of one link, which never cross").seen(quoted(text));
        return Err(fault.help("choose groups of a wider scope, such as 239.1.0.0/16 or ff15::/16"));
    }
    Ok(network)
}

/// Compares the sections with each other and with the rest of the file.
pub(super) fn check(draft: &Draft, findings: &mut Findings) {
    let has_tunnel = draft.peers.iter().any(|peer| tunnel::mode(draft, peer) == Some(Mode::Tunnel));
    if let Some(section) = draft.multicast.first().filter(|_| !has_tunnel) {
        let finding =
            Diagnostic::error("multicast-without-tunnel", "groups cross in tunnels, and no peer has one");
        findings.add(
            finding
                .at(section.groups.as_ref().and_then(|groups| groups.span.clone()))
                .note("in passive mode the routers of the path would have to forward multicast")
                .help("set `mode = \"tunnel\"` at both ends of a pair, or leave `[[multicast]]` out"),
        );
    }
    let mut earlier: Vec<&Setting<IpNet>> = Vec::new();
    for section in &draft.multicast {
        interface_is_of_the_site(draft, section, findings);
        let own: Vec<_> = section.groups.iter().flat_map(|groups| &groups.value).collect();
        for groups in &own {
            let meets = |other: &&&Setting<IpNet>| {
                other.value.contains(&groups.value) || groups.value.contains(&other.value)
            };
            let Some(other) = earlier.iter().find(meets) else { continue };
            let message = format!("{} is in two sections `[[multicast]]`", groups.value);
            findings.add(
                Diagnostic::error("overlapping-groups", message)
                    .at(groups.span.clone())
                    .related(other.span.clone(), format!("{} is here", other.value))
                    .expected("groups of one section, and thereby of one interface, each")
                    .help("take the groups out of one of the two sections"),
            );
        }
        earlier.extend(own);
    }
}

/// Hosts of this site are not behind the interfaces of the gateway's own traffic.
fn interface_is_of_the_site(draft: &Draft, section: &MulticastDraft, findings: &mut Findings) {
    let Some(interface) = &section.interface else { return };
    let gateway = &draft.gateway;
    let others = [("wan", &gateway.wan), ("tun", &gateway.tun), ("tunnel", &gateway.tunnel)];
    let others = others.into_iter().filter_map(|(key, other)| Some((key, other.clone()?)));
    let of_peers = draft.peers.iter().filter_map(|peer| {
        let wan = peer.wan.as_ref()?;
        Some(("wan", Setting { value: wan.value.clone()?, span: wan.span.clone() }))
    });
    for (key, other) in others.chain(of_peers) {
        if other.value != interface.value {
            continue;
        }
        findings.add(
            Diagnostic::error("same-interface", format!("`interface` of `[[multicast]]` is that of `{key}`"))
                .at(interface.span.clone())
                .related(other.span.clone(), format!("`{key}` is here"))
                .expected("the interface toward the hosts of this site")
                .seen(format!("\"{}\"", interface.value))
                .help("name the interface of the LAN; `ip -br link` lists the interfaces"),
        );
    }
}
