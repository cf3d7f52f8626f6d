//! The values that a key may have.

use std::borrow::Cow;
use std::fmt::Display;
use std::marker::PhantomData;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeValue};

use super::fault::{Fault, Faults};
use super::setting::Setting;
use crate::suggest::nearest;
use crate::text::quoted;

/// A value in the file with its place.
pub type Value<'i> = Spanned<DeValue<'i>>;

/// The values of type `T` that a key may have.
pub trait Form<T> {
    /// The form in words: "an integer from 1 to 64".
    fn expected(&self) -> String;

    /// Parses a value. `None` if it cannot be used; then at least one fault says why.
    fn parse(&self, value: &Value<'_>, faults: &mut Faults) -> Option<T>;

    /// Checks a value that comes from a program instead of a file.
    ///
    /// # Errors
    /// [`Fault`] if the form does not allow it.
    fn check(&self, value: &T) -> Result<(), Fault> {
        let _ = value;
        Ok(())
    }

    /// The value of an absent key; `None` if the form has no such value.
    fn absent(&self) -> Option<T> {
        None
    }
}

/// Parses a value that has one fault at most.
fn single<T>(
    value: &Value<'_>,
    faults: &mut Faults,
    parse: impl FnOnce(&DeValue<'_>) -> Result<T, Fault>,
) -> Option<T> {
    parse(value.get_ref()).map_err(|fault| faults.add(value.span(), fault)).ok()
}

/// An integer in a range, both ends included.
#[derive(Clone, Copy, Debug)]
pub struct Integer<T> {
    min: u64,
    max: u64,
    of: PhantomData<T>,
}

impl<T: TryFrom<u64>> Integer<T> {
    /// # Panics
    /// If `max` is too large for the type.
    pub fn new(min: u64, max: u64) -> Self {
        assert!(T::try_from(max).is_ok(), "the range exceeds the type");
        Self { min, max, of: PhantomData }
    }
}

impl<T: TryFrom<u64> + TryInto<u64> + Copy + Display> Form<T> for Integer<T> {
    fn expected(&self) -> String {
        format!("an integer from {} to {}", self.min, self.max)
    }

    fn parse(&self, value: &Value<'_>, faults: &mut Faults) -> Option<T> {
        let number = single(value, faults, |value| integer(value, self.min, self.max))?;
        T::try_from(number).ok()
    }

    fn check(&self, value: &T) -> Result<(), Fault> {
        let number: Result<u64, _> = (*value).try_into();
        let inside = number.is_ok_and(|number| (self.min..=self.max).contains(&number));
        if inside { Ok(()) } else { Err(Fault::out_of_range(value.to_string())) }
    }
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
        _ => Err(Fault::out_of_range(shown(number))),
    }
}

fn parsed(number: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// The text of a number in decimal, which needs no prefix to be understood.
fn decimal<'a>(number: &'a DeInteger<'_>) -> Result<Cow<'a, str>, Fault> {
    if number.radix() == 10 {
        return Ok(number.as_str().into());
    }
    let value = parsed(number).ok_or_else(|| Fault::out_of_range(shown(number)))?;
    Ok(value.to_string().into())
}

fn shown(number: &DeInteger<'_>) -> String {
    match parsed(number) {
        Some(number) => number.to_string(),
        None if number.as_str().len() > 30 => "a number with too many digits".to_owned(),
        None => number.to_string(),
    }
}

/// `true` or `false`.
#[derive(Clone, Copy, Debug)]
pub struct Boolean;

impl Form<bool> for Boolean {
    fn expected(&self) -> String {
        "`true` or `false`".to_owned()
    }

    fn parse(&self, value: &Value<'_>, faults: &mut Faults) -> Option<bool> {
        single(value, faults, |value| value.as_bool().ok_or_else(|| Fault::wrong_type(value)))
    }
}

/// One of several words, each with its meaning.
#[derive(Clone, Copy, Debug)]
pub struct Choice<T: 'static>(pub &'static [(&'static str, T)]);

impl<T: Copy> Form<T> for Choice<T> {
    fn expected(&self) -> String {
        let words: Vec<String> = self.0.iter().map(|(word, _)| format!("`\"{word}\"`")).collect();
        match &words[..] {
            [one] => one.clone(),
            _ => format!("one of {}", words.join(", ")),
        }
    }

    fn parse(&self, value: &Value<'_>, faults: &mut Faults) -> Option<T> {
        single(value, faults, |value| {
            let seen = value.as_str().ok_or_else(|| Fault::wrong_type(value))?;
            if let Some((_, meaning)) = self.0.iter().find(|(word, _)| *word == seen) {
                return Ok(*meaning);
            }
            let fault = Fault::bad("is not one of the allowed words").seen(quoted(seen));
            Err(match nearest(seen, self.0.iter().map(|(word, _)| *word)) {
                Some(word) => fault.help(format!("did you mean `\"{word}\"`?")),
                None => fault,
            })
        })
    }
}

/// A string of a form that `parse` knows.
#[derive(Clone, Debug)]
pub struct Text<T> {
    expected: String,
    numbers: bool,
    parse: fn(&str) -> Result<T, Fault>,
}

impl<T> Text<T> {
    /// A string; `expected` describes it.
    pub fn new(expected: impl Into<String>, parse: fn(&str) -> Result<T, Fault>) -> Self {
        Self { expected: expected.into(), numbers: false, parse }
    }

    /// A string or a number, which `parse` sees as written in the file, but in decimal.
    pub fn or_number(expected: impl Into<String>, parse: fn(&str) -> Result<T, Fault>) -> Self {
        Self { expected: expected.into(), numbers: true, parse }
    }
}

impl<T> Form<T> for Text<T> {
    fn expected(&self) -> String {
        self.expected.clone()
    }

    fn parse(&self, value: &Value<'_>, faults: &mut Faults) -> Option<T> {
        single(value, faults, |value| match value {
            DeValue::String(text) => (self.parse)(text),
            DeValue::Float(number) if self.numbers => (self.parse)(number.as_str()),
            DeValue::Integer(number) if self.numbers => (self.parse)(&decimal(number)?),
            other => Err(Fault::wrong_type(other)),
        })
    }
}

/// A time as a number of milliseconds, whole or not; both ends of the range are included.
#[derive(Clone, Copy, Debug)]
pub struct Millis {
    /// Shortest time.
    pub min: Duration,
    /// Longest time.
    pub max: Duration,
}

impl Form<Duration> for Millis {
    fn expected(&self) -> String {
        format!("a number of milliseconds from {} to {}", ms(self.min), ms(self.max))
    }

    fn parse(&self, value: &Value<'_>, faults: &mut Faults) -> Option<Duration> {
        single(value, faults, |value| {
            let (text, number) = match value {
                DeValue::Integer(number) => (shown(number), parsed(number).map(|number| number as f64)),
                DeValue::Float(number) => (number.as_str().to_owned(), number.as_str().parse().ok()),
                other => return Err(Fault::wrong_type(other)),
            };
            // A number that is no time at all is out of range too.
            let inside = |number: &f64| (ms(self.min)..=ms(self.max)).contains(number);
            let number = number.filter(inside).ok_or_else(|| Fault::out_of_range(text))?;
            Ok(Duration::from_micros((number * 1e3).round() as u64))
        })
    }

    fn check(&self, value: &Duration) -> Result<(), Fault> {
        let inside = (self.min..=self.max).contains(value);
        if inside { Ok(()) } else { Err(Fault::out_of_range(format!("{} ms", ms(*value)))) }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A key that a file may leave out.
#[derive(Clone, Copy, Debug)]
pub struct Optional<F>(pub F);

impl<T, F: Form<T>> Form<Option<T>> for Optional<F> {
    fn expected(&self) -> String {
        self.0.expected()
    }

    fn parse(&self, value: &Value<'_>, faults: &mut Faults) -> Option<Option<T>> {
        self.0.parse(value, faults).map(Some)
    }

    fn check(&self, value: &Option<T>) -> Result<(), Fault> {
        value.as_ref().map_or(Ok(()), |value| self.0.check(value))
    }

    fn absent(&self) -> Option<Option<T>> {
        Some(None)
    }
}

/// An array.
#[derive(Clone, Debug)]
pub struct List<F> {
    /// The array in words.
    pub expected: String,
    /// The form of each entry.
    pub entry: F,
    /// Smallest number of entries.
    pub min: usize,
    /// Largest number of entries.
    pub max: usize,
}

impl<F> List<F> {
    /// The entries that can be used, each with its place; `None` if the value is no such array.
    fn entries<T>(&self, value: &Value<'_>, faults: &mut Faults) -> Option<Vec<Setting<T>>>
    where
        F: Form<T>,
    {
        let elements =
            self.elements(value.get_ref()).map_err(|fault| faults.add(value.span(), fault)).ok()?;
        let mut all = Vec::with_capacity(elements.len());
        for element in elements.iter() {
            let mut own = Faults::default();
            let parsed = self.entry.parse(element, &mut own);
            all.extend(parsed.map(|value| Setting { value, span: Some(element.span()) }));
            faults.0.extend(own.0.into_iter().map(|(span, fault)| (span, fault.of_entry())));
        }
        Some(all)
    }

    /// The entries of an array of the right length.
    fn elements<'v, 'i>(&self, value: &'v DeValue<'i>) -> Result<&'v DeArray<'i>, Fault> {
        let DeValue::Array(elements) = value else { return Err(Fault::wrong_type(value)) };
        let fault = |message| Err(Fault::new("out-of-range", message).seen(entries(elements.len())));
        match elements.len() {
            0 if self.min > 0 => fault("is empty"),
            length if length < self.min => fault("holds too few entries"),
            length if length > self.max => fault("holds too many entries"),
            _ => Ok(elements),
        }
    }
}

fn entries(count: usize) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

/// An array whose entries keep their places. Correct entries stay where others are wrong, so that further
/// checks see them.
#[derive(Clone, Debug)]
pub struct Placed<F>(pub List<F>);

impl<T, F: Form<T>> Form<Vec<Setting<T>>> for Placed<F> {
    fn expected(&self) -> String {
        self.0.expected.clone()
    }

    fn parse(&self, value: &Value<'_>, faults: &mut Faults) -> Option<Vec<Setting<T>>> {
        self.0.entries(value, faults)
    }
}

impl<T, F: Form<T>> Form<Vec<T>> for List<F> {
    fn expected(&self) -> String {
        self.expected.clone()
    }

    fn parse(&self, value: &Value<'_>, faults: &mut Faults) -> Option<Vec<T>> {
        let before = faults.0.len();
        let all = self.entries(value, faults)?;
        (faults.0.len() == before).then(|| all.into_iter().map(|setting| setting.value).collect())
    }
}

/// An array of different integers in a range, both ends included.
#[derive(Clone, Copy, Debug)]
pub struct Integers {
    /// Smallest integer.
    pub min: u16,
    /// Largest integer.
    pub max: u16,
    /// Largest number of entries.
    pub count: usize,
}

impl Form<Vec<u16>> for Integers {
    fn expected(&self) -> String {
        format!("an array of 1 to {} different integers from {} to {}", self.count, self.min, self.max)
    }

    fn parse(&self, value: &Value<'_>, faults: &mut Faults) -> Option<Vec<u16>> {
        let entry = Integer::<u16>::new(self.min.into(), self.max.into());
        let list = List { expected: String::new(), entry, min: 1, max: self.count };
        let before = faults.0.len();
        let all: Vec<Setting<u16>> = list.entries(value, faults)?;
        for (index, setting) in all.iter().enumerate() {
            if all[..index].iter().any(|earlier| earlier.value == setting.value) {
                let fault = Fault::new("duplicate-value", "holds a number twice");
                let fault = fault.seen(setting.value.to_string()).help("leave the second one out");
                faults.add(setting.span.clone().unwrap_or(value.span()), fault);
            }
        }
        (faults.0.len() == before).then(|| all.into_iter().map(|setting| setting.value).collect())
    }
}
