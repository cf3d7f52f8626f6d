//! The sign of life of a node that others know from a file.

use foundation::bytes::{Reader, Writer};
use ricochet_core::NodeId;

use super::header::Kind;
use super::swim::LIFE_MAX;
use crate::counters::Malformed;

const LEAVING: u8 = 1;
const ANSWER: u8 = 2;

/// Says which node lives at the address that the datagram comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    /// The node.
    pub id: NodeId,
    /// Start time of the node: of two lives at one address the later counts.
    pub life: u64,
    /// Number of the datagram within this life, which tells a replay from a new datagram.
    pub number: u32,
    /// Version of the node's list of groups.
    pub version: u32,
    /// Check of that list ([`list_check`](super::list_check)).
    pub check: u32,
    /// Whether the node is leaving.
    pub leaving: bool,
    /// Whether the node has not heard of the receiver, and asks for its presence datagram.
    pub answer: bool,
}

impl Presence {
    /// Length on the wire in bytes.
    pub const LEN: usize = 27;

    /// Returns the whole datagram.
    pub fn to_wire(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut writer = Writer::new(&mut bytes);
        writer.put(&Kind::Presence.to_wire());
        writer.put(&[(u8::from(self.leaving) * LEAVING) | (u8::from(self.answer) * ANSWER)]);
        writer.put(&self.id.0.to_be_bytes());
        writer.put(&self.life.to_be_bytes());
        writer.put(&self.number.to_be_bytes());
        writer.put(&self.version.to_be_bytes());
        writer.put(&self.check.to_be_bytes());
        bytes
    }

    pub(super) fn read(mut body: Reader<'_>) -> Result<Self, Malformed> {
        let flags = body.flags(LEAVING | ANSWER)?;
        let presence = Self {
            id: NodeId(body.u32()?),
            life: body.u64()?,
            number: body.u32()?,
            version: body.u32()?,
            check: body.u32()?,
            leaving: flags & LEAVING != 0,
            answer: flags & ANSWER != 0,
        };
        body.end()?;
        if presence.life > LIFE_MAX { Err(Malformed::Reserved) } else { Ok(presence) }
    }
}
