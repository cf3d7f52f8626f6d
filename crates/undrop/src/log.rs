//! The log: to stderr, for people and for journald.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// Accepts a filter that [`start`] will understand.
pub fn parse_filter(text: &str) -> Result<String, ParseError> {
    EnvFilter::try_new(text).map(|_| text.to_owned())
}

/// Starts logging by `filter`, or by `RUST_LOG`, or from `info` up.
pub fn start(filter: Option<&str>) {
    let from_environment = std::env::var("RUST_LOG").ok();
    let wanted = filter.or(from_environment.as_deref()).unwrap_or("info");
    let (filter, refused) = match EnvFilter::try_new(wanted) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    if let Some(error) = refused {
        tracing::warn!(%error, "RUST_LOG is no filter; logging from info up");
    }
}
