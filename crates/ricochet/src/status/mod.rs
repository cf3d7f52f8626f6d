//! The status of a running node.
//!
//! The control socket serves it as one JSON document: [`Status`], field by field.
//! Fields are added, never renamed; [`SCHEMA`] names the document.

mod collect;
mod feedback;
mod verdict;

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::Policy;
use crate::queue::QueueCounts;

pub use feedback::{DealingsStatus, LatencyStatus, ReceptionStatus, TrafficStatus, VolumeStatus};
pub use verdict::{VerdictStatus, WindowStatus};

/// Maximum length in bytes of a document that is read.
const DOCUMENT_BYTES_MAX: u64 = 1 << 26;
/// Time that a node has to answer: its thread answers between two batches.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Schema of the document, with its version: it rises when a field is removed or gets another meaning.
pub const SCHEMA: &str = "undrop.node.status/1";

/// Reasons in the counts of a status, with their texts.
pub mod reasons {
    pub use foundation::Reason;
    pub use membership::counters::{Dropped as MembershipDropped, Malformed as MembershipMalformed};
    pub use ricochet_core::counters::{Malformed, Unsound};

    pub use crate::filter::Dropped;

    /// Prefix of the names of [`MembershipMalformed`] among the counts of the membership.
    pub const MALFORMED: &str = "malformed";
    /// Prefix of the names of [`MembershipDropped`] there.
    pub const DROPPED: &str = "dropped";
}

/// Counts by name. Names are stable and in snake case; [`reasons`] has their texts.
pub type Counts = BTreeMap<String, u64>;

/// State of a node at one moment. Counters run since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Name and version of this schema.
    #[serde(default)]
    pub schema: String,
    /// Identifier of this life of the node.
    pub id: String,
    /// Address that the node sends from and receives at.
    pub address: Option<SocketAddr>,
    /// Milliseconds since its start.
    pub uptime_ms: u64,
    /// Whether packets go to each member by unicast.
    pub unicast: bool,
    /// Reason why the node's thread has ended, if it has failed.
    pub failed: Option<String>,
    /// The verdict about the node.
    #[serde(default)]
    pub verdict: VerdictStatus,
    /// Counts of the last ten seconds, five minutes, and hour.
    #[serde(default)]
    pub windows: Vec<WindowStatus>,
    /// Groups that the node is in, by name.
    pub groups: Vec<GroupStatus>,
    /// Subscriptions to these groups.
    pub subscriptions: Vec<SubscriptionStatus>,
    /// Other nodes that the node knows.
    pub peers: Vec<PeerStatus>,
    /// The network interface.
    pub interface: InterfaceStatus,
    /// Number of IP groups joined.
    pub ip_groups: usize,
    /// Datagrams sent, by kind.
    pub sent: TrafficStatus,
    /// Datagrams received, by kind.
    pub received: TrafficStatus,
    /// Counters of the protocol.
    pub counts: Counts,
    /// Counters of the repair bins.
    pub bins: Counts,
    /// Repairs from which a packet was recovered that does not match its name, by mismatch.
    pub unsound: Counts,
    /// Datagrams that could not be read, by reason.
    pub malformed: Counts,
    /// Datagrams dropped before they reached the core, by reason.
    pub dropped: Counts,
    /// Counters of the receiving sockets.
    pub kernel: KernelCounts,
    /// Counters of the sending socket: datagrams that the kernel accepted, and
    /// those that it refused, by reason.
    pub sending: Counts,
    /// The ring between the sockets and the core.
    pub ring: RingStatus,
    /// Flow control of what the node sends.
    #[serde(default)]
    pub flow: FlowStatus,
    /// Counters of the membership.
    pub membership: Counts,
    /// The cluster keys; the first one signs.
    #[serde(default)]
    pub keys: Vec<KeyStatus>,
    /// Number of times that the key file was read again.
    #[serde(default)]
    pub keys_read: u64,
    /// Why the key file could not be read the last time. The node continues with the keys that it has.
    #[serde(default)]
    pub key_error: Option<String>,
    /// Number of times that the file of members was read again.
    #[serde(default)]
    pub members_read: u64,
    /// Why the file of members could not be read the last time. The node continues with the members that it
    /// has.
    #[serde(default)]
    pub member_file_error: Option<String>,
    /// The registry that the members come from: etcd or Kubernetes.
    #[serde(default)]
    pub registry: Option<RegistryStatus>,
    /// Number of runs of packets known to be missing.
    pub missing_runs: usize,
    /// Datagrams not sent because the address of their receiver is unknown.
    pub unaddressed: u64,
    /// Payload buffers allocated.
    pub payloads_made: u64,
    /// Senders outside of the membership whose address was forgotten to make room for another's.
    pub addresses_forgotten: u64,
    /// Memory held for packets and repairs, in bytes.
    pub memory_bytes: u64,
}

/// State of a group that the node is in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Name of the group.
    pub name: String,
    /// Number of repairs that each of its packets enters.
    pub c: u8,
    /// Number of other nodes known to be in it.
    pub members: usize,
    /// Data packets that this node sent to it.
    pub sent: VolumeStatus,
    /// Messages in them. A long message counts once for each of its packets.
    #[serde(default)]
    pub messages_sent: u64,
    /// Data packets from other nodes.
    pub reception: ReceptionStatus,
    /// State of its total order, if a subscription wants that.
    pub order: Option<TotalStatus>,
}

/// State of a total order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TotalStatus {
    /// Node that numbers the messages; null as long as this node is no member.
    pub sequencer: Option<String>,
    /// Number of members that agreed to the present epoch.
    pub members: usize,
    /// The next number.
    pub next: u64,
    /// The next number to deliver.
    pub delivered: u64,
    /// Messages kept.
    pub held: usize,
    /// Whether messages wait because no majority is heard, or no order has begun.
    pub stalled: bool,
    /// Epochs that this node has taken part in.
    pub epochs: u64,
    /// Positions reported as lost.
    pub lost: u64,
    /// Times that this node had delivered otherwise than the others agreed.
    pub broken: u64,
    /// Messages for which there was no room before they were numbered. They are reported as lost if they come
    /// from no other member.
    #[serde(default)]
    pub crowded: u64,
    /// Packets of nodes that had no right to send them.
    pub unauthorized: u64,
}

/// A cluster key that the node accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyStatus {
    /// Name of the key, which reveals nothing of it.
    pub name: String,
    /// Whether the node signs with it.
    pub signs: bool,
    /// Number of datagrams from other nodes that it authenticated.
    pub accepted: u64,
}

/// State of a subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionStatus {
    /// Number of messages that wait.
    pub waiting: usize,
    /// Maximum number of messages that may wait.
    pub capacity: usize,
    /// Number of bytes that wait.
    #[serde(default)]
    pub waiting_bytes: usize,
    /// Maximum number of bytes that may wait.
    #[serde(default)]
    pub capacity_bytes: usize,
    /// Treatment of messages that come while the queue is full.
    pub policy: Policy,
    /// Number of messages held back because earlier ones are missing.
    pub held: usize,
    /// Counters of the queue.
    pub counts: QueueCounts,
}

/// State of another node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Identifier of the node, constant throughout its life.
    pub id: String,
    /// Address of the node.
    pub address: SocketAddr,
    /// Number of groups that it is in.
    pub groups: usize,
    /// Traffic between this node and the other; absent if there was none.
    pub dealings: Option<DealingsStatus>,
    /// Settings that must be the same in the whole cluster and differ: what they are here and there.
    #[serde(default)]
    pub settings_differ: Vec<String>,
    /// Whether the other does not hear this node's multicast and gets copies by unicast.
    #[serde(default)]
    pub hears_no_multicast: bool,
    /// Whether this node does not hear the other's multicast and gets copies by unicast.
    #[serde(default)]
    pub multicast_unheard: bool,
}

/// Counters of the receiving sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KernelCounts {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams that the kernel dropped because a socket's buffer was full (SO_RXQ_OVFL).
    pub overflowed: u64,
    /// Datagrams to the groups' port that were not multicast, or came by another interface.
    pub not_for_us: u64,
    /// Datagrams dropped because they were longer than the receive buffer.
    pub truncated: u64,
    /// Receive calls that failed for a temporary reason, such as an interface that is down.
    pub failed: u64,
}

/// State of the interface that groups are joined on and sent by. The node checks it every second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InterfaceStatus {
    /// Name of the interface.
    pub name: String,
    /// Whether an interface of this name exists and the node uses it.
    pub present: bool,
    /// Times that the interface was deleted and created again, and the node
    /// rejoined its groups on the new one.
    pub made_again: u64,
    /// Times that this failed; the node retries every second.
    pub failed: u64,
}

/// State of the registry that the members come from. While it is away, the members stay as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryStatus {
    /// `etcd` or `Kubernetes`.
    pub kind: String,
    /// Address of the server that was reached last.
    pub endpoint: Option<String>,
    /// Whether the changes of members arrive.
    pub reached: bool,
    /// Whether this node's entry is stored, as far as the node knows. Kubernetes registers nodes itself.
    pub registered: bool,
    /// Times that this node was registered, or registered again.
    pub registrations: u64,
    /// Times that all members were read: at the start, and whenever changes may have been missed.
    pub lists: u64,
    /// Times that the registry was lost.
    pub lost: u64,
    /// Entries that could not be read.
    pub unreadable: u64,
    /// Why the changes do not arrive, or why this node's entry is not stored.
    pub error: Option<String>,
}

/// Flow control of what a node sends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowStatus {
    /// The readers that the node follows: `all`, `quorum:K`, `max` or `off`.
    pub follow: String,
    /// Number of packets that wait for their readers.
    pub waiting: usize,
    /// Number of bytes of these packets.
    #[serde(default)]
    pub waiting_bytes: usize,
    /// Times that a reader held up the messages to its group.
    pub slow: u64,
    /// Times that a reader was left behind.
    pub left_behind: u64,
    /// Times that such a reader has caught up.
    pub caught_up: u64,
    /// Readers with many packets to settle, and those that are left behind; at most 256.
    pub readers: Vec<ReaderStatus>,
}

/// A reader of what a node sends to a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderStatus {
    /// Identifier of the group.
    pub group: String,
    /// Identifier of the reader.
    pub reader: String,
    /// Number of packets sent that it has not settled, as of its last report.
    pub behind: u64,
    /// Number of packets for which it has room.
    pub window: u32,
    /// Whether the node follows it.
    pub followed: bool,
}

/// State of the ring between the sockets and the core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RingStatus {
    /// Number of datagrams that wait.
    pub waiting: usize,
    /// Maximum number of datagrams that may wait.
    pub capacity: usize,
    /// Datagrams dropped to make room for others.
    pub dropped: u64,
    /// Repairs dropped because packets came first.
    #[serde(default)]
    pub repairs_dropped: u64,
    /// Requests and questions dropped because there were too many.
    #[serde(default)]
    pub requests_dropped: u64,
}

impl Status {
    /// Requests the status of the node with this control socket.
    ///
    /// # Errors
    /// If no node answers at the socket, or its answer is not a status.
    pub fn ask(control: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(control)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut document = Vec::new();
        stream.take(DOCUMENT_BYTES_MAX).read_to_end(&mut document)?;
        serde_json::from_slice(&document).map_err(io::Error::other)
    }
}
