//! Whole files, good and bad.

use std::path::Path;

use super::*;

fn parse_plain(text: &str) -> Result<Loaded, Box<Report>> {
    parse(Path::new("gateway.toml"), text)
}
