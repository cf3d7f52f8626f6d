//! What of the datagrams that come is kept: looked at where the kernel put them, before anything is copied.

use std::net::SocketAddr;

use foundation::reasons;
use hashbrown::HashSet;
use ricochet_core::counters::Malformed;
use ricochet_core::wire::{Kind, Peek};
use ricochet_core::{GroupId, NodeId};

use crate::key::Seal;

/// First byte of the membership's datagrams.
pub(crate) const MEMBERSHIP: u8 = 0x96;

reasons! {
    /// Why a datagram was dropped before anything was made of it.
    Dropped, DroppedCounts {
        /// Sent by this node itself.
        Own = "own",
        /// Without the trailer that the cluster key gives it.
        Unauthentic = "not authentic",
        /// None of ours.
        Unknown = "unknown first byte",
        /// Too short to say whose it is.
        TooShort = "too short",
        /// Longer than this node's datagrams may be.
        TooLong = "too long",
        /// Of groups that this node is not in.
        Foreign = "of other groups",
        /// A datagram for one node that was multicast.
        Misdirected = "multicast what is for one node",
        /// By a test.
        Injected = "loss injected",
    }
}

/// By which socket a datagram came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// Addressed to a group.
    Group,
    /// Addressed to this node.
    Own,
}

/// For whom a datagram is that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Node,
    Membership,
}

/// Decides on losses for tests, given the datagram without its trailer.
pub(crate) type Injection = Box<dyn FnMut(&[u8]) -> bool + Send>;

/// Looks at datagrams, by the thread that drains the sockets.
pub(crate) struct Filter {
    pub(crate) id: NodeId,
    /// The address that this node sends from.
    pub(crate) own: SocketAddr,
    pub(crate) seal: Option<Seal>,
    pub(crate) injection: Option<Injection>,
}

impl Filter {
    /// For whom a datagram is, and what of it is left without the trailer; or why it is dropped.
    pub(crate) fn look<'d>(
        &mut self,
        groups: &HashSet<GroupId>,
        via: Via,
        from: SocketAddr,
        datagram: &'d [u8],
    ) -> Result<(For, &'d [u8]), Dropped> {
        // What a node multicasts comes back to it. The kernel says where it came from; no byte of it was looked at.
        if from == self.own {
            return Err(Dropped::Own);
        }
        let datagram = match &self.seal {
            Some(seal) => seal.open(datagram).ok_or(Dropped::Unauthentic)?,
            None => datagram,
        };
        let whose = self.sort(groups, via, datagram)?;
        let lost = self.injection.as_mut().is_some_and(|injection| injection(datagram));
        if lost { Err(Dropped::Injected) } else { Ok((whose, datagram)) }
    }

    fn sort(&self, groups: &HashSet<GroupId>, via: Via, datagram: &[u8]) -> Result<For, Dropped> {
        let &first = datagram.first().ok_or(Dropped::TooShort)?;
        if first == MEMBERSHIP {
            return if via == Via::Own { Ok(For::Membership) } else { Err(Dropped::Misdirected) };
        }
        let peek = Peek::read(datagram).map_err(|reason| match reason {
            Malformed::TooShort => Dropped::TooShort,
            _ => Dropped::Unknown,
        })?;
        if peek.is_unicast() && via == Via::Group {
            return Err(Dropped::Misdirected);
        }
        if peek.sender == self.id {
            return Err(Dropped::Own);
        }
        let ours = match peek.kind {
            Kind::Nak | Kind::Repair => true,
            _ => peek.groups().any(|group| groups.contains(&group)),
        };
        if ours { Ok(For::Node) } else { Err(Dropped::Foreign) }
    }
}

#[cfg(test)]
mod tests {
    use ricochet_core::StreamKey;
    use ricochet_core::wire::{Data, Heartbeat, Latest, Nak, Name, Range, Repair};

    use super::*;
    use crate::key::ClusterKey;

    const ME: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);
    const MINE: GroupId = GroupId(70);
    const NOT_MINE: GroupId = GroupId(71);

    fn filter() -> Filter {
        Filter { id: ME, own: ([10, 0, 0, 1], 5).into(), seal: None, injection: None }
    }

    fn look(filter: &mut Filter, via: Via, datagram: &[u8]) -> Result<For, Dropped> {
        let groups = HashSet::from_iter([MINE]);
        filter.look(&groups, via, ([10, 0, 0, 2], 5).into(), datagram).map(|(whose, _)| whose)
    }

    fn written(write: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
        let mut bytes = vec![0; 256];
        let length = write(&mut bytes);
        bytes.truncate(length);
        bytes
    }

    fn data(sender: NodeId, group: GroupId) -> Data<'static> {
        Data { sender, group, seq: 3, sender_seq: 4, expires: false, fragment: false, payload: b"x" }
    }

    /// All kinds: data and what is like it from a sender to a group, and what is for one node.
    fn all(sender: NodeId, group: GroupId) -> [(Vec<u8>, bool); 5] {
        let name = Name { sender, group: group.tag(), seq: 1 };
        let range = Range { key: StreamKey { sender, group }, first: 1, count: 1 };
        let latest = [Latest { group: NOT_MINE, seq: 1 }, Latest { group, seq: 9 }];
        [
            (written(|to| data(sender, group).write(to)), false),
            (written(|to| Heartbeat { sender, sender_seq: 1, latest: &latest }.write(to)), false),
            (written(|to| data(sender, group).write_retransmission(to)), true),
            (written(|to| Repair { from: sender, names: &[name], symbol: None }.write(to)), true),
            (written(|to| Nak { from: sender, ranges: &[range] }.write(to)), true),
        ]
    }

    #[test]
    fn all_kinds_of_our_groups_pass_and_none_of_our_own() {
        for (datagram, for_one) in all(OTHER, MINE) {
            assert_eq!(look(&mut filter(), Via::Own, &datagram), Ok(For::Node));
            let multicast = look(&mut filter(), Via::Group, &datagram);
            assert_eq!(multicast, if for_one { Err(Dropped::Misdirected) } else { Ok(For::Node) });
        }
        for (datagram, _) in all(ME, MINE) {
            assert_eq!(look(&mut filter(), Via::Own, &datagram), Err(Dropped::Own));
        }
    }

    #[test]
    fn groups_that_we_are_not_in_are_sorted_out() {
        for (datagram, for_one) in &all(OTHER, NOT_MINE)[..3] {
            let via = if *for_one { Via::Own } else { Via::Group };
            assert_eq!(look(&mut filter(), via, datagram), Err(Dropped::Foreign));
        }
    }

    #[test]
    fn membership_comes_to_the_own_socket_alone() {
        assert_eq!(look(&mut filter(), Via::Own, &[MEMBERSHIP, 1]), Ok(For::Membership));
        assert_eq!(look(&mut filter(), Via::Group, &[MEMBERSHIP, 1]), Err(Dropped::Misdirected));
    }

    #[test]
    fn what_comes_from_our_own_address_is_not_looked_at() {
        let mut filter = filter();
        let own = filter.own;
        assert_eq!(filter.look(&HashSet::new(), Via::Group, own, b"").unwrap_err(), Dropped::Own);
    }

    #[test]
    fn with_a_key_nothing_passes_without_its_trailer() {
        let seal = ClusterKey::new([1; 32]).seal();
        let mut filter = Filter { seal: Some(seal.clone()), ..filter() };
        for (datagram, _) in all(OTHER, MINE) {
            assert_eq!(look(&mut filter, Via::Own, &datagram), Err(Dropped::Unauthentic));
            let sealed = [&datagram[..], &seal.trailer(&datagram)].concat();
            let passed =
                filter.look(&HashSet::from_iter([MINE]), Via::Own, ([10, 0, 0, 2], 5).into(), &sealed);
            assert_eq!(passed, Ok((For::Node, &datagram[..])));
        }
    }

    #[test]
    fn an_injected_loss_is_counted_as_such() {
        let injection: Injection = Box::new(|datagram| datagram[0] == Kind::Data.to_wire());
        let mut filter = Filter { injection: Some(injection), ..filter() };
        let fates = all(OTHER, MINE).map(|(datagram, _)| look(&mut filter, Via::Own, &datagram));
        assert_eq!(fates[0], Err(Dropped::Injected));
        assert!(fates[1..].iter().all(Result::is_ok));
    }

    proptest::proptest! {
        #[test]
        fn whatever_comes_is_sorted_without_a_panic(datagram: Vec<u8>, first in 0x8fu8..0x99, keep: bool) {
            let mut datagram = datagram;
            if keep && let Some(byte) = datagram.first_mut() {
                *byte = first;
            }
            let _ = look(&mut filter(), Via::Own, &datagram);
            let _ = look(&mut filter(), Via::Group, &datagram);
        }
    }
}
