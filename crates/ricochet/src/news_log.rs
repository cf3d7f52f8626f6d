//! Log messages about members that come and go, and about messages that are lost for good.

use std::net::SocketAddr;

use hashbrown::HashSet;
use ricochet_core::counters::GivenUp;
use ricochet_core::tracker::Lost;
use ricochet_core::{GroupId, NodeId};

use crate::members::left_for_good;
use crate::outward::Outward;
use crate::published::PublishedMember;

/// Maximum number of members of one kind that are named when the view changes. Of more, their number is
/// logged.
const NAMED_MAX: usize = 8;
/// Maximum number of groups named in a log message about losses.
const GROUPS_MAX: usize = 3;
/// Shortest interval between two log messages about losses, in microseconds.
const INTERVAL_US: u64 = 1_000_000;

/// Members that came and went with a change of the view.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    joined: Vec<SocketAddr>,
    /// They said that they leave, or another node has their address.
    left: Vec<SocketAddr>,
    failed: Vec<SocketAddr>,
}

impl Changed {
    /// Compares two lists of members, both in order of the identifiers.
    pub(crate) fn between(
        before: &[PublishedMember],
        after: &[PublishedMember],
        farewells: &HashSet<NodeId>,
    ) -> Self {
        let is_in = |all: &[PublishedMember], id: NodeId| all.binary_search_by_key(&id, |of| of.id).is_ok();
        let left = left_for_good(before, after, farewells);
        let mut changed = Self::default();
        for member in before.iter().filter(|member| !is_in(after, member.id)) {
            let kind = if left.contains(&member.id) { &mut changed.left } else { &mut changed.failed };
            kind.push(member.address);
        }
        let new = after.iter().filter(|member| !is_in(before, member.id));
        changed.joined = new.map(|member| member.address).collect();
        changed
    }

    pub(crate) fn log(&self) {
        let Self { joined, left, failed } = self;
        if joined.len() <= NAMED_MAX {
            joined.iter().for_each(|member| tracing::debug!(%member, "a node has joined"));
        } else {
            tracing::debug!(members = joined.len(), "nodes have joined");
        }
        if left.len() <= NAMED_MAX {
            left.iter().for_each(|member| tracing::debug!(%member, "a node has left"));
        } else {
            tracing::debug!(members = left.len(), "nodes have left");
        }
        if failed.len() <= NAMED_MAX {
            failed
                .iter()
                .for_each(|member| tracing::warn!(%member, "a node has failed or cannot be reached"));
        } else {
            tracing::warn!(members = failed.len(), "nodes have failed or cannot be reached");
        }
    }
}

/// Losses that no log message has told yet.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    packets: u64,
    /// The first of their groups.
    groups: Vec<GroupId>,
    reason: Option<GivenUp>,
}

impl Losses {
    /// Notes a loss, and returns its packets. Messages whose deadline has passed are no loss that anyone must
    /// look at.
    pub(crate) fn note(&mut self, lost: &Lost) -> u64 {
        if lost.reason == GivenUp::Expired {
            return 0;
        }
        let packets = lost.last.0 - lost.first.0 + 1;
        self.packets += packets;
        self.reason = Some(lost.reason);
        if self.groups.len() <= GROUPS_MAX && !self.groups.contains(&lost.key.group) {
            self.groups.push(lost.key.group);
        }
        packets
    }
}

/// Logs losses: the first at once, and then at most once a second.
#[derive(Debug, Default)]
pub(crate) struct LossLog {
    next_us: u64,
}

impl LossLog {
    /// Returns when there is something to log, if there is.
    pub(crate) fn poll_timeout(&self, out: &Outward) -> Option<u64> {
        (out.losses.packets > 0).then_some(self.next_us)
    }

    pub(crate) fn handle_timeout(&mut self, now_us: u64, out: &mut Outward) {
        if out.losses.packets == 0 || now_us < self.next_us {
            return;
        }
        self.next_us = now_us + INTERVAL_US;
        let Losses { packets, groups, reason } = std::mem::take(&mut out.losses);
        let name = |id: &GroupId| out.groups.get(id).map_or_else(|| id.to_string(), |of| of.name.to_string());
        let mut names: Vec<String> = groups.iter().take(GROUPS_MAX).map(name).collect();
        if groups.len() > GROUPS_MAX {
            names.push("...".to_owned());
        }
        let why = reason.map_or_else(String::new, |reason| reason.to_string());
        tracing::warn!(packets, groups = names.join(", "), why, "messages are lost");
    }
}

#[cfg(test)]
mod tests {
    use foundation::Seq;
    use ricochet_core::StreamKey;

    use super::*;

    fn member(id: u32, port: u16) -> PublishedMember {
        PublishedMember { id: NodeId(id), address: ([10, 0, 0, 1], port).into(), groups: [].into() }
    }

    #[test]
    fn the_log_tells_who_came_who_left_and_who_failed() {
        let before = [member(1, 1), member(2, 2), member(3, 3), member(4, 4)];
        // Node 2 has said that it leaves, and another node has the address of node 3.
        let after = [member(1, 1), member(7, 3), member(8, 8)];
        let changed = Changed::between(&before, &after, &HashSet::from_iter([NodeId(2)]));
        let ports = |members: &[SocketAddr]| members.iter().map(SocketAddr::port).collect::<Vec<_>>();
        assert_eq!(ports(&changed.joined), [3, 8]);
        assert_eq!(ports(&changed.left), [2, 3]);
        assert_eq!(ports(&changed.failed), [4]);
        assert_eq!(Changed::between(&after, &after, &HashSet::new()), Changed::default());
    }

    #[test]
    fn losses_add_up_and_messages_past_their_deadline_are_none() {
        let mut losses = Losses::default();
        for (group, first, last, reason) in [
            (1, 5, 9, GivenUp::Gone),
            (1, 20, 20, GivenUp::Unanswered),
            (2, 0, 1, GivenUp::Gone),
            (3, 0, 99, GivenUp::Expired),
        ] {
            let key = StreamKey { sender: NodeId(1), group: GroupId(group) };
            losses.note(&Lost { key, first: Seq(first), last: Seq(last), reason });
        }
        assert_eq!((losses.packets, &losses.groups[..]), (8, &[GroupId(1), GroupId(2)][..]));
        assert_eq!(losses.reason, Some(GivenUp::Gone));
    }
}
