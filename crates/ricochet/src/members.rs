//! Members of groups: their list, and the news about them for subscriptions that want it.

use std::sync::{Arc, PoisonError};

use hashbrown::HashSet;
use ricochet_core::{GroupId, NodeId};

use crate::message::{Event, Member, MemberChange, MemberNews, RegistryNews};
use crate::outward::{Joined, Outward};
use crate::published::PublishedMember;
use crate::shared::Shared;

impl Shared {
    /// Returns the other nodes known to be in a group, in order of their identifiers.
    pub(crate) fn member_list(&self, group: GroupId) -> Vec<Member> {
        if self.is_forked() {
            return Vec::new();
        }
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.members.iter().filter(|member| member.is_in(group)).map(PublishedMember::member).collect()
    }

    /// Tells a subscription that begins which members of a group are known. The caller holds the core, and so
    /// keeps the members from changing meanwhile.
    pub(crate) fn tell_known_members(&self, out: &Outward, consumer: usize, group: GroupId) {
        let Some(joined) = out.groups.get(&group) else { return };
        for member in self.member_list(group) {
            out.tell_member(consumer, joined, member, MemberChange::Joined);
        }
    }
}

impl PublishedMember {
    fn member(&self) -> Member {
        Member { id: self.id, address: self.address }
    }

    fn is_in(&self, group: GroupId) -> bool {
        self.groups.binary_search(&group).is_ok()
    }
}

impl Outward {
    /// Tells the subscriptions that want to know the members that the registry is away, or reached again.
    /// That it is reached at the start is no news.
    pub(crate) fn tell_registry(&mut self, news: &RegistryNews) {
        let away = news.error().is_some().then(|| news.clone());
        if std::mem::replace(&mut self.registry_away, away).is_some() == self.registry_away.is_some() {
            return;
        }
        let wanting = self.consumers.iter().flatten().filter(|consumer| consumer.members);
        wanting.for_each(|consumer| self.tell(&consumer.queue, Event::Registry(news.clone())));
    }

    /// Tells a subscription that begins that the registry is away, if it is.
    pub(crate) fn tell_registry_away(&self, consumer: usize) {
        if let (Some(Some(consumer)), Some(news)) = (self.consumers.get(consumer), &self.registry_away) {
            self.tell(&consumer.queue, Event::Registry(news.clone()));
        }
    }

    fn tell_member(&self, consumer: usize, joined: &Joined, member: Member, change: MemberChange) {
        if let Some(Some(consumer)) = self.consumers.get(consumer).filter(|_| member.id != self.me().id) {
            let group = Arc::clone(&joined.name);
            self.tell(&consumer.queue, Event::Member(MemberNews { group, member, change }));
        }
    }

    /// Tells the subscriptions that want it which members of their groups have come and gone. Both lists are
    /// in order of the identifiers. A node in `farewells` has said that it leaves.
    pub(crate) fn tell_members(
        &self,
        before: &[PublishedMember],
        after: &[PublishedMember],
        farewells: &HashSet<NodeId>,
    ) {
        for (&group, joined) in &self.groups {
            let wants = |&&at: &&usize| matches!(&self.consumers[at], Some(consumer) if consumer.members);
            // Applications do not know order groups.
            if self.totals.is_order_group(group) || !joined.consumers.iter().any(|at| wants(&at)) {
                continue;
            }
            let changes = changes(before, after, group, farewells);
            for &at in joined.consumers.iter().filter(wants) {
                changes.iter().for_each(|&(member, change)| self.tell_member(at, joined, member, change));
            }
        }
    }
}

/// Returns how the members of a group have changed: first those that are gone, then those that are new.
fn changes(
    before: &[PublishedMember],
    after: &[PublishedMember],
    group: GroupId,
    farewells: &HashSet<NodeId>,
) -> Vec<(Member, MemberChange)> {
    let find = |all: &[PublishedMember], id: NodeId| all.binary_search_by_key(&id, |member| member.id).ok();
    let of_group = |member: &&PublishedMember| member.is_in(group);
    let gone = before.iter().filter(of_group).filter_map(|member| {
        let change = match find(after, member.id) {
            Some(at) if after[at].is_in(group) => return None,
            Some(_) => MemberChange::Left,
            None if farewells.contains(&member.id) => MemberChange::Left,
            None => MemberChange::Failed,
        };
        Some((member.member(), change))
    });
    let is_new =
        |member: &&PublishedMember| find(before, member.id).is_none_or(|at| !before[at].is_in(group));
    let new = after.iter().filter(of_group).filter(is_new);
    gone.chain(new.map(|member| (member.member(), MemberChange::Joined))).collect()
}

/// Returns the nodes that will not come back: they have said that they leave, or another node has their
/// address. A node that is merely not a member any more may be cut off.
pub(crate) fn left_for_good(
    before: &[PublishedMember],
    after: &[PublishedMember],
    farewells: &HashSet<NodeId>,
) -> Vec<NodeId> {
    let is_after = |id: NodeId| after.binary_search_by_key(&id, |member| member.id).is_ok();
    let is_replaced = |member: &PublishedMember| after.iter().any(|other| other.address == member.address);
    let gone = before.iter().filter(|member| !is_after(member.id));
    let left = gone.filter(|member| farewells.contains(&member.id) || is_replaced(member));
    left.map(|member| member.id).collect()
}

#[cfg(test)]
mod tests {
    use ricochet_core::order::order_group;

    use super::*;
    use crate::joining::{JoinOptions, Order};
    use crate::node::Node;

    const GROUP: GroupId = GroupId(7);

    fn member(id: u32, is_in: bool) -> PublishedMember {
        let groups: &[GroupId] = if is_in { &[GROUP] } else { &[] };
        PublishedMember {
            id: NodeId(id),
            address: ([10, 0, 0, id as u8], 7_900).into(),
            groups: groups.into(),
        }
    }

    #[test]
    fn the_news_tells_who_came_and_why_others_went() {
        let before = [member(1, true), member(2, true), member(3, true), member(4, true), member(5, false)];
        let after = [member(1, true), member(3, false), member(5, true), member(6, true), member(7, false)];
        let farewells = HashSet::from_iter([NodeId(4), NodeId(1)]);
        let changes: Vec<_> = changes(&before, &after, GROUP, &farewells)
            .into_iter()
            .map(|(member, change)| (member.id.0, change))
            .collect();
        let expected = [
            (2, MemberChange::Failed),
            (3, MemberChange::Left),
            (4, MemberChange::Left),
            (5, MemberChange::Joined),
            (6, MemberChange::Joined),
        ];
        assert_eq!(changes, expected);
    }

    #[test]
    fn the_members_of_an_order_group_are_no_news() {
        let builder = Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
        let (driver, _) = builder.prepare().unwrap();
        let shared = Arc::clone(&driver.shared);
        let group = GroupId::of_name("g");
        let mut groups = [group, order_group(group)];
        groups.sort_unstable();
        let of_both = PublishedMember { groups: groups[..].into(), ..member(9, false) };
        shared.published.lock().unwrap().members = vec![of_both.clone()];
        let options = JoinOptions { order: Order::Total, members: true, ..JoinOptions::default() };
        let handle = shared.join(&["g"], &options).unwrap();
        let core = shared.core_for_node();
        core.out.tell_members(&[of_both], &[], &HashSet::new());
        drop(core);
        let events = std::iter::from_fn(|| handle.queue.try_pop().ok());
        let news: Vec<_> = events
            .map(|event| match event {
                Event::Member(news) => (news.group().to_owned(), news.change()),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [MemberChange::Joined, MemberChange::Failed].map(|change| ("g".to_owned(), change));
        assert_eq!(news, expected);
    }

    #[test]
    fn nodes_that_said_so_or_were_replaced_have_left_for_good() {
        let before = [member(1, true), member(2, true), member(3, true), member(4, true)];
        let again = PublishedMember { id: NodeId(9), ..member(3, true) };
        let farewells = HashSet::from_iter([NodeId(1), NodeId(2)]);
        let left = left_for_good(&before, &[member(1, true), again], &farewells);
        assert_eq!(left, [NodeId(2), NodeId(3)], "one stayed, and one may be cut off");
    }
}
