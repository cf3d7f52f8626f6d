//! The section `[flow]`: how a sender follows its readers.

use std::time::Duration;

use diagnostics::quoted;
use diagnostics::settings::{Fallback, Fault, Integer, Millis, Section, Text};
use ricochet_core::{FlowConfig, Follow};

use super::types::HOUR;

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
        /// Time after which a reader that makes no progress is left behind; 0 for no limit. A reader that
        /// reports nothing at all is left behind after a second.
        patience_ms: Duration {
            form: Millis { min: Duration::ZERO, max: HOUR },
            default: Fallback::Toml("10000"),
            example: "patience_ms = 10000",
        }
        /// Time in microseconds for which a short message waits for others that share its packet. With 0,
        /// only messages that have to wait anyway share packets.
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
        FlowConfig { follow: self.follow, window, patience_us, ..FlowConfig::default() }
    }
}
