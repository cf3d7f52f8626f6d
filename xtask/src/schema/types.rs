//! The types that are written as JSON, as the source files declare them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use syn::{Attribute, Expr, Fields, GenericArgument, Item, Lit, Meta, PathArguments, Type};

/// A type with its name, by crate.
#[derive(Debug, Default)]
pub(super) struct Types {
    found: BTreeMap<(String, String), Vec<Declared>>,
    aliases: BTreeMap<(String, String), Kind>,
}

/// A declared type.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) about: String,
    pub(super) kind: Shape,
}

/// Form of a type as JSON.
#[derive(Debug)]
pub(super) enum Shape {
    /// An object.
    Fields(Vec<Field>),
    /// One of these texts.
    Words(Vec<String>),
    /// Something else, with the reason why it has no schema.
    Other(&'static str),
}

/// A field of an object.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) kind: Kind,
    /// Whether its own fields stand in its place.
    pub(super) is_flat: bool,
    /// Whether it may be absent.
    pub(super) is_optional: bool,
}

/// The type of a value.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// `string`, `number` or `boolean`.
    Scalar(&'static str),
    /// A whole number that is not negative.
    Count,
    List(Box<Self>),
    Map(Box<Self>),
    Optional(Box<Self>),
    /// A declared type.
    Named(String),
}

impl Types {
    /// Reads the source files of some crates.
    pub(super) fn read(directory: &Path, crates: &[&str]) -> anyhow::Result<Self> {
        let mut types = Self::default();
        for krate in crates {
            types.read_directory(krate, &directory.join(krate).join("src"))?;
        }
        Ok(types)
    }

    fn read_directory(&mut self, krate: &str, directory: &Path) -> anyhow::Result<()> {
        let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                self.read_directory(krate, &path)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path)?;
                if text.contains("Serialize") || text.contains("pub type") {
                    self.add(krate, &text).with_context(|| path.display().to_string())?;
                }
            }
        }
        Ok(())
    }

    /// Adds the types of a source file.
    pub(super) fn add(&mut self, krate: &str, text: &str) -> anyhow::Result<()> {
        for item in syn::parse_file(text)?.items {
            match item {
                Item::Struct(item) if is_written(&item.attrs) => {
                    let kind = match &item.fields {
                        Fields::Named(fields) => {
                            let fields = fields.named.iter().map(field).collect::<anyhow::Result<_>>();
                            fields.map_or(Shape::Other("a field has another type"), Shape::Fields)
                        }
                        _ => Shape::Other("its fields have no names"),
                    };
                    self.insert(krate, &item.ident.to_string(), about(&item.attrs), kind);
                }
                Item::Enum(item) if is_written(&item.attrs) => {
                    let style = option(&item.attrs, "rename_all")?;
                    let words: Option<Vec<String>> = item
                        .variants
                        .iter()
                        .map(|one| {
                            (one.fields.is_empty()).then(|| word(&one.ident.to_string(), style.as_deref()))
                        })
                        .collect();
                    let kind = words.map_or(Shape::Other("its variants have fields"), Shape::Words);
                    self.insert(krate, &item.ident.to_string(), about(&item.attrs), kind);
                }
                Item::Type(item) => {
                    if let Ok(kind) = kind(&item.ty) {
                        self.aliases.insert((krate.to_owned(), item.ident.to_string()), kind);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn insert(&mut self, krate: &str, name: &str, about: String, kind: Shape) {
        let place = (krate.to_owned(), name.to_owned());
        self.found.entry(place).or_default().push(Declared { about, kind });
    }

    /// The type of this name: that of the crate, or else the only one of another.
    pub(super) fn find(&self, krate: &str, name: &str) -> anyhow::Result<(&str, &Declared)> {
        let all: Vec<_> = self.found.iter().filter(|((_, found), _)| found == name).collect();
        let own = all.iter().find(|((owner, _), _)| owner == krate);
        let &((owner, _), declared) = match (own, &all[..]) {
            (Some(own), _) => own,
            (None, [only]) => only,
            _ => bail!("expected one type {name} for {krate}, saw {}", all.len()),
        };
        ensure!(declared.len() == 1, "{owner} has {} types {name}", declared.len());
        if let Shape::Other(why) = declared[0].kind {
            bail!("{owner}::{name}: {why}");
        }
        Ok((owner, &declared[0]))
    }

    /// The meaning of another name for a type.
    pub(super) fn alias(&self, krate: &str, name: &str) -> Option<&Kind> {
        self.aliases.get(&(krate.to_owned(), name.to_owned()))
    }
}

fn is_written(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|one| one.path().is_ident("derive")).any(|one| {
        let mut found = false;
        let _ = one.parse_nested_meta(|meta| {
            found |= meta.path.is_ident("Serialize");
            Ok(())
        });
        found
    })
}

/// The comment of an item, on one line and without links.
fn about(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|one| match &one.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            Expr::Lit(text) => match &text.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let text = lines.collect::<Vec<_>>().join(" ");
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((name, after)) = link.split_once("`]") else { break };
        plain += &format!("{before}`{name}`");
        rest = after;
        if let Some((_, after)) = rest.strip_prefix('(').and_then(|target| target.split_once(')')) {
            rest = after;
        }
    }
    plain + rest
}

/// The text of an option of serde, such as `rename_all`; empty if the option has none.
fn option(attributes: &[Attribute], name: &str) -> anyhow::Result<Option<String>> {
    let mut found = None;
    for attribute in attributes.iter().filter(|one| one.path().is_ident("serde")) {
        attribute.parse_nested_meta(|meta| {
            let text = match meta.value() {
                Ok(value) => value.parse::<syn::LitStr>()?.value(),
                Err(_) => String::new(),
            };
            if meta.path.is_ident(name) {
                found = Some(text);
            }
            Ok(())
        })?;
    }
    Ok(found)
}

fn field(field: &syn::Field) -> anyhow::Result<Field> {
    let name = field.ident.as_ref().context("expected a field with a name")?.to_string();
    ensure!(option(&field.attrs, "serialize_with")?.is_none(), "{name} is written by a function");
    Ok(Field {
        name: option(&field.attrs, "rename")?.unwrap_or(name),
        about: about(&field.attrs),
        kind: kind(&field.ty)?,
        is_flat: option(&field.attrs, "flatten")?.is_some(),
        is_optional: option(&field.attrs, "skip_serializing_if")?.is_some(),
    })
}

fn kind(of: &Type) -> anyhow::Result<Kind> {
    let path = match of {
        Type::Reference(reference) => return kind(&reference.elem),
        Type::Slice(slice) => return Ok(Kind::List(Box::new(kind(&slice.elem)?))),
        Type::Array(array) => return Ok(Kind::List(Box::new(kind(&array.elem)?))),
        Type::Path(path) => path.path.segments.last().context("expected a type")?,
        _ => bail!("expected a named type"),
    };
    let inner: Vec<&Type> = match &path.arguments {
        PathArguments::AngleBracketed(arguments) => {
            let types = arguments.args.iter().filter_map(|argument| match argument {
                GenericArgument::Type(of) => Some(of),
                _ => None,
            });
            types.collect()
        }
        _ => Vec::new(),
    };
    Ok(match (path.ident.to_string().as_str(), &inner[..]) {
        ("String" | "str" | "SocketAddr" | "IpAddr" | "IpNet", []) => Kind::Scalar("string"),
        ("bool", []) => Kind::Scalar("boolean"),
        ("f32" | "f64", []) => Kind::Scalar("number"),
        ("u8" | "u16" | "u32" | "u64" | "usize", []) => Kind::Count,
        ("Option", [inner]) => Kind::Optional(Box::new(kind(inner)?)),
        ("Vec", [inner]) => Kind::List(Box::new(kind(inner)?)),
        ("BTreeMap", [_, inner]) => Kind::Map(Box::new(kind(inner)?)),
        (name, []) => Kind::Named(name.to_owned()),
        (name, _) => bail!("expected a type with a schema, saw {name}"),
    })
}

/// The text of a variant.
fn word(name: &str, style: Option<&str>) -> String {
    let separator = match style {
        Some("kebab-case") => "-",
        Some("snake_case") => "_",
        Some("lowercase") => "",
        _ => return name.to_owned(),
    };
    let mut word = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word += separator;
        }
        word.extend(letter.to_lowercase());
    }
    word
}
