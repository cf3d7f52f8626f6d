//! Addresses of groups and of nodes.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hashbrown::{HashMap, HashSet};
use membership::wire::swim::canonical;
use ricochet_core::message::Origin;
use ricochet_core::wire::{Kind, Peek};
use ricochet_core::{GroupId, NodeId};

use crate::config::Config;
use crate::greetings::Settings;

/// Default of the first multicast address: administratively scoped (RFC 2365), unassigned.
const BASE_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 79, 0);
/// Default of the first multicast address of IPv6: transient, site-local scope.
const BASE_V6: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 0x4f00);
/// Maximum number of senders whose addresses are kept although the membership does not know them.
const SENDERS_MAX: usize = 4_096;
/// Silence after which such a sender may continue from another address, in microseconds.
const SILENCE_US: u64 = 30_000_000;

/// The multicast addresses over which groups are spread.
///
/// A network card filters some 64 addresses; the group's id in each packet tells
/// groups with one address apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupAddresses {
    base: IpAddr,
    count: u8,
    port: u16,
}

impl GroupAddresses {
    pub(crate) fn new(base: Option<IpAddr>, ipv6: bool, count: u8, port: u16) -> Self {
        let default = || if ipv6 { IpAddr::V6(BASE_V6) } else { IpAddr::V4(BASE_V4) };
        Self { base: base.unwrap_or_else(default), count, port }
    }

    /// Returns the address of a group: chosen by the high half of its id, which is a hash (`docs/wire.md`).
    pub(crate) fn address(&self, group: GroupId) -> SocketAddr {
        self.nth((group.0 >> 32) % u64::from(self.count.max(1)))
    }

    /// Returns the settings that greetings state.
    pub(crate) fn settings(&self, config: &Config) -> Settings {
        Settings {
            unicast: config.node.unicast,
            group_port: self.port,
            group_addresses: self.count,
            groups_base: self.base,
            datagram_max: u16::try_from(config.buffers.datagram_max).unwrap_or(u16::MAX),
        }
    }

    /// Returns the bit of the address of a group, the bit n for the n-th.
    pub(crate) fn bit(&self, group: GroupId) -> u64 {
        1 << ((group.0 >> 32) % u64::from(self.count.clamp(1, 64)))
    }

    /// Returns the bits of all addresses.
    pub(crate) fn all_bits(&self) -> u64 {
        u64::MAX >> (64 - self.count.clamp(1, 64))
    }

    /// Returns the n-th address, if there is one.
    pub(crate) fn at(&self, number: u8) -> Option<SocketAddr> {
        (number < self.count).then(|| self.nth(number.into()))
    }

    /// Returns all addresses.
    pub(crate) fn addresses(self) -> impl Iterator<Item = SocketAddr> {
        (0..u64::from(self.count)).map(move |step| self.nth(step))
    }

    fn nth(&self, step: u64) -> SocketAddr {
        let ip = match self.base {
            IpAddr::V4(base) => IpAddr::V4(Ipv4Addr::from_bits(base.to_bits().wrapping_add(step as u32))),
            IpAddr::V6(base) => IpAddr::V6(Ipv6Addr::from_bits(base.to_bits().wrapping_add(step.into()))),
        };
        SocketAddr::new(ip, self.port)
    }
}

/// Addresses of nodes, from the membership and from the packets they send.
#[derive(Debug, Default)]
pub(crate) struct NodeAddresses {
    nodes: HashMap<NodeId, SocketAddr>,
    /// All addresses in `nodes`.
    members: HashSet<SocketAddr>,
    /// Addresses of each group's members; kept only without multicast.
    group_members: Option<HashMap<GroupId, Vec<SocketAddr>>>,
    /// Addresses of members of groups that do not hear this node's multicast.
    deaf: HashMap<GroupId, Vec<SocketAddr>>,
    /// Source addresses of senders that the membership does not know, and the times of their last packets.
    senders: HashMap<NodeId, (SocketAddr, u64)>,
    /// These senders in order of their first packet.
    sender_order: VecDeque<NodeId>,
    /// Number of senders forgotten to make room for others.
    forgotten: u64,
}

impl NodeAddresses {
    /// Creates an empty table; `unicast` keeps the addresses of each group's members.
    pub(crate) fn new(unicast: bool) -> Self {
        Self { group_members: unicast.then(HashMap::new), ..Self::default() }
    }

    /// Replaces the members by those that the membership knows.
    pub(crate) fn set_members<'m>(&mut self, members: impl Iterator<Item = &'m membership::Member>) {
        self.nodes.clear();
        self.members.clear();
        if let Some(group_members) = &mut self.group_members {
            group_members.clear();
        }
        for member in members {
            self.nodes.insert(member.id, member.address);
            self.members.insert(member.address);
            let Some(group_members) = &mut self.group_members else { continue };
            for &group in member.groups.iter() {
                group_members.entry(group).or_default().push(member.address);
            }
        }
    }

    /// Returns the origin of a datagram. Keeps the source address of a sender that the membership does not
    /// know: it can be reached there, and its further packets must come from there.
    pub(crate) fn origin(&mut self, now_us: u64, peek: &Peek, from: SocketAddr) -> Origin {
        let (from, sender) = (canonical(from), peek.sender);
        if peek.kind == Kind::Retransmission {
            let is_sender = || self.senders.get(&sender).is_some_and(|(address, _)| *address == from);
            return if self.members.contains(&from) || is_sender() {
                Origin::Member
            } else {
                Origin::Stranger
            };
        }
        if let Some(address) = self.nodes.get(&sender) {
            return if *address == from { Origin::Member } else { Origin::Impostor };
        }
        if matches!(peek.kind, Kind::Data | Kind::Heartbeat | Kind::Probe)
            && !self.is_senders_address(now_us, sender, from)
        {
            return Origin::Impostor;
        }
        Origin::Stranger
    }

    /// Returns whether the packets of a sender that the membership does not know come from an address.
    ///
    /// If there are too many such senders, the one noted first is forgotten: nothing tells this table that a
    /// sender's life has ended.
    fn is_senders_address(&mut self, now_us: u64, sender: NodeId, from: SocketAddr) -> bool {
        if let Some((address, last_us)) = self.senders.get_mut(&sender) {
            if *address != from && now_us.saturating_sub(*last_us) < SILENCE_US {
                return false;
            }
            (*address, *last_us) = (from, now_us);
            return true;
        }
        if self.sender_order.len() >= SENDERS_MAX
            && let Some(oldest) = self.sender_order.pop_front()
        {
            self.senders.remove(&oldest);
            self.forgotten += 1;
        }
        self.senders.insert(sender, (from, now_us));
        self.sender_order.push_back(sender);
        true
    }

    /// Returns the number of senders forgotten to make room for others.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Returns the address of a node: the membership's, or else the source address of its packets.
    pub(crate) fn node(&self, node: NodeId) -> Option<SocketAddr> {
        let of_sender = || self.senders.get(&node).map(|&(address, _)| address);
        self.nodes.get(&node).copied().or_else(of_sender)
    }

    /// Replaces the members that need copies of what is multicast to groups.
    pub(crate) fn set_deaf(&mut self, deaf: HashMap<GroupId, Vec<SocketAddr>>) {
        self.deaf = deaf;
    }

    /// Returns the members of a group that need copies.
    pub(crate) fn deaf(&self, group: GroupId) -> &[SocketAddr] {
        if self.deaf.is_empty() { &[] } else { self.deaf.get(&group).map_or(&[], Vec::as_slice) }
    }

    /// Returns the addresses of a group's members, or `None` with multicast.
    pub(crate) fn group_members(&self, group: GroupId) -> Option<&[SocketAddr]> {
        self.group_members.as_ref().map(|members| members.get(&group).map_or(&[][..], Vec::as_slice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_spread_over_all_addresses_and_no_others() {
        for (ipv6, first, last) in
            [(false, "239.255.79.0", "239.255.79.63"), (true, "ff15::4f00", "ff15::4f3f")]
        {
            let addresses = GroupAddresses::new(None, ipv6, 64, 7);
            let mut all: Vec<IpAddr> = (0..2_000)
                .map(|number| addresses.address(GroupId::of_name(&format!("group/{number}"))).ip())
                .collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 64);
            assert_eq!((all[0].to_string(), all[63].to_string()), (first.to_owned(), last.to_owned()));
        }
    }

    /// Greetings test an address by its bit: both must mean the same one, whatever the settings.
    #[test]
    fn the_bit_of_a_group_is_that_of_its_address() {
        for base in [None, Some("239.1.2.250".parse().unwrap()), Some("ff15::ffff".parse().unwrap())] {
            for count in 1..=64 {
                let addresses = GroupAddresses::new(base, false, count, 7);
                let known: Vec<SocketAddr> = addresses.addresses().collect();
                assert_eq!(known.len(), usize::from(count));
                assert_eq!((addresses.at(count), addresses.all_bits().count_ones()), (None, count.into()));
                for number in 0..200 {
                    let group = GroupId::of_name(&format!("group/{number}"));
                    let place = addresses.bit(group).trailing_zeros();
                    assert_eq!(addresses.at(place as u8), Some(addresses.address(group)), "{base:?} {count}");
                    assert_eq!(addresses.bit(group) & addresses.all_bits(), 1 << place);
                    assert!(known.contains(&addresses.address(group)));
                }
            }
        }
    }

    #[test]
    fn the_membership_overrides_source_addresses_and_unknown_senders_are_bounded() {
        let [one, two] = [1, 2].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let mut addresses = NodeAddresses::new(true);
        let data = |node| Peek { kind: Kind::Data, sender: NodeId(node), packet: Some((GroupId(5), 0)) };
        assert_eq!(addresses.origin(0, &data(1), one), Origin::Stranger);
        assert_eq!(addresses.node(NodeId(1)), Some(one));
        let member = membership::Member { id: NodeId(1), address: two, groups: [GroupId(5)].into() };
        addresses.set_members([&member].into_iter());
        assert_eq!(addresses.node(NodeId(1)), Some(two));
        assert_eq!(addresses.group_members(GroupId(5)), Some(&[two][..]));
        assert_eq!(addresses.group_members(GroupId(6)), Some(&[][..]));
        for node in 10..20_000 {
            assert_eq!(addresses.origin(0, &data(node), one), Origin::Stranger);
        }
        assert_eq!((addresses.senders.len(), addresses.sender_order.len()), (SENDERS_MAX, SENDERS_MAX));
        // Node 1 had sent before the membership knew it.
        assert_eq!(addresses.forgotten(), 1 + 19_990 - SENDERS_MAX as u64);
        assert_eq!(addresses.node(NodeId(19_999)), Some(one), "the newest sender is known");
        assert_eq!(addresses.node(NodeId(10)), None);
        assert_eq!(addresses.origin(0, &data(1), two), Origin::Member);
        assert_eq!(addresses.sender_order.back(), Some(&NodeId(19_999)), "a member takes no room");
        assert_eq!(NodeAddresses::new(false).group_members(GroupId(5)), None);
    }

    #[test]
    fn a_datagram_comes_from_its_sender_only_from_the_senders_address() {
        let [one, two, three] = [1, 2, 3].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let mut addresses = NodeAddresses::new(false);
        let member = membership::Member { id: NodeId(1), address: one, groups: [].into() };
        addresses.set_members([&member].into_iter());
        let peek = |kind, node| Peek { kind, sender: NodeId(node), packet: None };
        for kind in [Kind::Data, Kind::Heartbeat, Kind::Repair, Kind::Nak, Kind::Question, Kind::Answer] {
            assert_eq!(addresses.origin(0, &peek(kind, 1), one), Origin::Member);
            assert_eq!(addresses.origin(0, &peek(kind, 1), two), Origin::Impostor);
        }
        for kind in [Kind::Repair, Kind::Nak, Kind::Question] {
            assert_eq!(addresses.origin(0, &peek(kind, 9), one), Origin::Stranger);
        }
        // Any member retransmits any packet, and a sender that is no member its own.
        assert_eq!(addresses.origin(0, &peek(Kind::Retransmission, 9), one), Origin::Member);
        assert_eq!(addresses.origin(0, &peek(Kind::Retransmission, 9), two), Origin::Stranger);
        assert_eq!(addresses.origin(0, &peek(Kind::Data, 9), two), Origin::Stranger);
        assert_eq!(addresses.origin(0, &peek(Kind::Retransmission, 9), two), Origin::Member);
        assert_eq!(addresses.origin(1, &peek(Kind::Data, 9), three), Origin::Impostor);
        assert_eq!(addresses.node(NodeId(9)), Some(two));
        assert_eq!(addresses.origin(SILENCE_US, &peek(Kind::Heartbeat, 9), three), Origin::Stranger);
        assert_eq!(addresses.node(NodeId(9)), Some(three));
    }
}
