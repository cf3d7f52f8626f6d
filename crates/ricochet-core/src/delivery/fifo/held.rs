//! What is held back: messages and reports in two orders, by stream and by how long they have waited.

use crate::counters::GivenUp;
use crate::links::{Ends, Links};
use crate::message::How;
use foundation::Seq;

/// What lies in a slot.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// A message; its payload is in the slot.
    Message { packets: u32, how: How, missed_us: Option<u64> },
    /// A report that packets up to and with `last` are lost.
    Lost { last: Seq, reason: GivenUp },
}

/// A message or report in its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) stream: u32,
    /// Its first packet.
    pub(super) first: Seq,
    pub(super) what: What,
}

impl Item {
    /// Its last packet.
    pub(super) fn last(&self) -> Seq {
        match self.what {
            What::Message { packets, .. } => self.first.plus(u64::from(packets.max(1)) - 1),
            What::Lost { last, .. } => last,
        }
    }
}

#[derive(Debug)]
struct Slot {
    item: Item,
    /// Keeps its room when the slot is free.
    payload: Vec<u8>,
}

/// A bounded pool of messages and reports.
#[derive(Debug)]
pub(super) struct Held {
    slots: Vec<Slot>,
    free: Vec<u32>,
    messages_max: usize,
    bytes_max: usize,
    bytes: usize,
    /// Room in all slots, free ones included.
    capacity: usize,
    order: Links,
    age: Links,
    ages: Ends,
}

impl Held {
    pub(super) fn new(messages_max: usize, bytes_max: usize) -> Self {
        Self {
            slots: Vec::with_capacity(messages_max),
            free: Vec::with_capacity(messages_max),
            messages_max,
            bytes_max,
            bytes: 0,
            capacity: 0,
            order: Links::new(messages_max),
            age: Links::new(messages_max),
            ages: Ends::EMPTY,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.capacity
    }

    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.len() < self.messages_max && self.bytes + bytes <= self.bytes_max
    }

    pub(super) fn item(&self, slot: usize) -> Item {
        self.slots[slot].item
    }

    pub(super) fn payload(&self, slot: usize) -> &[u8] {
        &self.slots[slot].payload
    }

    /// What has waited longest.
    pub(super) fn oldest(&self) -> Option<usize> {
        self.ages.first()
    }

    /// Puts something in its place in its stream; false if something of its place is there.
    pub(super) fn insert(&mut self, stream: &mut Ends, item: Item, payload: &[u8]) -> bool {
        let Ok(before) = self.place(*stream, item.first) else { return false };
        let slot = self.take(item, payload);
        match before {
            Some(before) => self.order.insert_after(stream, before, slot),
            None => self.order.push_first(stream, slot),
        }
        self.age.push_last(&mut self.ages, slot);
        true
    }

    pub(super) fn remove(&mut self, stream: &mut Ends, slot: usize) {
        self.order.remove(stream, slot);
        self.age.remove(&mut self.ages, slot);
        let payload = &mut self.slots[slot].payload;
        self.bytes -= payload.len();
        payload.clear();
        if self.capacity > self.bytes_max {
            self.capacity -= payload.capacity();
            *payload = Vec::new();
        }
        self.free.push(slot as u32);
    }

    /// The slot behind which `seq` belongs, or `None` if in front; looked for from both ends, since what comes is near
    /// the newest or fills the first gap. The slot that is in its place is an error.
    fn place(&self, stream: Ends, seq: Seq) -> Result<Option<usize>, usize> {
        let (mut front, mut back) = (stream.first(), stream.last());
        while let (Some(low), Some(high)) = (front, back) {
            for slot in [low, high] {
                if self.slots[slot].item.first == seq {
                    return Err(slot);
                }
            }
            if self.slots[high].item.first < seq {
                return Ok(Some(high));
            }
            if self.slots[low].item.first > seq {
                return Ok(self.order.before(low));
            }
            (front, back) = (self.order.after(low), self.order.before(high));
        }
        Ok(None)
    }

    fn take(&mut self, item: Item, payload: &[u8]) -> usize {
        assert!(self.len() < self.messages_max, "room was made");
        let slot = match self.free.pop() {
            Some(slot) => slot as usize,
            None => {
                self.slots.push(Slot { item, payload: Vec::new() });
                self.slots.len() - 1
            }
        };
        let place = &mut self.slots[slot];
        place.item = item;
        let before = place.payload.capacity();
        place.payload.reserve_exact(payload.len());
        place.payload.extend_from_slice(payload);
        self.capacity += place.payload.capacity() - before;
        self.bytes += payload.len();
        slot
    }
}
