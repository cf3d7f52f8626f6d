//! What a running node tells of itself.
//!
//! Over the control socket it is one JSON document, this file's [`Status`] field by field. Fields are added, never renamed.

mod feedback;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ricochet_core::bins::BinsCounts;
use ricochet_core::node::NodeCounts;
use ricochet_core::{GroupId, NodeId};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::filter::DroppedCounts;
use crate::queue::{Policy, QueueCounts};
use crate::shared::{Core, Gone, Shared};

pub use feedback::{DealingsStatus, LatencyStatus, ReceptionStatus, TrafficStatus, VolumeStatus};

/// Largest document that is read, in bytes.
const DOCUMENT_BYTES_MAX: u64 = 1 << 26;
/// How long a node may take to answer: its thread answers between two batches.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Counts by what is counted.
pub type Counts = BTreeMap<String, u64>;

/// A node at one moment. Counts run since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// This life of the node.
    pub id: String,
    /// The address that it sends from and is reached at.
    pub address: Option<SocketAddr>,
    /// Milliseconds since its start.
    pub uptime_ms: u64,
    /// Whether packets go to each member by itself.
    pub unicast: bool,
    /// Why its thread has ended, if it has failed.
    pub failed: Option<String>,
    /// The groups that it is in, by name.
    pub groups: Vec<GroupStatus>,
    /// Those who take their messages.
    pub subscriptions: Vec<SubscriptionStatus>,
    /// The other nodes that it knows.
    pub peers: Vec<PeerStatus>,
    /// The interface.
    pub interface: InterfaceStatus,
    /// IP groups joined.
    pub ip_groups: usize,
    /// Datagrams that it sent, by kind.
    pub sent: TrafficStatus,
    /// Datagrams that came, by kind.
    pub received: TrafficStatus,
    /// What it has done (`ricochet_core::node::NodeCounts`).
    pub counts: Counts,
    /// What its repair bins have done (`ricochet_core::bins::BinsCounts`).
    pub bins: Counts,
    /// Repairs that brought back something else than they named, by what was wrong.
    pub unsound: Counts,
    /// Datagrams that made no sense, by reason.
    pub malformed: Counts,
    /// Datagrams dropped before anything was made of them, by reason.
    pub dropped: Counts,
    /// The receiving sockets.
    pub kernel: KernelCounts,
    /// The sending socket: datagrams that the kernel took, and those that it did not, by reason.
    pub sending: Counts,
    /// Between the sockets and the core.
    pub ring: RingStatus,
    /// The membership, by what is counted.
    pub membership: Counts,
    /// Packets known to be missing, in runs.
    pub missing_runs: usize,
    /// Datagrams not sent since nobody knows where their receiver is.
    pub unaddressed: u64,
    /// Payload buffers made.
    pub payloads_made: u64,
    /// Senders outside of the membership whose address was forgotten to make room for another's.
    pub addresses_forgotten: u64,
    /// Memory held for packets and repairs, in bytes.
    pub memory_bytes: u64,
}

/// A group that the node is in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// Repairs that each packet of it enters.
    pub c: u8,
    /// Other nodes known to be in it.
    pub members: usize,
    /// Data packets that this node sent to it.
    pub sent: VolumeStatus,
    /// Data packets from others.
    pub reception: ReceptionStatus,
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionStatus {
    /// Messages that wait.
    pub waiting: usize,
    /// Messages that may.
    pub capacity: usize,
    /// What happens to others.
    pub policy: Policy,
    /// Messages held back, since earlier ones are missing.
    pub held: usize,
    /// What its queue has done.
    pub counts: QueueCounts,
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name, the same all its life.
    pub id: String,
    /// Where it is.
    pub address: SocketAddr,
    /// In how many groups it is.
    pub groups: usize,
    /// What this node has had to do with it; nothing if left out.
    pub dealings: Option<DealingsStatus>,
}

/// What the receiving sockets have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KernelCounts {
    /// Datagrams received.
    pub received: u64,
    /// Arrivals that the kernel dropped, since a socket's buffer was full (SO_RXQ_OVFL).
    pub overflowed: u64,
    /// Datagrams to the groups' port that were not multicast, or came by another interface.
    pub not_for_us: u64,
    /// Arrivals dropped because they had no room.
    pub truncated: u64,
    /// Receives that the kernel refused for a reason that passes, such as an interface that is down.
    pub failed: u64,
}

/// The interface that groups are joined on and sent by. It is looked at every second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// Whether there is one of this name; and if it was made again, whether the node uses it again.
    pub present: bool,
    /// Times that it was deleted and made again, and the groups were joined anew.
    pub made_again: u64,
    /// Times that this failed; it is tried again every second.
    pub failed: u64,
}

/// The ring between the sockets and the core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RingStatus {
    /// Datagrams that wait.
    pub waiting: usize,
    /// Datagrams that may.
    pub capacity: usize,
    /// Datagrams that made room for others.
    pub dropped: u64,
}

/// What the node's threads tell for others to see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published {
    pub(crate) kernel: KernelCounts,
    pub(crate) dropped: DroppedCounts,
    pub(crate) interface: InterfaceStatus,
    pub(crate) peers: Vec<PublishedPeer>,
    pub(crate) membership: membership::Counts,
}

/// A peer and its groups.
#[derive(Clone, Debug)]
pub(crate) struct PublishedPeer {
    pub(crate) id: NodeId,
    pub(crate) address: SocketAddr,
    pub(crate) groups: Arc<[GroupId]>,
}

impl Status {
    /// Asks the node whose control socket this is.
    ///
    /// # Errors
    /// When there is none, or what it says is no status.
    pub fn ask(control: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(control)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut document = Vec::new();
        stream.take(DOCUMENT_BYTES_MAX).read_to_end(&mut document)?;
        serde_json::from_slice(&document).map_err(io::Error::other)
    }
}

impl Shared {
    pub(crate) fn status(&self) -> Status {
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ip_groups = self.ip_groups.lock().unwrap_or_else(PoisonError::into_inner).len();
        let ring = {
            let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            RingStatus { waiting: ring.len(), capacity: self.config.buffers.ring, dropped: ring.dropped() }
        };
        let sent = self.core_at_last().out.sent();
        let mut status = Status {
            id: self.id.to_string(),
            address: Some(self.address),
            uptime_ms: clock::now_us().saturating_sub(self.started_us) / 1_000,
            unicast: self.config.node.unicast,
            interface: published.interface,
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
            membership: of_membership(&published.membership),
            ..Status::default()
        };
        match self.core() {
            Ok(core) => core.tell(&mut status, &published.peers),
            Err(gone) => {
                status.peers = published.peers.iter().map(PublishedPeer::status).collect();
                if let Gone::Failed(why) = gone {
                    status.failed = Some(why);
                }
            }
        }
        status
    }

    /// How many other nodes are known to be in a group.
    pub(crate) fn members(&self, group: GroupId) -> usize {
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        members(&published.peers, group)
    }

    /// Waits until as many are, or the node ends.
    pub(crate) fn wait_for_members(&self, group: GroupId, count: usize, timeout: Duration) -> bool {
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let too_few = |published: &mut Published| members(&published.peers, group) < count;
        let wait = |published: &mut Published| too_few(published) && !self.closing.load(Ordering::SeqCst);
        let waited = self.peers_changed.wait_timeout_while(published, timeout, wait);
        let (mut published, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !too_few(&mut published)
    }
}

impl Core {
    fn tell(&self, status: &mut Status, peers: &[PublishedPeer]) {
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
                members: members(peers, id),
                sent: seen.map_or_else(VolumeStatus::default, |group| group.sent.into()),
                reception: seen.map_or_else(ReceptionStatus::default, |group| (&group.reception).into()),
            }
        });
        status.groups = groups.collect();
        let dealings = |id| feedback.peers.iter().find(|peer| peer.peer == id).map(DealingsStatus::from);
        status.peers =
            peers.iter().map(|peer| PeerStatus { dealings: dealings(peer.id), ..peer.status() }).collect();
        status.groups.sort_by(|a, b| a.name.cmp(&b.name));
        let takers = self.out.takers.iter().flatten().map(|taker| SubscriptionStatus {
            waiting: taker.queue.len(),
            capacity: taker.queue.capacity(),
            policy: taker.queue.policy(),
            held: taker.fifo.as_ref().map_or(0, |fifo| fifo.held()),
            counts: taker.queue.counts(),
        });
        status.subscriptions = takers.collect();
        status.missing_runs = self.node.missing();
        status.unaddressed = self.out.unaddressed;
        status.addresses_forgotten = self.out.book.forgotten();
        status.payloads_made = self.out.pool().made();
        status.memory_bytes = self.node.memory_bytes() as u64;
    }
}

impl PublishedPeer {
    fn status(&self) -> PeerStatus {
        let groups = self.groups.len();
        PeerStatus { id: self.id.to_string(), address: self.address, groups, dealings: None }
    }
}

fn members(peers: &[PublishedPeer], group: GroupId) -> usize {
    peers.iter().filter(|peer| peer.groups.binary_search(&group).is_ok()).count()
}

fn by_reason(counts: impl Iterator<Item = (impl Display, u64)>) -> Counts {
    counts.map(|(reason, count)| (reason.to_string(), count)).collect()
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
        duplicates,
        too_old,
        no_room,
        foreign,
        own,
        too_long,
        discovered,
        repairs_sent,
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
        not_held,
        refused,
        heartbeats_sent,
    )
}

fn of_bins(counts: &BinsCounts) -> Counts {
    fields!(counts, packets, repairs, sent, additions, early, skipped)
}

fn of_membership(counts: &membership::Counts) -> Counts {
    let mut all = fields!(counts, sent, sent_bytes, received, lists, steps, rejoined);
    all.extend(by_reason(counts.malformed.iter()));
    all.extend(by_reason(counts.dropped.iter()));
    all
}
