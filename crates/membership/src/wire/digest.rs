//! Which version of whose list a node holds: what two nodes compare to find out what one of them lacks.

use ricochet_core::NodeId;

use super::{HEADER, Kind, Reader, Writer};
use crate::counters::Malformed;

/// Most entries of one digest.
pub const DIGEST_ENTRIES_MAX: usize = 160;
const DIGEST_HEADER: usize = HEADER + 2;
const ENTRY: usize = 8;
const ANSWER: u8 = 1;

/// A list that the sender of a digest holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Whose list.
    pub id: NodeId,
    /// Which version of it.
    pub version: u32,
}

/// Writes a digest of 1 to [`DIGEST_ENTRIES_MAX`] entries into the front of `to`; returns how many bytes. `answer` asks
/// for what the receiver holds in newer versions.
///
/// # Panics
/// If there are no entries or too many, or if `to` is too short.
pub fn write_digest(entries: &[Known], answer: bool, to: &mut [u8]) -> usize {
    let count = entries.len();
    assert!(
        (1..=DIGEST_ENTRIES_MAX).contains(&count),
        "a digest has 1 to {DIGEST_ENTRIES_MAX} entries, not {count}"
    );
    let mut writer = Writer::new(to);
    writer.put(&Kind::Digest.to_wire());
    writer.put(&[u8::from(answer) * ANSWER, count as u8]);
    for entry in entries {
        writer.put(&entry.id.0.to_be_bytes());
        writer.put(&entry.version.to_be_bytes());
    }
    writer.written()
}

/// A digest as its receiver reads it; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestView<'a> {
    /// The sender asks what the receiver holds in newer versions.
    pub answer: bool,
    entries: &'a [[u8; ENTRY]],
}

impl<'a> DigestView<'a> {
    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let answer = body.flags(ANSWER)? == ANSWER;
        let count = body.u8()?;
        let entries = body.list(count, DIGEST_ENTRIES_MAX)?;
        body.end()?;
        Ok(Self { answer, entries })
    }

    /// 1 to [`DIGEST_ENTRIES_MAX`] entries.
    pub fn entries(&self) -> impl Iterator<Item = Known> + use<'a> {
        self.entries.iter().filter_map(|bytes| {
            let mut bytes = Reader(bytes);
            Some(Known { id: NodeId(bytes.u32().ok()?), version: bytes.u32().ok()? })
        })
    }
}

const _: () = assert!(DIGEST_HEADER + DIGEST_ENTRIES_MAX * ENTRY <= super::DATAGRAM_MAX);
