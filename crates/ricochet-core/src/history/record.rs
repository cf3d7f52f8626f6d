//! Records of a log: packets with the time at which they came.

use foundation::bytes::{ReadError, Reader, Writer};

use crate::counters::Malformed;
use crate::ids::{GroupId, NodeId};
use crate::wire::{Data, Fragment};

/// Length of a record before its payload: length (2), flags, sender (4), sequence number (4), sender's number
/// (4), time (8).
pub(crate) const RECORD_HEAD: usize = 23;

/// A packet in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) data: Data<'a>,
    /// Time at which the keeper of the log got it, by its clock.
    pub(crate) at_us: u64,
}

/// Fields of a record that decide where a part of the log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) length: usize,
    pub(crate) flags: u8,
    pub(crate) at_us: u64,
}

impl<'a> Record<'a> {
    pub(crate) fn head(&self) -> [u8; RECORD_HEAD] {
        let mut head = [0; RECORD_HEAD];
        let mut writer = Writer::new(&mut head);
        let length = u16::try_from(self.data.payload.len()).expect("a payload fits a datagram");
        writer.put(&length.to_be_bytes());
        writer.put(&[self.data.flags()]);
        writer.put(&self.data.sender.0.to_be_bytes());
        writer.put(&self.data.seq.to_be_bytes());
        writer.put(&self.data.sender_seq.to_be_bytes());
        writer.put(&self.at_us.to_be_bytes());
        head
    }

    /// Reads a record of a group from the front of `bytes`; `None` if it is not complete yet. Returns too the
    /// number of bytes that it takes.
    ///
    /// # Errors
    /// [`Malformed`] if it cannot be a packet.
    pub(crate) fn read(group: GroupId, bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Ok(head) = RecordHead::read(bytes) else { return Ok(None) };
        let Some(payload) = bytes.get(RECORD_HEAD..RECORD_HEAD + head.length) else { return Ok(None) };
        let mut reader = Reader(&bytes[3..]);
        let (sender, seq, sender_seq) = (NodeId(reader.u32()?), reader.u32()?, reader.u32()?);
        let data = Data::from_parts(head.flags, sender, group, (seq, sender_seq), payload)?;
        Ok(Some((Self { data, at_us: head.at_us }, RECORD_HEAD + head.length)))
    }
}

impl RecordHead {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, ReadError> {
        let mut reader = Reader(bytes);
        let (length, flags) = (usize::from(reader.u16()?), reader.u8()?);
        reader.take(12)?;
        Ok(Self { length, flags, at_us: reader.u64()? })
    }
}

/// Returns the number of messages that begin in a packet.
pub(crate) fn messages_in(data: &Data<'_>) -> u64 {
    if data.fragment {
        return u64::from(Fragment::read(data.body()).is_ok_and(|fragment| fragment.index == 0));
    }
    u64::from(data.count())
}
