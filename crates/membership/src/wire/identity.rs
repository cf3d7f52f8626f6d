//! The question which node lives at an address, and the answer. The answer repeats a token that only a node
//! which receives at the address has seen. Nothing else proves who lives there.

use foundation::bytes::{Reader, Writer};
use ricochet_core::NodeId;

use super::header::Kind;
use super::swim::LIFE_MAX;
use crate::counters::Malformed;

/// Asks for the identity of the node at the receiver's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityQuestion {
    /// Random number that the answer must repeat.
    pub token: u64,
    /// Node that asks.
    pub id: NodeId,
    /// Its life.
    pub life: u64,
}

impl IdentityQuestion {
    /// Length on the wire in bytes.
    pub const LEN: usize = 22;

    /// Returns the whole datagram.
    pub fn to_wire(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut writer = Writer::new(&mut bytes);
        writer.put(&Kind::IdentityQuestion.to_wire());
        writer.put(&self.token.to_be_bytes());
        writer.put(&self.id.0.to_be_bytes());
        writer.put(&self.life.to_be_bytes());
        bytes
    }

    pub(super) fn read(mut body: Reader<'_>) -> Result<Self, Malformed> {
        let question = Self { token: body.u64()?, id: NodeId(body.u32()?), life: body.u64()? };
        body.end()?;
        if question.life > LIFE_MAX { Err(Malformed::Reserved) } else { Ok(question) }
    }
}

/// States which node lives at the sender's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityAnswer {
    /// Token of the question.
    pub token: u64,
    /// The node.
    pub id: NodeId,
    /// Its life.
    pub life: u64,
    /// Version of its list of groups.
    pub version: u32,
    /// Check of that list ([`list_check`](super::list_check)).
    pub check: u32,
}

impl IdentityAnswer {
    /// Length on the wire in bytes.
    pub const LEN: usize = 30;

    /// Returns the whole datagram.
    pub fn to_wire(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut writer = Writer::new(&mut bytes);
        writer.put(&Kind::IdentityAnswer.to_wire());
        writer.put(&self.token.to_be_bytes());
        writer.put(&self.id.0.to_be_bytes());
        writer.put(&self.life.to_be_bytes());
        writer.put(&self.version.to_be_bytes());
        writer.put(&self.check.to_be_bytes());
        bytes
    }

    pub(super) fn read(mut body: Reader<'_>) -> Result<Self, Malformed> {
        let answer = Self {
            token: body.u64()?,
            id: NodeId(body.u32()?),
            life: body.u64()?,
            version: body.u32()?,
            check: body.u32()?,
        };
        body.end()?;
        if answer.life > LIFE_MAX { Err(Malformed::Reserved) } else { Ok(answer) }
    }
}
