//! Settings of one direction of a link.

use std::fmt;
use std::str::FromStr;

use crate::units::{self, UnitError};
use loss::{LossError, LossModel, parse_rate};

const DELAY_US_MAX: u64 = 60_000_000;
const STORAGE_BYTES_MAX: u64 = 4 << 30;
/// Minimum queue: four super-packets of the kernel. A shorter queue would drop from every burst, even of a
/// paced sender.
const QUEUE_BYTES_MIN: u64 = 256 << 10;
/// How long the driver may be kept from the processor before packets no longer fit.
const STALL_US: u64 = 100_000;
/// Rate assumed for the storage of a link without a rate, above what an emulator on one machine carries.
const RATE_BPS_UNLIMITED: u64 = 10_000_000_000;

/// Effects of one direction of a link. The default has none: no rate, no delay, no loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Bits per second, counted from the IP header on; `None` means no limit and no queue.
    pub rate_bps: Option<u64>,
    /// One-way delay in microseconds, up to a minute.
    pub delay_us: u64,
    /// Maximum additional delay per packet, uniformly distributed; the order is kept.
    pub jitter_us: u64,
    /// Bytes that may wait for the wire; `None` uses [`LinkConfig::queue_bytes`].
    pub queue_bytes: Option<u64>,
    /// Loss model.
    pub loss: LossModel,
    /// Reordering, if any.
    pub reorder: Option<Reorder>,
    /// Share of packets that arrive twice.
    pub duplicate: f64,
    /// Share of packets that arrive with one bit flipped.
    pub corrupt: f64,
    /// Random seed of all effects.
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

/// Packets that take longer, so that packets behind them overtake them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Share of packets that take longer.
    pub share: f64,
    /// Additional delay in microseconds.
    pub extra_us: u64,
}

/// Reason why settings of a link are refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A share is not between 0 and 1.
    #[error("{what}: expected a share from 0 to 1, saw {seen}")]
    Share {
        /// Name of the setting.
        what: &'static str,
        /// Its value.
        seen: f64,
    },
    /// A delay is too long.
    #[error("{what}: expected at most {max} µs, saw {seen} µs", max = DELAY_US_MAX)]
    Delay {
        /// Name of the setting.
        what: &'static str,
        /// Its value.
        seen: u64,
    },
    /// The rate is 0.
    #[error("rate: expected at least 1 bit/s, saw 0")]
    Rate,
    /// The queue cannot hold even one packet.
    #[error("queue: expected space for at least one packet (65535 bytes), saw {0} bytes")]
    Queue(u64),
    /// Rate, delay and queue would need too much memory.
    #[error("rate, delay and queue: expected at most {max} bytes of packets in flight, saw {0}", max = STORAGE_BYTES_MAX)]
    Storage(u64),
    /// A text is not a quantity.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A text is not a loss model.
    #[error(transparent)]
    Loss(#[from] LossError),
    /// A text is not a reordering.
    #[error("expected SHARE:DURATION for reordering, such as 0.001:5ms, saw {0:?}")]
    Reorder(String),
}

impl LinkConfig {
    /// Returns the bytes that may wait for the wire: as set, or else one bandwidth-delay product of the round
    /// trip (twice this one-way delay), but at least 256 KiB. With this queue, a single loss-driven TCP
    /// sender just keeps the wire busy when it halves its congestion window. A shorter queue cannot fill the
    /// link; a longer one only adds delay.
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

    /// Returns the storage for packets in order.
    pub(super) fn storage_bytes(&self) -> usize {
        usize::try_from(self.bytes_for(self.delay_us)).unwrap_or(usize::MAX)
    }

    /// Returns the storage for overtaken packets.
    pub(super) fn late_storage_bytes(&self) -> usize {
        usize::try_from(self.late_bytes()).unwrap_or(usize::MAX)
    }

    fn late_bytes(&self) -> u64 {
        self.reorder.map_or(0, |reorder| self.bytes_for(self.delay_us + reorder.extra_us))
    }

    /// Returns the maximum bytes in flight and in the queue, doubled if packets may be duplicated.
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

    /// Parses `SHARE:DURATION`, such as `0.001:5ms` or `1%:500us`.
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
