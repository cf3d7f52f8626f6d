//! Data that is worthless when late (Ricochet §4.2.7): its missing packets are not requested, and soon given
//! up. Missing packets of messages with a deadline are requested until it has passed.
//!
//! Whether a missing packet expires is not known until it comes. It is taken to expire if its neighbours in
//! the stream do, as far as they are known. Where a sender mixes both kinds in one stream, a needless request
//! is preferred to a missing one.

use hashbrown::HashMap;

use crate::groups::Groups;
use crate::ids::{GroupId, StreamKey};

/// Maximum number of streams whose data expires. A full table is cleared: each stream is noted again with its
/// next packet, and packets found missing until then are requested.
const STREAMS_MAX: usize = 1 << 14;

/// For how long a packet is worth something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// As long as this node sets, and it is not worth a request.
    OfGroup,
    /// This time from its sending on, in microseconds.
    Deadline(u32),
}

/// End of the life of packets that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lapse {
    /// Time from which on they are worthless.
    pub(super) at_us: u64,
    /// Whether they are requested until then.
    pub(super) is_requested: bool,
}

impl Lapse {
    /// Returns whether packets are not worth a request.
    pub(super) fn forbids_requests(&self, now_us: u64) -> bool {
        !self.is_requested || now_us >= self.at_us
    }
}

/// Which data expires, and how soon.
#[derive(Debug)]
pub(super) struct Expiry {
    after_us: u64,
    of_groups: HashMap<GroupId, u64>,
    /// Streams whose newest packet expires.
    streams: HashMap<StreamKey, Lifetime>,
    /// Whether a packet with a deadline has ever come.
    has_deadlines: bool,
}

impl Expiry {
    pub(super) fn new(after_us: u64) -> Self {
        Self { after_us, of_groups: HashMap::new(), streams: HashMap::new(), has_deadlines: false }
    }

    /// Sets the lifetime of a group's packets, or restores the default.
    pub(super) fn set_lifetime(&mut self, group: GroupId, after_us: Option<u64>) {
        match after_us {
            Some(after_us) => self.of_groups.insert(group, after_us),
            None => self.of_groups.remove(&group),
        };
    }

    /// Returns whether [`on_newest`](Self::on_newest) of such a packet can change anything.
    pub(super) fn is_affected_by(&self, lifetime: Option<Lifetime>) -> bool {
        lifetime.is_some() || !self.streams.is_empty()
    }

    /// Notes that the newest packet of a stream came, and whether it expires.
    pub(super) fn on_newest(&mut self, key: StreamKey, lifetime: Option<Lifetime>) {
        let Some(lifetime) = lifetime else {
            self.streams.remove(&key);
            return;
        };
        if self.streams.len() == STREAMS_MAX && !self.streams.contains_key(&key) {
            self.streams.clear();
        }
        self.has_deadlines |= matches!(lifetime, Lifetime::Deadline(_));
        self.streams.insert(key, lifetime);
    }

    /// Returns the lifetime of the newest packet of a stream, if it expires.
    pub(super) fn newest(&self, key: StreamKey) -> Option<Lifetime> {
        if self.streams.is_empty() { None } else { self.streams.get(&key).copied() }
    }

    /// Returns the end of the life of packets of a stream that are found missing at `now_us`, if they are
    /// taken to expire.
    pub(super) fn of_stream(&self, now_us: u64, key: StreamKey) -> Option<Lapse> {
        Some(self.lapse(now_us, now_us, key, self.newest(key)?))
    }

    /// Returns the end of the life of packets that are found missing at `now_us`, and were sent before a
    /// packet of this lifetime that was sent at `sent_us`.
    pub(super) fn before(&self, now_us: u64, sent_us: u64, key: StreamKey, lifetime: Lifetime) -> Lapse {
        let longer = match (self.newest(key), lifetime) {
            (Some(Lifetime::Deadline(one_us)), Lifetime::Deadline(other_us)) => {
                Lifetime::Deadline(one_us.max(other_us))
            }
            _ => lifetime,
        };
        self.lapse(now_us, sent_us, key, longer)
    }

    fn lapse(&self, now_us: u64, sent_us: u64, key: StreamKey, lifetime: Lifetime) -> Lapse {
        match lifetime {
            Lifetime::OfGroup => Lapse { at_us: now_us + self.lifetime_us(key.group), is_requested: false },
            Lifetime::Deadline(us) => Lapse { at_us: sent_us + u64::from(us), is_requested: true },
        }
    }

    /// Returns the earliest time at which any packet found missing at `now_us` may become worthless.
    pub(super) fn soonest_us(&self, now_us: u64) -> u64 {
        // A deadline may have passed already.
        if self.has_deadlines {
            return now_us;
        }
        now_us + self.of_groups.values().copied().fold(self.after_us, u64::min)
    }

    /// Forgets all groups but these.
    pub(super) fn retain(&mut self, groups: &Groups) {
        self.streams.retain(|key, _| groups.index(key.group).is_some());
        self.of_groups.retain(|&group, _| groups.index(group).is_some());
    }

    fn lifetime_us(&self, group: GroupId) -> u64 {
        if self.of_groups.is_empty() {
            return self.after_us;
        }
        self.of_groups.get(&group).copied().unwrap_or(self.after_us)
    }
}
