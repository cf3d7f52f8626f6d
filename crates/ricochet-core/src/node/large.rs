//! Messages longer than a packet: fragmentation and reassembly.

use foundation::Seq;

use super::{Node, Outbound};
use crate::delivery::{FragmentsCounts, Progress};
use crate::ids::{GroupId, StreamKey};
use crate::message::{Message, Output, SendError, SendOptions};
use crate::order::COPY_HEAD;
use crate::wire::{Extras, FRAGMENTS_MAX, Fragment, SENT};

impl Node {
    /// Sends a message to a group, all at once in as many packets as it needs; returns the sequence number of
    /// the first. Receivers get the whole message, or a report that it is lost.
    ///
    /// # Errors
    /// [`SendError`]; then nothing was sent.
    pub fn multicast_large(
        &mut self,
        now_us: u64,
        group: GroupId,
        message: &[u8],
        options: SendOptions,
        out: &mut impl Output,
    ) -> Result<u32, SendError> {
        if message.len() > self.message_max() {
            return Err(SendError::TooLong { length: message.len(), payload_max: self.message_max() });
        }
        self.multicast_any(now_us, group, message, options, out)
    }

    /// Sends a [packet of total order](crate::order::OrderOutput::send) to the order group. It may hold a
    /// message of any length, and is then longer than this.
    ///
    /// # Errors
    /// [`SendError`]; then nothing was sent.
    pub fn multicast_order(
        &mut self,
        now_us: u64,
        group: GroupId,
        packet: &[u8],
        out: &mut impl Output,
    ) -> Result<u32, SendError> {
        let payload_max = self.message_max() + COPY_HEAD;
        if packet.len() > payload_max {
            return Err(SendError::TooLong { length: packet.len(), payload_max });
        }
        self.multicast_any(now_us, group, packet, SendOptions::default(), out)
    }

    fn multicast_any(
        &mut self,
        now_us: u64,
        group: GroupId,
        message: &[u8],
        options: SendOptions,
        out: &mut impl Output,
    ) -> Result<u32, SendError> {
        if message.len() <= self.payload_max {
            return self.multicast(now_us, group, message, options, out);
        }
        let mut scratch = std::mem::take(&mut self.symbol);
        let mut first = Err(SendError::TooManyGroups);
        for index in 0..=u16::MAX {
            let Some(fragment) = Fragment::of(message, index, self.fragment_size()) else { break };
            let length = fragment.write(&mut scratch);
            let (payload, extras) = (&scratch[..length], Extras::NONE);
            let packet = Outbound { group, payload, options, fragment: true, joint: false, extras };
            let sent = self.send_packet(now_us, &packet, out);
            first = first.or(sent);
            if first.is_err() {
                break;
            }
        }
        self.symbol = scratch;
        first
    }

    /// Returns the length of the longest message in bytes: as configured, and at most half of the packets
    /// kept, so that all of a message can still be requested after it was sent.
    pub fn message_max(&self) -> usize {
        let fragments = (self.config.packets / 2).min(FRAGMENTS_MAX as usize);
        // Less the time that a driver may put into each packet.
        let kept = fragments * usize::from(self.fragment_size()).saturating_sub(SENT);
        self.config.fragments.message_max.min(kept).max(self.payload_max)
    }

    /// Returns the counts of received fragments and of their messages.
    pub fn fragments(&self) -> &FragmentsCounts {
        self.fragments.counts()
    }

    /// Returns when [`expire_fragments`](Self::expire_fragments) is due next. While losses are held,
    /// fragments may be among the packets that the driver holds back.
    pub(super) fn fragments_due_us(&self) -> Option<u64> {
        if self.requester.holds_losses { None } else { self.fragments.next_due_us() }
    }

    /// Gives up the incomplete messages of which nothing is awaited.
    ///
    /// Missing packets are awaited until the tracker gives them up. Those that are not known to be missing
    /// have not been sent yet: their sender may wait for its readers. They are awaited as long as it is a
    /// member. This node itself knows what it has sent.
    pub(super) fn expire_fragments(&mut self, now_us: u64, out: &mut impl Output) {
        let Self { fragments, tracker, requester, announcer, keyed, config, .. } = self;
        if requester.holds_losses {
            return;
        }
        let is_awaited = |key: StreamKey, last: Seq| {
            if key.sender == config.id {
                let precedes = |newest: u32| (newest.wrapping_sub(last.to_wire()) as i32) < 0;
                return announcer.newest(key.group).is_some_and(precedes);
            }
            let awaited = tracker.front(key).awaited;
            let is_missing = tracker.highest(key).is_some_and(|highest| awaited <= highest);
            awaited <= last && (is_missing || requester.is_present(key.sender))
        };
        fragments.expire(now_us, is_awaited, &mut |lost| {
            keyed.on_lost(lost.key.group);
            out.on_lost(lost);
        });
    }

    /// Takes in a fragment. Reports the messages that this gives up, of any sender.
    pub(super) fn take_fragment(
        &mut self,
        now_us: u64,
        packet: &Message<'_>,
        out: &mut impl Output,
    ) -> Progress {
        let Self { fragments, keyed, .. } = self;
        fragments.take(now_us, packet, &mut |lost| {
            keyed.on_lost(lost.key.group);
            out.on_lost(lost);
        })
    }

    /// Takes in a fragment, and delivers its message if that is complete.
    pub(super) fn reassemble(&mut self, now_us: u64, packet: &Message<'_>, out: &mut impl Output) {
        match self.take_fragment(now_us, packet, out) {
            Progress::Whole(slot) => {
                let Self { fragments, keyed, counts, .. } = self;
                let whole = Message { past_us: packet.past_us, ..fragments.message(slot, packet.front) };
                counts.outdated += keyed.pass(now_us, &whole, out);
                fragments.on_delivered(slot);
            }
            Progress::Nothing => {
                out.on_settled(StreamKey { sender: packet.sender, group: packet.group }, packet.front);
            }
        }
    }
}
