//! Habits of writing that readers stumble over, counted by file; no count may rise.
//!
//! | habit | instead |
//! |---|---|
//! | "so" + "many", "long" or "often" for a number | name the number: "Maximum number of …" |
//! | a sentence that begins with a bare "Who" or "What" | name the subject |
//! | "is" or "are" + "to be", "may" + "so" | say who does it: "must not …", "stays …" |
//! | the words in [`WORDS`] | recover or fix; again; rarely; at least |
//!
//! `xtask/habits.txt` holds the counts; a file that is not listed has none.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// Where the counts are recorded, below the root.
pub(crate) const RECORD: &str = "xtask/habits.txt";

/// Single words to avoid, each as its first letters and its possible endings.
const WORDS: [(&str, &[&str]); 3] = [("mend", &["", "s", "ed", "ing"]), ("anew", &[""]), ("seldom", &[""])];

/// Words that are a habit when they follow one another.
const PHRASES: [&[&str]; 8] = [
    &["so", "many"],
    &["so", "long"],
    &["so", "often"],
    &["at", "the", "least"],
    &["is", "to", "be"],
    &["are", "to", "be"],
    &["may", "so"],
    &["not", "yet", "to"],
];

/// Number of habits by file.
pub(crate) type Counts = BTreeMap<String, usize>;

/// Reads the recorded counts.
///
/// # Errors
/// If the record is missing or a line is not a number and a path.
pub(crate) fn recorded(root: &Path) -> anyhow::Result<Counts> {
    let path = root.join(RECORD);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let entry = |line: &str| {
        let (count, name) = line.split_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    text.lines()
        .map(|line| entry(line).with_context(|| format!("{RECORD}: expected `COUNT PATH`, saw {line:?}")))
        .collect()
}

/// Writes the counts of files that have any.
///
/// # Errors
/// If the record cannot be written.
pub(crate) fn record(root: &Path, counts: &Counts) -> anyhow::Result<()> {
    let mut text = String::new();
    for (name, count) in counts.iter().filter(|(_, count)| **count > 0) {
        writeln!(text, "{count} {name}")?;
    }
    fs::write(root.join(RECORD), text).context(RECORD)
}

/// Returns a complaint for each file that has more habits than recorded, with the lines that have them.
pub(crate) fn complaints(found: &BTreeMap<String, Vec<(usize, String)>>, recorded: &Counts) -> Vec<String> {
    let risen =
        found.iter().filter(|(name, habits)| habits.len() > recorded.get(*name).copied().unwrap_or(0));
    risen
        .map(|(name, habits)| {
            let allowed = recorded.get(name).copied().unwrap_or(0);
            let mut text =
                format!("{name}: expected at most {allowed} habits of writing, saw {}:", habits.len());
            for (line, habit) in habits {
                text += &format!(" {line} ({habit})");
            }
            text
        })
        .collect()
}

/// Returns the habits of a text, each with its line number.
pub(crate) fn find(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words: Vec<String> = line
            .split(|character: char| !character.is_alphabetic())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        let single = words.iter().filter(|word| is_habit(word)).cloned();
        let phrases = PHRASES
            .iter()
            .filter(|phrase| words.windows(phrase.len()).any(|window| window == **phrase))
            .map(|phrase| phrase.join(" "));
        let subjects = bare_subject(line).map(str::to_owned);
        found.extend(single.chain(phrases).chain(subjects).map(|habit| (index + 1, habit)));
    }
    found
}

fn is_habit(word: &str) -> bool {
    WORDS.iter().any(|(stem, endings)| word.strip_prefix(stem).is_some_and(|end| endings.contains(&end)))
}

/// Finds a sentence that begins with a bare "Who" or "What" and is not a question.
fn bare_subject(line: &str) -> Option<&'static str> {
    if line.contains('?') {
        return None;
    }
    let start = line.trim_start().trim_start_matches(['/', '!', '#', '*', '-', '>']).trim_start();
    ["Who ", "What "]
        .into_iter()
        .find(|word| start.starts_with(word) || line.contains(&format!(". {word}")))
        .map(str::trim_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joined here, so that this file has no habits of its own.
    fn line(parts: &[&str]) -> String {
        parts.join(" ")
    }

    #[test]
    fn each_habit_is_found_with_its_line() {
        for (text, habit) in [
            (line(&["/// Waits so", "long."]), "so long"),
            (line(&["let x = 1; // sel", "dom"]).replace("sel dom", "seldom"), "seldom"),
            (line(&["// the packet is", "to be sent"]), "is to be"),
            (line(&["fn a() {} // men", "ds it"]).replace("men ds", "mends"), "mends"),
            (line(&["/// Wh", "at is missing."]).replace("Wh at", "What"), "What"),
            (line(&["// Done. Wh", "o asks gets it."]).replace("Wh o", "Who"), "Who"),
        ] {
            assert_eq!(find(&format!("fine\n{text}")), [(2, habit.to_owned())], "{text}");
        }
    }

    #[test]
    fn plain_sentences_and_questions_have_none() {
        for text in
            ["/// Returns the number.", "// amendment", "/// What is it?", "so that many can", "to be or not"]
        {
            assert!(find(text).is_empty(), "{text}: {:?}", find(text));
        }
    }

    #[test]
    fn a_count_that_rises_is_named_and_one_that_falls_is_not() {
        let found =
            BTreeMap::from([("a.rs".to_owned(), vec![(3, "anew".to_owned()), (9, "anew".to_owned())])]);
        let with = |count| complaints(&found, &Counts::from([("a.rs".to_owned(), count)]));
        assert_eq!(with(1).len(), 1);
        assert!(with(2).is_empty() && with(3).is_empty());
        assert!(complaints(&found, &Counts::new())[0].contains("3 (anew) 9 (anew)"));
    }
}
