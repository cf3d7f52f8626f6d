//! A value with its place.

use crate::span::Span;

/// A value and its place; a default has no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Its place in the file; `None` for a default.
    pub span: Option<Span>,
}
