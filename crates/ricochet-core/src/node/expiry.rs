//! Data that is worth nothing when late (Ricochet §4.2.7): what is missing of it is not asked for, and soon given up.
//!
//! Whether a packet that is missing expires is not known before it comes. It is taken to if those next to it in its stream
//! do, as far as they are known: what a sender mixes into one stream is rather asked for once too often.

use hashbrown::{HashMap, HashSet};

use super::Node;
use crate::groups::Groups;
use crate::ids::{GroupId, StreamKey};

/// Streams whose data expires. When full it begins anew: each stream is noted again with its next packet, and what is
/// missing meanwhile is asked for.
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

    /// Whether it makes a difference that a packet expires or not.
    pub(super) fn heeds(&self, expires: bool) -> bool {
        expires || !self.streams.is_empty()
    }

    /// The newest packet of a stream came, which expires or not.
    pub(super) fn note(&mut self, key: StreamKey, expires: bool) {
        if !expires {
            self.streams.remove(&key);
            return;
        }
        if self.streams.len() == STREAMS_MAX && !self.streams.contains(&key) {
            self.streams.clear();
        }
        self.streams.insert(key);
    }

    /// When packets of a stream are worthless that are found missing now, if they are taken to expire.
    pub(super) fn of_stream(&self, now_us: u64, key: StreamKey) -> Option<u64> {
        let expires = !self.streams.is_empty() && self.streams.contains(&key);
        expires.then(|| now_us + self.lifetime_us(key.group))
    }

    /// When packets of a stream are worthless whose successor expires and that are the first ones known of it.
    pub(super) fn of_beginning(&self, now_us: u64, key: StreamKey) -> u64 {
        now_us + self.lifetime_us(key.group)
    }

    /// The soonest that something found missing now may be worthless.
    pub(super) fn soonest_us(&self, now_us: u64) -> u64 {
        now_us + self.of_groups.values().copied().fold(self.after_us, u64::min)
    }

    pub(super) fn forget(&mut self, groups: &Groups) {
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

impl Node {
    /// Sets how long after it was found missing data of a group is given up that its sender marked as expiring, in
    /// microseconds; `None` goes back to `expires_after_us` of [`AskConfig`](super::AskConfig). Forgotten when this node
    /// leaves the group; false if it is not in it.
    pub fn set_lifetime(&mut self, group: GroupId, after_us: Option<u64>) -> bool {
        let of_groups = &mut self.asking.expiry.of_groups;
        match after_us {
            Some(after_us) if self.groups.index(group).is_some() => {
                of_groups.insert(group, after_us);
            }
            _ => {
                of_groups.remove(&group);
            }
        }
        self.groups.index(group).is_some()
    }
}
