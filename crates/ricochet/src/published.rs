//! State that the node's threads publish for [`Status`](crate::Status).

use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use ricochet_core::{GroupId, NodeId};

use crate::filter::DroppedCounts;
use crate::greetings::Finding;
use crate::status::{InterfaceStatus, KernelCounts};

/// State of the node's threads as of their last round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published {
    pub(crate) kernel: KernelCounts,
    pub(crate) dropped: DroppedCounts,
    pub(crate) interface: InterfaceStatus,
    pub(crate) members: Vec<PublishedMember>,
    pub(crate) membership: membership::Counts,
    /// Findings of the greetings about other members.
    pub(crate) findings: HashMap<NodeId, Finding>,
    /// Bits of the multicast addresses that the node has sent to, as far as the greetings know.
    pub(crate) tested: u64,
    /// Whether greetings still test members.
    pub(crate) is_testing: bool,
    /// Time at which a member was last found deaf.
    pub(crate) deaf_us: Option<u64>,
    /// Number of times that the key file was read again.
    pub(crate) keys_read: u64,
    /// Why the key file could not be read the last time.
    pub(crate) key_error: Option<String>,
    /// Number of times that the file of members was read again.
    pub(crate) members_read: u64,
    /// Why the file of members could not be read the last time.
    pub(crate) member_file_error: Option<String>,
    /// Counts of the last seconds, minutes and hour.
    pub(crate) windows: Option<crate::course::Published>,
}

/// Another node of the cluster and its groups.
#[derive(Clone, Debug)]
pub(crate) struct PublishedMember {
    pub(crate) id: NodeId,
    pub(crate) address: SocketAddr,
    /// In ascending order.
    pub(crate) groups: Arc<[GroupId]>,
}

impl Published {
    /// Returns the number of other nodes known to be in a group.
    pub(crate) fn members_of(&self, group: GroupId) -> usize {
        self.members.iter().filter(|member| member.groups.binary_search(&group).is_ok()).count()
    }
}
