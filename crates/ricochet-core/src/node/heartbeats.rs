//! Heartbeats: a sender that has fallen silent announces its newest packets.

use super::Node;
use crate::announce::Due;
use crate::message::{Output, To};
use crate::wire::{HEARTBEAT_ENTRY, HEARTBEAT_HEADER, HEARTBEAT_MAX, Heartbeat, Kind};

impl Node {
    /// Announces the newest packets of streams that have fallen silent.
    pub(super) fn send_heartbeats(&mut self, now_us: u64, out: &mut impl Output) {
        let calm = self.is_calm();
        let bytes = self.config.datagram_max.saturating_sub(self.config.trailer + HEARTBEAT_HEADER);
        let count_max = (bytes / HEARTBEAT_ENTRY).clamp(1, HEARTBEAT_MAX);
        while let Some(Due { latest, copies, round }) = self.announcer.pop_due(now_us, calm) {
            // Streams to the same readers share the announcement.
            let mut all = [latest; HEARTBEAT_MAX];
            let (mut count, mut place) = (1, 0);
            let is_alike = |group| self.flow.have_same_readers(latest.group, group);
            while count < count_max
                && let Some(other) = self.announcer.pop_alike(now_us, (round, calm), &mut place, is_alike)
            {
                all[count] = other;
                count += 1;
            }
            let sender_seq = self.sender_seq.wrapping_sub(1);
            let heartbeat = Heartbeat { sender: self.config.id, sender_seq, latest: &all[..count] };
            let length = heartbeat.write(&mut self.scratch);
            for _ in 0..copies {
                out.send(To::Group(latest.group), &self.scratch[..length]);
                self.counts.heartbeats_sent += 1;
                self.tally.sent.add(Kind::Heartbeat, length);
            }
        }
    }

    /// Announces the newest packets of this node once more, of the groups that it sent to since a time: some
    /// members may have heard nothing of them.
    pub fn announce_again(&mut self, now_us: u64, since_us: u64) {
        self.announcer.announce_again(now_us, since_us);
    }

    /// Returns whether little is lost, as far as this node can tell. Heartbeats are lost as often as packets,
    /// so few need sending on a calm network. A network not yet measured does not count as calm. A node that
    /// receives nothing can never measure, and counts its network as calm.
    fn is_calm(&self) -> bool {
        /// Share of losses from which all heartbeats are sent.
        const LOSSY: f64 = 0.03;
        let counts = &self.counts;
        let received = counts.delivered + counts.repaired + counts.requested;
        received == 0 || (self.measured.all > 0 && self.bins.conditions().loss < LOSSY)
    }
}
