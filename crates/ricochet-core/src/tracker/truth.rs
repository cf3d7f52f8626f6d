//! Claims about a stream: some are believed, and others only once its sender has confirmed them.
//!
//! Any datagram may lie about sequence numbers. Numbers near the packets that came are believed at once,
//! because a lie about them is found out before it does harm: packets are given up only after their sender
//! has confirmed that they exist. A number far ahead would put the stream out of reach of its own packets, so
//! it is doubted until the sender has confirmed it.

use foundation::Seq;

use super::{Stream, Tracker};
use crate::ids::StreamKey;

/// Maximum distance ahead of the packets that came, unless `lag_max` is larger, at which a mention of a
/// packet is believed at once.
pub(super) const LEAP_MAX: u64 = 1 << 16;
/// Maximum distance of a stream's newest packet from the sender's answer, at which a stream that began with
/// an unconfirmed number is taken to be the one that the sender means.
const STRAY_MAX: u64 = 1 << 10;

/// Effect of a sender's answer on its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgment {
    /// The stream is not known.
    Unknown,
    /// The answer agrees with what is known.
    Agrees,
    /// The sender has sent packets far ahead of those known, which must be named for the tracker to find them
    /// missing.
    Ahead,
    /// Numbers were false. They are forgotten, and the stream continues behind its true packets.
    Retracted,
    /// The stream began with a false number, and is forgotten.
    FalseStart,
    /// Packets came since the question that the answer does not account for. Another question decides.
    Unclear,
}

impl<M: Copy + PartialEq> Tracker<M> {
    /// Returns whether a packet that came or was named must be confirmed by its sender before it is believed:
    /// it is far ahead, or a gap must make room for it that its sender has not confirmed.
    pub(super) fn is_doubtful(&self, stream: usize, seq: Seq, came: bool) -> bool {
        let Stream { received, verified, highest, count, spans, .. } = &self.streams[stream];
        let reach = LEAP_MAX.max(u64::from(self.config.lag_max));
        if seq > received.max(verified).plus(reach) {
            return true;
        }
        let needs_room = seq > highest.plus(u64::from(came));
        let is_full = *count == self.config.stream_intervals_max;
        needs_room && is_full && spans.first().is_some_and(|first| self.pool.span(first).last > *verified)
    }

    /// Notes that the sender of a stream is asked for its newest packet. Returns the newest one known here.
    pub fn on_asked(&mut self, key: StreamKey) -> Option<Seq> {
        let stream = &mut self.streams[*self.by_key.get(&key)? as usize];
        stream.since_asked = Seq(0);
        Some(stream.highest)
    }

    /// Returns whether the sender of a stream has confirmed that a packet exists, or the stream is not known.
    pub fn is_verified(&self, key: StreamKey, seq: Seq) -> bool {
        self.by_key.get(&key).is_none_or(|&stream| seq <= self.streams[stream as usize].verified)
    }

    /// Accepts all that is known of a stream, because its sender cannot be asked.
    pub fn concede(&mut self, key: StreamKey, also: Option<Seq>) {
        if let Some(&stream) = self.by_key.get(&key) {
            let Stream { verified, highest, .. } = &mut self.streams[stream as usize];
            *verified = (*highest).max(also.unwrap_or(*highest)).max(*verified);
        }
    }

    /// Returns a stream that has begun since the last call with a number that is not close to 0. Whether it
    /// did is known only to its sender.
    pub fn take_begun(&mut self) -> Option<StreamKey> {
        self.begun.take()
    }

    /// Judges a stream by its sender's answer: `newest` is its newest packet, `None` if it has sent none.
    /// `asked` is the newest packet that was known here [when the sender was asked](Self::on_asked).
    pub fn on_answer(&mut self, key: StreamKey, newest: Option<u32>, asked: Seq) -> Judgment {
        let Some(&stream) = self.by_key.get(&key) else { return Judgment::Unknown };
        let stream = stream as usize;
        let Stream { highest, start, verified, since_asked, heard, .. } = self.streams[stream];
        let Some(newest) = newest else {
            if heard && since_asked > Seq(0) {
                return Judgment::Unclear;
            }
            self.remove(stream);
            return Judgment::FalseStart;
        };
        let newest = Seq::from_wire(newest, highest);
        let began_far = verified == Seq(0) && start.to_wire() >= self.config.lookback;
        if began_far && (newest.plus(1) < start || newest.0.abs_diff(highest.0) > STRAY_MAX) {
            if since_asked > newest {
                return Judgment::Unclear;
            }
            self.remove(stream);
            return Judgment::FalseStart;
        }
        let stream_of = &mut self.streams[stream];
        stream_of.verified = newest.max(verified);
        if newest >= asked {
            let is_far = newest > highest.plus(LEAP_MAX);
            return if is_far { Judgment::Ahead } else { Judgment::Agrees };
        }
        if since_asked > newest {
            return Judgment::Unclear;
        }
        self.retract(stream, newest);
        Judgment::Retracted
    }

    /// Forgets everything about the packets after `newest`, none of which has been sent.
    fn retract(&mut self, stream: usize, newest: Seq) {
        while let Some(slot) = self.streams[stream].spans.last() {
            let span = *self.pool.span(slot);
            if span.last <= newest {
                break;
            }
            if span.first <= newest {
                self.pool.span_mut(slot).last = newest;
                break;
            }
            self.drop_span(slot);
        }
        let Stream { highest, received, floor, .. } = &mut self.streams[stream];
        (*highest, *received) = (newest, newest.min(*received));
        *floor = newest.plus(1).min(*floor);
    }
}
