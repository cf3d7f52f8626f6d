//! A section of the file while it is read.

use toml::de::{DeTable, DeValue};

use super::fault::Faults;
use super::key::{Fallback, Key, KeyInfo};
use super::setting::Setting;
use crate::diagnostic::Diagnostic;
use crate::report::Findings;
use crate::span::Span;
use crate::suggest::nearest;

/// A section of the file while it is read.
pub struct Table<'a, 'i> {
    /// The section in messages: `[gateway]`.
    title: String,
    /// The section's header; `None` if the file has no such section.
    span: Option<Span>,
    table: &'a DeTable<'i>,
    keys: &'a [KeyInfo],
    findings: &'a mut Findings,
}

impl<'a, 'i> Table<'a, 'i> {
    pub(super) fn new(
        title: String,
        span: Option<Span>,
        table: &'a DeTable<'i>,
        keys: &'a [KeyInfo],
        findings: &'a mut Findings,
    ) -> Self {
        Self { title, span, table, keys, findings }
    }

    /// Reads the value of a key, or its default. `None` if the value is wrong or missing; then there is a
    /// finding.
    pub fn read<T>(&mut self, key: &Key<T>) -> Option<Setting<T>> {
        let table = self.table;
        let Some(value) = table.get(key.name) else { return self.default_of(key) };
        let mut faults = Faults::default();
        let parsed = key.form.parse(value, &mut faults);
        let info = key.info();
        for (span, fault) in faults.0 {
            self.findings.add(info.diagnose(&self.title, Some(span), fault));
        }
        Some(Setting { value: parsed?, span: Some(value.span()) })
    }

    fn default_of<T>(&mut self, key: &Key<T>) -> Option<Setting<T>> {
        let value = match key.default {
            Fallback::Toml(text) | Fallback::Described(text, _) => default(key, text),
            Fallback::Absent(_) => {
                key.form.absent().expect("the form of an optional key has an absent value")
            }
            Fallback::Required => {
                self.report_missing(&key.info());
                return None;
            }
        };
        Some(Setting { value, span: None })
    }

    fn report_missing(&mut self, key: &KeyInfo) {
        let names = || self.keys.iter().map(|key| key.name);
        if self.unknown().any(|(name, _)| nearest(name, names()) == Some(key.name)) {
            // The key is misspelt, and is reported as unknown.
            return;
        }
        let message = format!("`{}` is missing in {}", key.name, self.title);
        let finding = Diagnostic::error("missing-key", message)
            .at(self.span.clone())
            .expected(&key.expected)
            .note(key.doc)
            .help(format!("add a line, for instance: `{}`", key.example));
        self.findings.add(finding);
    }

    /// The keys that the section does not have, with their places.
    pub(super) fn unknown(&self) -> impl Iterator<Item = (&str, Span)> {
        let keys = self.table.iter().map(|(key, _)| (key.get_ref().as_ref(), key.span()));
        keys.filter(|&(name, _)| !self.keys.iter().any(|key| key.name == name))
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }
}

/// Parses the default of a key.
///
/// # Panics
/// If the form does not allow it: then the table of keys is wrong.
fn default<T>(key: &Key<T>, text: &str) -> T {
    let mut faults = Faults::default();
    let value = DeValue::parse(text).unwrap_or_else(|error| panic!("default of `{}`: {error}", key.name));
    key.form.parse(&value, &mut faults).unwrap_or_else(|| panic!("default of `{}`: {faults:?}", key.name))
}
