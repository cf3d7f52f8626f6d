//! The greetings of the node: their datagrams, their news, and the copies for members that are deaf.

use std::mem;
use std::net::SocketAddr;
use std::sync::PoisonError;

use hashbrown::HashMap;
use netio::multicast::Outbox;
use ricochet_core::{GroupId, NodeId};

use super::{MembershipDriver, MembershipOutput};
use crate::addresses::GroupAddresses;
use crate::greetings::{Destination, GREETING_MAX, Greeting, Greetings, News};
use crate::ring::Slot;
use crate::shared::{Core, Shared};

/// Time for which messages are announced again to a member that is found deaf, in microseconds.
const LATELY_US: u64 = 30_000_000;

/// The greetings, and what they need of the node.
pub(crate) struct GreetingsDriver {
    pub(crate) greetings: Greetings,
    pub(crate) group_addresses: GroupAddresses,
    /// Version of the members that the greetings know.
    version: u64,
    /// Whether there may be news.
    is_touched: bool,
}

impl GreetingsDriver {
    pub(crate) fn new(greetings: Greetings, group_addresses: GroupAddresses) -> Self {
        Self { greetings, group_addresses, version: u64::MAX, is_touched: false }
    }

    /// Handles a greeting that came. Returns the member that leaves, if it says so.
    pub(super) fn handle(
        &mut self,
        now_us: u64,
        slot: &Slot,
        shared: &Shared,
        output: &mut MembershipOutput,
    ) -> Option<NodeId> {
        let greeting = Greeting::read(slot.datagram()).ok()?;
        if let Greeting::Farewell { from } = greeting {
            return Some(from).filter(|&from| self.greetings.is_member(from, slot.from()));
        }
        let heard = if let Greeting::Question(_) = greeting {
            let sightings = shared.sightings.lock().unwrap_or_else(PoisonError::into_inner);
            sightings.of(now_us, slot.from(), &self.group_addresses)
        } else {
            Some(0)
        };
        if let Some(answer) = self.greetings.handle(now_us, slot.from(), &greeting, heard) {
            let mut bytes = [0; GREETING_MAX];
            let length = answer.write(&mut bytes);
            membership::Output::send(output, slot.from(), &bytes[..length]);
        }
        self.is_touched = true;
        None
    }

    /// Continues with the members of the membership that the core knows, if they have changed.
    pub(super) fn set_members(&mut self, now_us: u64, membership: &MembershipDriver) {
        let MembershipDriver { provider, version, .. } = membership;
        if self.version == *version {
            return;
        }
        (self.version, self.is_touched) = (*version, true);
        let Self { greetings, group_addresses, .. } = self;
        let bits = |groups: &[GroupId]| groups.iter().fold(0, |all, &group| all | group_addresses.bit(group));
        let members = provider.members().map(|member| (member.id, member.address, bits(&member.groups)));
        greetings.set_members(now_us, members);
    }

    /// Sends what is due, and tells what was found.
    pub(super) fn handle_timeout(
        &mut self,
        now_us: u64,
        core: &mut Core,
        shared: &Shared,
        output: &mut MembershipOutput,
    ) {
        let Self { greetings, group_addresses, is_touched, .. } = self;
        let is_new = greetings.set_sent_to(now_us, core.out.sent_to);
        let is_due = greetings.poll_timeout().is_some_and(|due_us| due_us <= now_us);
        if !mem::take(is_touched) && !is_new && !is_due {
            return;
        }
        let mut sent = false;
        greetings.handle_timeout(now_us, |to, datagram| {
            sent = true;
            match to {
                Destination::Member(to) => membership::Output::send(output, to, datagram),
                Destination::Multicast(number) => {
                    let Some(to) = group_addresses.at(number) else { return };
                    multicast(output, to, datagram);
                }
            }
        });
        if sent {
            output.outbox.flush();
        }
        let news = greetings.take_news();
        let deaf = greetings.take_deaf();
        let has_news = !news.is_empty() || deaf.is_some();
        news.iter().for_each(tell);
        let mut published = shared.published.lock().unwrap_or_else(PoisonError::into_inner);
        let is_deaf = news.iter().any(|news| matches!(news, News::Deaf(_)));
        if is_deaf {
            published.deaf_us = Some(now_us);
        }
        let (tested, is_testing) = (core.out.sent_to, !greetings.is_settled());
        if (published.tested, published.is_testing) != (tested, is_testing) {
            (published.tested, published.is_testing) = (tested, is_testing);
            shared.members_changed.notify_all();
        }
        if has_news || core.out.tells_all {
            published.findings = greetings.findings(core.out.tells_all).collect();
        }
        let Some(deaf) = deaf else { return };
        let mut copies: HashMap<GroupId, Vec<SocketAddr>> = HashMap::new();
        for (address, id, bits) in deaf {
            let member = published.members.iter().find(|member| member.id == id);
            for &group in member.into_iter().flat_map(|member| member.groups.iter()) {
                if bits & group_addresses.bit(group) != 0 {
                    copies.entry(group).or_default().push(address);
                }
            }
        }
        drop(published);
        core.out.addresses.set_deaf(copies);
        if is_deaf {
            core.node.announce_again(now_us, now_us.saturating_sub(LATELY_US));
        }
    }
}

fn multicast(output: &mut MembershipOutput, to: SocketAddr, datagram: &[u8]) {
    let MembershipOutput { outbox, seal } = output;
    let push = |outbox: &mut Outbox, pieces: &[&[u8]]| outbox.push(to, pieces);
    match seal {
        Some(seal) => push(outbox, &[datagram, &seal.trailer(None, datagram)]),
        None => push(outbox, &[datagram]),
    }
}

fn tell(news: &News) {
    match news {
        News::Differs(member, differences) => tracing::warn!(
            %member,
            differences,
            "settings differ from those of another member: they must be the same in the whole cluster"
        ),
        News::Deaf(member) => tracing::warn!(
            %member,
            "a member does not hear this node's multicast and gets copies by unicast: look for a filter, or set \
             `node.unicast` on all members"
        ),
        News::Hears(member) => tracing::info!(%member, "a member hears this node's multicast again"),
        News::Unheard(member) => tracing::warn!(
            %member,
            "this node does not hear the multicast of a member and gets copies by unicast: look for a filter, \
             or set `node.unicast` on all members"
        ),
        News::Heard(member) => tracing::info!(%member, "this node hears the multicast of a member again"),
    }
}
