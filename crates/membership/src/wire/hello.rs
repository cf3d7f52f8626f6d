//! The sign of life of a node that others know from a file.

use ricochet_core::NodeId;

use super::swim::LIFE_MAX;
use super::{Kind, Reader, Writer};
use crate::counters::Malformed;

const LEAVING: u8 = 1;
const ANSWER: u8 = 2;

/// Who is at the address that this comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The node.
    pub id: NodeId,
    /// When it started: of two lives at one address the later counts.
    pub life: u64,
    /// Counts the Hellos of this life, so that one that is sent again by somebody else is told from a new one.
    pub number: u32,
    /// Version of its list.
    pub version: u32,
    /// Check of its list ([`list_check`](super::list_check)).
    pub check: u32,
    /// It leaves now.
    pub leaving: bool,
    /// It has not heard of the receiver, and asks for a Hello.
    pub answer: bool,
}

impl Hello {
    /// Length on the wire in bytes.
    pub const LEN: usize = 27;

    /// The whole datagram.
    pub fn to_wire(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut writer = Writer::new(&mut bytes);
        writer.put(&Kind::Hello.to_wire());
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
        let hello = Self {
            id: NodeId(body.u32()?),
            life: body.u64()?,
            number: body.u32()?,
            version: body.u32()?,
            check: body.u32()?,
            leaving: flags & LEAVING != 0,
            answer: flags & ANSWER != 0,
        };
        body.end()?;
        if hello.life > LIFE_MAX { Err(Malformed::Reserved) } else { Ok(hello) }
    }
}
