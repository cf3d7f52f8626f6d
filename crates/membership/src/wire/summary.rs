//! The versions of lists that a node holds: two nodes compare them to find out which lists one of them lacks.

use foundation::bytes::{Reader, Writer};
use ricochet_core::NodeId;

use super::header::{DATAGRAM_MAX, HEADER, Kind};
use crate::counters::Malformed;

/// Maximum number of entries of one summary.
pub const SUMMARY_ENTRIES_MAX: usize = 160;
const SUMMARY_HEADER: usize = HEADER + 2;
const ENTRY: usize = 8;
const ANSWER: u8 = 1;

/// A list that the sender of a summary holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Node whose list it is.
    pub id: NodeId,
    /// Version of the list; 0 if the sender has none.
    pub version: u32,
}

/// Writes a summary of 1 to [`SUMMARY_ENTRIES_MAX`] entries to the front of `to` and returns its length in
/// bytes. `answer` requests the lists that the receiver holds in newer versions.
///
/// # Panics
/// If the number of entries is out of range, or if `to` is too short.
pub fn write_summary(entries: &[Held], answer: bool, to: &mut [u8]) -> usize {
    let count = entries.len();
    assert!(
        (1..=SUMMARY_ENTRIES_MAX).contains(&count),
        "expected a summary of 1 to {SUMMARY_ENTRIES_MAX} entries, saw {count}"
    );
    let mut writer = Writer::new(to);
    writer.put(&Kind::Summary.to_wire());
    writer.put(&[u8::from(answer) * ANSWER, count as u8]);
    for entry in entries {
        writer.put(&entry.id.0.to_be_bytes());
        writer.put(&entry.version.to_be_bytes());
    }
    writer.written()
}

/// A summary as its receiver reads it; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryView<'a> {
    /// Whether the sender asks for the lists that the receiver holds in newer versions.
    pub answer: bool,
    entries: &'a [[u8; ENTRY]],
}

impl<'a> SummaryView<'a> {
    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let answer = body.flags(ANSWER)? == ANSWER;
        let count = body.u8()?;
        let entries = body.list(count, SUMMARY_ENTRIES_MAX)?;
        body.end()?;
        Ok(Self { answer, entries })
    }

    /// Returns the 1 to [`SUMMARY_ENTRIES_MAX`] entries.
    pub fn entries(&self) -> impl Iterator<Item = Held> + use<'a> {
        self.entries.iter().filter_map(|bytes| {
            let mut bytes = Reader(bytes);
            Some(Held { id: NodeId(bytes.u32().ok()?), version: bytes.u32().ok()? })
        })
    }
}

const _: () = assert!(SUMMARY_HEADER + SUMMARY_ENTRIES_MAX * ENTRY <= DATAGRAM_MAX);
