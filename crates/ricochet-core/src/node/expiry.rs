//! Data that is worthless when late (Ricochet §4.2.7): its missing packets are not requested, and soon given
//! up.
//!
//! Whether a missing packet expires is not known until it comes. It is taken to expire if its neighbours in
//! the stream do, as far as they are known. Where a sender mixes both kinds in one stream, a needless request
//! is preferred to a missing one.

use hashbrown::{HashMap, HashSet};

use crate::groups::Groups;
use crate::ids::{GroupId, StreamKey};

/// Maximum number of streams whose data expires. A full table is cleared: each stream is noted again with its
/// next packet, and packets found missing until then are requested.
const STREAMS_MAX: usize = 1 << 14;

/// Which data expires, and how soon.
#[derive(Debug)]
pub(super) struct Expiry {
    after_us: u64,
    of_groups: HashMap<GroupId, u64>,
    /// Streams whose newest packet expires.
    streams: HashSet<StreamKey>,
}

impl Expiry {
    pub(super) fn new(after_us: u64) -> Self {
        Self { after_us, of_groups: HashMap::new(), streams: HashSet::new() }
    }

    /// Sets the lifetime of a group's packets, or restores the default.
    pub(super) fn set_lifetime(&mut self, group: GroupId, after_us: Option<u64>) {
        match after_us {
            Some(after_us) => self.of_groups.insert(group, after_us),
            None => self.of_groups.remove(&group),
        };
    }

    /// Returns whether [`on_newest`](Self::on_newest) of such a packet can change anything.
    pub(super) fn is_affected_by(&self, expires: bool) -> bool {
        expires || !self.streams.is_empty()
    }

    /// Notes that the newest packet of a stream came, and whether it expires.
    pub(super) fn on_newest(&mut self, key: StreamKey, expires: bool) {
        if !expires {
            self.streams.remove(&key);
            return;
        }
        if self.streams.len() == STREAMS_MAX && !self.streams.contains(&key) {
            self.streams.clear();
        }
        self.streams.insert(key);
    }

    /// Returns when packets of a stream that are found missing at `now_us` become worthless, if they are
    /// taken to expire.
    pub(super) fn of_stream(&self, now_us: u64, key: StreamKey) -> Option<u64> {
        let expires = !self.streams.is_empty() && self.streams.contains(&key);
        expires.then(|| now_us + self.lifetime_us(key.group))
    }

    /// Returns when the first known packets of a stream become worthless, if their successor expires.
    pub(super) fn of_beginning(&self, now_us: u64, key: StreamKey) -> u64 {
        now_us + self.lifetime_us(key.group)
    }

    /// Returns the earliest time at which any packet found missing at `now_us` may become worthless.
    pub(super) fn soonest_us(&self, now_us: u64) -> u64 {
        now_us + self.of_groups.values().copied().fold(self.after_us, u64::min)
    }

    /// Forgets all groups but these.
    pub(super) fn retain(&mut self, groups: &Groups) {
        self.streams.retain(|key| groups.index(key.group).is_some());
        self.of_groups.retain(|&group, _| groups.index(group).is_some());
    }

    fn lifetime_us(&self, group: GroupId) -> u64 {
        if self.of_groups.is_empty() {
            return self.after_us;
        }
        self.of_groups.get(&group).copied().unwrap_or(self.after_us)
    }
}
