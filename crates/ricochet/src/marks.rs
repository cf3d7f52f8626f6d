//! Differentiated services: the type of service of each datagram by its groups.

use hashbrown::HashMap;
use ricochet_core::order::order_group;
use ricochet_core::wire::Datagram;
use ricochet_core::{GroupId, GroupTag};

use crate::group_name::check_group_name;

/// Highest DSCP.
const DSCP_MAX: u8 = 63;

/// Returns the group and the DSCP of an entry of `node.group_dscp`.
pub(crate) fn parse(entry: &str) -> Option<(&str, u8)> {
    let (group, dscp) = entry.rsplit_once('=')?;
    let dscp: u8 = dscp.parse().ok()?;
    ((1..=DSCP_MAX).contains(&dscp) && check_group_name(group).is_ok()).then_some((group, dscp))
}

/// The groups whose datagrams have a type of service of their own. It is that of the DSCP, or 0 for that of
/// the socket.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    groups: HashMap<GroupId, u8>,
    /// The same by short form, by which repairs name groups.
    tags: HashMap<GroupTag, u8>,
}

impl Marks {
    /// Returns the marks of checked entries.
    pub(crate) fn new(entries: &[String]) -> Self {
        let mut marks = Self::default();
        for (group, dscp) in entries.iter().filter_map(|entry| parse(entry)) {
            let group = GroupId::of_name(group);
            // Messages in total order wait for the numbers that the order group carries.
            for id in [group, order_group(group)] {
                marks.groups.insert(id, dscp << 2);
                marks.tags.insert(id.tag(), dscp << 2);
            }
        }
        marks
    }

    /// Returns the type of service of a packet of a group.
    pub(crate) fn of_group(&self, group: GroupId) -> u8 {
        self.groups.get(&group).copied().unwrap_or(0)
    }

    /// Returns the type of service of a datagram to one node: the highest of those of its packets.
    pub(crate) fn of_datagram(&self, datagram: &[u8]) -> u8 {
        if self.groups.is_empty() {
            return 0;
        }
        match Datagram::read(datagram) {
            Ok(Datagram::Data(data) | Datagram::Retransmission(data)) => self.of_group(data.group),
            Ok(Datagram::Repair(repair)) => {
                let marks = repair.names().filter_map(|name| self.tags.get(&name.group));
                marks.copied().max().unwrap_or(0)
            }
            Ok(Datagram::Nak(nak) | Datagram::Denial(nak)) => {
                nak.ranges().map(|range| self.of_group(range.key.group)).max().unwrap_or(0)
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use ricochet_core::wire::{Data, Extras, Nak, Name, Range, Repair};
    use ricochet_core::{NodeId, StreamKey};

    use super::*;

    fn marks() -> Marks {
        Marks::new(&["urgent=46".to_owned(), "a=b=10".to_owned()])
    }

    #[test]
    fn an_entry_is_a_group_and_a_dscp() {
        assert_eq!(parse("prices/AAPL=46"), Some(("prices/AAPL", 46)));
        assert_eq!(parse("a=b=1"), Some(("a=b", 1)));
        for wrong in ["prices", "prices=", "prices=0", "prices=64", "=46", "prices/*=46", "prices=ef"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn repairs_requests_and_answers_are_marked_as_their_packets() {
        let marks = marks();
        let group = GroupId::of_name;
        assert_eq!(
            [group("urgent"), group("a=b"), group("other")].map(|id| marks.of_group(id)),
            [184, 40, 0]
        );
        assert_eq!(marks.of_group(order_group(group("urgent"))), 184);
        let mut buffer = [0; 256];
        let name = |text: &str| Name { sender: NodeId(1), group: group(text).tag(), seq: 7 };
        for (names, expected) in
            [(vec!["other"], 0), (vec!["other", "a=b"], 40), (vec!["a=b", "urgent", "other"], 184)]
        {
            let names: Vec<Name> = names.into_iter().map(name).collect();
            let length = Repair { from: NodeId(2), names: &names, symbol: None }.write(&mut buffer);
            assert_eq!(marks.of_datagram(&buffer[..length]), expected, "{names:?}");
        }
        let key = StreamKey { sender: NodeId(1), group: group("urgent") };
        let length = Nak { from: NodeId(2), ranges: &[Range { key, first: 7, count: 1 }] }.write(&mut buffer);
        assert_eq!(marks.of_datagram(&buffer[..length]), 184);
        let data = Data {
            sender: NodeId(1),
            group: group("a=b"),
            seq: 5,
            sender_seq: 0,
            expires: false,
            fragment: false,
            joint: false,
            extras: Extras::NONE,
            payload: b"187.21",
        };
        let length = data.write(&mut buffer);
        assert_eq!(marks.of_datagram(&buffer[..length]), 40);
        assert_eq!(Marks::default().of_datagram(&buffer[..length]), 0);
        assert_eq!(marks.of_datagram(b"nonsense"), 0);
    }
}
