//! The policy of a full queue.

use serde::{Deserialize, Serialize};

/// Treatment of messages for which a subscription's queue has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Policy {
    /// The node waits: it processes no packets, for any subscription, until there is room. Packets
    /// that come meanwhile fill the ring, and then the kernel's buffer. Once that is full, a part of
    /// them is lost and requested again. No packet is reported lost before all packets in the ring
    /// have been processed. Afterwards `give_up_after` applies.
    ///
    /// Own messages in total order are not dropped either: once the queue is full, sending to the group waits
    /// for the reader. A thread that reads and sends should use
    /// [`Sender::try_send`](crate::Sender::try_send), unless it sends no more messages than it has read.
    Block,
    /// The oldest message in the queue is dropped, and reported by [`Event::Lost`](crate::Event::Lost).
    #[default]
    DropOldest,
    /// The new message is dropped, and reported by [`Event::Lost`](crate::Event::Lost).
    DropNewest,
}

impl Policy {
    /// Returns the policy for messages that cannot be made to wait.
    pub(crate) fn without_waiting(self) -> Self {
        if self == Self::Block { Self::DropNewest } else { self }
    }
}
