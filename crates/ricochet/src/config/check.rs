//! Ranges, and values held against each other.

use std::fmt::Display;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use ricochet_core::bins::Content;
use ricochet_core::delivery::FifoConfig;
use ricochet_core::groups::GROUPS_MAX;
use ricochet_core::node::{AnnounceConfig, NakConfig};
use ricochet_core::tracker::TrackerConfig;
use ricochet_core::{NodeConfig, NodeId};

use super::{
    AnnounceSection, BuffersSection, Config, ConfigError, FifoSection, GROUP_ADDRESSES_MAX, NakSection,
    NodeSection, RepairMode,
};
use crate::key::TRAILER;

/// Most gaps that are waited for in one stream. Of a long outage all is sent again at once, and what the ring has no room for
/// leaves as many gaps.
const GAPS_MAX: u32 = 512;
/// Most gaps that are waited for in all streams together.
const GAPS_IN_ALL: usize = 1 << 14;
/// Most of whatever a table may hold.
const MANY: usize = 1 << 20;
/// No time is longer.
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

impl Config {
    /// Checks every range, and the values against each other.
    ///
    /// # Errors
    /// The first mistake found.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.node.check()?;
        self.repair_ranges()?;
        self.nak.check()?;
        self.announce.check()?;
        self.buffer_ranges()?;
        self.fifo.check(&self.buffers)?;
        if self.membership.file.is_some() && !self.membership.seeds.is_empty() {
            return Err(ConfigError::Contradiction {
                key: "membership.file",
                why: "expected a file or seeds, saw both: the file names all members".to_owned(),
            });
        }
        Ok(())
    }

    fn repair_ranges(&self) -> Result<(), ConfigError> {
        let repair = &self.repair;
        within("repair.r", repair.r, 1..=64)?;
        within("repair.c", repair.repairs_per_packet(), 0..=64)?;
        within("repair.stagger", repair.stagger, 1..=256)?;
        let max_delay = repair.max_delay_ms.unwrap_or_default();
        within_ms("repair.max_delay_ms", max_delay, Duration::ZERO, Duration::from_secs(10))
    }

    fn buffer_ranges(&self) -> Result<(), ConfigError> {
        let buffers = &self.buffers;
        within("buffers.packets", buffers.packets, 16..=MANY)?;
        within("buffers.equations", buffers.equations, 1..=1 << 16)?;
        within("buffers.streams", buffers.streams, 1..=MANY)?;
        within("buffers.ring", buffers.ring, 64..=MANY)?;
        within("buffers.socket_bytes", buffers.socket_bytes, 4_096..=1 << 30)?;
        within("buffers.payloads", buffers.payloads, 0..=MANY)?;
        within("buffers.queue", buffers.queue, 1..=MANY)?;
        within("buffers.datagram_max", buffers.datagram_max, 1_200..=65_507)
    }

    /// What the core makes of it.
    pub(crate) fn core(&self, id: NodeId, has_key: bool) -> NodeConfig {
        let (repair, nak, buffers) = (&self.repair, &self.nak, &self.buffers);
        NodeConfig {
            r: repair.r,
            stagger: repair.stagger,
            max_delay_us: repair.patience().map(micros),
            content: match repair.mode {
                RepairMode::Xor => Content::Xor,
                RepairMode::Digest => Content::Names,
                RepairMode::Auto => Content::Auto,
            },
            packets: buffers.packets,
            equations: buffers.equations,
            datagram_max: buffers.datagram_max,
            trailer: if has_key { TRAILER } else { 0 },
            nak: NakConfig {
                enabled: nak.enabled,
                first_us: micros(nak.first_ms),
                gap_us: nak.gap_ms.map(micros),
                retry_us: micros(nak.retry_ms),
                sender_tries: nak.sender_tries,
                tries_max: nak.tries,
                give_up_us: micros(nak.give_up_ms),
                packets_per_second: nak.packets_per_second,
                expires_after_us: micros(nak.expires_after_ms),
                ..NodeConfig::prompt(id).nak
            },
            announce: AnnounceConfig {
                first_us: micros(self.announce.first_ms),
                growth: self.announce.growth,
                times: self.announce.times,
                seldom: self.announce.seldom,
                unless_named_us: micros(self.announce.unless_named_ms),
            },
            tracker: TrackerConfig {
                streams_max: buffers.streams,
                // A stream first seen in its middle takes one, and gaps must have room beside these to be parted.
                intervals_max: buffers.streams + GAPS_IN_ALL,
                stream_intervals_max: GAPS_MAX,
                ..TrackerConfig::default()
            },
            answers_per_second: nak.packets_per_second,
            ..NodeConfig::new(id)
        }
    }
}

impl NodeSection {
    fn check(&self) -> Result<(), ConfigError> {
        within("node.group_port", self.group_port, 1..=u16::MAX)?;
        within("node.group_addresses", self.group_addresses, 1..=GROUP_ADDRESSES_MAX)?;
        within("node.hops", self.hops, 1..=255)?;
        within("node.max_groups", self.max_groups, 1..=GROUPS_MAX)?;
        if self.port == Some(self.group_port) {
            return Err(ConfigError::Contradiction {
                key: "node.port",
                why: format!("expected another port than the groups', saw {} for both", self.group_port),
            });
        }
        self.check_base()
    }

    /// Whether IPv6 is meant: the addresses say so, or the switch does.
    pub(crate) fn is_ipv6(&self) -> bool {
        self.address.or(self.groups_base).map_or(self.ipv6, |address| address.is_ipv6())
    }

    fn check_base(&self) -> Result<(), ConfigError> {
        let Some(base) = self.groups_base else { return Ok(()) };
        let key = "node.groups_base";
        let range = |expected: &str| ConfigError::Range {
            key,
            expected: expected.to_owned(),
            seen: base.to_string(),
        };
        if !base.is_multicast() {
            return Err(range("a multicast address"));
        }
        if base.is_ipv6() != self.is_ipv6() {
            return Err(range("an address of the same version as `address`"));
        }
        let last = match base {
            IpAddr::V4(base) => base
                .to_bits()
                .checked_add(u32::from(self.group_addresses) - 1)
                .is_some_and(|last| std::net::Ipv4Addr::from_bits(last).is_multicast()),
            IpAddr::V6(base) => base.to_bits().checked_add(u128::from(self.group_addresses) - 1).is_some(),
        };
        if last { Ok(()) } else { Err(range("room for `group_addresses` multicast addresses")) }
    }
}

impl NakSection {
    fn check(&self) -> Result<(), ConfigError> {
        let least = Duration::from_micros(1);
        within_ms("nak.first_ms", self.first_ms, Duration::ZERO, HOUR)?;
        within_ms("nak.gap_ms", self.gap_ms.unwrap_or_default(), Duration::ZERO, HOUR)?;
        within_ms("nak.retry_ms", self.retry_ms, least, Duration::from_secs(60))?;
        within_ms("nak.expires_after_ms", self.expires_after_ms, least, HOUR)?;
        within_ms("nak.give_up_ms", self.give_up_ms, least, HOUR)?;
        within("nak.tries", self.tries, 1..=255)?;
        within("nak.packets_per_second", self.packets_per_second, 1..=10_000_000)
    }
}

impl AnnounceSection {
    fn check(&self) -> Result<(), ConfigError> {
        within_ms("announce.first_ms", self.first_ms, Duration::from_micros(1), Duration::from_secs(60))?;
        within("announce.growth", self.growth, 2..=16)?;
        within("announce.times", self.times, 0..=16)?;
        within("announce.seldom", self.seldom, 1..=16)?;
        within_ms("announce.unless_named_ms", self.unless_named_ms, Duration::ZERO, HOUR)
    }
}

impl FifoSection {
    fn check(&self, buffers: &BuffersSection) -> Result<(), ConfigError> {
        within("fifo.messages", self.messages, 1..=MANY)?;
        within("fifo.bytes", self.bytes, 1 << 16..=1 << 30)?;
        within("fifo.streams", self.streams.unwrap_or(1), 1..=MANY)?;
        if let Some(seen) = self.streams.filter(|&seen| seen < buffers.streams) {
            let least = buffers.streams;
            return Err(ConfigError::Contradiction {
                key: "fifo.streams",
                why: format!("expected {least} as in `buffers.streams`, or more, saw {seen}: leave it out"),
            });
        }
        within_ms("fifo.settle_ms", self.settle_ms, Duration::ZERO, Duration::from_secs(10))
    }

    /// What the core makes of it.
    pub(crate) fn core(&self, buffers: &BuffersSection) -> FifoConfig {
        FifoConfig {
            messages_max: self.messages,
            bytes_max: self.bytes,
            streams_max: self.streams.unwrap_or(buffers.streams),
            settle_us: micros(self.settle_ms),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn within<T: PartialOrd + Display + Copy>(
    key: &'static str,
    seen: T,
    range: RangeInclusive<T>,
) -> Result<(), ConfigError> {
    if range.contains(&seen) {
        return Ok(());
    }
    let expected = format!("{} to {}", range.start(), range.end());
    Err(ConfigError::Range { key, expected, seen: seen.to_string() })
}

fn within_ms(key: &'static str, seen: Duration, min: Duration, max: Duration) -> Result<(), ConfigError> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    within(key, ms(seen), ms(min)..=ms(max))
}
