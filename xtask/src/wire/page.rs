//! The layouts as tables of the page, each between two comments: `<!-- layout data -->` and `<!-- end -->`,
//! or `<!-- kinds ricochet -->` for the kinds of datagrams.

use std::fmt::Write as _;

use anyhow::{Context as _, bail, ensure};

use super::layouts::{Field, Layout, Wire, by_number};

const END: &str = "<!-- end -->";

/// Returns the page with the present tables.
///
/// # Errors
/// If a comment names no layout, has no end, or if a layout is not on the page.
pub(super) fn fill(wire: &Wire, page: &str) -> anyhow::Result<String> {
    let (mut filled, mut missing) = (String::new(), wire.layouts.keys().collect::<Vec<_>>());
    let mut lines = page.split_inclusive('\n');
    while let Some(line) = lines.next() {
        filled += line;
        let Some(what) = line.trim_end().strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"))
        else {
            continue;
        };
        let table = match what.split_once(' ') {
            Some(("layout", name)) => {
                missing.retain(|one| *one != name);
                let layout = wire.layouts.get(name).with_context(|| format!("no layout {name}"))?;
                fields(wire, name, layout)?
            }
            Some(("kinds", of)) => kinds(wire, of)?,
            _ => bail!("expected `layout NAME` or `kinds NAME` in a comment, saw {what:?}"),
        };
        write!(filled, "\n{table}\n")?;
        let end = lines.find(|line| line.trim_end() == END);
        filled += end.with_context(|| format!("{what}: expected a line {END} later"))?;
    }
    ensure!(missing.is_empty(), "expected a table of each layout, found none of {missing:?}");
    Ok(filled)
}

fn kinds(wire: &Wire, of: &str) -> anyhow::Result<String> {
    let mut text = String::from(match of {
        "membership" => "| kind | datagram | used by |\n|---|---|---|\n",
        _ => "| first byte | datagram | goes to |\n|---|---|---|\n",
    });
    for (number, kind) in wire.kinds(of)? {
        let byte = match wire.versions.get(of) {
            Some(version) => format!("`0x{:02x}`", version << 4 | number),
            None => number.to_string(),
        };
        let (name, to) = (kind.text.as_ref().unwrap_or(&kind.name), kind.to.as_deref().unwrap_or_default());
        writeln!(text, "| {byte} | {name} | {to} |")?;
    }
    Ok(text)
}

fn fields(wire: &Wire, name: &str, layout: &Layout) -> anyhow::Result<String> {
    let head = match &layout.of {
        Some(of) if of.starts_with(['a', 'e', 'i', 'o']) => format!("field of an {of}"),
        Some(of) => format!("field of a {of}"),
        None => "field".to_owned(),
    };
    let mut text = format!("| {head} | bytes | |\n|---|---|---|\n");
    for field in &layout.fields {
        let meaning = if field.first { first_bytes(wire, name)? } else { meaning(field)? };
        let space = if meaning.is_empty() { "" } else { " " };
        writeln!(text, "| {} | {} |{space}{meaning} |", field.name, size(field))?;
    }
    Ok(text)
}

fn first_bytes(wire: &Wire, layout: &str) -> anyhow::Result<String> {
    let bytes: Vec<String> = wire.first_bytes(layout)?.iter().map(|byte| format!("`0x{byte:02x}`")).collect();
    Ok(bytes.join(" or "))
}

fn size(field: &Field) -> String {
    if let Some(size) = &field.size {
        return size.clone();
    }
    let entry: Option<u32> = field.of.iter().map(|inner| inner.bytes.map(u32::from)).sum();
    match (field.bytes, &field.length, entry) {
        (Some(bytes), ..) => bytes.to_string(),
        (None, Some(length), _) => length.clone(),
        (None, None, Some(bytes)) if bytes > 0 => format!("{bytes} each"),
        _ => "rest".to_owned(),
    }
}

fn meaning(field: &Field) -> anyhow::Result<String> {
    let values =
        by_number(&field.values)?.iter().map(|(value, name)| format!("{value} {name}")).collect::<Vec<_>>();
    let mut parts: Vec<String> = (!values.is_empty()).then(|| values.join(", ")).into_iter().collect();
    parts.extend(field.about.clone());
    if !field.bits.is_empty() {
        parts.extend(field.bits.iter().enumerate().map(|(bit, [_, about])| format!("bit {bit}: {about}")));
        parts.push("others 0".to_owned());
    }
    if field.about.is_none() && !field.of.is_empty() {
        parts.push(field.of.iter().map(inner).collect::<anyhow::Result<Vec<_>>>()?.join(" · "));
    }
    Ok(parts.join("; "))
}

/// A field of an entry, in the row of its list.
fn inner(field: &Field) -> anyhow::Result<String> {
    let (size, meaning) = (size(field), meaning(field)?);
    if size.is_empty() {
        return Ok(field.name.clone());
    }
    let is_list = !field.of.is_empty();
    let separator = if field.values.is_empty() { ", " } else { "; " };
    let about = if meaning.is_empty() || is_list { String::new() } else { format!("{separator}{meaning}") };
    Ok(format!("{} ({size}{about})", field.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(fields: &str) -> Wire {
        let kind = "1 = { name = 'news', layout = 'one', to = 'all' }";
        Wire::read(&format!(
            "[versions]\nricochet = 11\n[maelstrom]\n[membership]\n[ricochet]\n{kind}\n[layouts.one]\nprotocol = 'ricochet'\nfields = [{fields}]"
        ))
        .unwrap()
    }

    #[test]
    fn a_table_has_a_row_for_each_field() {
        let wire = wire(
            "{ name = 'kind', bytes = 1, first = true },
             { name = 'flags', bytes = 1, bits = [['a', 'the first'], ['b', 'the second']] },
             { name = 'form', bytes = 1, values = { 10 = 'ten', 2 = 'two' }, about = 'of it' },
             { name = 'list', entry = 'one', count = 'form', of = [{ name = 'id', bytes = 4 }, { name = 'n', bytes = 2, about = 'a number' }] },
             { name = 'rest', rest = true, about = 'may be empty' }",
        );
        let page =
            "Text.\n<!-- kinds ricochet -->\nold\n<!-- end -->\n<!-- layout one -->\n<!-- end -->\nEnd.\n";
        let filled = fill(&wire, page).unwrap();
        let expected = "Text.\n<!-- kinds ricochet -->\n\n| first byte | datagram | goes to |\n|---|---|---|\n\
            | `0xb1` | news | all |\n\n<!-- end -->\n<!-- layout one -->\n\n| field | bytes | |\n|---|---|---|\n\
            | kind | 1 | `0xb1` |\n\
            | flags | 1 | bit 0: the first; bit 1: the second; others 0 |\n\
            | form | 1 | 2 two, 10 ten; of it |\n\
            | list | 6 each | id (4) · n (2, a number) |\n\
            | rest | rest | may be empty |\n\n<!-- end -->\nEnd.\n";
        assert_eq!(filled, expected);
        assert_eq!(fill(&wire, &filled).unwrap(), filled);
    }

    #[test]
    fn a_page_that_does_not_fit_is_an_error() {
        let wire = wire("{ name = 'kind', bytes = 1 }");
        for (page, expected) in [
            ("Nothing.\n", "found none of"),
            ("<!-- layout two -->\n<!-- end -->\n", "no layout two"),
            ("<!-- layout one -->\n", "expected a line <!-- end --> later"),
            ("<!-- layout one -->\n<!-- end -->\n<!-- note -->\n", "in a comment"),
            ("<!-- kinds others -->\n<!-- end -->\n", "saw others"),
        ] {
            let error = fill(&wire, page).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{page}: {error:#}");
        }
    }
}
