//! A code of any scheme, with its parameters.

use std::fmt;

use crate::error::ConfigError;
use crate::layered::LayeredConfig;
use crate::reed_solomon::ReedSolomonConfig;
use crate::scheme::Scheme;
use crate::sliding::{DENSITY_FULL, SlidingConfig};

/// A code and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Code {
    /// Layered interleaving.
    Layered(LayeredConfig),
    /// Reed–Solomon blocks.
    ReedSolomon(ReedSolomonConfig),
    /// A sliding window.
    Sliding(SlidingConfig),
}

impl Default for Code {
    /// The default of layered interleaving.
    fn default() -> Self {
        Self::Layered(LayeredConfig::default())
    }
}

impl From<LayeredConfig> for Code {
    fn from(config: LayeredConfig) -> Self {
        Self::Layered(config)
    }
}

impl From<ReedSolomonConfig> for Code {
    fn from(config: ReedSolomonConfig) -> Self {
        Self::ReedSolomon(config)
    }
}

impl From<SlidingConfig> for Code {
    fn from(config: SlidingConfig) -> Self {
        Self::Sliding(config)
    }
}

impl Code {
    /// Returns the scheme without its parameters.
    pub fn scheme(&self) -> Scheme {
        match self {
            Self::Layered(_) => Scheme::Layered,
            Self::ReedSolomon(_) => Scheme::ReedSolomon,
            Self::Sliding(_) => Scheme::Sliding,
        }
    }

    /// Checks every range. [`Encoder::check`](crate::Encoder::check) also checks the memory needed.
    ///
    /// # Errors
    /// The first mistake found.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self {
            Self::Layered(config) => config.check(),
            Self::ReedSolomon(config) => config.check(),
            Self::Sliding(config) => config.check(),
        }
    }

    /// Repairs per source packet in the long run.
    pub fn overhead(&self) -> f64 {
        match self {
            Self::Layered(config) => config.overhead(),
            Self::ReedSolomon(config) => config.overhead(),
            Self::Sliding(config) => config.overhead(),
        }
    }

    /// Maximum number of packets in one repair.
    pub fn terms_max(&self) -> usize {
        match self {
            Self::Layered(config) => usize::from(config.r),
            Self::ReedSolomon(config) => usize::from(config.r),
            Self::Sliding(config) => usize::from(config.window),
        }
    }

    /// Number of source packets from the first to the last that a repair covers, where bins and blocks fill.
    pub fn span(&self) -> usize {
        match self {
            Self::Layered(config) => {
                usize::from(config.r) * usize::from(config.interleaves.iter().copied().max().unwrap_or(1))
            }
            Self::ReedSolomon(config) => usize::from(config.r) * usize::from(config.interleave),
            Self::Sliding(config) => usize::from(config.window),
        }
    }

    /// Length of the longest burst, in packets and repairs, that the code recovers in a stream without other
    /// losses, where bins and blocks fill. A window recovers next to nothing of a longer one.
    ///
    /// ```
    /// use fec::{Code, LayeredConfig, RepairRate, SlidingConfig};
    /// let rate = RepairRate::constant(1, 8);
    /// let window = SlidingConfig { rate, window: 512, ..SlidingConfig::default() };
    /// assert_eq!(Code::from(window).longest_burst(), 56);
    /// assert_eq!(Code::from(LayeredConfig::default()).longest_burst(), 19);
    /// ```
    pub fn longest_burst(&self) -> usize {
        match self {
            Self::Layered(config) => usize::from(config.interleaves.iter().copied().max().unwrap_or(0)),
            Self::ReedSolomon(config) => usize::from(config.c) * usize::from(config.interleave),
            Self::Sliding(config) => {
                let (repairs, sources) = (config.rate.repairs() as usize, config.rate.sources() as usize);
                usize::from(config.window) * repairs / (repairs + sources).max(1)
            }
        }
    }

    /// Returns the same code without deadline, for symbols of up to `symbol` bytes, as simulations need it.
    #[must_use]
    pub fn without_clock(mut self, symbol: usize) -> Self {
        let (deadline_us, symbol_max) = match &mut self {
            Self::Layered(config) => (&mut config.deadline_us, &mut config.symbol_max),
            Self::ReedSolomon(config) => (&mut config.deadline_us, &mut config.symbol_max),
            Self::Sliding(config) => (&mut config.deadline_us, &mut config.symbol_max),
        };
        (*deadline_us, *symbol_max) = (None, symbol);
        self
    }
}

/// Writes the notation of the papers: `layered (8; 1,11,19)`, `reed-solomon (8,3) x20`, `sliding (256; 1/8)`.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layered(LayeredConfig { r, interleaves, .. }) => {
                let interleaves: Vec<String> = interleaves.iter().map(u16::to_string).collect();
                write!(f, "layered ({r}; {})", interleaves.join(","))
            }
            Self::ReedSolomon(ReedSolomonConfig { r, c, interleave, .. }) => {
                write!(f, "reed-solomon ({r},{c}) x{interleave}")
            }
            Self::Sliding(SlidingConfig { rate, window, stripes, density, .. }) => {
                write!(f, "sliding ({window}; {rate}")?;
                if *stripes > 1 {
                    write!(f, ", {stripes} stripes")?;
                }
                if *density < DENSITY_FULL {
                    write!(f, ", density {density}")?;
                }
                f.write_str(")")
            }
        }
    }
}
