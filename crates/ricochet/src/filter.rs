//! Drops the datagrams that are not for this node, before any is copied.

use std::net::SocketAddr;

use foundation::reasons;
use hashbrown::HashSet;
use membership::wire::FIRST_BYTE as MEMBERSHIP;
use membership::wire::swim::canonical;
use ricochet_core::counters::Malformed;
use ricochet_core::wire::{Kind, Peek};
use ricochet_core::{GroupId, NodeId};

use crate::greetings::FIRST_BYTE as GREETING;
use crate::key::{Seal, Stamp};
use crate::replay::{Verdict, Windows};

reasons! {
    /// Reason why a datagram was dropped before it reached the core.
    Dropped, DroppedCounts {
        /// This node sent it.
        Own = "own",
        /// Its trailer does not match any cluster key, or its addresses.
        Unauthentic = "not authentic",
        /// It came before, or is older than those that the replay window covers.
        Replayed = "replayed",
        /// The node at its source address has not proven which life it is: the datagram may be a recording.
        Unproven = "from an unproven node",
        /// It belongs to another protocol.
        Unknown = "unknown first byte",
        /// It ends before its sender or group.
        TooShort = "too short",
        /// It is longer than the node's maximum.
        TooLong = "too long",
        /// This node is in none of its groups.
        Foreign = "of other groups",
        /// It is a unicast datagram that came by multicast.
        Misdirected = "multicast what is for one node",
        /// A test injected its loss.
        Injected = "loss injected",
    }
}

/// Socket that a datagram came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// The socket of the IP groups.
    Group,
    /// This node's own socket.
    Own,
}

/// Consumer of a datagram that passes the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Node,
    Membership,
    Greetings,
}

/// A datagram that passes the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passed<'d> {
    pub(crate) consumer: For,
    /// Fields of a datagram for the node.
    pub(crate) peek: Option<Peek>,
    /// Stamp in the trailer, with a cluster key.
    pub(crate) stamp: Option<Stamp>,
    /// Datagram without its trailer.
    pub(crate) datagram: &'d [u8],
}

/// Fault injection for tests: returns whether to drop a datagram, given without its trailer.
pub(crate) type Injection = Box<dyn FnMut(&[u8]) -> bool + Send>;

/// Filters datagrams on the thread that drains the sockets.
pub(crate) struct Filter {
    pub(crate) id: NodeId,
    /// Address that this node sends from.
    pub(crate) own: SocketAddr,
    pub(crate) seal: Option<Seal>,
    pub(crate) injection: Option<Injection>,
}

impl Filter {
    /// Returns the datagram without its trailer and its consumer, or the reason to drop it.
    pub(crate) fn sort<'d>(
        &mut self,
        groups: &HashSet<GroupId>,
        windows: &mut Windows,
        via: Via,
        from: SocketAddr,
        datagram: &'d [u8],
    ) -> Result<Passed<'d>, Dropped> {
        // A node receives its own multicast datagrams. The source address identifies them at the lowest cost.
        if from == self.own {
            return Err(Dropped::Own);
        }
        let (datagram, stamp) = match &self.seal {
            Some(seal) => {
                let opened = seal.open(from, via == Via::Group, datagram).ok_or(Dropped::Unauthentic)?;
                (opened.0, Some(opened.1))
            }
            None => (datagram, None),
        };
        let passed = Passed { stamp, ..self.route(groups, via, datagram)? };
        if let Some(stamp) = stamp {
            let from = canonical(from);
            match windows.judge(from, via, stamp) {
                Verdict::Fresh => {}
                Verdict::Replayed => return Err(Dropped::Replayed),
                // The membership takes nothing from a node that has not answered a question.
                Verdict::Unproven if passed.consumer == For::Membership => {}
                Verdict::Unproven => {
                    windows.on_stranger(from);
                    return Err(Dropped::Unproven);
                }
            }
        }
        let lost = self.injection.as_mut().is_some_and(|injection| injection(datagram));
        if lost { Err(Dropped::Injected) } else { Ok(passed) }
    }

    fn route<'d>(
        &self,
        groups: &HashSet<GroupId>,
        via: Via,
        datagram: &'d [u8],
    ) -> Result<Passed<'d>, Dropped> {
        let &first = datagram.first().ok_or(Dropped::TooShort)?;
        if first == MEMBERSHIP {
            let passed = Passed { consumer: For::Membership, peek: None, stamp: None, datagram };
            return if via == Via::Own { Ok(passed) } else { Err(Dropped::Misdirected) };
        }
        if first == GREETING {
            return Ok(Passed { consumer: For::Greetings, peek: None, stamp: None, datagram });
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
            Kind::Nak | Kind::Repair | Kind::Question | Kind::Answer | Kind::Room | Kind::Denial => true,
            Kind::HistoryRequest | Kind::History => true,
            _ => peek.groups(datagram).any(|group| groups.contains(&group)),
        };
        let passed = Passed { consumer: For::Node, peek: Some(peek), stamp: None, datagram };
        if ours { Ok(passed) } else { Err(Dropped::Foreign) }
    }
}

#[cfg(test)]
mod tests {
    use ricochet_core::StreamKey;
    use ricochet_core::wire::{Answer, Data, Extras, Heartbeat, Latest, Nak, Name, Question, Range, Repair};

    use super::*;
    use crate::key::{ClusterKey, KeyRing};

    const ME: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);
    const MINE: GroupId = GroupId(70);
    const NOT_MINE: GroupId = GroupId(71);

    fn filter() -> Filter {
        Filter { id: ME, own: ([10, 0, 0, 1], 5).into(), seal: None, injection: None }
    }

    fn look(filter: &mut Filter, via: Via, datagram: &[u8]) -> Result<For, Dropped> {
        let groups = HashSet::from_iter([MINE]);
        let from = ([10, 0, 0, 2], 5).into();
        filter.sort(&groups, &mut Windows::default(), via, from, datagram).map(|passed| passed.consumer)
    }

    fn written(write: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
        let mut bytes = vec![0; 256];
        let length = write(&mut bytes);
        bytes.truncate(length);
        bytes
    }

    fn data(sender: NodeId, group: GroupId) -> Data<'static> {
        Data {
            sender,
            group,
            seq: 3,
            sender_seq: 4,
            expires: false,
            fragment: false,
            joint: false,
            extras: Extras::NONE,
            payload: b"x",
        }
    }

    /// Returns a datagram of each kind, and whether it is for one node.
    fn all(sender: NodeId, group: GroupId) -> [(Vec<u8>, bool); 7] {
        let name = Name { sender, group: group.tag(), seq: 1 };
        let range = Range { key: StreamKey { sender, group }, first: 1, count: 1 };
        let latest = [Latest { group: NOT_MINE, seq: 1 }, Latest { group, seq: 9 }];
        [
            (written(|to| data(sender, group).write(to)), false),
            (written(|to| Heartbeat { sender, sender_seq: 1, latest: &latest }.write(to)), false),
            (written(|to| data(sender, group).write_retransmission(to)), true),
            (written(|to| Repair { from: sender, names: &[name], symbol: None }.write(to)), true),
            (written(|to| Nak { from: sender, ranges: &[range] }.write(to)), true),
            (written(|to| Question { from: sender, token: 1, group }.write(to)), true),
            (written(|to| Answer { sender, token: 1, group, newest: None }.write(to)), true),
        ]
    }

    #[test]
    fn all_kinds_of_this_nodes_groups_pass_unless_it_sent_them() {
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
    fn datagrams_of_other_groups_are_dropped() {
        for (datagram, for_one) in &all(OTHER, NOT_MINE)[..3] {
            let via = if *for_one { Via::Own } else { Via::Group };
            assert_eq!(look(&mut filter(), via, datagram), Err(Dropped::Foreign));
        }
    }

    #[test]
    fn membership_datagrams_pass_through_the_own_socket_only() {
        assert_eq!(look(&mut filter(), Via::Own, &[MEMBERSHIP, 1]), Ok(For::Membership));
        assert_eq!(look(&mut filter(), Via::Group, &[MEMBERSHIP, 1]), Err(Dropped::Misdirected));
    }

    #[test]
    fn a_datagram_from_this_nodes_address_is_dropped_unread() {
        let mut filter = filter();
        let own = filter.own;
        let sorted = filter.sort(&HashSet::new(), &mut Windows::default(), Via::Group, own, b"");
        assert_eq!(sorted.unwrap_err(), Dropped::Own);
    }

    fn seal(id: NodeId, own: SocketAddr) -> Seal {
        Seal::new(KeyRing::new(&[ClusterKey::new([1; 32])]), id, 5, own)
    }

    #[test]
    fn with_a_key_only_fresh_datagrams_of_proven_nodes_pass() {
        let own = filter().own;
        let mut filter = Filter { seal: Some(seal(ME, own)), ..filter() };
        let (other, mut windows) = (SocketAddr::from(([10, 0, 0, 2], 5)), Windows::default());
        let sender = seal(OTHER, other);
        let groups = HashSet::from_iter([MINE]);
        let mut sort = |windows: &mut Windows, from, datagram: &[u8]| {
            filter.sort(&groups, windows, Via::Own, from, datagram).map(|passed| passed.consumer)
        };
        let (data, _) = &all(OTHER, MINE)[0];
        let sealed = |datagram: &[u8]| [datagram, &sender.trailer(Some(own), datagram)].concat();
        assert_eq!(sort(&mut windows, other, data), Err(Dropped::Unauthentic));
        let first = sealed(data);
        assert_eq!(sort(&mut windows, other, &first), Err(Dropped::Unproven));
        assert_eq!(windows.take_strangers(), [other]);
        // The membership asks the node, and its answer proves it.
        assert_eq!(sort(&mut windows, other, &sealed(&[MEMBERSHIP, 10])), Ok(For::Membership));
        windows.admit(other, Stamp { sender: OTHER, start: 5, counter: 2 });
        let fresh = sealed(data);
        assert_eq!(sort(&mut windows, other, &fresh), Ok(For::Node));
        assert_eq!(sort(&mut windows, other, &fresh), Err(Dropped::Replayed));
        assert_eq!(sort(&mut windows, ([10, 0, 0, 3], 5).into(), &sealed(data)), Err(Dropped::Unauthentic));
        let membership = sealed(&[MEMBERSHIP, 1]);
        assert_eq!(sort(&mut windows, other, &membership), Ok(For::Membership));
        assert_eq!(sort(&mut windows, other, &membership), Err(Dropped::Replayed));
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
        fn any_bytes_are_sorted_without_a_panic(datagram: Vec<u8>, first in 0xafu8..0xbe, keep: bool) {
            let mut datagram = datagram;
            if keep && let Some(byte) = datagram.first_mut() {
                *byte = first;
            }
            let _ = look(&mut filter(), Via::Own, &datagram);
            let _ = look(&mut filter(), Via::Group, &datagram);
        }
    }
}
