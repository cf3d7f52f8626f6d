//! The code of a pair of gateways as a command line chooses it.

use anyhow::bail;
use maelstrom::config::Schedule;
use maelstrom_lab::Setting;

/// The code as a command line chooses it.
#[derive(Clone, Debug, clap::Args)]
pub struct CodeArgs {
    /// How the gateways make repairs
    #[arg(long, value_enum, default_value_t = Scheme::Layered)]
    pub scheme: Scheme,
    /// Packets in a repair, or in a block
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub r: u8,
    /// Interleave of each layer, with commas; of a layered code, default: 1,11,19
    #[arg(long, value_name = "I,...", value_delimiter = ',')]
    pub interleaves: Option<Vec<u16>>,
    /// Repairs of a block; of Reed-Solomon, default: 3
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=32))]
    pub c: Option<u8>,
    /// Blocks fed in turn; of Reed-Solomon, default: 1
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub interleave: Option<u16>,
    /// Repairs wait for later packets, so that a burst does not take them with theirs
    #[arg(long)]
    pub delayed: bool,
    /// How long a part-filled bin of the first layer waits, or part-filled blocks, in milliseconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub max_delay_ms: u16,
}

/// How repairs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scheme {
    /// XORs of packets some way apart (Maelstrom)
    Layered,
    /// Blocks of r packets, c repairs each
    ReedSolomon,
}

impl CodeArgs {
    /// Gateways with this code and the tap that they choose themselves.
    ///
    /// # Errors
    /// If an argument belongs to another scheme.
    pub fn setting(&self) -> anyhow::Result<Setting> {
        Ok(Setting {
            schedule: self.schedule()?,
            delayed: self.delayed,
            max_delay_ms: self.max_delay_ms,
            ..Setting::default()
        })
    }

    fn schedule(&self) -> anyhow::Result<Schedule> {
        let Self { r, c, interleave, .. } = *self;
        match self.scheme {
            Scheme::Layered if c.is_some() || interleave.is_some() => {
                bail!("--c and --interleave belong to --scheme reed-solomon")
            }
            Scheme::Layered => {
                let interleaves = self.interleaves.clone().unwrap_or_else(|| vec![1, 11, 19]);
                Ok(Schedule::Layered { r, interleaves })
            }
            Scheme::ReedSolomon if self.interleaves.is_some() => {
                bail!("--interleaves belongs to --scheme layered: give the number of blocks by --interleave")
            }
            Scheme::ReedSolomon => {
                Ok(Schedule::ReedSolomon { r, c: c.unwrap_or(3), interleave: interleave.unwrap_or(1) })
            }
        }
    }
}
