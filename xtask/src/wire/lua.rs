//! The layouts as tables of Lua, in the dissector.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use anyhow::{Context as _, ensure};

use super::layouts::{Condition, Field, Kind, Wire, by_number};

const BEGIN: &str = "-- begin of what `cargo xtask wire --write` makes from docs/wire.toml\n";
const END: &str = "-- end of it\n";

/// Returns the script with the present layouts.
///
/// # Errors
/// If the script does not have the lines between which they stand.
pub(super) fn fill(wire: &Wire, script: &str) -> anyhow::Result<String> {
    let (before, rest) = script.split_once(BEGIN).with_context(|| format!("expected the line {BEGIN:?}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("expected the line {END:?} later"))?;
    ensure!(!after.contains(BEGIN), "expected the line {BEGIN:?} once");
    Ok([before, BEGIN, &block(wire)?, END, after].concat())
}

fn block(wire: &Wire) -> anyhow::Result<String> {
    let mut versions = Constructor::default();
    for (protocol, version) in &wire.versions {
        versions.put(protocol, version);
    }
    let mut text = format!("local VERSIONS = {}\nlocal DATAGRAMS = {{\n", versions.end());
    for protocol in ["maelstrom", "membership", "ricochet"] {
        writeln!(text, "  {protocol} = {{")?;
        for (number, kind) in wire.kinds(protocol)? {
            writeln!(text, "    [{number}] = {},", kind_of(kind)?)?;
        }
        text += "  },\n";
    }
    text += "}\nlocal LAYOUTS = {\n";
    for (name, layout) in &wire.layouts {
        writeln!(text, "  {name} = {{\n    protocol = {},\n    fields = {{", quoted(&layout.protocol))?;
        for field in &layout.fields {
            writeln!(text, "      {},", row(field)?)?;
        }
        text += "    },\n  },\n";
    }
    Ok(text + "}\n")
}

fn kind_of(kind: &Kind) -> anyhow::Result<String> {
    let mut table = Constructor::default();
    table.put("name", &quoted(&kind.name));
    table.put_if("layout", kind.layout.as_deref().map(quoted));
    table.put_if("forms", names(&kind.forms)?);
    Ok(table.end())
}

fn row(field: &Field) -> anyhow::Result<String> {
    let mut table = Constructor::default();
    let is_set = |flag: bool| flag.then_some("true");
    table.put("name", &quoted(&field.name));
    table.put("id", &quoted(&field.id()));
    table.put_if("bytes", field.bytes);
    table.put_if("rest", is_set(field.rest));
    table.put_if("leaves", field.leaves);
    table.put_if("length", field.length.as_deref().map(quoted));
    table.put_if("is", field.is.as_deref().map(quoted));
    let bits: Vec<String> = field.bits.iter().map(|[name, _]| quoted(name)).collect();
    table.put_if("bits", list(&bits));
    table.put_if("values", names(&field.values)?);
    table.put_if("min", field.min);
    table.put_if("max", field.max);
    table.put_if("when", field.when.as_ref().map(condition));
    table.put_if("zero", field.zero.as_ref().map(condition));
    table.put_if("optional", is_set(field.optional));
    table.put_if("entry", field.entry.as_deref().map(quoted));
    table.put_if("count", field.count.as_deref().map(quoted));
    table.put_if("distinct", is_set(field.distinct));
    let rows: Vec<String> = field.of.iter().map(row).collect::<anyhow::Result<_>>()?;
    table.put_if("of", list(&rows));
    table.put_if("layout", field.layout.as_deref().map(quoted));
    Ok(table.end())
}

fn condition(condition: &Condition) -> String {
    let mut table = Constructor::default();
    let values: Vec<String> = condition.is.iter().map(u64::to_string).collect();
    table.put("field", &quoted(&condition.field));
    table.put_if("is", list(&values));
    table.put_if("bit", condition.bit);
    table.end()
}

/// Names by number; none if there are none.
fn names(names: &BTreeMap<String, String>) -> anyhow::Result<Option<String>> {
    let mut table = Constructor::default();
    for (number, name) in by_number(names)? {
        table.put(&format!("[{number}]"), &quoted(name));
    }
    Ok((!names.is_empty()).then(|| table.end()))
}

fn list(entries: &[String]) -> Option<String> {
    (!entries.is_empty()).then(|| format!("{{ {} }}", entries.join(", ")))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A table while it is written, such as `{ name = "kind", bytes = 1 }`.
#[derive(Default)]
struct Constructor(Vec<String>);

impl Constructor {
    fn put(&mut self, key: &str, value: &dyn Display) {
        self.0.push(format!("{key} = {value}"));
    }

    fn put_if(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.put(key, &value);
        }
    }

    fn end(&self) -> String {
        format!("{{ {} }}", self.0.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_is_replaced_and_the_rest_stays() {
        let wire = "[versions]\nnews = 1\n[maelstrom]\n[ricochet]\n[membership]\n[layouts.one]\nprotocol = 'news'\n\
            fields = [{ name = 'a \"b\"', bytes = 1, bits = [['x', 'the x']], about = 'a text' }, { name = 'c', length = 'a__b_' }]\n";
        let wire = Wire::read(wire).unwrap();
        let filled = fill(&wire, &format!("-- one\n{BEGIN}old\n{END}-- two\n")).unwrap();
        assert!(
            filled.starts_with("-- one\n") && filled.ends_with("-- two\n") && !filled.contains("old"),
            "{filled}"
        );
        assert!(filled.contains("local VERSIONS = { news = 1 }\n"), "{filled}");
        assert!(
            filled.contains(r#"      { name = "a \"b\"", id = "a__b_", bytes = 1, bits = { "x" } },"#),
            "{filled}"
        );
        assert_eq!(fill(&wire, &filled).unwrap(), filled);
        for wrong in ["-- one\n".to_owned(), BEGIN.to_owned(), format!("{BEGIN}{END}{BEGIN}")] {
            assert!(fill(&wire, &wrong).is_err(), "{wrong}");
        }
    }
}
