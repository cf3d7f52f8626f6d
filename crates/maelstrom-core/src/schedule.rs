//! The parameters of a code that an operator chooses.

use std::fmt;

use fec::{
    Code, DENSITY_FULL, LayeredConfig, ReedSolomonConfig, RepairRate, Scheme, Sending, SlidingConfig, names,
};

use crate::auto;
use crate::wire::repair_overhead;

/// Which source packets share a repair, and how many repairs they get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// A sliding window whose rate the gateway chooses by itself. It starts with [`Schedule::START`].
    #[default]
    Auto,
    /// Layered interleaving (Maelstrom §4.3): for each interleave, XORs of r packets that lie one interleave
    /// apart.
    Layered {
        /// Packets in a repair.
        r: u8,
        /// Interleave of each layer.
        interleaves: Vec<u16>,
    },
    /// Reed–Solomon blocks (Maelstrom §4.4): any r of a block's r packets and c repairs recover the whole
    /// block.
    ReedSolomon {
        /// Packets in a block.
        r: u8,
        /// Repairs of a block.
        c: u8,
        /// Number of blocks that are fed in turn, and so the distance between the packets of a block.
        interleave: u16,
    },
    /// A sliding window (RFC 8681): each repair is a random combination of the last packets.
    Sliding {
        /// Repairs per packet, at least 1/64.
        rate: RepairRate,
        /// Packets in a repair, 1 to [`WINDOW_MAX`](crate::wire::WINDOW_MAX).
        window: u16,
        /// Density: on average, `density` + 1 of 16 packets in the window are in a repair. 15 means all of
        /// them.
        density: u8,
    },
}

/// Defaults of configuration files, command lines and simulations.
impl Schedule {
    /// The code with which [`Schedule::Auto`] starts: it recovers 1 % of uniform loss, and bursts of up to 56
    /// packets.
    pub const START: Self = Self::Sliding { rate: auto::START, window: auto::WINDOW, density: DENSITY_FULL };
    /// Number of packets in a repair or block.
    pub const R: u8 = 8;
    /// Interleaves of the layers.
    pub const INTERLEAVES: [u16; 3] = [1, 11, 19];
    /// Number of repairs of a block.
    pub const C: u8 = 3;
    /// Number of blocks fed in turn.
    pub const INTERLEAVE: u16 = 1;
    /// Repairs of a sliding window per packet, the overhead of three layers of r = 8.
    pub const RATE: RepairRate = RepairRate::THREE_EIGHTHS;
    /// Number of packets in a sliding window.
    pub const WINDOW: u16 = 256;
    /// Density of a sliding window: each repair contains all packets of the window.
    pub const DENSITY: u8 = DENSITY_FULL;
    /// Whether repairs of interleaved packets wait for later packets.
    pub const DELAYED: bool = true;
    /// Longest wait of repairs of sparse traffic, in milliseconds.
    pub const MAX_DELAY_MS: u16 = 20;
}

impl Schedule {
    /// The published code: layered (8; 1,11,19).
    pub fn layered() -> Self {
        Self::Layered { r: Self::R, interleaves: Self::INTERLEAVES.to_vec() }
    }

    /// Number of packets that a full repair names.
    pub fn names(&self) -> usize {
        match *self {
            Self::Auto => Self::START.names(),
            Self::Layered { r, .. } | Self::ReedSolomon { r, .. } => usize::from(r),
            Self::Sliding { rate, .. } => names::per_repair(rate),
        }
    }

    /// Smallest window in packets at which every packet is in a repair; 0 for other schemes. In a window
    /// below [`Schedule::names`], packets leave before all copies of their names have been sent.
    pub fn window_min(&self) -> usize {
        match *self {
            Self::Auto => Self::START.window_min(),
            Self::Layered { .. } | Self::ReedSolomon { .. } => 0,
            Self::Sliding { rate, .. } => names::stride(rate),
        }
    }

    /// Number of bytes by which a full repair is longer on the WAN than the longest packet in it.
    pub fn repair_overhead(&self, ipv6: bool) -> usize {
        repair_overhead(self.scheme(), self.names(), ipv6)
    }

    /// The same toward a peer in passive mode, or in a tunnel, where the repairs of a window name no packets.
    pub fn overhead_toward(&self, is_tunnel: bool, ipv6: bool) -> usize {
        match self.scheme() {
            Scheme::Sliding if is_tunnel => repair_overhead(Scheme::Sliding, 0, ipv6),
            _ => self.repair_overhead(ipv6),
        }
    }

    /// Maximum number of repairs that can fire at once. `delayed`: whether full ones wait.
    pub(crate) fn volley(&self, delayed: bool) -> usize {
        match self {
            // The highest rate sends one repair with each packet, and two others may be due by time, and for
            // its class.
            Self::Auto => 3,
            Self::Sliding { rate, .. } => rate.repairs().div_ceil(rate.sources()) as usize + 2,
            Self::Layered { .. } | Self::ReedSolomon { .. } => self.sums(delayed),
        }
    }

    /// Number of packets, or sums of packets, that the egress keeps, each as long as the longest packet.
    /// `delayed`: whether full ones wait.
    pub fn sums(&self, delayed: bool) -> usize {
        match self {
            Self::Auto => usize::from(auto::WINDOW_LONG),
            Self::Layered { interleaves, .. } => interleaves.iter().copied().map(usize::from).sum(),
            Self::ReedSolomon { c, interleave, .. } => {
                let rounds = if delayed && *interleave > 1 { 2 } else { 1 };
                rounds * usize::from(*interleave) * usize::from(*c)
            }
            Self::Sliding { window, .. } => usize::from(*window),
        }
    }

    /// Longest wait of a packet for its last repair, where `max_delay_us` is the longest wait for the first.
    /// For a window it is the wait for the first repair, because later ones contain a packet only while the
    /// far end remembers it.
    pub(crate) fn slowest_us(&self, max_delay_us: u64) -> u64 {
        match self {
            Self::Layered { interleaves, .. } => {
                let widest = interleaves.iter().copied().max().unwrap_or(1);
                let narrowest = interleaves.iter().copied().min().unwrap_or(1).max(1);
                max_delay_us * u64::from(widest) / u64::from(narrowest)
            }
            Self::Auto | Self::ReedSolomon { .. } | Self::Sliding { .. } => max_delay_us,
        }
    }

    /// Returns the code with these parameters; for [`Schedule::Auto`] the code with which it starts.
    /// `delayed`: whether full repairs wait. `max_delay_us`: longest wait of repairs of sparse traffic.
    /// `symbol_max`: longest symbol in bytes.
    pub fn code(&self, delayed: bool, max_delay_us: u64, symbol_max: usize) -> Code {
        let sending = if delayed { Sending::Delayed } else { Sending::Immediate };
        let deadline_us = Some(max_delay_us);
        match self {
            Self::Auto => Self::START.code(delayed, max_delay_us, symbol_max),
            Self::Layered { r, interleaves } => {
                let interleaves = interleaves.clone();
                LayeredConfig { r: *r, interleaves, sending, deadline_us, symbol_max }.into()
            }
            &Self::ReedSolomon { r, c, interleave } => {
                // A single block recovers single losses, soonest if its repairs leave at once.
                let sending = if interleave > 1 { sending } else { Sending::Immediate };
                ReedSolomonConfig { r, c, interleave, sending, deadline_us, symbol_max }.into()
            }
            &Self::Sliding { rate, window, density } => {
                SlidingConfig { rate, window, stripes: 1, density, seed: 0, deadline_us, symbol_max }.into()
            }
        }
    }

    /// Returns the scheme without its parameters.
    pub fn scheme(&self) -> Scheme {
        match self {
            Self::Layered { .. } => Scheme::Layered,
            Self::ReedSolomon { .. } => Scheme::ReedSolomon,
            Self::Auto | Self::Sliding { .. } => Scheme::Sliding,
        }
    }
}

/// Writes `auto`, or the notation of the papers, as [`Code`] does.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            _ => self.code(false, 1, 1).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_becomes_a_code_with_its_parameters() {
        let layers = Schedule::layered();
        let blocks = Schedule::ReedSolomon { r: 9, c: 4, interleave: 20 };
        assert_eq!((layers.to_string(), layers.sums(true)), ("layered (8; 1,11,19)".to_owned(), 31));
        assert_eq!((blocks.to_string(), blocks.sums(false)), ("reed-solomon (9,4) x20".to_owned(), 80));
        assert_eq!((blocks.sums(true), blocks.names(), layers.names()), (160, 9, 8));
        for (schedule, span, slowest_us) in [(layers, 152, 190_000), (blocks, 180, 10_000)] {
            let code = schedule.code(true, 10_000, 1_512);
            assert_eq!((code.check(), code.span()), (Ok(()), span));
            assert_eq!(code.terms_max(), schedule.names());
            assert_eq!(schedule.slowest_us(10_000), slowest_us);
        }
    }
}
