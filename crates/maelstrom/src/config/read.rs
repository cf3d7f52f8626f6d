//! Reading one section of the TOML table: keys against the list of knobs, values against their kind.

use maelstrom_core::{RateError, RepairRate};
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::draft::Setting;
use super::knobs::{self, Kind, Knob, NAMES_MAX};
use super::report::Findings;
use super::{Diagnostic, Span};

/// Parses the syntax. Its mistakes are all reported; they end the reading, for what follows one is guesswork. Only a
/// key given twice does not: the first counts.
pub(super) fn parse_table<'t>(text: &'t str, findings: &mut Findings) -> Option<DeTable<'t>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut usable = true;
    for error in errors {
        let (code, help) = match error.message() {
            "duplicate key" => ("duplicate-key", "keep one of the two"),
            message if message.contains("must be quoted") => {
                ("syntax", "put text in double quotes: key = \"text\"")
            }
            _ => ("syntax", "this is not TOML; mistakes in meaning are looked for once this is mended"),
        };
        usable &= code == "duplicate-key";
        let span = error.span().unwrap_or(text.len()..text.len());
        findings.add(Diagnostic::error(code, error.message()).at(span).help(help));
    }
    usable.then(|| table.into_inner())
}

/// Why a value will not do. The section adds the place and what was expected.
pub(super) struct Fault {
    code: &'static str,
    message: String,
    seen: Option<String>,
    help: Option<String>,
}

impl Fault {
    /// `message` continues a sentence whose subject is the key.
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), seen: None, help: None }
    }

    pub(super) fn seen(mut self, seen: impl Into<String>) -> Self {
        self.seen = Some(seen.into());
        self
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Of an entry in an array, not of the array.
    fn of_entry(mut self) -> Self {
        match self.code {
            "wrong-type" => self.message = "holds an entry of the wrong type".to_owned(),
            "out-of-range" => self.message = "holds a number out of range".to_owned(),
            _ => {}
        }
        self
    }

    fn wrong_type(value: &DeValue<'_>) -> Self {
        Self::new("wrong-type", "has the wrong type").seen(with_article(value.type_str()))
    }
}

/// What a section holds for a key.
pub(super) enum Given<T> {
    Absent,
    /// Wrong, and reported.
    Bad,
    Value(Setting<T>),
}

impl<T> Given<T> {
    /// The value, or the default if the key is left out.
    pub(super) fn or(self, default: T) -> Option<Setting<T>> {
        match self {
            Self::Absent => Some(Setting { value: default, span: None }),
            Self::Bad => None,
            Self::Value(setting) => Some(setting),
        }
    }

    /// A key that may be left out: inner `None`.
    pub(super) fn optional(self) -> Option<Option<Setting<T>>> {
        match self {
            Self::Absent => Some(None),
            Self::Bad => None,
            Self::Value(setting) => Some(Some(setting)),
        }
    }
}

/// A section under reading.
pub(super) struct Section<'a, 'i> {
    /// `gateway`, `code` or `peer`: where its keys are found in the list of knobs.
    kind: &'static str,
    /// As the reader of a message knows it: `[gateway]`.
    title: String,
    span: Span,
    table: &'a DeTable<'i>,
    findings: &'a mut Findings,
}

impl<'a, 'i> Section<'a, 'i> {
    pub(super) fn new(
        kind: &'static str,
        title: impl Into<String>,
        span: Span,
        table: &'a DeTable<'i>,
        findings: &'a mut Findings,
    ) -> Self {
        Self { kind, title: title.into(), span, table, findings }
    }

    /// The section's own place: its header.
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    /// A string, given to `parse`.
    pub(super) fn text<T>(&mut self, key: &str, parse: impl FnOnce(&str) -> Result<T, Fault>) -> Given<T> {
        self.value(key, |_, value| match value {
            DeValue::String(text) => parse(text),
            other => Err(Fault::wrong_type(other)),
        })
    }

    /// An integer in the knob's range.
    pub(super) fn integer<T: TryFrom<u64>>(&mut self, key: &str) -> Given<T> {
        self.value(key, |knob, value| {
            let Kind::Integer { min, max } = knob.kind else { unreachable!("{key} is not an integer") };
            let number = integer(value, min, max)?;
            Ok(T::try_from(number).unwrap_or_else(|_| unreachable!("the range of {key} exceeds its type")))
        })
    }

    /// Repairs for each packet, exactly as they are written.
    pub(super) fn rate(&mut self, key: &str) -> Given<RepairRate> {
        self.value(key, |_, value| {
            let text = match value {
                DeValue::String(text) => text.as_ref(),
                DeValue::Float(number) => number.as_str(),
                DeValue::Integer(number) => number.as_str(),
                other => return Err(Fault::wrong_type(other)),
            };
            let out_of_range = || Fault::new("out-of-range", "is out of range").seen(quoted(text));
            let rate: RepairRate = text.parse().map_err(|error| match error {
                RateError::Range(..) => out_of_range(),
                _ => Fault::new("bad-value", "is no rate").seen(quoted(text)),
            })?;
            let names = u64::from(rate.repairs()) * NAMES_MAX as u64;
            if names < u64::from(rate.sources()) { Err(out_of_range()) } else { Ok(rate) }
        })
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self, key: &str) -> Given<bool> {
        self.value(key, |_, value| value.as_bool().ok_or_else(|| Fault::wrong_type(value)))
    }

    /// One of the knob's words; `meanings` stand in the same order.
    pub(super) fn choice<T: Copy>(&mut self, key: &str, meanings: &[T]) -> Given<T> {
        self.value(key, |knob, value| {
            let Kind::Choice(words) = knob.kind else { unreachable!("{key} is not a choice") };
            assert_eq!(words.len(), meanings.len(), "{key}: words and meanings");
            let Some(seen) = value.as_str() else { return Err(Fault::wrong_type(value)) };
            let Some(index) = words.iter().position(|&word| word == seen) else {
                let fault = Fault::new("bad-value", "is none of the words it may be").seen(quoted(seen));
                let help = nearest(seen, words.iter().copied())
                    .map_or(format!("for instance: `{}`", knob.example), |word| {
                        format!("did you mean `\"{word}\"`?")
                    });
                return Err(fault.help(help));
            };
            Ok(meanings[index])
        })
    }

    /// Different integers in the knob's range, at least one.
    pub(super) fn integers(&mut self, key: &str) -> Given<Vec<u16>> {
        let knob = self.knob(key);
        let Kind::Integers { min, max, count } = knob.kind else { unreachable!("{key} is not integers") };
        let mut right: Vec<u16> = Vec::new();
        let (span, all) = match self.list(key, count, |_, value| integer(value, min, max)) {
            Given::Absent => return Given::Absent,
            Given::Bad => return Given::Bad,
            Given::Value(Setting { value, span }) => (span, value),
        };
        let mut complete = true;
        for element in all {
            let Some(Setting { value, span }) = element else {
                complete = false;
                continue;
            };
            let number =
                u16::try_from(value).unwrap_or_else(|_| unreachable!("the range of {key} exceeds its type"));
            if right.contains(&number) {
                let fault = Fault::new("duplicate-value", "holds a number twice").seen(number.to_string());
                self.fault(knob, span, fault.help("leave the second one out"));
                complete = false;
            } else {
                right.push(number);
            }
        }
        if complete { Given::Value(Setting { value: right, span }) } else { Given::Bad }
    }

    /// An array of strings, each given to `parse`; those that fail are reported and `None`.
    pub(super) fn texts<T>(
        &mut self,
        key: &str,
        count: usize,
        mut parse: impl FnMut(&str) -> Result<T, Fault>,
    ) -> Given<Vec<Option<Setting<T>>>> {
        self.list(key, count, |_, value| match value {
            DeValue::String(text) => parse(text),
            other => Err(Fault::wrong_type(other)),
        })
    }

    fn list<T>(
        &mut self,
        key: &str,
        count: usize,
        mut parse: impl FnMut(&'static Knob, &DeValue<'i>) -> Result<T, Fault>,
    ) -> Given<Vec<Option<Setting<T>>>> {
        let table = self.table;
        let Some(value) = table.get(key) else { return Given::Absent };
        let knob = self.knob(key);
        let DeValue::Array(elements) = value.get_ref() else {
            let fault = Fault::wrong_type(value.get_ref()).help(format!("for instance: `{}`", knob.example));
            self.fault(knob, Some(value.span()), fault);
            return Given::Bad;
        };
        if elements.is_empty() || elements.len() > count {
            let few = if elements.is_empty() { "is empty" } else { "holds too many entries" };
            let fault = Fault::new("out-of-range", few).seen(match elements.len() {
                1 => "1 entry".to_owned(),
                n => format!("{n} entries"),
            });
            self.fault(knob, Some(value.span()), fault);
            return Given::Bad;
        }
        let mut all = Vec::with_capacity(elements.len());
        for element in elements.iter() {
            all.push(match parse(knob, element.get_ref()) {
                Ok(value) => Some(Setting { value, span: Some(element.span()) }),
                Err(fault) => {
                    self.fault(knob, Some(element.span()), fault.of_entry());
                    None
                }
            });
        }
        Given::Value(Setting { value: all, span: Some(value.span()) })
    }

    fn value<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&'static Knob, &DeValue<'i>) -> Result<T, Fault>,
    ) -> Given<T> {
        let table = self.table;
        let Some(value) = table.get(key) else { return Given::Absent };
        let knob = self.knob(key);
        match parse(knob, value.get_ref()) {
            Ok(parsed) => Given::Value(Setting { value: parsed, span: Some(value.span()) }),
            Err(fault) => {
                self.fault(knob, Some(value.span()), fault);
                Given::Bad
            }
        }
    }

    /// The value of a key that must be there.
    pub(super) fn required<T>(&mut self, key: &str, given: Given<T>) -> Option<Setting<T>> {
        match given {
            // Misspelt, and reported as such.
            Given::Absent if self.unknown().any(|(name, _)| nearest(name, self.known()) == Some(key)) => None,
            Given::Absent => {
                let knob = self.knob(key);
                let message = format!("`{key}` is missing in {}", self.title);
                let diagnostic = Diagnostic::error("missing-key", message).at(self.span());
                self.findings.add(
                    diagnostic
                        .expected(knob.expected())
                        .note(knob.doc)
                        .help(format!("add a line, for instance: `{}`", knob.example)),
                );
                None
            }
            Given::Bad => None,
            Given::Value(setting) => Some(setting),
        }
    }

    /// Reports the keys that no knob knows.
    pub(super) fn finish(self) {
        let known: Vec<&str> = self.known().collect();
        let unknown: Vec<_> =
            self.unknown().map(|(name, span)| unknown_key(name, span, &self.title, &known)).collect();
        for diagnostic in unknown {
            self.findings.add(diagnostic);
        }
    }

    fn known(&self) -> impl Iterator<Item = &'static str> + use<> {
        knobs::of(self.kind).map(|knob| knob.key)
    }

    fn unknown(&self) -> impl Iterator<Item = (&str, Span)> {
        let keys = self.table.iter().map(|(key, _)| (key.get_ref().as_ref(), key.span()));
        keys.filter(|&(name, _)| !self.known().any(|known| known == name))
    }

    fn fault(&mut self, knob: &'static Knob, span: Option<Span>, fault: Fault) {
        let message = format!("`{}` in {} {}", knob.key, self.title, fault.message);
        let mut diagnostic = Diagnostic::error(fault.code, message).at(span).expected(knob.expected());
        diagnostic.seen = fault.seen;
        let help = fault.help.unwrap_or_else(|| format!("for instance: `{}`", knob.example));
        self.findings.add(diagnostic.help(help));
    }

    fn knob(&self, key: &str) -> &'static Knob {
        knobs::of(self.kind).find(|knob| knob.key == key).unwrap_or_else(|| unreachable!("no knob {key}"))
    }
}

/// The finding about a key that is not among the known ones of its section or of the file.
pub(super) fn unknown_key(name: &str, span: Span, title: &str, known: &[&str]) -> Diagnostic {
    let diagnostic = Diagnostic::error("unknown-key", format!("unknown key {} in {title}", ticked(name)))
        .at(span)
        .expected(format!("one of `{}`", known.join("`, `")));
    let elsewhere = knobs::KNOBS.iter().find(|knob| knob.key == name);
    match (nearest(name, known.iter().copied()), elsewhere) {
        (Some(near), _) => diagnostic.help(format!("did you mean `{near}`?")),
        (None, Some(knob)) => {
            let header =
                if knob.section == "peer" { "[[peer]]".to_owned() } else { format!("[{}]", knob.section) };
            diagnostic.help(format!("`{name}` belongs under {header}"))
        }
        (None, None) => diagnostic.help("leave it out"),
    }
}

/// The word most like `name`, if it is near enough to be a slip: a third of its letters.
fn nearest<'w>(name: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    // Distance takes time quadratic in the length, and no slip makes a word three times as long.
    if name.len() > 64 {
        return None;
    }
    let distances = words.map(|word| (strsim::damerau_levenshtein(&name.to_lowercase(), word), word));
    let (distance, word) = distances.min_by_key(|&(distance, _)| distance)?;
    (distance <= (word.len() / 3).max(1)).then_some(word)
}

fn integer(value: &DeValue<'_>, min: u64, max: u64) -> Result<u64, Fault> {
    let DeValue::Integer(number) = value else {
        let fault = Fault::wrong_type(value);
        return Err(match value.as_str().and_then(|text| text.parse::<u64>().ok()) {
            Some(number) => fault.help(format!("leave the quotes out: `{number}`")),
            None => fault,
        });
    };
    match parsed(number) {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(Fault::new("out-of-range", "is out of range").seen(shown(number))),
    }
}

fn parsed(number: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn shown(number: &DeInteger<'_>) -> String {
    match parsed(number) {
        Some(number) => number.to_string(),
        None if number.as_str().len() > 30 => "a number of very many digits".to_owned(),
        None => number.as_str().to_owned(),
    }
}

/// Text as it can stand in a message: quoted, escaped, bounded.
pub(super) fn quoted(text: &str) -> String {
    const CHARS_MAX: usize = 64;
    let mut shown: String = text.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        shown.push_str("...");
    }
    format!("\"{shown}\"")
}

fn ticked(text: &str) -> String {
    format!("`{}`", quoted(text).trim_matches('"'))
}

pub(super) fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {noun}")
}

/// The same for a spanned value: what it is, to say that it is the wrong thing.
pub(super) fn type_of(value: &Spanned<DeValue<'_>>) -> String {
    with_article(value.get_ref().type_str())
}
