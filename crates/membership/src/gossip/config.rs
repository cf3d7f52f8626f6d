//! Times and bounds of gossip.

use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use foca::{Config, PeriodicParams};

use crate::exchange::ListsConfig;
use crate::me::{ConfigError, in_range};
use crate::wire::{DATAGRAM_MAX, HEADER};

/// Most members that may be allowed for.
const MEMBERS_MAX: usize = 1 << 16;

/// How gossip behaves.
#[derive(Clone, Copy, Debug)]
pub struct GossipConfig {
    /// Members that are known at most, living and dead.
    pub members_max: usize,
    /// Each node asks one other for a sign of life this often.
    pub probe_period_us: u64,
    /// Without an answer after this, others are asked to try; below half of the period.
    pub probe_timeout_us: u64,
    /// Who has not answered until the end of the period has this long to object, before it is taken for dead.
    pub suspicion_us: u64,
    /// Others that are asked to try, and that news are told to at once.
    pub probe_helpers: usize,
    /// How often each piece of news of a member is told.
    pub news_repeats: u8,
    /// Time between two rounds of news, as long as there are any.
    pub news_period_us: u64,
    /// Time between two questions to a member drawn by chance for all the members that it knows.
    pub feed_period_us: u64,
    /// Time between two attempts to reach one of those who are taken for dead.
    pub revive_period_us: u64,
    /// The dead are remembered this long.
    pub forget_dead_us: u64,
    /// Time between two attempts to reach a seed, as long as nobody is known.
    pub seed_retry_us: u64,
    /// Time between two attempts to reach a seed that is no member, if others are.
    pub seed_check_us: u64,
    /// What is known of groups, and how it travels.
    pub lists: ListsConfig,
}

impl GossipConfig {
    /// For a local network: a crash is noticed within two seconds, at up to some hundred nodes.
    pub fn lan() -> Self {
        Self {
            members_max: 4_096,
            probe_period_us: 300_000,
            probe_timeout_us: 100_000,
            suspicion_us: 900_000,
            probe_helpers: 3,
            news_repeats: 12,
            news_period_us: 100_000,
            feed_period_us: 5_000_000,
            revive_period_us: 2_000_000,
            forget_dead_us: 600_000_000,
            seed_retry_us: 250_000,
            seed_check_us: 2_000_000,
            lists: ListsConfig::default(),
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let period = "10 ms to 10 minutes";
        for (name, value) in [
            ("probe_period_us", self.probe_period_us),
            ("suspicion_us", self.suspicion_us),
            ("news_period_us", self.news_period_us),
            ("feed_period_us", self.feed_period_us),
            ("revive_period_us", self.revive_period_us),
            ("seed_retry_us", self.seed_retry_us),
            ("seed_check_us", self.seed_check_us),
        ] {
            in_range(name, value, 10_000..=600_000_000, period)?;
        }
        let half_us = self.probe_period_us / 2;
        in_range("probe_timeout_us", self.probe_timeout_us, 1_000..=half_us, "1 ms to half of the period")?;
        in_range("forget_dead_us", self.forget_dead_us, 1_000_000..=86_400_000_000, "a second to a day")?;
        in_range("members_max", self.members_max as u64, 1..=MEMBERS_MAX as u64, "1 to 65536")?;
        in_range("probe_helpers", self.probe_helpers as u64, 1..=16, "1 to 16")?;
        in_range("news_repeats", u64::from(self.news_repeats), 1..=100, "1 to 100")?;
        self.lists.check()
    }

    /// The same for the library.
    ///
    /// # Panics
    /// If this was not checked before.
    pub(super) fn foca(&self) -> Config {
        let time = Duration::from_micros;
        let count = |count| NonZeroUsize::new(count).expect("checked");
        let periodic = |period_us, members| {
            Some(PeriodicParams { frequency: time(period_us), num_members: count(members) })
        };
        Config {
            probe_period: time(self.probe_period_us),
            probe_rtt: time(self.probe_timeout_us),
            num_indirect_probes: count(self.probe_helpers),
            max_transmissions: NonZeroU8::new(self.news_repeats).expect("checked"),
            suspect_to_down_after: time(self.suspicion_us),
            remove_down_after: Some(time(self.forget_dead_us)),
            max_packet_size: count(DATAGRAM_MAX - HEADER),
            notify_down_members: true,
            periodic_announce: periodic(self.feed_period_us, 1),
            periodic_announce_to_down_members: periodic(self.revive_period_us, 1),
            periodic_gossip: periodic(self.news_period_us, self.probe_helpers),
        }
    }
}

impl Default for GossipConfig {
    fn default() -> Self {
        Self::lan()
    }
}
