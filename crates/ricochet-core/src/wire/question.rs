//! Questions to a sender about its newest packet, and the answers. A receiver believes a sender's answer
//! about its sequence numbers more than any other datagram: the answer repeats a token that only the node at
//! the sender's address has seen.

use foundation::bytes::{Reader, Writer};

use super::kind::Kind;
use crate::counters::Malformed;
use crate::ids::{GroupId, NodeId};

/// Length of a question: kind, reserved byte, sender (4), token (8), group (8).
pub const QUESTION: usize = 22;
/// Length of an answer: kind, flags, sender (4), token (8), group (8), newest sequence number (4).
pub const ANSWER: usize = 26;

const HAS_SENT: u8 = 1;

/// Asks a sender for the newest packet that it sent to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Node that asks.
    pub from: NodeId,
    /// Random number that the answer must repeat.
    pub token: u64,
    /// The group.
    pub group: GroupId,
}

impl Question {
    /// Writes the question to the front of `to`; returns the number of bytes written.
    ///
    /// # Panics
    /// If `to` is shorter than [`QUESTION`].
    pub fn write(&self, to: &mut [u8]) -> usize {
        let mut writer = Writer::new(to);
        writer.put(&[Kind::Question.to_wire(), 0]);
        writer.put(&self.from.0.to_be_bytes());
        writer.put(&self.token.to_be_bytes());
        writer.put(&self.group.0.to_be_bytes());
        writer.written()
    }

    pub(super) fn read(mut body: Reader<'_>) -> Result<Self, Malformed> {
        body.flags(0)?;
        let question = Self { from: NodeId(body.u32()?), token: body.u64()?, group: GroupId(body.u64()?) };
        body.end()?;
        Ok(question)
    }
}

/// States the newest packet that this node sent to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Node that answers, the sender of the packets.
    pub sender: NodeId,
    /// Token of the question.
    pub token: u64,
    /// The group.
    pub group: GroupId,
    /// Low 32 bits of the newest packet's sequence number; `None` if the node has sent nothing to the group.
    pub newest: Option<u32>,
}

impl Answer {
    /// Writes the answer to the front of `to`; returns the number of bytes written.
    ///
    /// # Panics
    /// If `to` is shorter than [`ANSWER`].
    pub fn write(&self, to: &mut [u8]) -> usize {
        let mut writer = Writer::new(to);
        writer.put(&[Kind::Answer.to_wire(), if self.newest.is_some() { HAS_SENT } else { 0 }]);
        writer.put(&self.sender.0.to_be_bytes());
        writer.put(&self.token.to_be_bytes());
        writer.put(&self.group.0.to_be_bytes());
        writer.put(&self.newest.unwrap_or(0).to_be_bytes());
        writer.written()
    }

    pub(super) fn read(mut body: Reader<'_>) -> Result<Self, Malformed> {
        let has_sent = body.flags(HAS_SENT)? != 0;
        let (sender, token, group) = (NodeId(body.u32()?), body.u64()?, GroupId(body.u64()?));
        let newest = body.u32()?;
        body.end()?;
        if !has_sent && newest != 0 {
            return Err(Malformed::Reserved);
        }
        Ok(Self { sender, token, group, newest: has_sent.then_some(newest) })
    }
}
