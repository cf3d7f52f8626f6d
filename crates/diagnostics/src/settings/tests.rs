//! A section with a key of each form.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::{Findings, Report, Source};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Color {
    Red,
    Green,
}

fn word(text: &str) -> Result<String, Fault> {
    if text.is_empty() { Err(Fault::bad("is empty")) } else { Ok(text.to_owned()) }
}

crate::settings! {
    /// One key of each form.
    #[derive(Clone, Debug, PartialEq)]
    struct Sample(SampleDraft): "sample" as "[sample]" {
        /// A number.
        number: u8 { form: Integer::new(1, 64), default: Fallback::Toml("8"), example: "number = 8" }
        /// A color.
        color: Color {
            form: Choice(&[("red", Color::Red), ("green", Color::Green)]),
            default: Fallback::Toml("\"green\""),
            example: "color = \"red\"",
        }
        /// A word,
        /// on two lines.
        word: String { form: Text::new("a word", word), default: Fallback::Required, example: "word = \"a\"" }
        /// A time.
        time: Option<Duration> {
            form: Optional(Millis { min: Duration::ZERO, max: Duration::from_secs(1) }),
            default: Fallback::Absent("no time"),
            example: "time = 2.5",
            only: Only { key: "color", words: &["red"] },
        }
        /// Words.
        words: Vec<Setting<String>> {
            form: Placed(List { expected: "words".to_owned(), entry: Text::new("", word), min: 1, max: 3 }),
            default: Fallback::Toml("[\"a\"]"),
            example: "words = [\"a\"]",
        }
        /// A word or a number.
        mixed: String {
            form: Text::or_number("a word or a number", word),
            default: Fallback::Toml("\"a\""),
            example: "mixed = 1",
        }
        /// Different numbers.
        numbers: Vec<u16> {
            form: Integers { min: 1, max: 9, count: 3 },
            default: Fallback::Described("[1, 2]", "the first two"),
            example: "numbers = [1]",
        }
    }
}

fn read(text: &str) -> (SampleDraft, Report) {
    let (layout, mut findings) = (Layout::default().with::<Sample>(), Findings::default());
    let table = parse(text, &mut findings).unwrap();
    let mut document = Document::new(&table, &layout, &mut findings);
    let draft = document.section::<Sample>();
    document.finish();
    (draft, findings.into_report(Source::new(Path::new("a.toml"), text)))
}

/// The kinds of mistakes in `[sample]` with this line and a correct `word`.
fn codes(line: &str) -> Vec<&'static str> {
    let (_, report) = read(&format!("[sample]\nword = \"a\"\n{line}\n"));
    report.diagnostics().iter().map(|finding| finding.code).collect()
}

#[test]
fn an_absent_key_has_its_default_and_no_place() {
    let (draft, report) = read("[sample]\nword = \"a\"\n");
    assert_eq!(report.errors(), 0, "{report}");
    assert_eq!((draft.span_of("word"), draft.span_of("number")), (Some(16..19), None));
    let sample = Sample::finish(draft);
    assert_eq!((sample.number, sample.color, sample.time), (8, Color::Green, None));
    assert_eq!((sample.words[0].value.as_str(), sample.numbers), ("a", vec![1, 2]));
}

#[test]
fn each_form_accepts_its_values_and_refuses_others() {
    for line in
        ["number = 64", "number = 0x10", "time = 0", "time = 999.5", "words = ['a', 'b']", "numbers = [9]"]
    {
        assert_eq!(codes(line), [""; 0], "{line}");
    }
    for (line, code) in [
        ("number = 0", "out-of-range"),
        ("number = 1.0", "wrong-type"),
        ("color = 'blue'", "bad-value"),
        ("color = 1", "wrong-type"),
        ("time = 1000.5", "out-of-range"),
        ("time = nan", "out-of-range"),
        ("time = -1", "out-of-range"),
        ("time = '1'", "wrong-type"),
        ("words = 'a'", "wrong-type"),
        ("words = []", "out-of-range"),
        ("words = ['a', 'a', 'a', 'a']", "out-of-range"),
        ("words = ['']", "bad-value"),
        ("numbers = [1, 1]", "duplicate-value"),
        ("numbers = [10]", "out-of-range"),
        ("nothing = 1", "unknown-key"),
    ] {
        assert_eq!(codes(line), [code], "{line}");
    }
}

#[test]
fn a_number_beside_words_has_its_value_in_any_base() {
    for (seen, expected) in
        [("46", "46"), ("0x2e", "46"), ("0x10", "16"), ("0o17", "15"), ("0b1_01", "5"), ("2.50", "2.50")]
    {
        let (draft, report) = read(&format!("[sample]\nword = 'a'\nmixed = {seen}\n"));
        assert_eq!(report.errors(), 0, "{report}");
        assert_eq!(draft.mixed.unwrap().value, expected, "{seen}");
    }
    let (draft, report) = read("[sample]\nword = 'a'\nmixed = 0x1ffff_ffff_ffff_ffff\n");
    assert!(draft.mixed.is_none());
    assert_eq!(report.diagnostics()[0].code, "out-of-range", "{report}");
    assert!(report.to_string().contains("0x1ffff"), "{report}");
}

#[test]
fn correct_entries_of_a_wrong_array_stay() {
    let (draft, report) = read("[sample]\nword = 'a'\nwords = ['b', '', 3]\n");
    assert_eq!(report.errors(), 2, "{report}");
    let words = draft.words.unwrap();
    assert_eq!(words.value, [Setting { value: "b".to_owned(), span: Some(29..32) }]);
}

#[test]
fn a_misspelt_required_key_is_not_reported_as_missing_too() {
    let (_, report) = read("[sample]\nwrod = 'a'\n");
    assert_eq!(report.diagnostics().len(), 1, "{report}");
    assert_eq!(report.diagnostics()[0].help, ["did you mean `word`?"]);
    let (_, report) = read("[sample]\n");
    assert_eq!(report.diagnostics()[0].code, "missing-key");
}

#[test]
fn settings_of_a_program_are_checked_by_the_same_forms() {
    let mut sample = Sample::finish(read("[sample]\nword = 'a'\n").0);
    let errors = |sample: &Sample| {
        let mut findings = Findings::default();
        sample.check(&mut findings);
        findings.errors()
    };
    assert_eq!(errors(&sample), 0);
    sample.number = 65;
    sample.time = Some(Duration::from_secs(2));
    assert_eq!(errors(&sample), 2);
    assert_eq!(sample.to_draft().number.unwrap().value, 65);
}

#[test]
fn the_description_has_form_default_condition_and_documentation() {
    let text = Layout::default().with::<Sample>().describe();
    for part in [
        "[sample]\n  number: an integer from 1 to 64; default: 8\n      A number.\n",
        "  word: a word; required\n      A word, on two lines.\n",
        "  time: a number of milliseconds from 0 to 1000; default: no time; only with color = \"red\"\n",
        "  numbers: an array of 1 to 3 different integers from 1 to 9; default: the first two\n",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn brackets_that_are_not_closed_are_one_finding() {
    for text in [
        format!("a = {}", "[".repeat(100)),
        format!("a = {}", "[\n".repeat(60)),
        format!("a = {}", "{b = ".repeat(60)),
    ] {
        let mut findings = Findings::default();
        assert!(parse(&text, &mut findings).is_none());
        let unclosed = |finding: &&crate::Diagnostic| finding.message.starts_with("unclosed");
        let report = findings.into_report(Source::new(Path::new("a.toml"), &text));
        assert_eq!(report.diagnostics().iter().filter(unclosed).count(), 1, "{report}");
        assert!(report.errors() <= 4, "{report}");
    }
}
