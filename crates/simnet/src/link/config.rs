//! The settings of one direction of a link.

use std::fmt;
use std::str::FromStr;

use crate::units::{self, UnitError};
use loss::{LossError, LossModel, parse_rate};

const DELAY_US_MAX: u64 = 60_000_000;
const STORAGE_BYTES_MAX: u64 = 4 << 30;
/// Four super-packets of the kernel: a shorter queue would drop from every burst that a sender makes at its own pace.
const QUEUE_BYTES_MIN: u64 = 256 << 10;
/// The driver may be kept from the processor for so long before packets have no room.
const STALL_US: u64 = 100_000;
/// Storage of a link without a rate is counted at this rate, above what an emulator on one machine carries.
const RATE_BPS_UNLIMITED: u64 = 10_000_000_000;

/// What one direction of a link does to packets. The default does nothing: no rate, no delay, no loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Bits per second, counted from the IP header on; `None`: no limit, and no queue.
    pub rate_bps: Option<u64>,
    /// One-way delay in microseconds, up to a minute.
    pub delay_us: u64,
    /// Up to so much more delay for each packet, evenly spread; order is kept.
    pub jitter_us: u64,
    /// Bytes that may wait for the wire; `None`: [`LinkConfig::queue_bytes`] tells.
    pub queue_bytes: Option<u64>,
    /// Which packets are lost.
    pub loss: LossModel,
    /// Which packets are overtaken.
    pub reorder: Option<Reorder>,
    /// Share of packets that arrive twice.
    pub duplicate: f64,
    /// Share of packets that arrive with a bit flipped.
    pub corrupt: f64,
    /// Seed of all chance.
    pub seed: u64,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate_bps: None,
            delay_us: 0,
            jitter_us: 0,
            queue_bytes: None,
            loss: LossModel::None,
            reorder: None,
            duplicate: 0.0,
            corrupt: 0.0,
            seed: 1,
        }
    }
}

/// Packets that take longer and are overtaken by those behind them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Share of packets.
    pub share: f64,
    /// How much longer they take, in microseconds.
    pub extra_us: u64,
}

/// Why settings of a link are refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A share is not between 0 and 1.
    #[error("{what}: expected a share from 0 to 1, got {seen}")]
    Share {
        /// The setting.
        what: &'static str,
        /// The value.
        seen: f64,
    },
    /// A delay is too long.
    #[error("{what}: expected at most {max} µs, got {seen} µs", max = DELAY_US_MAX)]
    Delay {
        /// The setting.
        what: &'static str,
        /// The value.
        seen: u64,
    },
    /// The rate is 0.
    #[error("rate: expected at least 1 bit/s, got 0")]
    Rate,
    /// No packet would fit in the queue.
    #[error("queue: expected room for one packet at least (65535 bytes), got {0} bytes")]
    Queue(u64),
    /// Rate, delay and queue ask for too much memory.
    #[error("rate, delay and queue ask for {0} bytes of packets under way, expected at most {max}", max = STORAGE_BYTES_MAX)]
    Storage(u64),
    /// A text is no quantity.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A text is no rate of packets.
    #[error(transparent)]
    Loss(#[from] LossError),
    /// A text is no reordering.
    #[error("expected SHARE:DURATION for reordering, as 0.001:5ms, got {0:?}")]
    Reorder(String),
}

impl LinkConfig {
    /// Bytes that may wait for the wire: as set, or else one bandwidth-delay product of the round trip (twice this
    /// one-way delay). With that much a single loss-driven TCP sender just keeps the wire busy when it halves its
    /// window; with less it cannot fill the link, with more it only adds delay. At least 256 KiB.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        let product = bytes_in(self.rate_bps.unwrap_or(RATE_BPS_UNLIMITED), 2 * self.delay_us);
        self.queue_bytes.unwrap_or(product.max(QUEUE_BYTES_MIN))
    }

    pub(super) fn check(&self) -> Result<(), LinkError> {
        if self.rate_bps == Some(0) {
            return Err(LinkError::Rate);
        }
        let reorder = self.reorder.unwrap_or(Reorder { share: 0.0, extra_us: 0 });
        let shares = [("duplicate", self.duplicate), ("corrupt", self.corrupt), ("reorder", reorder.share)];
        for (what, seen) in shares {
            if !(0.0..=1.0).contains(&seen) {
                return Err(LinkError::Share { what, seen });
            }
        }
        let delays = [("delay", self.delay_us), ("jitter", self.jitter_us), ("reorder", reorder.extra_us)];
        for (what, seen) in delays {
            if seen > DELAY_US_MAX {
                return Err(LinkError::Delay { what, seen });
            }
        }
        if self.queue_bytes() < u64::from(u16::MAX) {
            return Err(LinkError::Queue(self.queue_bytes()));
        }
        let storage = self.bytes_for(self.delay_us) + self.late_bytes();
        if storage > STORAGE_BYTES_MAX {
            return Err(LinkError::Storage(storage));
        }
        Ok(())
    }

    /// Storage for packets in order.
    pub(super) fn storage_bytes(&self) -> usize {
        usize::try_from(self.bytes_for(self.delay_us)).unwrap_or(usize::MAX)
    }

    /// Storage for packets that are overtaken.
    pub(super) fn late_storage_bytes(&self) -> usize {
        usize::try_from(self.late_bytes()).unwrap_or(usize::MAX)
    }

    fn late_bytes(&self) -> u64 {
        self.reorder.map_or(0, |reorder| self.bytes_for(self.delay_us + reorder.extra_us))
    }

    /// What is on the way and in the queue at most, twice if packets may be doubled.
    fn bytes_for(&self, delay_us: u64) -> u64 {
        let rate = self.rate_bps.unwrap_or(RATE_BPS_UNLIMITED);
        let queue = if self.rate_bps.is_some() { self.queue_bytes() } else { 0 };
        let once = bytes_in(rate, delay_us + self.jitter_us + STALL_US).saturating_add(queue);
        let copies = if self.duplicate > 0.0 { 2 } else { 1 };
        once.saturating_mul(copies).saturating_add(4 * u64::from(u16::MAX))
    }
}

fn bytes_in(rate_bps: u64, time_us: u64) -> u64 {
    u64::try_from(u128::from(rate_bps) * u128::from(time_us) / 8_000_000).unwrap_or(u64::MAX)
}

impl FromStr for Reorder {
    type Err = LinkError;

    /// `SHARE:DURATION`, as `0.001:5ms` or `1%:500us`.
    fn from_str(text: &str) -> Result<Self, LinkError> {
        let (share, extra) = text.split_once(':').ok_or_else(|| LinkError::Reorder(text.to_owned()))?;
        Ok(Self { share: parse_rate(share)?, extra_us: units::parse_duration_us(extra)? })
    }
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.share, units::format_duration_us(self.extra_us))
    }
}
