//! The log: to stderr, for people and for journald. A line that stderr does not take is dropped and counted.

use std::io::{self, IsTerminal as _};

use daemon::log::LogLines;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Checks a filter for [`start`]; a value parser for clap.
pub fn parse_filter(text: &str) -> Result<String, ParseError> {
    text.parse::<Targets>().map(|_| text.to_owned())
}

/// Starts the log with `filter`, or else with `RUST_LOG`, or else with level `info`.
pub fn start(filter: Option<&str>) {
    let from_environment = std::env::var("RUST_LOG").ok();
    let wanted = filter.or(from_environment.as_deref()).unwrap_or("info");
    let (filter, refused) = match wanted.parse() {
        Ok(filter) => (filter, None),
        Err(error) => (Targets::new().with_default(LevelFilter::INFO), Some(error)),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| LogLines)
        .with_ansi(io::stderr().is_terminal())
        .with_filter(filter);
    tracing_subscriber::registry().with(lines).init();
    if let Some(error) = refused {
        tracing::warn!(
            %error,
            "RUST_LOG is not a log filter such as `info` or `maelstrom=debug,info`; the log level is info"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_level_or_levels_by_module() {
        for good in ["info", "debug", "maelstrom=trace,info", "maelstrom::passive=debug", "off"] {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        assert!(parse_filter("maelstrom=loud").is_err());
    }
}
