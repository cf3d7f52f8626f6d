//! An entry of the table of keys.

use super::fault::Fault;
use super::form::Form;
use crate::diagnostic::Diagnostic;
use crate::report::Findings;
use crate::span::Span;

/// Returns the name of a key in files: a keyword of Rust is `r#match` as the name of a field.
pub fn word(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

/// The value of a key that a file leaves out.
#[derive(Clone, Copy, Debug)]
pub enum Fallback {
    /// The file must have the key.
    Required,
    /// This value, in TOML.
    Toml(&'static str),
    /// This value, in TOML, which the second text describes.
    Described(&'static str, &'static str),
    /// No value ([`Form::absent`]); the text says what happens then.
    Absent(&'static str),
}

/// The words of another key with which a key has a meaning.
#[derive(Clone, Copy, Debug)]
pub struct Only {
    /// The other key.
    pub key: &'static str,
    /// Its words.
    pub words: &'static [&'static str],
}

/// A key of type `T`: one entry of the table.
pub struct Key<T> {
    /// The key in the file.
    pub name: &'static str,
    /// Its documentation.
    pub doc: &'static str,
    /// The values it may have.
    pub form: Box<dyn Form<T>>,
    /// The value without it.
    pub default: Fallback,
    /// A correct line.
    pub example: &'static str,
    /// The condition under which it has a meaning, if there is one.
    pub only: Option<Only>,
}

impl<T> Key<T> {
    /// The entry without its type.
    pub fn info(&self) -> KeyInfo {
        KeyInfo {
            name: self.name,
            doc: self.doc.trim(),
            expected: self.form.expected(),
            default: self.default,
            example: self.example,
            only: self.only,
        }
    }

    /// Checks a value that comes from a program; `header` is that of its section.
    pub fn check(&self, header: &str, value: &T, findings: &mut Findings) {
        if let Err(fault) = self.form.check(value) {
            findings.add(self.info().diagnose(header, None, fault));
        }
    }
}

/// A key in documentation and messages.
#[derive(Clone, Debug)]
pub struct KeyInfo {
    /// The key in the file.
    pub name: &'static str,
    /// Its documentation.
    pub doc: &'static str,
    /// The values it may have, in words.
    pub expected: String,
    /// The value without it.
    pub default: Fallback,
    /// A correct line.
    pub example: &'static str,
    /// The condition under which it has a meaning, if there is one.
    pub only: Option<Only>,
}

impl KeyInfo {
    /// Whether the key has a meaning where the key that it depends on has this value.
    pub fn fits(&self, word: &str) -> bool {
        self.only.is_none_or(|only| only.words.contains(&word))
    }

    /// The key as two lines of text.
    pub(super) fn describe(&self) -> String {
        let default = match self.default {
            Fallback::Required => "required".to_owned(),
            Fallback::Toml(text) | Fallback::Described(_, text) | Fallback::Absent(text) => {
                format!("default: {text}")
            }
        };
        let only = self.only.map_or(String::new(), |only| {
            format!("; only with {} = \"{}\"", only.key, only.words.join("\" or \""))
        });
        format!("  {}: {}; {default}{only}\n      {}\n", self.name, self.expected, self.doc)
    }

    /// The finding about a value of the key in the section `title`.
    pub fn diagnose(&self, title: &str, span: Option<Span>, fault: Fault) -> Diagnostic {
        let message = format!("`{}` in {title} {}", self.name, fault.message);
        let mut diagnostic = Diagnostic::error(fault.code, message).at(span).expected(&self.expected);
        diagnostic.seen = fault.seen;
        diagnostic.help(fault.help.unwrap_or_else(|| format!("for instance: `{}`", self.example)))
    }
}
