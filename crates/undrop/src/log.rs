//! The log: to stderr, for people, for programs and for journald. A line that stderr does not take is dropped
//! and counted.

mod format;

use std::env;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::sync::OnceLock;

use daemon::log::LogLines;
use nix::sys::stat::fstat;
use serde_json::json;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

pub use format::Format;

/// The form of log lines of this process.
static FORMAT: OnceLock<Format> = OnceLock::new();

/// Levels, from the fewest lines to the most.
const LEVELS: &str = "off, error, warn, info, debug or trace";

/// Checks a filter for [`start`]; a value parser for clap.
pub fn parse_filter(text: &str) -> Result<String, String> {
    filter(text).map(|_| text.to_owned())
}

/// Parses a level, or levels by module, separated by commas. A word alone is a level: as the name of a
/// module, which [`Targets`] would take it for, a misspelt level would silence the log.
fn filter(text: &str) -> Result<Targets, String> {
    text.split(',').map(str::trim).try_fold(Targets::new(), |filter, part| {
        let (module, level) =
            part.split_once('=').map_or((None, part), |(module, level)| (Some(module), level));
        // An empty text would parse as the level `error`.
        let level = Some(level).filter(|level| !level.is_empty()).and_then(|level| level.parse().ok());
        let level: LevelFilter = level.ok_or_else(|| {
            format!("expected {LEVELS}, or levels by module such as `maelstrom=debug,info`, saw {part:?}")
        })?;
        match module {
            None => Ok(filter.with_default(level)),
            Some("") => Err(format!("expected a module before `=`, saw {part:?}")),
            Some(module) => Ok(filter.with_target(module, level)),
        }
    })
}

/// Starts the log with `filter`, or else with `RUST_LOG`, or else with level `info`. Without a `format`,
/// lines are for journald if stderr is its stream, and else text.
pub fn start(filter: Option<&str>, format: Option<Format>) {
    let from_environment = env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let wanted = filter.or(from_environment.as_deref()).unwrap_or("info");
    let (filter, refused) = match self::filter(wanted) {
        Ok(filter) => (filter, None),
        Err(error) => (Targets::new().with_default(LevelFilter::INFO), Some(error)),
    };
    let format = format.unwrap_or_else(|| if is_journal() { Format::Journald } else { Format::Text });
    let format = *FORMAT.get_or_init(|| format);
    daemon::log::report_missing_as(match format {
        Format::Text => daemon::log::missing,
        Format::Json => missing_json,
        Format::Journald => missing_journald,
    });
    // https://no-color.org: any value but an empty one.
    let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| LogLines)
        .with_ansi(io::stderr().is_terminal() && !no_colour)
        .event_format(format::Lines(format))
        .with_filter(filter);
    tracing_subscriber::registry().with(lines).init();
    if let Some(error) = refused {
        tracing::warn!(%error, "RUST_LOG is not a log filter; the log level is info");
    }
}

/// Whether stderr is read by people, and not line by line by a program.
pub(crate) fn is_for_people() -> bool {
    FORMAT.get().is_none_or(|&format| format == Format::Text)
}

/// Whether stderr is the stream of journald that systemd has named, and was not redirected since.
fn is_journal() -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else { return false };
    fstat(io::stderr().as_fd()).is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

fn missing_json(count: u64) -> String {
    let message = daemon::log::missing(count);
    json!({ "time": format::time(), "level": "warn", "target": "daemon::log", "message": message })
        .to_string()
}

fn missing_journald(count: u64) -> String {
    format!("<4>{}", daemon::log::missing(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_level_or_levels_by_module() {
        for good in ["info", "debug", "maelstrom=trace,info", "info, maelstrom::passive=debug", "off", "WARN"]
        {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        for bad in
            ["verbose", "maelstrom", "maelstrom=loud", "debug,ricochet", "info,", "", "=info", "a=b=info"]
        {
            let error = parse_filter(bad).unwrap_err();
            assert!(error.starts_with("expected "), "{bad}: {error}");
        }
        assert!(parse_filter("verbose").unwrap_err().contains("warn, info, debug or trace"));
    }

    #[test]
    fn the_level_of_a_module_overrides_the_other_level() {
        let filter = filter("warn,maelstrom=debug").unwrap();
        let enables = |target, level| filter.would_enable(target, &level);
        assert!(enables("maelstrom::passive", tracing::Level::DEBUG));
        assert!(!enables("ricochet", tracing::Level::INFO) && enables("ricochet", tracing::Level::WARN));
    }
}
