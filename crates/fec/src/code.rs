//! Any of the codes, for who wants them alike.

use crate::limits::SymbolTooLong;
use crate::{
    ConfigError, LayeredConfig, LayeredEncoder, R_MAX, ReedSolomonConfig, ReedSolomonConfigError,
    ReedSolomonEncoder, ReedSolomonRepair, Repair, SlidingConfig, SlidingConfigError, SlidingEncoder,
    SlidingRepair,
};
use thiserror::Error;

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

/// What is wrong with a [`Code`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(transparent)]
pub enum CodeError {
    /// With layered interleaving.
    Layered(#[from] ConfigError),
    /// With Reed–Solomon blocks.
    ReedSolomon(#[from] ReedSolomonConfigError),
    /// With a sliding window.
    Sliding(#[from] SlidingConfigError),
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
    /// Checks every range; the first mistake found is returned.
    pub fn check(&self) -> Result<(), CodeError> {
        match self {
            Self::Layered(config) => config.check()?,
            Self::ReedSolomon(config) => config.check()?,
            Self::Sliding(config) => config.check()?,
        }
        Ok(())
    }

    /// Repairs sent for each source packet in the long run.
    pub fn overhead(&self) -> f64 {
        match self {
            Self::Layered(config) => config.overhead(),
            Self::ReedSolomon(config) => config.overhead(),
            Self::Sliding(config) => config.overhead(),
        }
    }

    /// Most packets in one repair.
    pub fn terms_max(&self) -> usize {
        match self {
            Self::Layered(config) => usize::from(config.r),
            Self::ReedSolomon(config) => usize::from(config.r),
            Self::Sliding(config) => usize::from(config.window),
        }
    }

    /// Source packets from the first to the last that a repair reaches, while bins and blocks fill.
    pub fn span(&self) -> usize {
        match self {
            Self::Layered(config) => {
                usize::from(config.r) * usize::from(config.interleaves.iter().copied().max().unwrap_or(1))
            }
            Self::ReedSolomon(config) => usize::from(config.r) * usize::from(config.interleave),
            Self::Sliding(config) => usize::from(config.window),
        }
    }

    /// The same code for symbols of another length, without deadline: what simulations need.
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

/// What the coefficients of a sliding window's repair follow from, with the number of packets in the window: the
/// arguments of [`coding_coefficients`](crate::coding_coefficients).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    /// Seed of the generator.
    pub seed: u16,
    /// Density threshold.
    pub density: u8,
}

/// A repair packet of any code, to be sent.
#[derive(Debug, Clone, Copy)]
pub struct CodedRepair<'a, N> {
    /// Layer of a layered code, row of a Reed–Solomon block; 0 for a sliding window.
    pub row: usize,
    /// The packets in it, oldest first; of a sliding window all its packets, also those whose coefficient is 0.
    pub names: &'a [N],
    /// One for each of the names.
    pub coefficients: &'a [u8],
    /// What the coefficients of a sliding window's repair follow from; `None` for other codes, whose row says it.
    pub draw: Option<Draw>,
    /// The sum of the packets times their coefficients.
    pub payload: &'a [u8],
}

impl<'a, N> From<Repair<'a, N>> for CodedRepair<'a, N> {
    fn from(repair: Repair<'a, N>) -> Self {
        const ONES: [u8; R_MAX as usize] = [1; R_MAX as usize];
        let Repair { layer: row, names, payload, .. } = repair;
        Self { row, names, coefficients: &ONES[..names.len()], draw: None, payload }
    }
}

impl<'a, N> From<ReedSolomonRepair<'a, N>> for CodedRepair<'a, N> {
    fn from(repair: ReedSolomonRepair<'a, N>) -> Self {
        let ReedSolomonRepair { row, names, coefficients, payload } = repair;
        Self { row: usize::from(row), names, coefficients, draw: None, payload }
    }
}

impl<'a, N> From<SlidingRepair<'a, N>> for CodedRepair<'a, N> {
    fn from(repair: SlidingRepair<'a, N>) -> Self {
        let SlidingRepair { seed, density, names, coefficients, payload } = repair;
        Self { row: 0, names, coefficients, draw: Some(Draw { seed, density }), payload }
    }
}

/// Makes the repairs of any code from a stream of source packets.
#[derive(Debug)]
pub enum Encoder<N> {
    /// Layered interleaving.
    Layered(LayeredEncoder<N>),
    /// Reed–Solomon blocks.
    ReedSolomon(ReedSolomonEncoder<N>),
    /// A sliding window.
    Sliding(SlidingEncoder<N>),
}

impl<N: Copy> Encoder<N> {
    /// An encoder at the start of the stream.
    pub fn new(code: &Code) -> Result<Self, CodeError> {
        Ok(match code {
            Code::Layered(config) => Self::Layered(LayeredEncoder::new(config)?),
            Code::ReedSolomon(config) => Self::ReedSolomon(ReedSolomonEncoder::new(config)?),
            Code::Sliding(config) => Self::Sliding(SlidingEncoder::new(config)?),
        })
    }

    /// Adds the next source packet, a symbol given as pieces that follow each other, and emits the repairs that this
    /// makes due. Does not look at deadlines.
    pub fn push(
        &mut self,
        now_us: u64,
        name: N,
        symbol: &[&[u8]],
        emit: &mut impl FnMut(CodedRepair<'_, N>),
    ) -> Result<(), SymbolTooLong> {
        match self {
            Self::Layered(encoder) => encoder.push(now_us, name, symbol, &mut |repair| emit(repair.into())),
            Self::ReedSolomon(encoder) => {
                encoder.push(now_us, name, symbol, &mut |repair| emit(repair.into()))
            }
            Self::Sliding(encoder) => encoder.push(now_us, name, symbol, &mut |repair| emit(repair.into())),
        }
    }

    /// When [`fire_due`](Self::fire_due) next has something to do.
    pub fn next_deadline_us(&self) -> Option<u64> {
        match self {
            Self::Layered(encoder) => encoder.next_deadline_us(),
            Self::ReedSolomon(encoder) => encoder.next_deadline_us(),
            Self::Sliding(encoder) => encoder.next_deadline_us(),
        }
    }

    /// Emits what has reached its deadline.
    pub fn fire_due(&mut self, now_us: u64, emit: &mut impl FnMut(CodedRepair<'_, N>)) {
        match self {
            Self::Layered(encoder) => encoder.fire_due(now_us, &mut |repair| emit(repair.into())),
            Self::ReedSolomon(encoder) => encoder.fire_due(now_us, &mut |repair| emit(repair.into())),
            Self::Sliding(encoder) => encoder.fire_due(now_us, &mut |repair| emit(repair.into())),
        }
    }

    /// Emits what waits to be sent.
    pub fn flush(&mut self, emit: &mut impl FnMut(CodedRepair<'_, N>)) {
        match self {
            Self::Layered(encoder) => encoder.flush(&mut |repair| emit(repair.into())),
            Self::ReedSolomon(encoder) => encoder.flush(&mut |repair| emit(repair.into())),
            Self::Sliding(encoder) => encoder.flush(&mut |repair| emit(repair.into())),
        }
    }

    /// Memory held, from construction on.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Layered(encoder) => encoder.memory_bytes(),
            Self::ReedSolomon(encoder) => encoder.memory_bytes(),
            Self::Sliding(encoder) => encoder.memory_bytes(),
        }
    }
}
