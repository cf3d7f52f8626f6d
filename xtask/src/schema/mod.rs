//! JSON Schema files of the documents that other programs read, and a page about them, from the Rust types
//! that are written.
//!
//! The types and their comments are the only source. `types.rs` reads them from the source files, so that the
//! product needs no library for it. A test compares the files in `docs/schema` with what the types say.

mod page;
mod types;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value, json};

use types::{Field, Kind, Types};

/// A document: its schema, the crate of its type, and the type.
type Document = (&'static str, &'static str, &'static str);

const DOCUMENTS: [Document; 12] = [
    ("undrop.check/1", "diagnostics", "JsonReport"),
    ("undrop.fec.simulation/1", "undrop", "Simulation"),
    ("undrop.gateway.advise/1", "undrop", "Document"),
    ("undrop.gateway.cache/1", "maelstrom", "Cache"),
    ("undrop.gateway.health/1", "undrop", "Health"),
    ("undrop.gateway.losses/1", "maelstrom", "Losses"),
    ("undrop.gateway.status/1", "maelstrom", "Status"),
    ("undrop.multicast.doctor/1", "undrop", "Diagnosis"),
    ("undrop.multicast.moldudp64.in/1", "undrop", "InStatus"),
    ("undrop.multicast.moldudp64.out/1", "undrop", "OutStatus"),
    ("undrop.multicast.relay/1", "undrop", "RelayStatus"),
    ("undrop.node.status/1", "ricochet", "Status"),
];

/// Lines of a command's output, each a document. They do not name their schema, so that they stay short; the
/// fields tell them apart.
const LINES: [Document; 4] = [
    ("undrop.multicast.recv.lost/1", "undrop", "LostLine"),
    ("undrop.multicast.recv.member/1", "undrop", "MemberLine"),
    ("undrop.multicast.recv.message/1", "undrop", "MessageLine"),
    ("undrop.multicast.request.reply/1", "undrop", "ReplyLine"),
];

/// Writes all files, or complains of those that differ from the types.
///
/// # Errors
/// A type without a schema, or a file that cannot be read or written.
pub(crate) fn run(writes: bool) -> anyhow::Result<bool> {
    let mut is_right = true;
    for (path, text) in files()? {
        if writes {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        } else if fs::read_to_string(&path).unwrap_or_default() != text {
            is_right = false;
            println!("{} differs from the types: `cargo xtask schema --write`", path.display());
        }
    }
    Ok(is_right)
}

/// The path and the text of each file.
fn files() -> anyhow::Result<Vec<(PathBuf, String)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let types = Types::read(&root.join("crates"), &["diagnostics", "maelstrom", "ricochet", "undrop"])?;
    let all = DOCUMENTS.into_iter().map(|of| (of, true)).chain(LINES.into_iter().map(|of| (of, false)));
    let document = |((schema, krate, name), is_named): (Document, bool)| {
        Schema::of(&types, schema, krate, name, is_named).with_context(|| format!("schema {schema}"))
    };
    let documents = all.map(document).collect::<anyhow::Result<Vec<_>>>()?;
    let file = |(&(schema, ..), document): (&Document, &Value)| {
        let path = root.join("docs/schema").join(format!("{}.json", schema.replace('/', ".")));
        anyhow::Ok((path, serde_json::to_string_pretty(document)? + "\n"))
    };
    let mut files =
        DOCUMENTS.iter().chain(&LINES).zip(&documents).map(file).collect::<anyhow::Result<Vec<_>>>()?;
    files.push((root.join("docs/book/json.md"), page::of(&documents)));
    Ok(files)
}

/// A schema while it is put together.
struct Schema<'a> {
    types: &'a Types,
    /// Types that the document contains, by name, each with its crate.
    definitions: BTreeMap<String, (String, Value)>,
}

impl<'a> Schema<'a> {
    /// Makes the schema of a document. `is_named`: whether the document states it.
    fn of(types: &'a Types, schema: &str, krate: &str, name: &str, is_named: bool) -> anyhow::Result<Value> {
        let mut made = Self { types, definitions: BTreeMap::new() };
        let mut root = made.definition(krate, name)?;
        let fields = root["properties"].as_object_mut().context("expected a struct")?;
        ensure!(fields.contains_key("schema") == is_named, "{krate}::{name}: does it name its schema?");
        if is_named {
            fields["schema"]["const"] = schema.into();
        }
        root["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
        root["$id"] = schema.into();
        let definitions = made.definitions.into_iter().map(|(name, (_, value))| (name, value));
        root["$defs"] = Value::Object(definitions.collect());
        Ok(root)
    }

    /// The schema of a type.
    fn definition(&mut self, krate: &str, name: &str) -> anyhow::Result<Value> {
        let (krate, item) = self.types.find(krate, name)?;
        Ok(match &item.kind {
            types::Shape::Other(why) => anyhow::bail!("{name}: {why}"),
            types::Shape::Words(words) => json!({ "description": item.about, "enum": words }),
            types::Shape::Fields(fields) => {
                let (mut properties, mut required) = (Map::new(), Vec::new());
                self.add_fields(krate, fields, &mut properties, &mut required)?;
                json!({ "description": item.about, "type": "object", "properties": properties, "required": required })
            }
        })
    }

    fn add_fields(
        &mut self,
        krate: &str,
        fields: &[Field],
        properties: &mut Map<String, Value>,
        required: &mut Vec<Value>,
    ) -> anyhow::Result<()> {
        for field in fields {
            if let (true, Kind::Named(name)) = (field.is_flat, &field.kind) {
                let (krate, item) = self.types.find(krate, name)?;
                let types::Shape::Fields(inner) = &item.kind else {
                    anyhow::bail!("{name} cannot be flattened");
                };
                self.add_fields(krate, inner, properties, required)?;
                continue;
            }
            let mut value = self.value(krate, &field.kind)?;
            if !field.about.is_empty() {
                value["description"] = field.about.clone().into();
            }
            properties.insert(field.name.clone(), value);
            if !field.is_optional {
                required.push(field.name.clone().into());
            }
        }
        Ok(())
    }

    /// The schema of a value.
    fn value(&mut self, krate: &str, kind: &Kind) -> anyhow::Result<Value> {
        Ok(match kind {
            Kind::Scalar(word) => json!({ "type": word }),
            Kind::Count => json!({ "type": "integer", "minimum": 0 }),
            Kind::List(inner) => json!({ "type": "array", "items": self.value(krate, inner)? }),
            Kind::Map(inner) => {
                json!({ "type": "object", "additionalProperties": self.value(krate, inner)? })
            }
            Kind::Optional(inner) => {
                let mut value = self.value(krate, inner)?;
                match value["type"].as_str().map(str::to_owned) {
                    Some(word) => {
                        value["type"] = json!([word, "null"]);
                        value
                    }
                    None => json!({ "anyOf": [value, { "type": "null" }] }),
                }
            }
            Kind::Named(name) => {
                if let Some(alias) = self.types.alias(krate, name) {
                    return self.value(krate, alias);
                }
                let (owner, _) = self.types.find(krate, name)?;
                let owner = owner.to_owned();
                match self.definitions.get(name) {
                    Some((known, _)) => ensure!(*known == owner, "two types are called {name}"),
                    None => {
                        // Types may contain each other.
                        self.definitions.insert(name.clone(), (owner.clone(), Value::Null));
                        let definition = self.definition(&owner, name)?;
                        self.definitions.insert(name.clone(), (owner, definition));
                    }
                }
                json!({ "$ref": format!("#/$defs/{name}") })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_in_the_tree_are_those_of_the_types() {
        for (path, text) in files().unwrap() {
            let kept = fs::read_to_string(&path).unwrap_or_default();
            assert!(kept == text, "{}: run `cargo xtask schema --write`", path.display());
        }
    }

    #[test]
    fn a_schema_has_the_shape_of_its_types() {
        let source = r#"
            /// A [`Pair`] of
            /// things.
            #[derive(Serialize)]
            pub struct Pair { schema: String, one: Option<Thing>, #[serde(flatten)] rest: Rest, by: Counts }
            pub type Counts = BTreeMap<String, u64>;
            #[derive(Serialize)]
            pub struct Rest { #[serde(skip_serializing_if = "Vec::is_empty")] list: Vec<f64>, own: Option<u8> }
            /// A thing.
            #[derive(Clone, Serialize)]
            #[serde(rename_all = "kebab-case")]
            pub enum Thing { FirstOne, Second }
            #[cfg(test)]
            mod tests { #[derive(Serialize)] struct Pair {} }
        "#;
        let mut types = Types::default();
        types.add("here", source).unwrap();
        let schema = Schema::of(&types, "pair/1", "here", "Pair", true).unwrap();
        assert_eq!(schema["description"], "A `Pair` of things.");
        assert_eq!(schema["required"], json!(["schema", "one", "own", "by"]));
        assert_eq!(schema["properties"]["schema"], json!({ "type": "string", "const": "pair/1" }));
        assert_eq!(
            schema["properties"]["one"],
            json!({ "anyOf": [{ "$ref": "#/$defs/Thing" }, { "type": "null" }] })
        );
        assert_eq!(schema["properties"]["list"], json!({ "type": "array", "items": { "type": "number" } }));
        assert_eq!(schema["properties"]["own"], json!({ "type": ["integer", "null"], "minimum": 0 }));
        assert_eq!(schema["properties"]["by"]["additionalProperties"]["type"], "integer");
        assert_eq!(schema["$defs"]["Thing"]["enum"], json!(["first-one", "second"]));
        for wrong in ["struct A { schema: Strange }", "struct A { a: u8 }", "enum A { B(u8) }"] {
            let mut types = Types::default();
            let read = types.add("here", &format!("#[derive(Serialize)] {wrong}"));
            let made = read.and_then(|()| Schema::of(&types, "a/1", "here", "A", true));
            assert!(made.is_err(), "{wrong}: {made:?}");
        }
    }
}
