//! The section `[flow]`: how a sender follows its readers.

use std::time::Duration;

use diagnostics::quoted;
use diagnostics::settings::{Fallback, Fault, Integer, Millis, Section, Text};
use ricochet_core::outgoing::OutgoingConfig;
use ricochet_core::{FlowConfig, Follow};

use super::sections::BuffersSection;
use super::types::{HOUR, MINUTE};

/// Parses the readers that a sender follows.
fn follow() -> Text<Follow> {
    Text::new("`\"all\"`, `\"quorum:K\"` with K readers, `\"max\"` or `\"off\"`", |text| {
        parse_follow(text).ok_or_else(|| {
            let fault = Fault::bad("is not one of the allowed words").seen(quoted(text));
            if text.starts_with("quorum") {
                fault.help("write `\"quorum:2\"` for two readers")
            } else {
                fault
            }
        })
    })
}

/// Returns the readers that a sender follows, if the text names them: `all`, `quorum:K`, `max` or `off`.
pub fn parse_follow(text: &str) -> Option<Follow> {
    match text {
        "all" => Some(Follow::All),
        "max" => Some(Follow::Max),
        "off" => Some(Follow::Off),
        _ => {
            let count: u16 = text.strip_prefix("quorum:")?.parse().ok()?;
            (count > 0).then_some(Follow::Quorum(count))
        }
    }
}

/// Returns the text that [`parse_follow`] reads.
pub(crate) fn follow_text(follow: Follow) -> String {
    match follow {
        Follow::All => "all".to_owned(),
        Follow::Quorum(count) => format!("quorum:{count}"),
        Follow::Max => "max".to_owned(),
        Follow::Off => "off".to_owned(),
    }
}

diagnostics::settings! {
    /// Flow control: the section `[flow]`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct FlowSection(FlowDraft): "flow" as "[flow]" {
        /// The readers of a group that this node follows when it sends: `"all"`, so that it sends no faster
        /// than the slowest receives; `"quorum:K"`, so that K readers keep up; `"max"`, so that the fastest
        /// does; or `"off"`, so that it never waits.
        follow: Follow {
            form: follow(),
            default: Fallback::Toml("\"all\""),
            example: "follow = \"quorum:2\"",
        }
        /// Time after which a reader that makes no progress is left behind; 0 for no limit.
        patience_ms: Duration {
            form: Millis { min: Duration::ZERO, max: HOUR },
            default: Fallback::Toml("10000"),
            example: "patience_ms = 10000",
        }
        /// Time after which a reader that reports nothing is left behind. Until then, a sender that follows
        /// all readers runs ahead of it by at most half of `buffers.packets`.
        silence_ms: Duration {
            form: Millis { min: Duration::from_millis(20), max: MINUTE },
            default: Fallback::Toml("1000"),
            example: "silence_ms = 1000",
        }
        /// Rate in Mbit/s at which packets leave, beyond a burst of 64 packets; 0 for no limit. A rate below
        /// that of the receivers' ports keeps bursts out of the buffers of switches.
        rate_mbit: u32 {
            form: Integer::new(0, 1_000_000),
            default: Fallback::Toml("10000"),
            example: "rate_mbit = 800",
        }
        /// Time in microseconds for which a short message waits for others that share its packet. With 0,
        /// messages share packets if they have to wait anyway, or follow one another so quickly that they
        /// wait for 100 µs at most.
        linger_us: u64 {
            form: Integer::new(0, 1_000_000),
            default: Fallback::Toml("0"),
            example: "linger_us = 50",
        }
    }
}

impl Default for FlowSection {
    fn default() -> Self {
        Section::defaults()
    }
}

impl FlowSection {
    /// Returns the configuration of the core for a node that has room for `window` packets.
    pub(crate) fn core(&self, window: u32) -> FlowConfig {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let patience_us = Some(micros(self.patience_ms)).filter(|&us| us > 0);
        FlowConfig { follow: self.follow, window, patience_us, silence_us: micros(self.silence_ms) }
    }

    /// Returns the settings of messages that wait to be sent, by a node whose clock was zero at `epoch_us`
    /// since 1970.
    pub(crate) fn outgoing(
        &self,
        buffers: &BuffersSection,
        epoch_us: u64,
        core: OutgoingConfig,
    ) -> OutgoingConfig {
        let bytes_per_second = Some(u64::from(self.rate_mbit) * 125_000).filter(|&rate| rate > 0);
        let (bytes_max, linger_us) = (buffers.send_bytes, self.linger_us);
        OutgoingConfig { bytes_max, linger_us, bytes_per_second, epoch_us: Some(epoch_us), ..core }
    }
}
