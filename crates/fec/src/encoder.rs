//! The encoder of any code.

use crate::code::Code;
use crate::error::ConfigError;
use crate::layered::LayeredEncoder;
use crate::limits::SymbolTooLong;
use crate::reed_solomon::ReedSolomonEncoder;
use crate::repair::Repair;
use crate::sliding::SlidingEncoder;

/// Makes the repairs of any code from a stream of source packets.
#[derive(Debug)]
pub enum Encoder<P> {
    /// Layered interleaving.
    Layered(LayeredEncoder<P>),
    /// Reed–Solomon blocks.
    ReedSolomon(ReedSolomonEncoder<P>),
    /// A sliding window.
    Sliding(SlidingEncoder<P>),
}

impl<P: Copy> Encoder<P> {
    /// Checks every range and the memory that an encoder needs, without building one.
    ///
    /// # Errors
    /// The first mistake found.
    pub fn check(code: &Code) -> Result<(), ConfigError> {
        match code {
            Code::Layered(config) => LayeredEncoder::<P>::check(config),
            Code::ReedSolomon(config) => ReedSolomonEncoder::<P>::check(config),
            Code::Sliding(config) => SlidingEncoder::<P>::check(config),
        }
    }

    /// Creates an encoder at the start of the stream.
    ///
    /// # Errors
    /// As [`Encoder::check`].
    pub fn new(code: &Code) -> Result<Self, ConfigError> {
        Ok(match code {
            Code::Layered(config) => Self::Layered(LayeredEncoder::new(config)?),
            Code::ReedSolomon(config) => Self::ReedSolomon(ReedSolomonEncoder::new(config)?),
            Code::Sliding(config) => Self::Sliding(SlidingEncoder::new(config)?),
        })
    }

    /// Adds the next source packet, a symbol given as consecutive pieces, and emits the repairs that become
    /// due. Deadlines are not checked here.
    ///
    /// # Errors
    /// If the symbol is too long; then nothing changes.
    pub fn push(
        &mut self,
        now_us: u64,
        packet: P,
        symbol: &[&[u8]],
        emit: &mut impl FnMut(Repair<'_, P>),
    ) -> Result<(), SymbolTooLong> {
        match self {
            Self::Layered(encoder) => encoder.push(now_us, packet, symbol, emit),
            Self::ReedSolomon(encoder) => encoder.push(now_us, packet, symbol, emit),
            Self::Sliding(encoder) => encoder.push(now_us, packet, symbol, emit),
        }
    }

    /// Time of the next deadline, if there is one.
    pub fn next_deadline_us(&self) -> Option<u64> {
        match self {
            Self::Layered(encoder) => encoder.next_deadline_us(),
            Self::ReedSolomon(encoder) => encoder.next_deadline_us(),
            Self::Sliding(encoder) => encoder.next_deadline_us(),
        }
    }

    /// Emits the repairs whose deadline has passed.
    pub fn fire_due(&mut self, now_us: u64, emit: &mut impl FnMut(Repair<'_, P>)) {
        match self {
            Self::Layered(encoder) => encoder.fire_due(now_us, emit),
            Self::ReedSolomon(encoder) => encoder.fire_due(now_us, emit),
            Self::Sliding(encoder) => encoder.fire_due(now_us, emit),
        }
    }

    /// Whether [`Encoder::flush`] would emit a repair.
    pub fn has_waiting(&self) -> bool {
        match self {
            Self::Layered(encoder) => encoder.has_waiting(),
            Self::ReedSolomon(encoder) => encoder.has_waiting(),
            Self::Sliding(encoder) => encoder.has_waiting(),
        }
    }

    /// Whether [`Encoder::flush_first`] would emit a repair.
    pub fn has_waiting_first(&self) -> bool {
        match self {
            Self::Layered(encoder) => encoder.has_waiting_first(),
            _ => self.has_waiting(),
        }
    }

    /// Emits repairs that recover a single loss: those of the smallest interleave, or all of other codes.
    pub fn flush_first(&mut self, emit: &mut impl FnMut(Repair<'_, P>)) {
        match self {
            Self::Layered(encoder) => encoder.flush_first(emit),
            _ => self.flush(emit),
        }
    }

    /// Emits the repairs that wait to be sent.
    pub fn flush(&mut self, emit: &mut impl FnMut(Repair<'_, P>)) {
        match self {
            Self::Layered(encoder) => encoder.flush(emit),
            Self::ReedSolomon(encoder) => encoder.flush(emit),
            Self::Sliding(encoder) => encoder.flush(emit),
        }
    }

    /// Bytes of memory held, constant after construction.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Layered(encoder) => encoder.memory_bytes(),
            Self::ReedSolomon(encoder) => encoder.memory_bytes(),
            Self::Sliding(encoder) => encoder.memory_bytes(),
        }
    }
}
