//! Why a value is wrong.

use toml::de::DeValue;

use crate::span::Span;
use crate::suggest::nearest;
use crate::text::{ticked, with_article};

/// A mistake in one value. The table adds the key, the place, and the expected form.
#[derive(Debug)]
pub struct Fault {
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) seen: Option<String>,
    pub(super) help: Option<String>,
}

impl Fault {
    /// `message` continues a sentence whose subject is the key: "is out of range".
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), seen: None, help: None }
    }

    /// A value that the form does not allow.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::new("bad-value", message)
    }

    /// A number that the form does not allow.
    pub fn out_of_range(seen: impl Into<String>) -> Self {
        Self::new("out-of-range", "is out of range").seen(seen)
    }

    /// A name in a table that is none of the `known` ones. `what` says what it would name, such as a
    /// "condition".
    pub fn unknown(what: &str, name: &str, known: impl IntoIterator<Item = &'static str>) -> Self {
        let fault = Self::new("unknown-key", format!("has the unknown {what} {}", ticked(name)));
        match nearest(name, known.into_iter()) {
            Some(word) => fault.help(format!("did you mean `{word}`?")),
            None => fault,
        }
    }

    pub(super) fn wrong_type(value: &DeValue<'_>) -> Self {
        Self::new("wrong-type", "has the wrong type").seen(with_article(value.type_str()))
    }

    /// Sets the value that was found.
    #[must_use]
    pub fn seen(mut self, seen: impl Into<String>) -> Self {
        self.seen = Some(seen.into());
        self
    }

    /// Sets the remedy.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Rephrases the fault of one entry as one of its array.
    #[must_use]
    pub(super) fn of_entry(mut self) -> Self {
        match self.code {
            "wrong-type" => self.message = "holds an entry of the wrong type".to_owned(),
            "out-of-range" => self.message = "holds a number out of range".to_owned(),
            _ => {}
        }
        self
    }
}

/// The faults of a value, each with its place: an array may have several.
#[derive(Debug, Default)]
pub struct Faults(pub(super) Vec<(Span, Fault)>);

impl Faults {
    /// Adds a fault.
    pub fn add(&mut self, span: Span, fault: Fault) {
        self.0.push((span, fault));
    }
}
