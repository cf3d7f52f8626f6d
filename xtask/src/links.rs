//! Links of the documents: each file and each heading that a link names is there, and the table of contents
//! of the book names each of its pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The table of contents of the book, and the directory of its own pages.
const SUMMARY: &str = "docs/SUMMARY.md";
const PAGES: &str = "docs/book/";

/// Returns the complaints about the documents among these files, given by their paths below the root.
pub(crate) fn complaints(root: &Path, files: &[String]) -> Vec<String> {
    let documents = files.iter().filter(|name| name.ends_with(".md"));
    let texts: BTreeMap<&str, String> = documents
        .filter_map(|name| Some((name.as_str(), fs::read_to_string(root.join(name)).ok()?)))
        .collect();
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        texts.iter().map(|(name, text)| (*name, anchors(text))).collect();
    let mut complaints = Vec::new();
    for (name, text) in &texts {
        for (line, target) in links(text) {
            if let Some(wrong) = wrong(root, &anchors, name, &target) {
                complaints.push(format!("{name}:{line}: the link {target:?} leads nowhere: {wrong}"));
            }
        }
    }
    let summary = texts.get(SUMMARY).map_or("", String::as_str);
    for page in texts.keys().filter_map(|name| name.strip_prefix("docs/")) {
        let is_own = format!("docs/{page}").starts_with(PAGES);
        if is_own && !links(summary).iter().any(|(_, target)| target == page) {
            complaints.push(format!("{SUMMARY}: expected a line with a link to {page}, saw none"));
        }
    }
    complaints
}

/// Returns why a link leads nowhere.
fn wrong(
    root: &Path,
    anchors: &BTreeMap<&str, BTreeSet<String>>,
    from: &str,
    target: &str,
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() { PathBuf::from(from) } else { beside(from, path) };
    if !root.join(&file).exists() {
        return Some(format!("there is no {}", file.display()));
    }
    let known = anchors.get(file.to_string_lossy().as_ref());
    if anchor.is_empty() || known.is_some_and(|known| known.contains(anchor)) {
        return None;
    }
    Some(format!("{} has no heading #{anchor}", file.display()))
}

/// The path of a file that a document names, without `..`.
fn beside(document: &str, path: &str) -> PathBuf {
    let mut joined = Path::new(document).parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => {
                joined.pop();
            }
            Component::Normal(name) => joined.push(name),
            _ => {}
        }
    }
    joined
}

/// Lines of a text that are no code, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Targets of the links of a document, with the numbers of their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Every second part lies between backticks, unless these are the text of a link.
        let parts = line.split('`').enumerate();
        let plain: String = parts.map(|(at, part)| if at % 2 == 0 { part } else { "" }).collect();
        for rest in plain.split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            found.push((number, target.to_owned()));
        }
    }
    found
}

/// Names of the headings of a document, as links name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let marks = line.chars().take_while(|&letter| letter == '#').count();
        let Some(heading) = line[marks..].strip_prefix(' ').filter(|_| (1..=6).contains(&marks)) else {
            continue;
        };
        let first = slug(heading);
        let others = (1..).map(|number| format!("{first}-{number}"));
        let name = std::iter::once(first.clone()).chain(others).find(|name| !anchors.contains(name));
        anchors.extend(name);
    }
    anchors
}

fn slug(heading: &str) -> String {
    // Of a link, its text.
    let mut text = String::new();
    for part in heading.split("](") {
        text += match (text.is_empty(), part.split_once(')')) {
            (false, Some((_, after))) => after,
            _ => part,
        };
    }
    let kept = text.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    kept.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_the_names_that_links_use() {
        let text = "# One: `two` & three\n## What happens when …?\n```sh\n# no heading\n```\n## [A link](b.md) here\n\
            ### Same\n### Same\n#hashtag\n## Two_words of-it\n";
        let expected =
            ["one-two--three", "what-happens-when-", "a-link-here", "same", "same-1", "two_words-of-it"];
        assert_eq!(anchors(text), expected.map(str::to_owned).into());
    }

    #[test]
    fn links_are_found_outside_of_code() {
        let text = "See [a](b.md#c) and ![d](e.svg) and [`f`](g.rs).\n```\n[no](x)\n```\n`[no](y)` [h](#i)\n";
        let expected = [(1, "b.md#c"), (1, "e.svg"), (1, "g.rs"), (5, "#i")];
        assert_eq!(links(text), expected.map(|(line, target)| (line, target.to_owned())));
    }

    #[test]
    fn a_link_that_leads_nowhere_and_a_page_that_is_not_in_the_book_are_named() {
        let root = std::env::temp_dir().join(format!("undrop-links-{}", std::process::id()));
        let files = [
            ("docs/SUMMARY.md", "# Summary\n- [One](book/one.md)\n"),
            (
                "docs/book/one.md",
                "# One\n[a](../two.md#second), [b](#one), [c](../../x.rs), [d](https://e/f)\n",
            ),
            ("docs/book/three.md", "# Three\n[a](../two.md#third)\n"),
            ("docs/two.md", "# Two\n## Second\n[a](none.md)\n"),
        ];
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::write(root.join("x.rs"), "").unwrap();
        let found = complaints(&root, &files.map(|(name, _)| name.to_owned()));
        fs::remove_dir_all(&root).unwrap();
        let expected = [
            "docs/book/three.md:2: the link \"../two.md#third\" leads nowhere: docs/two.md has no heading #third",
            "docs/two.md:3: the link \"none.md\" leads nowhere: there is no docs/none.md",
            "docs/SUMMARY.md: expected a line with a link to book/three.md, saw none",
        ];
        assert_eq!(found, expected);
    }
}
