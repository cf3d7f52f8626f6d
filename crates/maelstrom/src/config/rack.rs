//! The sections `[rack]` and `[[member]]`, the key `rack` of peers, and their checks against the rest of the
//! file.

use std::net::SocketAddr;
use std::path::PathBuf;

use diagnostics::settings::{Draft as _, Fallback, Fault, Optional, Setting, Text};
use diagnostics::{Diagnostic, Findings, quoted};
use ipnet::IpNet;
use maelstrom_core::PeerKey;
use maelstrom_core::overlaps;
use maelstrom_core::rack::{MEMBERS_MAX, Member, PARTS_MAX, Part, RackConfig, by_hand, by_hash};

use super::draft::{Draft, PeerDraft};
use super::keys::{NETWORKS_MAX, networks};
use super::types::{Mode, PathChoice, Peer};
use super::values::{self, PEER_NAME_CHARS_MAX};

diagnostics::settings! {
    /// The rack of this gateway: the section `[rack]`.
    #[derive(Clone, Debug)]
    pub(super) struct RackKeys(RackKeysDraft): "rack" as "[rack]" {
        /// Name of this gateway among the members.
        member: Option<String> {
            form: Optional(name()),
            default: Fallback::Absent("none: this gateway is in no rack"),
            example: "member = \"east-1\"",
        }
        /// File with the secret that the members share, and nobody else has. It is made by `undrop gateway
        /// genkey`, like those of peers.
        key_file: Option<PathBuf> {
            form: Optional(Text::new("the path of a key file", values::file_path)),
            default: Fallback::Absent("none: must be stated with `member`"),
            example: "key_file = \"rack.key\"",
        }
    }
}

diagnostics::settings! {
    /// A gateway of this rack: a section `[[member]]`, the same in the files of all members.
    #[derive(Clone, Debug)]
    pub(super) struct MemberKeys(MemberDraft): "member" as "[[member]]" {
        /// Name of the member.
        name: String {
            form: name(),
            default: Fallback::Required,
            example: "name = \"east-1\"",
        }
        /// Its address on the LAN and a UDP port, where heartbeats of the other members arrive.
        address: SocketAddr {
            form: Text::new(
                "the IP address of one machine and a port, such as `10.81.1.1:4702`",
                member_address,
            ),
            default: Fallback::Required,
            example: "address = \"10.81.1.1:4702\"",
        }
        /// Networks of the peers that this member protects while it can. If no member states any, the
        /// networks are cut into pieces, which a hash spreads over the members.
        networks: Option<Vec<Setting<IpNet>>> {
            form: Optional(networks()),
            default: Fallback::Absent("none, or what a hash gives to it if no member states any"),
            example: "networks = [\"10.81.2.0/25\"]",
        }
    }
}

fn name() -> Text<String> {
    let form = format!("a name of 1 to {PEER_NAME_CHARS_MAX} characters without control characters");
    Text::new(form, values::peer_name)
}

fn member_address(text: &str) -> Result<SocketAddr, Fault> {
    let address = values::own_address(text)?;
    if address.ip().is_unspecified() {
        let fault = Fault::bad("is not the address of one machine").seen(quoted(text));
        return Err(
            fault.help("give the address of this member on the LAN: the others send heartbeats there")
        );
    }
    Ok(address)
}

/// The rack of this gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Rack {
    /// Number of this gateway among the members.
    pub own: usize,
    /// The members, in the order of the file.
    pub members: Vec<Member>,
    /// The parts of the traffic.
    pub parts: Vec<Part>,
    /// Whether the file gives the parts to members, instead of a hash.
    pub by_hand: bool,
    /// The key that the members share.
    pub key: PeerKey,
}

impl Rack {
    /// Address of this gateway for heartbeats.
    pub fn address(&self) -> SocketAddr {
        self.members[self.own].address
    }

    /// The core's configuration.
    pub(crate) fn core(&self) -> RackConfig {
        let Self { own, members, parts, by_hand: _, key } = self;
        RackConfig { own: *own, members: members.clone(), parts: parts.clone(), key: key.clone() }
    }
}

/// The sections of a file, with the key from the key file.
#[derive(Clone, Debug, Default)]
pub(super) struct RackDraft {
    pub(super) keys: RackKeysDraft,
    pub(super) key: Option<Setting<PeerKey>>,
    pub(super) members: Vec<MemberDraft>,
}

impl RackDraft {
    /// Name of this gateway among the members.
    fn own(&self) -> Option<&str> {
        self.keys.member.as_ref()?.value.as_deref()
    }

    /// The member that is this gateway.
    pub(super) fn own_member(&self) -> Option<&MemberDraft> {
        let own = self.own()?;
        self.members.iter().find(|member| member.name.as_ref().is_some_and(|name| name.value == own))
    }

    /// The rack, if there is one, of a draft without errors.
    pub(super) fn finish(self, peers: &[Peer]) -> Option<Rack> {
        let (own, key) = (self.own()?.to_owned(), self.key?.value);
        let mut members = Vec::new();
        let mut hands = Vec::new();
        for draft in self.members {
            let (name, address) = (draft.name?.value, draft.address?.value);
            members.push(Member { name, address });
            hands.push(stated(draft.networks.as_ref()));
        }
        let own = members.iter().position(|member| member.name == own)?;
        let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        let is_by_hand = hands.iter().any(|networks| !networks.is_empty());
        let parts = if is_by_hand {
            by_hand(&names, &hands)
        } else {
            let sites: Vec<&[IpNet]> = peers.iter().map(|peer| &peer.networks[..]).collect();
            by_hash(&names, &sites)
        };
        Some(Rack { own, members, parts, by_hand: is_by_hand, key })
    }
}

/// The networks of a member.
fn stated(networks: Option<&Setting<Option<Vec<Setting<IpNet>>>>>) -> Vec<IpNet> {
    let networks = networks.and_then(|networks| networks.value.as_ref());
    networks.into_iter().flatten().map(|network| network.value).collect()
}

/// Whether two peers are gateways of one far rack.
pub(super) fn is_same(one: &PeerDraft, other: &PeerDraft) -> bool {
    rack_of(one).is_some() && rack_of(one) == rack_of(other)
}

fn rack_of(peer: &PeerDraft) -> Option<&str> {
    peer.rack.as_ref()?.value.as_deref()
}

/// Compares the sections with the rest of the file.
pub(super) fn check(draft: &Draft, findings: &mut Findings) {
    for (index, peer) in draft.peers.iter().enumerate() {
        if let Some(name) = rack_of(peer) {
            let finding = peer_fault(draft, index, name);
            let span = peer.rack.as_ref().and_then(|rack| rack.span.clone());
            finding.into_iter().for_each(|finding| findings.add(finding.at(span.clone())));
        }
    }
    let rack = &draft.rack;
    if rack.own().is_none() {
        let is_unread = rack.keys.member.is_none();
        if !is_unread && (!rack.members.is_empty() || rack.keys.span_of("key_file").is_some()) {
            let finding = Diagnostic::error(
                "rack-without-member",
                "the file describes a rack, but not which of its members this gateway is",
            );
            findings.add(finding.help(
                "set `member` in `[rack]` to the name of this gateway among the `[[member]]` sections",
            ));
        }
        return;
    }
    let at = rack.keys.span_of("member");
    let faults =
        [own_fault(rack), mode_fault(draft), path_fault(draft), count_fault(draft), key_fault(draft)];
    faults.into_iter().flatten().for_each(|finding| findings.add(finding.at(at.clone())));
    members_differ(rack, findings);
    parts_fit(draft, findings);
}

/// A gateway of a far rack must be told from the others by its address, and have the same networks.
fn peer_fault(draft: &Draft, index: usize, name: &str) -> Option<Diagnostic> {
    let peer = &draft.peers[index];
    let label = peer.label(index);
    if peer.address.as_ref().is_some_and(|address| address.value.fixed().is_none()) {
        let message = format!("{label} is of the rack `{name}` and has no fixed address");
        let finding = Diagnostic::error("rack-without-address", message);
        return Some(
            finding.help("give the IP address of this gateway: the gateways of a rack are told apart by it"),
        );
    }
    let has_carrier = peer.carrier.as_ref().is_some_and(|carrier| carrier.value.is_some());
    if is_tunnel(draft, peer) || has_carrier {
        let message = format!("{label} is of the rack `{name}` and reached by a tunnel or by carriers");
        let finding =
            Diagnostic::error("rack-mode", message).expected("`mode = \"passive\"` without `carrier`");
        return Some(finding.help("leave `rack` out, and name one gateway of that site"));
    }
    let sorted = |peer: &PeerDraft| {
        let mut networks: Vec<IpNet> = peer.networks.iter().map(|network| network.value).collect();
        networks.sort();
        networks
    };
    let first = draft.peers[..index].iter().find(|other| is_same(other, peer))?;
    if sorted(first) == sorted(peer) {
        return None;
    }
    let message = format!("{label} has other networks than another gateway of the rack `{name}`");
    let finding = Diagnostic::error("rack-networks-differ", message);
    Some(finding.help("write the same `networks` for all of them: each tells by itself which part it holds"))
}

fn is_tunnel(draft: &Draft, peer: &PeerDraft) -> bool {
    let of_all = draft.gateway.mode.as_ref().map(|mode| mode.value);
    let own = peer.mode.as_ref().and_then(|mode| mode.value);
    own.or(of_all) == Some(Mode::Tunnel)
}

fn own_fault(rack: &RackDraft) -> Option<Diagnostic> {
    if rack.own_member().is_some() {
        return None;
    }
    let names: Vec<String> =
        rack.members.iter().filter_map(|member| Some(quoted(&member.name.as_ref()?.value))).collect();
    let finding = Diagnostic::error("unknown-member", "`member` names no `[[member]]` section")
        .seen(quoted(rack.own()?));
    Some(match names.is_empty() {
        true => {
            finding.help("add a `[[member]]` section with `name` and `address` for each gateway of the rack")
        }
        false => finding.expected(format!("one of {}", names.join(", "))),
    })
}

/// Packets in tunnels and split connections depend on the gateway that began with them.
fn mode_fault(draft: &Draft) -> Option<Diagnostic> {
    let splits = draft.split.listen.as_ref().is_some_and(|listen| listen.value.is_some());
    let what = match draft.peers.iter().any(|peer| is_tunnel(draft, peer)) {
        true => "peers in tunnel mode",
        false if splits => "split connections",
        false => return None,
    };
    let message = format!("a member of a rack cannot have {what}");
    let finding = Diagnostic::error("rack-mode", message)
        .expected("peers in passive mode, and no `listen` in `[split]`");
    Some(
        finding
            .note("another member cannot continue what this one has begun")
            .help("leave `[rack]` out, or that mode"),
    )
}

fn count_fault(draft: &Draft) -> Option<Diagnostic> {
    let count = draft.rack.members.len();
    if count == 1 {
        let finding = Diagnostic::error("out-of-range", "a rack has one member")
            .expected(format!("2 to {MEMBERS_MAX} members"));
        return Some(
            finding.help("add a `[[member]]` section for each gateway of the rack, or leave `[rack]` out"),
        );
    }
    let is_by_hash = draft.rack.members.iter().all(|member| stated(member.networks.as_ref()).is_empty());
    let sites: Vec<Vec<IpNet>> = draft.peers.iter().map(values_of).collect();
    let sites: Vec<&[IpNet]> = sites.iter().map(Vec::as_slice).collect();
    let parts = if is_by_hash { by_hash(&[], &sites).len() } else { 0 };
    (parts > PARTS_MAX).then(|| {
        Diagnostic::error("out-of-range", "a rack has too many parts")
            .expected(format!("at most {PARTS_MAX} networks of all peers"))
            .seen(parts.to_string())
            .help("state the `networks` of each member")
    })
}

/// The networks of a peer.
fn values_of(peer: &PeerDraft) -> Vec<IpNet> {
    peer.networks.iter().map(|network| network.value).collect()
}

/// The gateways of a rack show a packet to each other's peers, and every one must judge by itself which
/// missing packets were lost.
fn path_fault(draft: &Draft) -> Option<Diagnostic> {
    let is_trusted =
        |peer: &&PeerDraft| peer.path.as_ref().is_some_and(|path| path.value == PathChoice::Trusted);
    draft.peers.iter().find(is_trusted)?;
    let finding = Diagnostic::error("rack-path", "a member of a rack trusts the path of a peer");
    Some(
        finding
            .expected("`path = \"checked\"`")
            .note("packets that passed another member would be delivered twice")
            .help("leave `path` out"),
    )
}

fn key_fault(draft: &Draft) -> Option<Diagnostic> {
    let Some(key) = &draft.rack.key else {
        let is_stated = draft.rack.keys.key_file.as_ref().is_none_or(|file| file.value.is_some());
        let finding = Diagnostic::error("rack-without-key", "a rack has no `key_file`");
        return (!is_stated).then(|| {
            finding.help(
                "undrop gateway genkey --out FILE, copy it to all members, and set `key_file` in `[rack]`",
            )
        });
    };
    let mut keys = draft.peers.iter().flat_map(|peer| [&peer.key, &peer.next_key]).flatten();
    keys.any(|of_peer| of_peer.value == key.value).then(|| {
        Diagnostic::error("shared-key", "the rack and a peer share a key")
            .note("the far gateway could speak in the name of members")
            .help("make a key for the rack: undrop gateway genkey --out FILE")
    })
}

fn members_differ(rack: &RackDraft, findings: &mut Findings) {
    for (index, member) in rack.members.iter().enumerate() {
        let earlier = &rack.members[..index];
        let name = member.name.as_ref();
        if let Some(name) = name.filter(|name| {
            earlier.iter().any(|other| other.name.as_ref().is_some_and(|one| one.value == name.value))
        }) {
            let finding =
                Diagnostic::error("duplicate-member", format!("two members have the name `{}`", name.value));
            findings.add(finding.at(name.span.clone()).help("give each member a name of its own"));
        }
        let Some(address) = &member.address else { continue };
        let others = || earlier.iter().filter_map(|other| other.address.as_ref());
        if others().any(|other| other.value == address.value) {
            let finding = Diagnostic::error(
                "duplicate-member",
                format!("two members have the address {}", address.value),
            );
            findings.add(finding.at(address.span.clone()).help("give the address of each member on the LAN"));
        }
        if let Some(other) = others().find(|other| other.value.is_ipv4() != address.value.is_ipv4()) {
            let finding =
                Diagnostic::error("family-mismatch", "heartbeats cannot travel between IPv4 and IPv6");
            let finding = finding
                .at(address.span.clone())
                .related(other.span.clone(), "the address of another member is here");
            findings.add(finding.help("use one family for all members"));
        }
    }
}

/// Parts by hand must be disjoint, and cover all networks of the peers.
fn parts_fit(draft: &Draft, findings: &mut Findings) {
    let mut parts: Vec<(usize, &Setting<IpNet>)> = Vec::new();
    for (index, member) in draft.rack.members.iter().enumerate() {
        let networks = member.networks.as_ref().and_then(|networks| networks.value.as_ref());
        parts.extend(networks.into_iter().flatten().map(|network| (index, network)));
    }
    if parts.is_empty() {
        return;
    }
    let meets = |one: &IpNet, other: &IpNet| one.contains(other) || other.contains(one);
    for (at, (member, network)) in parts.iter().enumerate() {
        let twin =
            parts[..at].iter().find(|(other, one)| other != member && meets(&one.value, &network.value));
        if let Some((_, twin)) = twin {
            let message = format!("{} overlaps {}, which another member has", network.value, twin.value);
            findings.add(
                Diagnostic::error("overlapping-networks", message)
                    .at(network.span.clone())
                    .related(twin.span.clone(), format!("{} is here", twin.value))
                    .help("give each network to one member"),
            );
        }
    }
    let own: Vec<IpNet> = parts.iter().map(|(_, part)| part.value).collect();
    for (index, peer) in draft.peers.iter().enumerate() {
        let theirs = values_of(peer);
        let count = own.iter().flat_map(|part| overlaps(&theirs, part)).count();
        if count > NETWORKS_MAX {
            let message = format!("the members divide the networks of {} into too many", peer.label(index));
            findings.add(
                Diagnostic::error("out-of-range", message)
                    .at(peer.networks.first().and_then(|network| network.span.clone()))
                    .expected(format!(
                        "at most {NETWORKS_MAX}, which one member tells the far gateway if it is alone"
                    ))
                    .seen(count.to_string())
                    .help("give larger networks to the members"),
            );
        }
    }
    for network in draft.peers.iter().flat_map(|peer| &peer.networks) {
        if !covers(&own, network.value) {
            findings.add(
                Diagnostic::error(
                    "network-of-no-member",
                    format!("no member has all of {}, a network of a peer", network.value),
                )
                .at(network.span.clone())
                .note("packets of networks that belong to no member would not be protected")
                .help("add it, or what is missing of it, to the `networks` of a member"),
            );
        }
    }
}

/// Whether these networks contain all of a network.
fn covers(parts: &[IpNet], network: IpNet) -> bool {
    if parts.iter().any(|part| part.contains(&network)) {
        return true;
    }
    if !parts.iter().any(|part| network.contains(part)) {
        return false;
    }
    // A part inside it is longer, so that the halves end.
    let halves = network.subnets(network.prefix_len().saturating_add(1));
    halves.is_ok_and(|mut halves| halves.all(|half| covers(parts, half)))
}
