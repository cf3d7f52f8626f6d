//! Changes of lists, so that a small change of a long list costs few bytes.

use foundation::bytes::{Reader, Writer};
use ricochet_core::{GroupId, NodeId};

use super::header::{DATAGRAM_MAX, HEADER, Kind, groups_of};
use crate::counters::Malformed;

/// Maximum number of steps in one datagram.
pub const STEPS_MAX: usize = 64;
/// Maximum number of groups that one step adds and removes; a larger change does not travel as a step.
pub const STEP_GROUPS_MAX: usize = 128;
/// Length of a datagram before its steps.
pub const STEPS_HEADER: usize = HEADER + 1;
/// Length of a step before its groups: id (4), version (4), check (4), two counts.
pub const STEP_HEADER: usize = 14;

const _: () = assert!(STEPS_HEADER + STEP_HEADER + STEP_GROUPS_MAX * 8 <= DATAGRAM_MAX);

/// A step as its sender writes it.
#[derive(Clone, Copy, Debug)]
pub struct StepParts<'a> {
    /// Node whose list it is.
    pub id: NodeId,
    /// Version that the step leads to from its predecessor.
    pub version: u32,
    /// Check of that version.
    pub check: u32,
    /// Groups that are in this version and not in its predecessor.
    pub added: &'a [GroupId],
    /// Groups that are in its predecessor and not in this version.
    pub removed: &'a [GroupId],
}

impl StepParts<'_> {
    /// Returns the length on the wire in bytes.
    pub fn wire_len(&self) -> usize {
        STEP_HEADER + (self.added.len() + self.removed.len()) * 8
    }

    /// Writes the step to the front of `to` and returns its length in bytes.
    ///
    /// # Panics
    /// If the step has more than [`STEP_GROUPS_MAX`] groups, or if `to` is too short.
    pub fn write(&self, to: &mut [u8]) -> usize {
        let count = self.added.len() + self.removed.len();
        assert!(count <= STEP_GROUPS_MAX, "expected a step of at most {STEP_GROUPS_MAX} groups, saw {count}");
        let mut writer = Writer::new(to);
        writer.put(&self.id.0.to_be_bytes());
        writer.put(&self.version.to_be_bytes());
        writer.put(&self.check.to_be_bytes());
        writer.put(&[self.added.len() as u8, self.removed.len() as u8]);
        for group in self.added.iter().chain(self.removed) {
            writer.put(&group.0.to_be_bytes());
        }
        writer.written()
    }
}

/// A step as its receiver reads it; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepView<'a> {
    /// Node whose list it is.
    pub id: NodeId,
    /// Version that the step leads to from its predecessor.
    pub version: u32,
    /// Check of that version.
    pub check: u32,
    added: &'a [[u8; 8]],
    removed: &'a [[u8; 8]],
}

impl<'a> StepView<'a> {
    fn read(body: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (id, version, check) = (NodeId(body.u32()?), body.u32()?, body.u32()?);
        let (added, removed) = (usize::from(body.u8()?), usize::from(body.u8()?));
        if added + removed > STEP_GROUPS_MAX {
            return Err(Malformed::Count);
        }
        Ok(Self { id, version, check, added: body.entries(added)?, removed: body.entries(removed)? })
    }

    /// Returns the groups that the step adds to the list.
    pub fn added(&self) -> impl ExactSizeIterator<Item = GroupId> + Clone + use<'a> {
        groups_of(self.added)
    }

    /// Returns the groups that the step removes from the list.
    pub fn removed(&self) -> impl ExactSizeIterator<Item = GroupId> + Clone + use<'a> {
        groups_of(self.removed)
    }
}

/// 1 to [`STEPS_MAX`] steps as their receiver reads them; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepsView<'a> {
    count: u8,
    steps: &'a [u8],
}

impl<'a> StepsView<'a> {
    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let count = body.u8()?;
        if !(1..=STEPS_MAX).contains(&usize::from(count)) {
            return Err(Malformed::Count);
        }
        let steps = body.0;
        for _ in 0..count {
            StepView::read(&mut body)?;
        }
        body.end()?;
        Ok(Self { count, steps })
    }

    /// Returns the steps in the order in which they must be applied.
    pub fn steps(&self) -> impl Iterator<Item = StepView<'a>> + use<'a> {
        let mut rest = Reader(self.steps);
        (0..self.count).map_while(move |_| StepView::read(&mut rest).ok())
    }

    /// Returns the header of a datagram of `count` steps.
    pub fn header(count: u8) -> [u8; STEPS_HEADER] {
        let [first, kind] = Kind::Steps.to_wire();
        [first, kind, count]
    }
}
