//! Command-line arguments that choose the code of a pair of gateways.

use maelstrom::config::{RepairRate, Schedule, Scheme, SchemeChoice};
use stage::gateways::Setting;
use undrop::failure::usage;

/// Arguments that choose the code.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CodeArgs {
    /// FEC scheme
    #[arg(long, value_parser = undrop::scheme::parser(), default_value_t)]
    pub(crate) scheme: SchemeChoice,
    /// Number of source packets in a repair or a block [layered, reed-solomon; default: 8]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) r: Option<u8>,
    /// Interleave of each layer, separated by commas [layered; default: 1,11,19], or the number of blocks
    /// that are filled in turn [reed-solomon; default: 1]
    #[arg(long, visible_alias = "interleave", value_name = "I,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) interleaves: Option<Vec<u16>>,
    /// Number of repairs for each block [reed-solomon; default: 3]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=32))]
    pub(crate) c: Option<u8>,
    /// Number of repairs for each source packet: 3/8, 0.375 or 37.5% [sliding; default: 3/8]
    #[arg(long, value_name = "RATE")]
    pub(crate) repair_rate: Option<RepairRate>,
    /// Number of packets in a repair, the newest ones [sliding; default: 256]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) window: Option<u16>,
    /// Density threshold DT of RFC 8681, 0 to 15: DT + 1 of 16 coefficients are not 0 [sliding; default:
    /// 15]
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=15))]
    pub(crate) density: Option<u8>,
    /// Whether interleaved repairs wait for later packets, so that one burst does not take both a packet and
    /// its repair [layered, reed-solomon; default: true]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) delayed: Option<bool>,
    /// Longest wait in milliseconds: of a part-filled bin of the first layer, of part-filled blocks, or of a
    /// packet for the next repair of a sliding window
    #[arg(long, default_value_t = Schedule::MAX_DELAY_MS, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) max_delay_ms: u16,
}

impl CodeArgs {
    /// Returns the setting of gateways with this code and with the tap that they choose themselves.
    ///
    /// # Errors
    /// If an argument belongs to another scheme.
    pub(crate) fn setting(&self) -> anyhow::Result<Setting> {
        Ok(Setting {
            schedule: self.schedule()?,
            delayed: self.delayed.unwrap_or(Schedule::DELAYED),
            max_delay_ms: self.max_delay_ms,
            ..Setting::default()
        })
    }

    fn schedule(&self) -> anyhow::Result<Schedule> {
        self.check()?;
        let r = self.r.unwrap_or(Schedule::R);
        let SchemeChoice::Fixed(scheme) = self.scheme else { return Ok(Schedule::Auto) };
        Ok(match scheme {
            Scheme::Layered => {
                let interleaves = self.interleaves.clone().unwrap_or_else(|| Schedule::INTERLEAVES.to_vec());
                Schedule::Layered { r, interleaves }
            }
            Scheme::ReedSolomon => Schedule::ReedSolomon {
                r,
                c: self.c.unwrap_or(Schedule::C),
                interleave: self.block_interleave()?,
            },
            Scheme::Sliding => Schedule::Sliding {
                rate: self.repair_rate.unwrap_or(Schedule::RATE),
                window: self.window.unwrap_or(Schedule::WINDOW),
                density: self.density.unwrap_or(Schedule::DENSITY),
            },
        })
    }

    /// The number of Reed-Solomon blocks that are filled in turn.
    fn block_interleave(&self) -> anyhow::Result<u16> {
        match self.interleaves.as_deref() {
            None => Ok(Schedule::INTERLEAVE),
            Some(&[interleave]) => Ok(interleave),
            Some(several) => Err(usage(format!(
                "--interleaves: expected one number for reed-solomon, saw {}",
                several.len()
            ))),
        }
    }

    /// Refuses arguments of another scheme, because the code would differ from the one requested.
    fn check(&self) -> anyhow::Result<()> {
        let is = |scheme: Scheme| self.scheme == SchemeChoice::Fixed(scheme);
        let (layered, blocks, sliding) = (is(Scheme::Layered), is(Scheme::ReedSolomon), is(Scheme::Sliding));
        for (flag, is_given, fits, owner) in [
            ("--r", self.r.is_some(), layered || blocks, "layered or reed-solomon"),
            ("--interleaves", self.interleaves.is_some(), layered || blocks, "layered or reed-solomon"),
            ("--c", self.c.is_some(), blocks, "reed-solomon"),
            ("--repair-rate", self.repair_rate.is_some(), sliding, "sliding"),
            ("--window", self.window.is_some(), sliding, "sliding"),
            ("--density", self.density.is_some(), sliding, "sliding"),
            ("--delayed", self.delayed.is_some(), layered || blocks, "layered or reed-solomon"),
        ] {
            if is_given && !fits {
                return Err(usage(format!(
                    "{flag} belongs to --scheme {owner}, saw --scheme {}; leave it out, or choose that scheme",
                    self.scheme
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        code: CodeArgs,
    }

    /// Returns the code of a gateway with the shortest configuration file for this scheme.
    fn gateway(scheme: &str, directory: &Path) -> maelstrom::config::Code {
        let text = format!(
            "[gateway]\nwan = \"w\"\nlisten = \"10.0.0.1:1\"\n[code]\nscheme = \"{scheme}\"\n\
             [[peer]]\naddress = \"10.0.0.2:1\"\nnetworks = [\"10.2.0.0/16\"]\nkey_file = \"peer.key\"\n"
        );
        maelstrom::config::parse(&directory.join("gateway.toml"), &text).config().unwrap().code
    }

    #[test]
    fn defaults_are_those_of_a_gateway() {
        let directory = std::env::temp_dir().join(format!("undrop-lab-defaults-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        keyfile::KeyText::generate().unwrap().write_new(&directory.join("peer.key")).unwrap();
        for scheme in ["auto", "layered", "reed-solomon", "sliding"] {
            let gateway = gateway(scheme, &directory);
            let pair = Command::try_parse_from(["demo", "--scheme", scheme]).unwrap().code.setting().unwrap();
            assert_eq!(
                (pair.schedule, pair.delayed, pair.max_delay_ms),
                (gateway.schedule, gateway.delayed, gateway.max_delay_ms)
            );
        }
        std::fs::remove_dir_all(&directory).unwrap();
        let pair = Setting::default();
        assert_eq!((pair.schedule, pair.delayed), (Schedule::Auto, Schedule::DELAYED));
    }

    fn schedule(line: &str) -> anyhow::Result<Schedule> {
        Command::try_parse_from(std::iter::once("x").chain(line.split_whitespace()))?.code.schedule()
    }

    #[test]
    fn each_scheme_has_its_own_settings_and_defaults() {
        for (line, expected) in [
            ("", "auto"),
            ("--scheme layered", "layered (8; 1,11,19)"),
            ("--scheme layered --r 7 --interleaves 1,19,41 --delayed false", "layered (7; 1,19,41)"),
            ("--scheme reed-solomon", "reed-solomon (8,3) x1"),
            ("--scheme reed-solomon --c 4 --interleave 20 --delayed", "reed-solomon (8,4) x20"),
            ("--scheme reed-solomon --interleaves 20", "reed-solomon (8,3) x20"),
            ("--scheme sliding", "sliding (256; 3/8)"),
            (
                "--scheme sliding --repair-rate 12.5% --window 512 --density 4",
                "sliding (512; 1/8, density 4)",
            ),
        ] {
            assert_eq!(schedule(line).unwrap().to_string(), expected, "{line}");
        }
    }

    #[test]
    fn a_setting_of_another_scheme_is_refused() {
        for (line, flag) in [
            ("--c 3", "--c "),
            ("--r 8", "--r "),
            ("--delayed", "--delayed "),
            ("--scheme layered --c 3", "--c "),
            ("--window 160", "--window "),
            ("--scheme reed-solomon --interleaves 1,11", "--interleaves: expected one number"),
            ("--interleave 20", "--interleaves "),
            ("--scheme sliding --r 8", "--r "),
            ("--scheme sliding --delayed", "--delayed "),
        ] {
            let error = schedule(line).unwrap_err().to_string();
            assert!(error.starts_with(flag), "{line}: {error}");
        }
        assert!(schedule("--scheme sliding --repair-rate much").unwrap_err().to_string().contains("3/8"));
        assert!(schedule("--scheme sliding --window 513").is_err());
    }
}
