//! Addresses: of groups, and of nodes.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hashbrown::HashMap;
use ricochet_core::{GroupId, NodeId};

/// First multicast address if none is given: of the organisation, and not assigned.
const BASE_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 79, 0);
/// The same of IPv6: transient, of the site.
const BASE_V6: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 0x4f00);
/// Senders whose addresses are remembered although the membership does not know them.
const HEARD_MAX: usize = 4_096;

/// The multicast addresses over which groups are spread: a network card tells some 64 apart, a group is told by its id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    base: IpAddr,
    count: u8,
    port: u16,
}

impl Spread {
    pub(crate) fn new(base: Option<IpAddr>, ipv6: bool, count: u8, port: u16) -> Self {
        let usual = || if ipv6 { IpAddr::V6(BASE_V6) } else { IpAddr::V4(BASE_V4) };
        Self { base: base.unwrap_or_else(usual), count, port }
    }

    /// Where packets to a group go: by the high half of its id, which is a hash (`docs/wire.md`).
    pub(crate) fn address(&self, group: GroupId) -> SocketAddr {
        self.nth((group.0 >> 32) % u64::from(self.count.max(1)))
    }

    /// All of them.
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

/// Whom this node knows.
#[derive(Debug, Default)]
pub(crate) struct Book {
    nodes: HashMap<NodeId, SocketAddr>,
    /// Of each group, where its members are; kept only where there is no multicast.
    members: Option<HashMap<GroupId, Vec<SocketAddr>>>,
    /// Where packets came from whose senders the membership does not know.
    heard: HashMap<NodeId, SocketAddr>,
    /// The same senders, the one first heard longest ago first.
    order: VecDeque<NodeId>,
    /// Such as made room for others.
    forgotten: u64,
}

impl Book {
    pub(crate) fn new(fan_out: bool) -> Self {
        Self { members: fan_out.then(HashMap::new), ..Self::default() }
    }

    /// Writes down what the membership knows, in place of what it knew.
    pub(crate) fn rewrite<'p>(&mut self, peers: impl Iterator<Item = &'p membership::Member>) {
        self.nodes.clear();
        if let Some(members) = &mut self.members {
            members.clear();
        }
        for peer in peers {
            self.nodes.insert(peer.id, peer.address);
            let Some(members) = &mut self.members else { continue };
            for &group in peer.groups.iter() {
                members.entry(group).or_default().push(peer.address);
            }
        }
    }

    /// A sender sends from the address at which it is reached. When there are too many whom the membership does not know,
    /// the one that was first heard longest ago makes room: lives end, and nobody says so here.
    pub(crate) fn heard(&mut self, node: NodeId, from: SocketAddr) {
        if let Some(known) = self.heard.get_mut(&node) {
            *known = from;
            return;
        }
        if self.nodes.contains_key(&node) {
            return;
        }
        if self.order.len() >= HEARD_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.heard.remove(&oldest);
            self.forgotten += 1;
        }
        self.heard.insert(node, from);
        self.order.push_back(node);
    }

    /// How many senders made room for others.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Where a node is: as the membership says, else where its packets come from.
    pub(crate) fn node(&self, node: NodeId) -> Option<SocketAddr> {
        self.nodes.get(&node).or_else(|| self.heard.get(&node)).copied()
    }

    /// Where a group's members are; `None` where it is reached by multicast.
    pub(crate) fn members(&self, group: GroupId) -> Option<&[SocketAddr]> {
        self.members.as_ref().map(|members| members.get(&group).map_or(&[][..], Vec::as_slice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_spread_over_all_addresses_and_no_others() {
        for (ipv6, first, last) in
            [(false, "239.255.79.0", "239.255.79.63"), (true, "ff15::4f00", "ff15::4f3f")]
        {
            let spread = Spread::new(None, ipv6, 64, 7);
            let mut all: Vec<IpAddr> = (0..2_000)
                .map(|number| spread.address(GroupId::of_name(&format!("group/{number}"))).ip())
                .collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 64);
            assert_eq!((all[0].to_string(), all[63].to_string()), (first.to_owned(), last.to_owned()));
        }
    }

    #[test]
    fn the_membership_is_believed_before_what_was_heard_and_strangers_are_bounded() {
        let [one, two] = [1, 2].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let mut book = Book::new(true);
        book.heard(NodeId(1), one);
        assert_eq!(book.node(NodeId(1)), Some(one));
        let peer = membership::Member { id: NodeId(1), address: two, groups: [GroupId(5)].into() };
        book.rewrite([&peer].into_iter());
        assert_eq!(book.node(NodeId(1)), Some(two));
        assert_eq!(book.members(GroupId(5)), Some(&[two][..]));
        assert_eq!(book.members(GroupId(6)), Some(&[][..]));
        (10..20_000).for_each(|node| book.heard(NodeId(node), one));
        assert_eq!((book.heard.len(), book.order.len()), (HEARD_MAX, HEARD_MAX));
        // Node 1 was heard before the membership knew it.
        assert_eq!(book.forgotten(), 1 + 19_990 - HEARD_MAX as u64);
        assert_eq!(book.node(NodeId(19_999)), Some(one), "who is heard now is known");
        assert_eq!(book.node(NodeId(10)), None);
        book.heard(NodeId(1), one);
        assert_eq!(book.order.back(), Some(&NodeId(19_999)), "whom the membership knows needs no room");
        assert_eq!(Book::new(false).members(GroupId(5)), None);
    }
}
