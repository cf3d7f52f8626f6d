//! The whole file: its syntax, its sections, and keys that belong nowhere.

use toml::de::{DeTable, DeValue};

use super::form::Value;
use super::key::KeyInfo;
use super::section::Section;
use super::table::Table;
use crate::diagnostic::Diagnostic;
use crate::report::Findings;
use crate::span::Span;
use crate::suggest::nearest;
use crate::text::{ticked, with_article};

/// The root table of a file.
pub type Root<'t> = DeTable<'t>;

/// Parses the syntax of a file. All mistakes in it are reported, and end the reading, because what follows
/// one is guesswork. A key that is given twice is an exception: its first value counts.
pub fn parse<'t>(text: &'t str, findings: &mut Findings) -> Option<Root<'t>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut usable = true;
    // A bracket that is not closed encloses all that follows, and so all brackets after it.
    let mut is_open = false;
    for error in errors {
        if error.message().starts_with("unclosed") && std::mem::replace(&mut is_open, true) {
            continue;
        }
        let (code, help) = match error.message() {
            "duplicate key" => ("duplicate-key", "keep one of the two"),
            message if message.contains("must be quoted") => {
                ("syntax", "put text in double quotes: key = \"text\"")
            }
            _ => ("syntax", "fix the TOML syntax first; the keys and values are checked after that"),
        };
        usable &= code == "duplicate-key";
        let span = error.span().unwrap_or(text.len()..text.len());
        findings.add(Diagnostic::error(code, error.message()).at(span).help(help));
    }
    usable.then(|| table.into_inner())
}

/// The sections that a file may have, and their keys.
#[derive(Clone, Debug, Default)]
pub struct Layout(Vec<SectionInfo>);

#[derive(Clone, Debug)]
struct SectionInfo {
    name: &'static str,
    header: &'static str,
    keys: Vec<KeyInfo>,
}

impl Layout {
    /// Adds a section.
    #[must_use]
    pub fn with<S: Section>(mut self) -> Self {
        self.0.push(SectionInfo { name: S::NAME, header: S::HEADER, keys: S::keys() });
        self
    }

    /// All keys, with the name and the header of their section.
    pub fn keys(&self) -> impl Iterator<Item = (&'static str, &'static str, &KeyInfo)> {
        self.0.iter().flat_map(|section| section.keys.iter().map(|key| (section.name, section.header, key)))
    }

    /// The table of keys as text, for `--help`.
    pub fn describe(&self) -> String {
        let sections = self.0.iter().map(|section| {
            let keys: String = section.keys.iter().map(KeyInfo::describe).collect();
            format!("{}\n{keys}", section.header)
        });
        sections.collect::<Vec<_>>().join("\n")
    }

    fn section(&self, name: &str) -> Option<&SectionInfo> {
        self.0.iter().find(|section| section.name == name)
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|section| section.name)
    }

    /// The finding about a key that is not one of `known`, those of the place `title`.
    fn unknown_key(&self, name: &str, span: Span, title: &str, known: &[&'static str]) -> Diagnostic {
        let finding = Diagnostic::error("unknown-key", format!("unknown key {} in {title}", ticked(name)))
            .at(span)
            .expected(format!("one of `{}`", known.join("`, `")));
        let elsewhere = self.keys().find(|(_, _, key)| key.name == name);
        match (nearest(name, known.iter().copied()), elsewhere) {
            (Some(near), _) => finding.help(format!("did you mean `{near}`?")),
            (None, Some((_, header, _))) => finding.help(format!("`{name}` belongs under {header}")),
            (None, None) => finding.help("leave it out"),
        }
    }
}

/// A file while it is read, section by section.
pub struct Document<'a, 'i> {
    root: &'a DeTable<'i>,
    layout: &'a Layout,
    findings: &'a mut Findings,
}

impl<'a, 'i> Document<'a, 'i> {
    /// A file with this root table; `layout` has the sections that it may have.
    pub fn new(root: &'a DeTable<'i>, layout: &'a Layout, findings: &'a mut Findings) -> Self {
        Self { root, layout, findings }
    }

    /// Whether the file has the key `name`, which may or may not be a section.
    pub fn has(&self, name: &str) -> bool {
        self.root.contains_key(name)
    }

    /// Adds a finding.
    pub fn report(&mut self, finding: Diagnostic) {
        self.findings.add(finding);
    }

    /// Reads a section that may stand once. An absent section is one in which every key is absent.
    pub fn section<S: Section>(&mut self) -> S::Draft {
        let root = self.root;
        let Some(value) = root.get(S::NAME) else {
            return self.read::<S>(&DeTable::new(), S::HEADER.to_owned(), None);
        };
        let DeValue::Table(table) = value.get_ref() else {
            let (name, header) = (S::NAME, S::HEADER);
            self.findings.add(
                Diagnostic::error("wrong-type", format!("`{name}` is not a section"))
                    .at(value.span())
                    .expected(format!("a table, `{header}`"))
                    .seen(type_of(value))
                    .help(format!("write `{header}` on a line of its own, once, and its keys below")),
            );
            return S::Draft::default();
        };
        self.read::<S>(table, S::HEADER.to_owned(), Some(value.span()))
    }

    /// Reads a section that may stand several times, up to `count_max`; `too_many` is the remedy for more.
    /// Returns each with its title in messages.
    pub fn sections<S: Section>(&mut self, count_max: usize, too_many: &str) -> Vec<(String, S::Draft)> {
        let root = self.root;
        let Some(value) = root.get(S::NAME) else { return Vec::new() };
        let DeValue::Array(entries) = value.get_ref() else {
            self.findings.add(not_a_list::<S>(value));
            return Vec::new();
        };
        if entries.is_empty() || entries.len() > count_max {
            self.findings.add(
                Diagnostic::error("out-of-range", format!("wrong number of {} sections", S::HEADER))
                    .at(value.span())
                    .expected(format!("1 to {count_max} `{}` sections", S::HEADER))
                    .seen(entries.len().to_string())
                    .help(too_many),
            );
            return Vec::new();
        }
        let mut drafts = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let DeValue::Table(table) = entry.get_ref() else {
                self.findings.add(not_a_list::<S>(entry));
                continue;
            };
            let number = if entries.len() == 1 { String::new() } else { format!(" {}", index + 1) };
            let title = format!("{}{number}", S::HEADER);
            drafts.push((title.clone(), self.read::<S>(table, title, Some(entry.span()))));
        }
        drafts
    }

    /// Reports the sections that the layout does not have.
    pub fn finish(self) {
        let known: Vec<&str> = self.layout.names().collect();
        for (key, _) in self.root.iter() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                self.findings.add(self.layout.unknown_key(name, key.span(), "the file", &known));
            }
        }
    }

    fn read<S: Section>(&mut self, table: &DeTable<'i>, title: String, span: Option<Span>) -> S::Draft {
        let section = self.layout.section(S::NAME).expect("a layout has the sections that are read");
        let mut table = Table::new(title, span, table, &section.keys, self.findings);
        let draft = S::read(&mut table);
        let known: Vec<&str> = section.keys.iter().map(|key| key.name).collect();
        let unknown = |(name, span): (&str, Span)| self.layout.unknown_key(name, span, table.title(), &known);
        let unknown: Vec<Diagnostic> = table.unknown().map(unknown).collect();
        for finding in unknown {
            self.findings.add(finding);
        }
        draft
    }
}

fn not_a_list<S: Section>(value: &Value<'_>) -> Diagnostic {
    let (name, header) = (S::NAME, S::HEADER);
    Diagnostic::error("wrong-type", format!("`{name}` is not a list of sections"))
        .at(value.span())
        .expected(format!("a `{header}` section for each {name}"))
        .seen(type_of(value))
        .help(format!("write `{header}`, with two brackets on each side, and its keys below"))
}

/// The type of a value in words.
fn type_of(value: &Value<'_>) -> String {
    with_article(value.get_ref().type_str())
}
