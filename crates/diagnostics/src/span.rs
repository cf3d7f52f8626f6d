//! Byte ranges in the text of a file.

use std::ops::Range;

/// Byte range in the text of a file.
pub type Span = Range<usize>;
