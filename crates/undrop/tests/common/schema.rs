//! Documents against their JSON Schema: the part of the language that the files in `docs/schema` use.
//!
//! It is stricter than a reader may be: a field that the schema does not name is a fault too, because fields
//! and schema come from the same types.

use std::path::Path;

use serde_json::Value;

/// Returns the faults of a document by the file of its schema in `docs/schema`.
///
/// # Panics
/// If there is no such file.
pub(crate) fn faults_by_file(document: &Value, file: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let schema = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    faults(document, &schema)
}

/// Returns the faults of a document by a schema: each with its place.
pub(crate) fn faults(document: &Value, schema: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    look(document, schema, schema, "", &mut faults);
    faults
}

/// Words of a schema that demand nothing.
const REMARKS: [&str; 5] = ["$schema", "$id", "$defs", "description", "title"];

fn look(value: &Value, schema: &Value, root: &Value, at: &str, faults: &mut Vec<String>) {
    let Some(demands) = schema.as_object() else {
        return faults.push(format!("{at}: expected a schema, saw {schema}"));
    };
    for (word, demand) in demands.iter().filter(|(word, _)| !REMARKS.contains(&word.as_str())) {
        let holds = match (word.as_str(), demand) {
            ("$ref", Value::String(target)) => {
                match target.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) {
                    Some(target) => look(value, target, root, at, faults),
                    None => faults.push(format!("{at}: the schema has no {target}")),
                }
                true
            }
            ("type", Value::String(kind)) => is(value, kind),
            ("type", Value::Array(kinds)) => {
                kinds.iter().any(|kind| kind.as_str().is_some_and(|kind| is(value, kind)))
            }
            ("const", demand) => value == demand,
            ("enum", Value::Array(words)) => words.contains(value),
            ("minimum", Value::Number(least)) => {
                value.as_f64().is_none_or(|number| least.as_f64().is_some_and(|least| number >= least))
            }
            ("anyOf", Value::Array(choices)) => choices.iter().any(|choice| {
                let mut own = Vec::new();
                look(value, choice, root, at, &mut own);
                own.is_empty()
            }),
            ("items", inner) => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    look(item, inner, root, &format!("{at}/{index}"), faults);
                }
                true
            }
            ("required", Value::Array(names)) => value.as_object().is_none_or(|object| {
                names.iter().all(|name| name.as_str().is_some_and(|name| object.contains_key(name)))
            }),
            ("properties", Value::Object(known)) => {
                for (name, item) in value.as_object().into_iter().flatten() {
                    match known.get(name) {
                        Some(inner) => look(item, inner, root, &format!("{at}/{name}"), faults),
                        None => faults.push(format!("{at}: the schema does not name {name}")),
                    }
                }
                true
            }
            ("additionalProperties", inner) => {
                for (name, item) in value.as_object().into_iter().flatten() {
                    look(item, inner, root, &format!("{at}/{name}"), faults);
                }
                true
            }
            _ => false,
        };
        if !holds {
            faults.push(format!("{at}: expected {word} {demand}, saw {value}"));
        }
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_fault_has_its_place() {
        let schema = json!({
            "$id": "a/1",
            "type": "object",
            "properties": {
                "schema": { "const": "a/1" },
                "list": { "type": "array", "items": { "$ref": "#/$defs/Thing" } },
                "own": { "type": ["number", "null"] },
                "by": { "type": "object", "additionalProperties": { "type": "integer", "minimum": 0 } },
                "either": { "anyOf": [{ "enum": ["x"] }, { "type": "null" }] },
            },
            "required": ["schema"],
            "$defs": { "Thing": { "type": "object", "properties": { "n": { "type": "boolean" } }, "required": ["n"] } },
        });
        let right =
            json!({ "schema": "a/1", "list": [{ "n": true }], "own": 1.5, "by": { "k": 1 }, "either": "x" });
        assert_eq!(faults(&right, &schema), Vec::<String>::new());
        for (wrong, place) in [
            (json!({ "schema": "a/2" }), "/schema: "),
            (json!({}), ": expected required"),
            (json!({ "schema": "a/1", "list": [{ "n": true }, {}] }), "/list/1: "),
            (json!({ "schema": "a/1", "list": [{ "n": 1 }] }), "/list/0/n: "),
            (json!({ "schema": "a/1", "own": "1" }), "/own: "),
            (json!({ "schema": "a/1", "by": { "k": -1 } }), "/by/k: "),
            (json!({ "schema": "a/1", "either": "y" }), "/either: "),
            (json!({ "schema": "a/1", "more": 1 }), ": the schema does not name more"),
        ] {
            let found = faults(&wrong, &schema);
            assert!(found.len() == 1 && found[0].starts_with(place), "{wrong}: {found:?}");
        }
        // A word that is not understood is no silent success.
        assert_eq!(faults(&json!(1), &json!({ "pattern": "x" })).len(), 1);
    }
}
