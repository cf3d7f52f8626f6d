//! Packet names: the short identifiers that recipes use.

use foundation::bytes::Writer;

use crate::ids::{GroupTag, NodeId};

/// Length of a name: sender (4), group (4), sequence number (4).
pub const NAME: usize = 12;

/// Name of a data packet in a recipe (Ricochet §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Sender of the packet.
    pub sender: NodeId,
    /// Short form of its group. It is enough because the sender and the receiver of a repair are both in the
    /// group.
    pub group: GroupTag,
    /// Low 32 bits of its sequence number.
    pub seq: u32,
}

impl Name {
    pub(super) fn to_wire(self) -> [u8; NAME] {
        let mut bytes = [0; NAME];
        let mut writer = Writer::new(&mut bytes);
        writer.put(&self.sender.0.to_be_bytes());
        writer.put(&self.group.0.to_be_bytes());
        writer.put(&self.seq.to_be_bytes());
        bytes
    }

    pub(super) fn from_wire(bytes: [u8; NAME]) -> Self {
        let [sender, group, seq] =
            [0, 4, 8].map(|at| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
        Self { sender: NodeId(sender), group: GroupTag(group), seq }
    }
}
