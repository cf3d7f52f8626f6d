//! The configuration held against the live machine.

use super::draft::Draft;
use super::report::Findings;

pub(super) fn check_draft(_draft: &Draft, _overhead: impl Fn(u8, bool) -> usize, _findings: &mut Findings) {}
