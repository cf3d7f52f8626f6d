//! The page of the book about JSON documents: a table of all fields of each schema.

use std::fmt::Write as _;

use serde_json::Value;

const HEAD: &str = "\
# JSON documents

Each document names its schema in `schema`; lines of `recv --json` and `request --json` do not, and show it by their fields. Fields are added; the number behind the name rises if a field is removed or changes its
meaning. The [schemas](../schema) are files for programs. `peers[].up` is the field `up` of each entry of the list `peers`,
`counters.*` a count with any name. This page is made from the types in the source (`cargo xtask schema --write`).
";

/// Maximum depth of a field, if types contain each other.
const DEPTH_MAX: usize = 8;

/// Returns the page about these schemas.
pub(super) fn of(schemas: &[Value]) -> String {
    let mut page = HEAD.to_owned();
    for schema in schemas {
        let name = schema["$id"].as_str().unwrap_or_default();
        let _ =
            writeln!(page, "\n## {name}\n\n{}\n\n| field | type | meaning |\n|---|---|---|", about(schema));
        add_fields(&mut page, schema, schema, "", 0);
    }
    page
}

fn add_fields(page: &mut String, root: &Value, of: &Value, path: &str, depth: usize) {
    let Some(fields) = of["properties"].as_object() else { return };
    for (name, field) in fields {
        let (mut place, mut field, mut meaning) = (format!("{path}{name}"), field, about(field));
        let mut may_be_null = false;
        // Lists, maps and types in place of a field.
        for _ in 0..DEPTH_MAX {
            if let Some(list) = field.get("items") {
                (place, field) = (place + "[]", list);
            } else if let Some(entry) = field.get("additionalProperties") {
                (place, field) = (place + ".*", entry);
            } else if let Some(one) = field["anyOf"].get(0) {
                (field, may_be_null) = (one, true);
            } else if let Some(definition) = field["$ref"].as_str() {
                field = root.pointer(definition.trim_start_matches('#')).unwrap_or(&Value::Null);
                if meaning.is_empty() {
                    meaning = about(field);
                }
            } else {
                break;
            }
        }
        let kind = kind(field, may_be_null);
        let _ = writeln!(page, "| `{place}` | {kind} | {meaning} |");
        if depth < DEPTH_MAX {
            add_fields(page, root, field, &format!("{place}."), depth + 1);
        }
    }
}

fn kind(field: &Value, may_be_null: bool) -> String {
    let words = |list: &[Value]| {
        let words = list.iter().map(|word| word.as_str().unwrap_or_default().replace("integer", "number"));
        words.collect::<Vec<_>>()
    };
    let mut kinds = match (&field["type"], &field["enum"]) {
        (_, Value::Array(values)) => words(values).into_iter().map(|value| format!("`{value}`")).collect(),
        (Value::Array(kinds), _) => words(kinds),
        (kind, _) => words(std::slice::from_ref(kind)),
    };
    if may_be_null {
        kinds.push("null".to_owned());
    }
    kinds.join(", ")
}

fn about(of: &Value) -> String {
    of["description"].as_str().unwrap_or_default().replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_of_lists_maps_and_types_have_their_paths() {
        let schema = json!({
            "$id": "a/1", "description": "A document.", "properties": {
                "one": { "type": "string", "description": "Yes | no." },
                "counts": { "type": "object", "additionalProperties": { "type": "integer" } },
                "things": { "type": "array", "items": { "$ref": "#/$defs/Thing" } },
                "way": { "anyOf": [{ "$ref": "#/$defs/Way" }, { "type": "null" }] },
            },
            "$defs": {
                "Thing": { "description": "A thing.", "type": "object", "properties": { "size": { "type": ["integer", "null"] } } },
                "Way": { "description": "A way.", "enum": ["up", "down"] },
            },
        });
        let page = of(&[schema]);
        let (_, table) = page
            .split_once("\n## a/1\n\nA document.\n\n| field | type | meaning |\n|---|---|---|\n")
            .unwrap();
        assert_eq!(
            table,
            "| `counts.*` | number |  |\n\
            | `one` | string | Yes \\| no. |\n\
            | `things[]` | object | A thing. |\n\
            | `things[].size` | number, null |  |\n\
            | `way` | `up`, `down`, null | A way. |\n"
        );
    }
}
