//! The summary as Markdown tables and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::cells::{BARE, Cell, Group};
use super::figure::Figure;
use super::summary::{Others, Runs, Summary};
use super::target::{Target, Verdict};

/// Most rows of a table.
const ROWS_MAX: usize = 12;
const NO_VALUE: &str = "–";

/// Returns the tables of all groups that have runs, and a line about the runs.
pub(super) fn markdown(summary: &Summary<'_>) -> String {
    let mut text = String::new();
    for group in &summary.table.groups {
        let table = group_markdown(summary, group);
        if !table.is_empty() {
            let _ = writeln!(text, "### {}\n\n{table}", group.title);
        }
    }
    let (counted, disturbed) = summary.counts();
    let _ = writeln!(text, "{counted} runs count; {disturbed} were disturbed or failed and do not.");
    text
}

/// Returns a line that names the runs of other setups than the present ones; empty if there are none.
pub(super) fn others(others: &[Others]) -> String {
    if others.is_empty() {
        return String::new();
    }
    let of_group = |others: &Others| format!("{} ({})", others.group, others.variants.join(", "));
    let groups: Vec<String> = others.iter().map(of_group).collect();
    format!("Of another build or length than this program would run: {}.\n", groups.join("; "))
}

/// Returns the tables of a group, with at most twelve rows each; empty if none of its cells has runs. Columns
/// of variants without any run are left out.
pub(super) fn group_markdown(summary: &Summary<'_>, group: &Group) -> String {
    let has_runs = |cell: &&Cell| {
        let variants = group.columns.iter().map(|(variant, _)| variant);
        variants
            .into_iter()
            .any(|variant| summary.runs(&cell.id, variant).is_some_and(|runs| runs.counted > 0))
    };
    let cells: Vec<&Cell> = group.cells.iter().filter(has_runs).collect();
    let is_measured = |(variant, _): &&(String, Figure)| {
        cells.iter().any(|cell| summary.runs(&cell.id, variant).is_some_and(|runs| runs.counted > 0))
    };
    let columns: Vec<&(String, Figure)> = group.columns.iter().filter(is_measured).collect();
    let mut tables = Vec::new();
    for part in parts(&cells) {
        let mut rows = vec![heading(summary, group, &columns)];
        rows.push(
            rows[0]
                .iter()
                .enumerate()
                .map(|(at, _)| if at == 0 { "---" } else { "--:" }.to_owned())
                .collect(),
        );
        rows.extend(part.iter().map(|cell| row(summary, group, &columns, cell)));
        let lines = rows.iter().map(|row| format!("| {} |\n", row.join(" | ")));
        tables.push(lines.collect::<String>());
    }
    tables.join("\n")
}

/// Divides cells into tables: by links if they are too many for one.
fn parts<'c>(cells: &[&'c Cell]) -> Vec<Vec<&'c Cell>> {
    if cells.len() <= ROWS_MAX {
        return if cells.is_empty() { Vec::new() } else { vec![cells.to_vec()] };
    }
    let by_link = cells.chunk_by(|a, b| a.link_name == b.link_name);
    by_link.flat_map(|part| part.chunks(ROWS_MAX)).map(<[&Cell]>::to_vec).collect()
}

fn heading(summary: &Summary<'_>, group: &Group, columns: &[&(String, Figure)]) -> Vec<String> {
    let mut heading = vec![String::new()];
    for (variant, figure) in columns {
        let title = match summary.table.variants.get(variant) {
            Some(variant) => &variant.title,
            None => "without gateways",
        };
        heading.push(format!("{title}: {}", figure.heading()));
    }
    if !group.targets.is_empty() {
        heading.push("targets".to_owned());
    }
    heading
}

fn row(summary: &Summary<'_>, group: &Group, columns: &[&(String, Figure)], cell: &Cell) -> Vec<String> {
    let mut row = vec![label(group, cell)];
    for (variant, figure) in columns {
        row.push(value(summary.runs(&cell.id, variant), *figure));
    }
    if !group.targets.is_empty() {
        row.push(verdict(&summary.verdicts(group, cell)));
    }
    row
}

/// Returns those parts of a cell's id in which the cells of the group differ.
fn label(group: &Group, cell: &Cell) -> String {
    let differs = |read: fn(&Cell) -> &String| group.cells.iter().any(|other| read(other) != read(cell));
    let parts: [fn(&Cell) -> &String; 3] =
        [|cell| &cell.link_name, |cell| &cell.loss_name, |cell| &cell.workload_name];
    let parts: Vec<&str> =
        parts.into_iter().filter(|read| differs(*read)).map(|read| read(cell).as_str()).collect();
    if parts.is_empty() { cell.loss_name.clone() } else { parts.join(", ") }
}

/// Returns median, least and greatest value, such as `682 (680–683)`.
fn value(runs: Option<&Runs>, figure: Figure) -> String {
    let Some(spread) = runs.and_then(|runs| runs.spread(figure)) else { return NO_VALUE.to_owned() };
    let [median, least, most] = [spread.median, spread.least, spread.most].map(|value| figure.text(value));
    if least == most { median } else { format!("{median} ({least}–{most})") }
}

fn verdict(verdicts: &[(&Target, Verdict)]) -> String {
    let missed: Vec<String> = verdicts
        .iter()
        .filter_map(|(target, verdict)| match verdict {
            Verdict::Missed { value, limit } => Some(target.reason(*value, *limit)),
            Verdict::Reached | Verdict::Unknown => None,
        })
        .collect();
    let unknown = verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Unknown).count();
    match (missed.is_empty(), unknown, verdicts.len()) {
        (true, _, 0) => NO_VALUE.to_owned(),
        (true, 0, _) => "reached".to_owned(),
        (true, unknown, _) => format!("{unknown} not measured"),
        (false, _, _) => format!("not reached: {}", missed.join("; ")),
    }
}

/// Returns the summary as a document.
pub(super) fn document(summary: &Summary<'_>) -> Value {
    let cell_document = |group: &Group, cell: &Cell| {
        let variants = group.variants.iter().map(String::as_str).chain([BARE]);
        let of_variant = |variant: &str| -> Option<(String, Value)> {
            let runs = summary.runs(&cell.id, variant)?;
            let figures: serde_json::Map<String, Value> = Figure::all()
                .filter_map(|figure| Some((figure.name().to_owned(), json!(runs.spread(figure)?))))
                .collect();
            Some((
                variant.to_owned(),
                json!({ "runs": runs.counted, "disturbed": runs.disturbed, "figures": figures }),
            ))
        };
        let targets = summary.verdicts(group, cell).into_iter().map(|(target, verdict)| {
            let reached = match verdict {
                Verdict::Reached => json!(true),
                Verdict::Missed { .. } => json!(false),
                Verdict::Unknown => Value::Null,
            };
            json!({ "target": target.to_string(), "reached": reached })
        });
        json!({
            "cell": cell.id,
            "variants": variants.filter_map(of_variant).collect::<serde_json::Map<_, _>>(),
            "targets": targets.collect::<Vec<_>>(),
        })
    };
    let groups = summary.table.groups.iter().map(|group| {
        let cells: Vec<Value> = group.cells.iter().map(|cell| cell_document(group, cell)).collect();
        json!({ "group": group.id, "title": group.title, "cells": cells })
    });
    json!({ "groups": groups.collect::<Vec<_>>(), "omitted": summary.table.omitted })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::links::cells::Table;
    use crate::bench::links::summary::Setups;
    use crate::bench::links::tests::{SMALL, row as run};

    #[test]
    fn a_group_becomes_a_table_with_verdicts() {
        let table = Table::parse(SMALL, None).unwrap();
        let cell = "narrow/uniform:1%/cubic";
        let rows = [
            run("narrow/none/cubic", BARE, 10.0, 0.0),
            run(cell, BARE, 1.0, 0.0),
            run(cell, "layered", 7.6, 25.0),
            run(cell, "layered", 7.8, 25.0),
            run(cell, "layered", 7.5, 25.0),
        ];
        let text = markdown(&Summary::of(&table, &rows, Setups::Last));
        let expected = "\
### Links without loss, without gateways

|  | without gateways: Mbit/s |
| --- | --: |
| none | 10.0 |

### A lossy link

|  | without gateways: Mbit/s | layered (8; 1,11,19): Mbit/s | layered (8; 1,11,19): share, % | targets |
| --- | --: | --: | --: | --: |
| uniform:1% | 1.0 | 7.6 (7.5–7.8) | 95.0 (93.8–97.5) | not reached: added bytes, % 25.0, not ≤ 4.9 |

5 runs count; 0 were disturbed or failed and do not.
";
        assert_eq!(text, expected);
        let document = document(&Summary::of(&table, &rows, Setups::Last));
        let variants = &document["groups"][1]["cells"][0]["variants"];
        assert_eq!(variants["layered"]["figures"]["goodput_mbps"]["median"], 7.6);
        assert_eq!(document["groups"][1]["cells"][0]["targets"][1]["reached"], false);
    }

    #[test]
    fn runs_of_other_setups_are_named_below_the_tables() {
        let of = |group: &str, variants: &[&str]| Others {
            group: group.to_owned(),
            variants: variants.iter().map(|&variant| variant.to_owned()).collect(),
        };
        assert_eq!(others(&[]), "");
        let text = others(&[of("clean", &["bare"]), of("lossy", &["bare", "table"])]);
        assert!(text.ends_with(": clean (bare); lossy (bare, table).\n"), "{text}");
    }

    #[test]
    fn many_cells_are_divided_by_links_and_never_exceed_twelve_rows() {
        let table = Table::parse(SMALL, None).unwrap();
        let cell = |link: &str| Cell { link_name: link.to_owned(), ..table.groups[0].cells[0].clone() };
        let cells: Vec<Cell> =
            ["a"; 5].iter().chain(&["b"; 13]).chain(&["c"; 2]).map(|link| cell(link)).collect();
        let cells: Vec<&Cell> = cells.iter().collect();
        let lengths: Vec<usize> = parts(&cells).iter().map(Vec::len).collect();
        assert_eq!(lengths, [5, 12, 1, 2]);
        assert_eq!(parts(&cells[..12]).len(), 1);
        assert!(parts(&[]).is_empty());
    }
}
