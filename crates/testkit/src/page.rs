//! Tables in documents that are made from the code: each stands between two comments, `<!-- NAME -->` and
//! `<!-- end -->`.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const END: &str = "<!-- end -->";

/// Checks that a page of this repository has this text between its comments. With `UPDATE_SNAPSHOTS=1` in the
/// environment, writes the text there.
///
/// # Panics
/// If the page lacks the comments or has another text.
#[track_caller]
pub fn check(page: &str, name: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let kept = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let right = replaced(&kept, name, made).unwrap_or_else(|| panic!("{page}: no <!-- {name} --> and {END}"));
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, right).unwrap_or_else(|error| panic!("{page}: {error}"));
    } else {
        assert!(kept == right, "{page}: <!-- {name} --> differs from the code; UPDATE_SNAPSHOTS=1 writes it");
    }
}

fn replaced(page: &str, name: &str, made: &str) -> Option<String> {
    let begin = format!("<!-- {name} -->\n");
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{begin}\n{made}\n{END}{after}"))
}

/// Returns a table of the metrics in a text of the OpenMetrics format. Each must have a sample, which shows
/// its labels.
///
/// # Panics
/// If a metric has no sample.
///
/// ```
/// let text = "# TYPE a_b counter\n# HELP a_b Things.\na_b_total{kind=\"x\"} 1\n# EOF\n";
/// assert!(testkit::page::metrics(text).ends_with("| `a_b_total` | counter | `kind` | Things. |\n"));
/// ```
pub fn metrics(text: &str) -> String {
    let mut table = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    let families = text.split("# TYPE ").skip(1);
    for family in families {
        let (head, rest) = family.split_once('\n').unwrap_or((family, ""));
        let (name, kind) = head.split_once(' ').unwrap_or((head, ""));
        let line = |start: &str| rest.lines().find_map(|line| line.strip_prefix(start));
        let help = line(&format!("# HELP {name} ")).unwrap_or_default().replace('|', "\\|");
        let sample = rest.lines().find(|line| !line.starts_with('#'));
        let sample = sample.unwrap_or_else(|| panic!("{name} has no sample that shows its labels"));
        let shown = match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        };
        let labels = labels(sample).into_iter().filter(|&label| label != "le");
        let labels: Vec<String> = labels.map(|label| format!("`{label}`")).collect();
        let _ = writeln!(table, "| `{shown}` | {kind} | {} | {help} |", labels.join(", "));
    }
    table
}

/// The names of the labels of a sample.
fn labels(sample: &str) -> Vec<&str> {
    let Some((_, rest)) = sample.split_once('{') else { return Vec::new() };
    let names = rest.split("=\"").map(|part| part.rsplit([',', ' ']).next().unwrap_or(part));
    let mut names: Vec<&str> = names.collect();
    // Behind the last name comes the last value.
    names.pop();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_before_each_value() {
        assert_eq!(labels("a_total 1"), Vec::<&str>::new());
        assert_eq!(labels("a_total{peer=\"x, y\",direction=\"in\"} 1"), ["peer", "direction"]);
    }

    #[test]
    fn the_text_between_the_comments_is_replaced() {
        let page = "one\n<!-- a -->\nold\n<!-- end -->\ntwo\n";
        let made = replaced(page, "a", "new\n").unwrap();
        assert_eq!(made, "one\n<!-- a -->\n\nnew\n\n<!-- end -->\ntwo\n");
        assert_eq!(replaced(&made, "a", "new\n"), Some(made.clone()));
        assert_eq!(replaced(page, "b", "new\n"), None);
    }
}
