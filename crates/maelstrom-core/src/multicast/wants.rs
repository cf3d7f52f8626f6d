//! The groups that a far site wants, for as long as it goes on saying so.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::wire::Want;

/// Interval between announcements of all groups that a site wants.
const REPEAT_US: u64 = 10_000_000;
/// Intervals after a change, of which an announcement may be lost.
const AFTER_CHANGE_US: [u64; 2] = [200_000, 1_000_000];
/// Time for which groups are wanted after an announcement: three further ones may be lost.
pub(super) const LIFETIME_US: u64 = 35_000_000;
/// Maximum number of single groups that a far site may want.
const SINGLE_MAX: usize = 4_096;
/// Maximum number of networks of groups that a far site may want.
const NETWORKS_MAX: usize = 64;

/// The groups that a far site wants, and when it is told those of this one.
#[derive(Debug, Default)]
pub(crate) struct FarWants {
    /// Single groups, with the times until which they are wanted.
    single: BTreeMap<IpAddr, u64>,
    /// Networks of groups.
    networks: Vec<(IpNet, u64)>,
    /// Announcements for which there was no room.
    refused: u64,
    /// Time of the next announcement of this site's groups.
    next_us: u64,
    /// Time of the last one.
    told_us: u64,
    /// Announcements since the last change.
    told: usize,
}

impl FarWants {
    /// Begins a session, in which neither end knows what the other one wants.
    pub(crate) fn restart(&mut self) {
        *self = Self { refused: self.refused, ..Self::default() };
    }

    /// Takes an entry of an announcement.
    pub(crate) fn take(&mut self, now_us: u64, want: Want) {
        let until_us = now_us + LIFETIME_US;
        let address = want.groups.addr();
        if want.groups.prefix_len() == want.groups.max_prefix_len() {
            if want.ends {
                self.single.remove(&address);
            } else if self.single.len() < SINGLE_MAX || self.single.contains_key(&address) {
                self.single.insert(address, until_us);
            } else {
                self.refused += 1;
            }
            return;
        }
        let at = self.networks.iter().position(|(groups, _)| *groups == want.groups);
        match at {
            Some(at) if want.ends => _ = self.networks.swap_remove(at),
            Some(at) => self.networks[at].1 = until_us,
            None if want.ends => {}
            None if self.networks.len() < NETWORKS_MAX => self.networks.push((want.groups, until_us)),
            None => self.refused += 1,
        }
    }

    /// Whether the far site wants a group.
    pub(crate) fn include(&self, now_us: u64, group: IpAddr) -> bool {
        self.single.get(&group).is_some_and(|until_us| now_us < *until_us)
            || self.networks.iter().any(|(groups, until_us)| now_us < *until_us && groups.contains(&group))
    }

    /// Forgets what the far site has not repeated.
    pub(crate) fn expire(&mut self, now_us: u64) {
        self.single.retain(|_, until_us| now_us < *until_us);
        self.networks.retain(|(_, until_us)| now_us < *until_us);
    }

    /// The groups that are wanted: networks first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = IpNet> {
        let single = self.single.keys().map(|&group| IpNet::from(group));
        self.networks.iter().map(|(groups, _)| *groups).chain(single)
    }

    /// Number of announcements for which there was no room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Notes that this site wants others than before.
    pub(crate) fn on_change(&mut self) {
        self.told = 0;
        self.next_us = self.next_us.min(self.told_us + AFTER_CHANGE_US[0]);
    }

    /// Whether an announcement of this site's groups is due.
    pub(crate) fn is_due(&self, now_us: u64) -> bool {
        now_us >= self.next_us
    }

    /// Notes that the far site is told which groups this one wants.
    pub(crate) fn on_told(&mut self, now_us: u64) {
        self.next_us = now_us + AFTER_CHANGE_US.get(self.told).copied().unwrap_or(REPEAT_US);
        self.told += 1;
        self.told_us = now_us;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(groups: &str, ends: bool) -> Want {
        Want { groups: groups.parse().unwrap(), ends }
    }

    #[test]
    fn groups_are_wanted_until_the_far_site_ends_or_forgets_them() {
        let mut wants = FarWants::default();
        let [one, other] = ["239.1.2.3", "239.2.2.3"].map(|group| group.parse::<IpAddr>().unwrap());
        wants.take(0, want("239.1.0.0/16", false));
        wants.take(0, want("239.2.2.3/32", false));
        assert!(wants.include(0, one) && wants.include(LIFETIME_US - 1, other));
        assert!(!wants.include(LIFETIME_US, one) && !wants.include(LIFETIME_US, other));
        assert!(!wants.include(0, "239.3.0.1".parse().unwrap()));
        wants.take(5, want("239.1.0.0/16", false));
        wants.expire(LIFETIME_US);
        assert!(wants.include(LIFETIME_US, one) && wants.iter().count() == 1);
        wants.take(6, want("239.1.0.0/16", true));
        assert!(!wants.include(6, one) && wants.iter().next().is_none());
        wants.take(7, want("239.2.2.3/32", false));
        wants.take(8, want("239.2.2.3/32", true));
        assert!(!wants.include(8, other));
    }

    #[test]
    fn a_far_site_that_wants_everything_gets_no_more_memory() {
        let mut wants = FarWants::default();
        for number in 0..10_000u32 {
            let group = IpAddr::from((0xef00_0000 + number).to_be_bytes());
            wants.take(0, Want { groups: group.into(), ends: false });
            let groups = IpNet::new(group, 31).unwrap().trunc();
            wants.take(0, Want { groups, ends: false });
        }
        assert_eq!(wants.iter().count(), SINGLE_MAX + NETWORKS_MAX);
        assert!(wants.refused() > 5_000);
    }

    #[test]
    fn a_change_is_told_three_times_within_seconds() {
        let mut wants = FarWants::default();
        assert!(wants.is_due(0));
        let mut told = Vec::new();
        for now_us in (0..25_000_000).step_by(100_000) {
            if now_us == 15_000_000 {
                wants.on_change();
            }
            if wants.is_due(now_us) {
                told.push(now_us / 100_000);
                wants.on_told(now_us);
            }
        }
        assert_eq!(told, [0, 2, 12, 112, 150, 152, 162]);
    }
}
