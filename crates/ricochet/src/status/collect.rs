//! Collects the [`Status`] of a running node.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use foundation::Reason;
use ricochet_core::GroupId;
use ricochet_core::bins::BinsCounts;
use ricochet_core::node::NodeCounts;

use super::{
    Counts, DealingsStatus, FlowStatus, GroupStatus, KeyStatus, PeerStatus, ReaderStatus, ReceptionStatus,
    RingStatus, Status, SubscriptionStatus, VolumeStatus, reasons, verdict,
};
use crate::clock;
use crate::config::follow_text;
use crate::forked::Forked;
use crate::key::KeyName;
use crate::published::{Published, PublishedMember};
use crate::ring::Ring;
use crate::shared::{Core, Gone, Shared};

impl Shared {
    pub(crate) fn status(&self) -> Status {
        if let Err(forked) = self.check_process() {
            return self.status_of_child(forked);
        }
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ip_groups = self.ip_groups.lock().unwrap_or_else(PoisonError::into_inner).len();
        let of = |ring: &Mutex<Ring>| {
            let ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
            (ring.len(), ring.dropped())
        };
        let (waiting, dropped) = of(&self.ring);
        let ring = RingStatus {
            waiting,
            capacity: self.config.buffers.ring,
            dropped,
            repairs_dropped: of(&self.repairs).1,
            requests_dropped: of(&self.requests).1,
        };
        let sent = self.transmitter.counts();
        let mut status = Status {
            schema: super::SCHEMA.to_owned(),
            id: self.id.to_string(),
            address: Some(self.address),
            uptime_ms: clock::now_us().saturating_sub(self.started_us) / 1_000,
            unicast: self.config.node.unicast,
            interface: published.interface.clone(),
            ip_groups,
            dropped: by_reason(published.dropped.iter()),
            kernel: published.kernel,
            sending: named([
                ("sent", sent.sent),
                ("full", sent.full),
                ("too_long", sent.too_long),
                ("refused", sent.refused),
            ]),
            ring,
            flow: FlowStatus {
                follow: follow_text(self.config.flow.follow),
                waiting: self.outgoing.len(),
                waiting_bytes: self.outgoing.bytes(),
                ..FlowStatus::default()
            },
            membership: of_membership(&published.membership),
            keys: self.key_status(),
            keys_read: published.keys_read,
            key_error: published.key_error.clone(),
            members_read: published.members_read,
            member_file_error: published.member_file_error.clone(),
            registry: self.registry.as_ref().map(|link| link.status()),
            ..Status::default()
        };
        match self.core() {
            Ok(core) => core.fill(&mut status, &published),
            Err(gone) => {
                status.peers =
                    published.members.iter().map(|member| peer(&published, member, None)).collect();
                if let Gone::Failed(why) = gone {
                    status.failed = Some(why);
                }
            }
        }
        status.windows = published.windows.as_ref().map(verdict::windows).unwrap_or_default();
        status.verdict = verdict::verdict(&status);
        status
    }

    /// Returns the status in the child of a fork, which must not lock the counters and tables of its parent.
    fn status_of_child(&self, forked: Forked) -> Status {
        let mut status = Status {
            schema: super::SCHEMA.to_owned(),
            id: self.id.to_string(),
            address: Some(self.address),
            failed: Some(forked.to_string()),
            ..Status::default()
        };
        status.verdict = verdict::verdict(&status);
        status
    }

    fn key_status(&self) -> Vec<KeyStatus> {
        let counts = self.keys.as_ref().map(|keys| keys.counts()).unwrap_or_default();
        let status = |(at, (name, accepted)): (usize, (KeyName, u64))| KeyStatus {
            name: name.to_string(),
            signs: at == 0,
            accepted,
        };
        counts.into_iter().enumerate().map(status).collect()
    }

    /// Returns the number of other nodes known to be in a group.
    pub(crate) fn members(&self, group: GroupId) -> usize {
        if self.is_forked() {
            return 0;
        }
        self.published.lock().unwrap_or_else(PoisonError::into_inner).members_of(group)
    }

    /// Waits until at least `count` other nodes are known to be in a group, the timeout is over, or the node
    /// ends. Returns whether there are that many.
    pub(crate) fn wait_for_members(&self, group: GroupId, count: usize, timeout: Duration) -> bool {
        if self.is_forked() {
            return false;
        }
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let too_few = |published: &Published| published.members_of(group) < count;
        let wait = |published: &mut Published| too_few(published) && !self.closing.load(Ordering::SeqCst);
        let waited = self.members_changed.wait_timeout_while(published, timeout, wait);
        let (published, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !too_few(&published)
    }
}

impl Core {
    fn fill(&self, status: &mut Status, published: &Published) {
        let counts = self.node.counts();
        status.counts = of_core(counts);
        status.bins = of_bins(self.node.bins().counts());
        status.unsound = by_reason(counts.unsound.iter());
        status.malformed = by_reason(counts.malformed.iter());
        let feedback = self.node.feedback(clock::now_us());
        status.sent = (&feedback.sent).into();
        status.received = (&feedback.received).into();
        let groups = self.out.groups.iter().map(|(&id, joined)| {
            let seen = feedback.groups.binary_search_by_key(&id, |group| group.group);
            let seen = seen.ok().map(|at| &feedback.groups[at]);
            GroupStatus {
                name: joined.name.to_string(),
                c: joined.c,
                members: published.members_of(id),
                order: self.out.totals.status(id),
                sent: seen.map_or_else(VolumeStatus::default, |group| group.sent.into()),
                messages_sent: seen.map_or(0, |group| group.messages_sent),
                reception: seen.map_or_else(ReceptionStatus::default, |group| (&group.reception).into()),
            }
        });
        status.groups = groups.collect();
        status.groups.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let dealings = |id| feedback.peers.iter().find(|peer| peer.peer == id).map(DealingsStatus::from);
        status.peers =
            published.members.iter().map(|member| peer(published, member, dealings(member.id))).collect();
        let consumers = self.out.consumers.iter().flatten().map(|consumer| SubscriptionStatus {
            waiting: consumer.queue.len(),
            capacity: consumer.queue.bounds().messages,
            waiting_bytes: consumer.queue.bytes(),
            capacity_bytes: consumer.queue.bounds().bytes,
            policy: consumer.queue.policy(),
            held: consumer.fifo.as_ref().map_or(0, |fifo| fifo.held()),
            counts: consumer.queue.counts(),
        });
        status.subscriptions = consumers.collect();
        status.flow.slow = self.out.readers.slow;
        status.flow.left_behind = self.out.readers.left_behind;
        status.flow.caught_up = self.out.readers.caught_up;
        status.flow.readers = self.readers();
        status.missing_runs = self.node.missing();
        status.unaddressed = self.out.unaddressed;
        status.addresses_forgotten = self.out.addresses.forgotten();
        status.payloads_made = self.out.pool().made();
        status.memory_bytes = self.node.memory_bytes() as u64;
    }
}

impl Core {
    /// Returns the readers that lag, or are left behind.
    fn readers(&self) -> Vec<ReaderStatus> {
        const LISTED_MAX: usize = 256;
        /// Number of packets that a reader may have to settle before it is listed.
        const BEHIND: u64 = 64;
        let of_group = |group| {
            let lags =
                |reader: &ricochet_core::flow::ReaderStatus| reader.behind > BEHIND || !reader.is_followed;
            self.node.readers(group).filter(lags).map(move |reader| ReaderStatus {
                group: group.to_string(),
                reader: reader.id.to_string(),
                behind: reader.behind,
                window: reader.window,
                followed: reader.is_followed,
            })
        };
        self.node.groups_sent_to().flat_map(of_group).take(LISTED_MAX).collect()
    }
}

fn peer(published: &Published, member: &PublishedMember, dealings: Option<DealingsStatus>) -> PeerStatus {
    let finding = published.findings.get(&member.id).cloned().unwrap_or_default();
    PeerStatus {
        id: member.id.to_string(),
        address: member.address,
        groups: member.groups.len(),
        dealings,
        settings_differ: finding.differs,
        hears_no_multicast: finding.is_deaf,
        multicast_unheard: finding.is_unheard,
    }
}

fn by_reason(counts: impl Iterator<Item = (impl Reason, u64)>) -> Counts {
    counts.map(|(reason, count)| (reason.name().to_owned(), count)).collect()
}

fn named<const N: usize>(counts: [(&str, u64); N]) -> Counts {
    counts.map(|(name, count)| (name.to_owned(), count)).into_iter().collect()
}

macro_rules! fields {
    ($counts:expr, $($field:ident),+ $(,)?) => { named([$((stringify!($field), $counts.$field)),+]) };
}

fn of_core(counts: &NodeCounts) -> Counts {
    fields!(
        counts,
        sent,
        delivered,
        repaired,
        requested,
        outdated,
        duplicates,
        too_old,
        no_room,
        doubtful,
        retracted,
        impostors,
        strangers,
        foreign,
        own,
        too_long,
        discovered,
        repairs_sent,
        repairs_yielded,
        repairs,
        repairs_redundant,
        repairs_useful,
        repairs_waiting,
        repairs_unusable,
        requests_sent,
        asked,
        asked_again,
        put_off,
        withheld,
        answered,
        denials_sent,
        not_held,
        refused,
        questions_sent,
        unasked,
        rooms_sent,
        probes_sent,
        heartbeats_sent,
    )
}

fn of_bins(counts: &BinsCounts) -> Counts {
    fields!(counts, packets, repairs, sent, additions, early, skipped)
}

fn of_membership(counts: &membership::Counts) -> Counts {
    let mut all = fields!(counts, sent, sent_bytes, received, lists, steps, rejoined);
    let with_prefix = |prefix: &str, counts: Counts| {
        counts.into_iter().map(|(name, count)| (format!("{prefix}_{name}"), count)).collect::<Counts>()
    };
    all.extend(with_prefix(reasons::MALFORMED, by_reason(counts.malformed.iter())));
    all.extend(with_prefix(reasons::DROPPED, by_reason(counts.dropped.iter())));
    all
}
