//! The layouts of datagrams as `docs/wire.toml` states them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wire {
    /// Version of each protocol, the high half of the first byte.
    pub(super) versions: BTreeMap<String, u8>,
    maelstrom: BTreeMap<String, Kind>,
    ricochet: BTreeMap<String, Kind>,
    membership: BTreeMap<String, Kind>,
    pub(super) layouts: BTreeMap<String, Layout>,
}

/// A kind of datagram.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kind {
    /// None if the second byte tells it.
    pub(super) layout: Option<String>,
    pub(super) name: String,
    /// Words of the page in place of the name.
    pub(super) text: Option<String>,
    /// Where it goes, or who uses it.
    pub(super) to: Option<String>,
    /// Other layouts, by the second byte.
    #[serde(default)]
    pub(super) forms: BTreeMap<String, String>,
}

/// Fields that follow one another.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layout {
    /// Its name in the head of its table.
    pub(super) of: Option<String>,
    pub(super) protocol: String,
    pub(super) fields: Vec<Field>,
}

/// A field, a list, or another layout in its place.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Field {
    pub(super) name: String,
    id: Option<String>,
    pub(super) bytes: Option<u8>,
    #[serde(default)]
    pub(super) rest: bool,
    pub(super) leaves: Option<u8>,
    pub(super) length: Option<String>,
    pub(super) is: Option<String>,
    #[serde(default)]
    pub(super) first: bool,
    #[serde(default)]
    pub(super) bits: Vec<[String; 2]>,
    #[serde(default)]
    pub(super) values: BTreeMap<String, String>,
    pub(super) min: Option<u64>,
    pub(super) max: Option<u64>,
    pub(super) when: Option<Condition>,
    pub(super) zero: Option<Condition>,
    #[serde(default)]
    pub(super) optional: bool,
    pub(super) entry: Option<String>,
    pub(super) count: Option<String>,
    #[serde(default)]
    pub(super) distinct: bool,
    #[serde(default)]
    pub(super) of: Vec<Self>,
    pub(super) layout: Option<String>,
    pub(super) about: Option<String>,
    pub(super) size: Option<String>,
}

/// A state of another field, read earlier.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Condition {
    pub(super) field: String,
    #[serde(default)]
    pub(super) is: Vec<u64>,
    pub(super) bit: Option<u8>,
}

impl Wire {
    /// Reads the text of the file.
    ///
    /// # Errors
    /// An unknown key, a layout or an id that does not exist, or two fields of one id that are unlike.
    pub(super) fn read(text: &str) -> anyhow::Result<Self> {
        let wire: Self = toml::from_str(text)?;
        wire.check()?;
        Ok(wire)
    }

    /// The kinds of a protocol by the low half of their first byte, those of the membership by their second.
    pub(super) fn kinds(&self, of: &str) -> anyhow::Result<Vec<(u8, &Kind)>> {
        by_number(match of {
            "maelstrom" => &self.maelstrom,
            "ricochet" => &self.ricochet,
            "membership" => &self.membership,
            other => anyhow::bail!("expected maelstrom, ricochet or membership, saw {other}"),
        })
    }

    /// The first bytes of the datagrams with a layout.
    pub(super) fn first_bytes(&self, layout: &str) -> anyhow::Result<Vec<u8>> {
        let mut found = Vec::new();
        for protocol in self.versions.keys() {
            for (number, kind) in self.kinds(protocol)? {
                if kind.layout.iter().chain(kind.forms.values()).any(|name| name == layout) {
                    found.push(self.versions[protocol] << 4 | number);
                }
            }
        }
        Ok(found)
    }

    fn check(&self) -> anyhow::Result<()> {
        let kinds =
            [("maelstrom", &self.maelstrom), ("ricochet", &self.ricochet), ("ricochet", &self.membership)];
        for (owner, kind) in
            kinds.into_iter().flat_map(|(owner, kinds)| kinds.values().map(move |kind| (owner, kind)))
        {
            for name in kind.layout.iter().chain(kind.forms.values()) {
                let layout =
                    self.layouts.get(name).with_context(|| format!("{}: no layout {name}", kind.name))?;
                ensure!(layout.protocol == owner, "{}: expected a layout of {owner}, saw {name}", kind.name);
            }
        }
        let mut shapes = BTreeMap::new();
        for (name, layout) in &self.layouts {
            ensure!(
                self.versions.contains_key(&layout.protocol),
                "{name}: unknown protocol {}",
                layout.protocol
            );
            let mut known = BTreeSet::new();
            self.check_fields(&layout.fields, &layout.protocol, &mut known, &mut shapes)
                .with_context(|| name.clone())?;
        }
        Ok(())
    }

    /// Checks fields. `known` has the ids that they may refer to, `shapes` the form of each id by protocol.
    fn check_fields<'a>(
        &'a self,
        fields: &'a [Field],
        protocol: &'a str,
        known: &mut BTreeSet<String>,
        shapes: &mut BTreeMap<(&'a str, String), String>,
    ) -> anyhow::Result<()> {
        for field in fields {
            let name = &field.name;
            let conditions = field.when.iter().chain(&field.zero).map(|condition| &condition.field);
            for id in conditions.chain(&field.count).chain(&field.length) {
                ensure!(known.contains(id), "{name}: expected the id of a field before it, saw {id:?}");
            }
            if let Some(inner) = &field.layout {
                let layout = self.layouts.get(inner).with_context(|| format!("{name}: no layout {inner}"))?;
                known.extend(layout.fields.iter().map(Field::id));
            } else if field.of.is_empty() {
                ensure!(field.has_length(), "{name}: expected one of bytes, rest, length, or an address");
                let shape = format!("{:?} {:?} {:?}", field.bytes, field.is, field.values);
                // Flags are fields of their layout, others of the protocol.
                if field.bits.is_empty() {
                    let first = shapes.entry((protocol, field.id())).or_insert_with(|| shape.clone());
                    ensure!(*first == shape, "{name}: another field has the id {:?}", field.id());
                }
            } else {
                ensure!(field.entry.is_some(), "{name}: a list needs the name of an entry");
                self.check_fields(&field.of, protocol, &mut known.clone(), shapes)
                    .with_context(|| name.clone())?;
            }
            known.insert(field.id());
        }
        Ok(())
    }
}

impl Field {
    /// The id: the name, with `_` for all but letters and digits.
    pub(super) fn id(&self) -> String {
        self.id.clone().unwrap_or_else(|| {
            let name = self.name.to_lowercase().replace('\'', "");
            name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_")
        })
    }

    fn has_length(&self) -> bool {
        let is_address = self.is.as_deref() == Some("address");
        [self.bytes.is_some(), self.rest, self.length.is_some(), is_address]
            .into_iter()
            .filter(|&one| one)
            .count()
            == 1
    }
}

/// Entries in the order of their numbers, which TOML has as text.
pub(super) fn by_number<T>(entries: &BTreeMap<String, T>) -> anyhow::Result<Vec<(u8, &T)>> {
    let numbered = entries.iter().map(|(key, value)| {
        let number = key.parse().with_context(|| format!("expected a number from 0 to 255, saw {key:?}"))?;
        anyhow::Ok((number, value))
    });
    let mut sorted = numbered.collect::<anyhow::Result<Vec<_>>>()?;
    sorted.sort_by_key(|&(number, _)| number);
    Ok(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "[versions]\nnews = 1\n[maelstrom]\n[ricochet]\n[membership]\n[layouts.one]\nprotocol = 'news'\n";

    #[test]
    fn mistakes_in_the_source_are_named() {
        for (fields, expected) in [
            ("{ name = 'a', bytes = 1, colour = 2 }", "colour"),
            ("{ name = 'a' }", "expected one of bytes, rest, length"),
            ("{ name = 'a', bytes = 1, rest = true }", "expected one of bytes, rest, length"),
            (
                "{ name = 'a', length = 'b' }, { name = 'b', bytes = 1 }",
                "expected the id of a field before it",
            ),
            ("{ name = 'a', layout = 'two' }", "no layout two"),
            ("{ name = 'a', bytes = 1 }, { name = 'a', bytes = 2 }", "another field has the id"),
            ("{ name = 'a', of = [{ name = 'b', bytes = 1 }] }", "a list needs the name of an entry"),
        ] {
            let error = Wire::read(&format!("{HEAD}fields = [{fields}]\n")).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{fields}: {error:#}");
        }
        assert!(Wire::read(&format!("{HEAD}fields = [{{ name = \"a's b\", bytes = 1 }}]\n")).is_ok());
        let head = HEAD.replace("[ricochet]", "[ricochet]\n1 = { name = 'n', layout = 'three' }");
        let error = Wire::read(&format!("{head}fields = []\n")).unwrap_err();
        assert!(error.to_string().contains("n: no layout three"), "{error:#}");
    }
}
