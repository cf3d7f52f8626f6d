//! Messages and reports held back, in two orders: by stream and by the time that they have waited.

use foundation::Seq;

use crate::counters::GivenUp;
use crate::links::{Ends, Links};
use crate::message::{How, Sent};

/// Content of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// A message, with its payload in the slot.
    Message {
        packets: u32,
        joint: bool,
        how: How,
        missed_us: Option<u64>,
        past_us: Option<u64>,
        sent: Option<Sent>,
        enveloped: bool,
    },
    /// A report that packets up to and including `last` are lost.
    Lost { last: Seq, reason: GivenUp },
}

/// A message or report, with its position in its stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) stream: u32,
    /// Its first packet.
    pub(super) first: Seq,
    pub(super) what: What,
}

impl Item {
    /// Returns its last packet.
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
    /// Stays allocated when the slot is free.
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
    /// Bytes allocated in all slots, including free ones.
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

    /// Returns the slot that has waited longest.
    pub(super) fn oldest(&self) -> Option<usize> {
        self.ages.first()
    }

    /// Inserts an item at its position in its stream; returns false if that position is taken.
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

    /// Returns the slot after which `seq` belongs, or `None` if it belongs first. Searches from both ends,
    /// since most items belong near the newest or fill the first gap.
    ///
    /// # Errors
    /// The slot that already holds `seq`.
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
        assert!(self.len() < self.messages_max, "the caller has made room");
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
