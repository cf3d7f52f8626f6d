//! The tables of a page of measurements, written from CSV files: nobody types figures.
//!
//! A line `<!-- table: NAME -->` stands before each table. The file `tables.toml` beside the CSV files says
//! which file the table shows, and how: each column is a heading and a text with the names of columns of the
//! file in braces.

use std::collections::BTreeMap;
use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::Lines;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde::Deserialize;

use super::{csv, links};
use undrop::output;

/// Most rows of a table, and most lines of a page.
const ROWS_MAX: usize = 12;
const LINES_MAX: usize = 200;
const MARK: &str = "<!-- table: ";
const MARK_END: &str = " -->";

/// Write the tables of a page of measurements from CSV files.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Page whose tables are written
    #[arg(long, value_name = "FILE", default_value = "docs/bench.md")]
    page: PathBuf,
    /// Directory of the CSV files and of tables.toml
    #[arg(long, value_name = "DIR", default_value = "docs/bench")]
    data: PathBuf,
    /// Write nothing; exit code 1 if a table differs from its file
    #[arg(long)]
    check: bool,
}

/// Writes the tables of a page, or compares them.
pub(crate) fn run(plan: &Plan) -> anyhow::Result<ExitCode> {
    let text = fs::read_to_string(&plan.page).with_context(|| format!("reading {}", plan.page.display()))?;
    let new = render(&text, &plan.data).with_context(|| format!("in {}", plan.page.display()))?;
    let lines = new.lines().count();
    ensure!(lines <= LINES_MAX, "expected a page of at most {LINES_MAX} lines, saw {lines}");
    if new == text {
        output::line("all tables are those of their files")?;
    } else if plan.check {
        output::line("a table differs from its file; run the command without --check")?;
        return Ok(ExitCode::FAILURE);
    } else {
        fs::write(&plan.page, &new).with_context(|| format!("writing {}", plan.page.display()))?;
        output::line("tables written")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the page with the tables of the files in a directory.
pub(crate) fn render(page: &str, data: &Path) -> anyhow::Result<String> {
    let path = data.join("tables.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let file: FileForm = toml::from_str(&text).with_context(|| format!("in {}", path.display()))?;
    let mut new = String::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        new += line;
        new.push('\n');
        let Some(name) = line.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(MARK_END)) else {
            continue;
        };
        let form = file.table.iter().find(|form| form.name == name);
        let form = form.with_context(|| format!("expected a table of tables.toml, saw {name:?}"))?;
        new += &form.markdown(data).with_context(|| format!("table {name:?}"))?;
        pass_tables(&mut lines);
    }
    Ok(new)
}

/// Passes the present tables: those of a group with several links have an empty line between them.
fn pass_tables(lines: &mut Peekable<Lines<'_>>) {
    let is_row = |line: &&str| line.starts_with('|');
    loop {
        while lines.next_if(is_row).is_some() {}
        let mut ahead = lines.clone();
        if ahead.next() != Some("") || ahead.next_if(is_row).is_none() {
            return;
        }
        lines.next();
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    table: Vec<TableForm>,
}

/// A table: the file that it shows, and how.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableForm {
    name: String,
    data: PathBuf,
    /// Group of cells, if the file has runs of `bench links`.
    group: Option<String>,
    /// Values that a column must have, and must not have, for the row to be shown.
    #[serde(default)]
    only: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    except: BTreeMap<String, Vec<String>>,
    /// Heading and text of each column.
    #[serde(default)]
    columns: Vec<[String; 2]>,
}

/// A row of a file, by column.
type Row = BTreeMap<String, String>;

impl TableForm {
    fn markdown(&self, data: &Path) -> anyhow::Result<String> {
        let path = data.join(&self.data);
        if let Some(group) = &self.group {
            return links::group_table(&path, group);
        }
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let rows = read(&text).with_context(|| format!("in {}", path.display()))?;
        let mut cells = Vec::new();
        for row in rows {
            if self.shows(&row)? {
                let texts = self.columns.iter().map(|[_, template]| fill(template, &row));
                cells.push(texts.collect::<anyhow::Result<Vec<String>>>()?);
            }
        }
        ensure!(!cells.is_empty(), "expected a row that is shown, saw none");
        ensure!(cells.len() <= ROWS_MAX, "expected at most {ROWS_MAX} rows, saw {}", cells.len());
        let is_number = |at: usize| cells.iter().all(|row| row[at].is_empty() || starts_with_digit(&row[at]));
        let rules = (0..self.columns.len()).map(|at| if is_number(at) { "--:" } else { "---" }.to_owned());
        let headings = self.columns.iter().map(|[heading, _]| heading.clone());
        let mut rows = vec![line(headings), format!("|{}|\n", rules.collect::<Vec<_>>().join("|"))];
        rows.extend(cells.into_iter().map(|row| line(row.into_iter())));
        Ok(rows.concat())
    }

    fn shows(&self, row: &Row) -> anyhow::Result<bool> {
        for (conditions, wanted) in [(&self.only, true), (&self.except, false)] {
            for (column, values) in conditions {
                let value = row.get(column).with_context(|| format!("expected a column, saw {column:?}"))?;
                if values.contains(value) != wanted {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|char: char| char.is_ascii_digit() || char == '-')
}

fn line(cells: impl Iterator<Item = String>) -> String {
    // An empty cell is one blank wide.
    let cells = cells.map(|cell| if cell.is_empty() { " |".to_owned() } else { format!(" {cell} |") });
    format!("|{}\n", cells.collect::<String>())
}

/// Reads all rows of a file.
fn read(text: &str) -> anyhow::Result<Vec<Row>> {
    let mut lines = text.lines();
    let names = csv::split(lines.next().unwrap_or_default()).context("expected a line of names")?;
    let row = |(number, line): (usize, &str)| {
        let fields = csv::split(line).filter(|fields| fields.len() == names.len());
        let fields = fields
            .with_context(|| format!("line {}: expected {} fields, saw {line:?}", number + 2, names.len()))?;
        Ok(names.iter().cloned().zip(fields).collect())
    };
    lines.enumerate().map(row).collect()
}

/// Fills in the values of a row for the names in braces. The text is empty if one of the values is.
///
/// `{name}` is the value as it is, with commas between thousands; `{name:2}` has two decimals.
fn fill(template: &str, row: &Row) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').context("expected a closing brace")?;
        let (name, decimals) = match name.split_once(':') {
            Some((name, decimals)) => (name, Some(decimals.parse::<usize>().context("expected decimals")?)),
            None => (name, None),
        };
        let value = row.get(name).with_context(|| format!("expected a column of the file, saw {name:?}"))?;
        if value.is_empty() {
            return Ok(String::new());
        }
        text += before;
        text += &number(value, decimals)?;
        rest = after;
    }
    Ok(text + rest)
}

fn number(value: &str, decimals: Option<usize>) -> anyhow::Result<String> {
    let text = match (decimals, value.parse::<f64>()) {
        (None, Err(_)) => return Ok(value.to_owned()),
        (None, Ok(_)) => value.to_owned(),
        (Some(decimals), Ok(number)) => {
            // 7.35 becomes 7.4 although its nearest float is below it.
            let scale = 10_f64.powi(i32::try_from(decimals).unwrap_or(0));
            let rounded = (number * scale * (1.0 + 1e-12)).round() / scale;
            format!("{rounded:.decimals$}")
        }
        (Some(_), Err(_)) => bail!("expected a number, saw {value:?}"),
    };
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let digits = whole.trim_start_matches('-');
    if digits.len() < 4 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(text);
    }
    let sign = &whole[..whole.len() - digits.len()];
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|part| str::from_utf8(part).ok()).collect();
    Ok(format!("{sign}{}{fraction}", groups.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, tables: &str) -> Self {
            let path = std::env::temp_dir().join(format!("undrop-page-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("tables.toml"), tables).unwrap();
            let data = "link,mbit,least,most,note\nslow,7.35,9.25,10,x\nfast,2045,1810,12078,x\nhidden,1,1,1,y\nnone,5,,,x\n";
            fs::write(path.join("a.csv"), data).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const TABLES: &str = r#"
[[table]]
name = "speed"
data = "a.csv"
except = { link = ["hidden"] }
only = { note = ["x"] }
columns = [["link", "{link}"], ["Mbit/s", "{mbit:1} ({least:0}–{most:0})"]]
"#;

    const PAGE: &str = "\
Before.
<!-- table: speed -->
| an | old table |
|---|--:|
| slow | 1 |

After.
";

    #[test]
    fn a_table_is_replaced_by_that_of_its_file_and_the_rest_stays() {
        let scratch = Scratch::new("replaced", TABLES);
        let expected = "\
Before.
<!-- table: speed -->
| link | Mbit/s |
|---|--:|
| slow | 7.4 (9–10) |
| fast | 2,045.0 (1,810–12,078) |
| none | |

After.
";
        let new = render(PAGE, &scratch.0).unwrap();
        assert_eq!(new, expected);
        assert_eq!(render(&new, &scratch.0).unwrap(), new, "writing it again changes nothing");
    }

    #[test]
    fn all_tables_of_a_mark_are_replaced() {
        let page = "<!-- table: a -->\n| a |\n| b |\n\n| c |\n| d |\n\ntext\n\n| e |\n";
        let mut lines = page.lines().peekable();
        lines.next();
        pass_tables(&mut lines);
        assert_eq!(lines.collect::<Vec<_>>(), ["", "text", "", "| e |"]);
    }

    #[test]
    fn a_wrong_table_is_refused_with_what_is_expected() {
        for (from, to, needle) in [
            ("\"speed\"", "\"other\"", "saw \"speed\""),
            ("{mbit:1}", "{bits}", "saw \"bits\""),
            ("{mbit:1}", "{link:1}", "expected a number"),
            ("{least:0}–{most:0})", "{least:0}–{most", "closing brace"),
            ("only = { note = [\"x\"]", "only = { note = [\"z\"]", "saw none"),
            ("a.csv", "b.csv", "b.csv"),
        ] {
            let scratch = Scratch::new("refused", &TABLES.replace(from, to));
            let error = render(PAGE, &scratch.0).unwrap_err();
            assert!(format!("{error:#}").contains(needle), "{to}: {error:#}");
        }
    }

    #[test]
    fn each_group_of_cells_has_a_table_for_the_day_on_which_it_is_measured() {
        let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench"));
        let file: FileForm = toml::from_str(&fs::read_to_string(data.join("tables.toml")).unwrap()).unwrap();
        let mut shown: Vec<String> = file.table.into_iter().filter_map(|form| form.group).collect();
        let mut known = links::group_names().unwrap();
        shown.sort_unstable();
        known.sort_unstable();
        assert_eq!(shown, known);
    }

    #[test]
    fn the_published_tables_are_those_of_their_files() {
        let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"));
        for name in ["bench.md", "links.md", "traffic.md"] {
            let page = fs::read_to_string(docs.join(name)).unwrap();
            assert!(page.contains(MARK) && page.lines().count() <= LINES_MAX, "{name}");
            let new = render(&page, &docs.join("bench")).unwrap();
            assert_eq!(new, page, "run `undrop-lab bench page --page docs/{name}`");
        }
    }
}
