//! Messages longer than a packet: cut up, and put together.

use super::{Message, Node, Output, SendError};
use crate::delivery::{FragmentsCounts, Progress};
use crate::ids::{GroupId, StreamKey};
use crate::wire::{FRAGMENT_HEAD, FRAGMENTS_MAX, Fragment};

impl Node {
    /// Sends a message to a group, in as many packets as it takes, all at once; returns the sequence number of the first.
    /// Receivers get it whole, or are told that it is lost.
    ///
    /// # Errors
    /// [`SendError`]; then nothing was sent.
    pub fn multicast_large(
        &mut self,
        now_us: u64,
        group: GroupId,
        message: &[u8],
        expires: bool,
        out: &mut impl Output,
    ) -> Result<u32, SendError> {
        if message.len() <= self.payload_max {
            return self.multicast(now_us, group, message, expires, out);
        }
        if message.len() > self.message_max() {
            return Err(SendError::TooLong { length: message.len(), payload_max: self.message_max() });
        }
        let mut scratch = std::mem::take(&mut self.symbol);
        let mut first = Err(SendError::TooManyGroups);
        for index in 0..=u16::MAX {
            let Some(fragment) = Fragment::of(message, index, self.fragment_size()) else { break };
            let length = fragment.write(&mut scratch);
            let sent = self.send_packet(now_us, group, &scratch[..length], expires, true, out);
            first = first.or(sent);
            if first.is_err() {
                break;
            }
        }
        self.symbol = scratch;
        first
    }

    /// Longest message in bytes: what is configured, and no more than half of the packets kept, so that all of it can be
    /// asked for.
    pub fn message_max(&self) -> usize {
        let fragments = (self.config.packets / 2).min(FRAGMENTS_MAX as usize);
        let kept = fragments * usize::from(self.fragment_size());
        self.config.fragments.message_max.min(kept).max(self.payload_max)
    }

    /// What has become of fragments that came, and of their messages.
    pub fn fragments(&self) -> &FragmentsCounts {
        self.fragments.counts()
    }

    /// Bytes of a message in a packet.
    fn fragment_size(&self) -> u16 {
        u16::try_from(self.payload_max.saturating_sub(FRAGMENT_HEAD)).unwrap_or(u16::MAX)
    }

    /// A fragment came: the message is delivered if that makes it whole.
    pub(super) fn gather(&mut self, now_us: u64, packet: &Message<'_>, out: &mut impl Output) {
        match self.fragments.take(now_us, packet, &mut |lost| out.lost(lost)) {
            Progress::Whole(slot) => {
                out.deliver(&self.fragments.message(slot, packet.front));
                self.fragments.delivered(slot);
            }
            Progress::Nothing => {
                out.settled(StreamKey { sender: packet.sender, group: packet.group }, packet.front);
            }
        }
    }
}
