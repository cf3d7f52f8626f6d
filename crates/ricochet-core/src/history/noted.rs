//! Packets of a group that came or were announced while a node reads its history.

/// Packets of a sender that came or were announced during the reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    /// The first that came; `None` if none did.
    first: Option<u32>,
    pub(crate) last: u32,
}

impl Noted {
    /// Notes the packet `seq`, the first of all, which came or was `announced`.
    pub(super) fn new(seq: u32, announced: bool) -> Self {
        Self { first: (!announced).then_some(seq), last: seq }
    }

    /// Notes a further packet.
    pub(super) fn add(&mut self, seq: u32, announced: bool) {
        if is_later(seq, self.last) {
            self.last = seq;
        }
        if !announced && self.first.is_none_or(|first| is_later(first, seq)) {
            self.first = Some(seq);
        }
    }

    /// Returns the number of packets from the first one that came to the last one.
    pub(super) fn count(&self) -> u64 {
        self.first.map_or(0, |first| u64::from(self.last.wrapping_sub(first)) + 1)
    }

    /// Returns the packet with which the stream begins if nothing of it was read. A member may have told its
    /// next packet.
    ///
    /// All that the member knew of the stream when it was asked precedes what it told. Packets behind that
    /// may have been lost before the first one came.
    pub(super) fn begin(&self, told: Option<u32>) -> u32 {
        match (told, self.first) {
            (Some(told), Some(first)) if is_later(told, first) => first,
            (Some(told), _) => told,
            (None, Some(first)) => first,
            // A packet that was only announced is one from before.
            (None, None) => self.last.wrapping_add(1),
        }
    }
}

fn is_later(one: u32, other: u32) -> bool {
    one.wrapping_sub(other) as i32 > 0
}
