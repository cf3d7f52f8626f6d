//! The texts of the figures: `prose.toml`, parsed once, with the measured values put into them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::outcome::{Panel, Point};

/// The texts of one figure. Values in braces are replaced by [`Values::put_into`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prose {
    /// Title.
    pub title: String,
    /// Source: paper and figure.
    pub source: String,
    /// The claim in one phrase.
    pub claim_brief: String,
    /// The result in one phrase.
    pub ours_brief: String,
    /// The part of the claim that does not hold, where that is known.
    pub differs: Option<String>,
    /// The source's claim.
    pub claim: String,
    /// The result.
    pub ours: String,
    /// The set-up.
    pub setup: String,
    /// Why the results differ from the source's.
    pub why: String,
}

#[derive(Deserialize)]
struct File {
    #[serde(flatten)]
    figures: BTreeMap<String, Prose>,
}

fn file() -> &'static File {
    static FILE: OnceLock<File> = OnceLock::new();
    FILE.get_or_init(|| {
        let mut file: File = toml::from_str(include_str!("prose.toml")).expect("prose.toml is tested");
        for prose in file.figures.values_mut() {
            for text in [&mut prose.claim, &mut prose.ours, &mut prose.setup, &mut prose.why] {
                *text = joined(text);
            }
        }
        file
    })
}

/// One line for each paragraph.
fn joined(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|lines| lines.split_whitespace().collect::<Vec<_>>().join(" "));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// Returns the texts of a figure.
///
/// # Panics
/// If `prose.toml` has none: a test asserts that every figure has its own.
pub(crate) fn of(id: &str) -> &'static Prose {
    file().figures.get(id).unwrap_or_else(|| panic!("expected texts of figure {id} in prose.toml, saw none"))
}

/// Returns the place of a figure among all: the thesis, then Slingshot, by the numbers in its identifier (4,
/// 6, 6 of `4.6.6`).
pub(crate) fn order(id: &str) -> (bool, Vec<u32>) {
    let numbers = id.split(|letter: char| !letter.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
    (id.starts_with("slingshot"), numbers.collect())
}

/// The values of the placeholders in a figure's texts.
pub(crate) struct Values<'a> {
    panels: &'a [Panel],
    named: &'a [(String, String)],
}

impl<'a> Values<'a> {
    pub(crate) fn new(panels: &'a [Panel], named: &'a [(String, String)]) -> Self {
        Self { panels, named }
    }

    /// Returns the text with its values. Optional parts that lack a value are left out; any other placeholder
    /// without a value stays as it is.
    pub(crate) fn put_into(&self, text: &str) -> String {
        let mut parts = text.split("[?");
        let mut filled = self.filled(parts.next().unwrap_or_default()).0;
        for part in parts {
            let (optional, rest) = part.split_once(']').unwrap_or((part, ""));
            if let (text, true) = self.filled(optional) {
                filled += &text;
            }
            filled += &self.filled(rest).0;
        }
        filled
    }

    /// The text with its values, and whether all of them are known.
    fn filled(&self, text: &str) -> (String, bool) {
        let (mut filled, mut is_whole) = (String::new(), true);
        let mut rest = text;
        while let Some((before, placeholder, after)) = next_placeholder(rest) {
            filled += before;
            match self.value(placeholder) {
                Some(value) => filled += &value,
                None => {
                    filled += &format!("{{{placeholder}}}");
                    is_whole = false;
                }
            }
            rest = after;
        }
        (filled + rest, is_whole)
    }

    fn value(&self, placeholder: &str) -> Option<String> {
        let named = self.named.iter().find(|(name, _)| name == placeholder);
        named.map(|(_, value)| value.clone()).or_else(|| self.measured(placeholder))
    }

    /// `panel.series@places|decimals`; without decimals as many as are of use.
    fn measured(&self, placeholder: &str) -> Option<String> {
        let (place, decimals) = match placeholder.split_once('|') {
            Some((place, decimals)) => (place, Some(decimals.parse().ok()?)),
            None => (placeholder, None),
        };
        let (series, places) = place.split_once('@')?;
        let (panel, series) = series.split_once('.')?;
        let points =
            &self.panels.get(panel.parse::<usize>().ok()?)?.series.get(series.parse::<usize>().ok()?)?.points;
        let medians = || points.iter().map(|point| point.median);
        let one = |value: f64| Some(number(value, decimals));
        match places {
            _ if points.is_empty() => None,
            "first" => one(points.first()?.median),
            "last" => one(points.last()?.median),
            "least" => one(medians().reduce(f64::min)?),
            "most" => one(medians().reduce(f64::max)?),
            "places" => Some(list(points.iter().map(|point| point.x.to_string()))),
            "*" => Some(list(medians().map(|value| number(value, decimals)))),
            places => {
                let values: Option<Vec<String>> =
                    places.split(',').map(|x| one(at(points, x.parse().ok()?)?)).collect();
                Some(list(values?))
            }
        }
    }
}

fn next_placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('{')?;
    let (placeholder, after) = rest.split_once('}')?;
    Some((before, placeholder, after))
}

fn at(points: &[Point], x: f64) -> Option<f64> {
    points.iter().find(|point| (point.x - x).abs() < 1e-9).map(|point| point.median)
}

fn list(values: impl IntoIterator<Item = String>) -> String {
    values.into_iter().collect::<Vec<_>>().join(" / ")
}

/// With these decimals, or with one below ten and none above.
pub(crate) fn number(value: f64, decimals: Option<usize>) -> String {
    let decimals = decimals.unwrap_or(usize::from(value < 10.0));
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panels() -> [Panel; 1] {
        [Panel::drawn(&[("a", &[(1.0, 2.25), (10.0, 40.0)]), ("b", &[])])]
    }

    fn filled(text: &str) -> String {
        Values::new(&panels(), &[("times".to_owned(), "7".to_owned())]).put_into(text)
    }

    #[test]
    fn placeholders_are_replaced_by_values() {
        assert_eq!(filled("{0.0@1} {0.0@1|2} {0.0@10} {times}"), "2.2 2.25 40 7");
        assert_eq!(filled("{0.0@1,10|0}; {0.0@*}; {0.0@places}"), "2 / 40; 2.2 / 40; 1 / 10");
        assert_eq!(filled("{0.0@first|0} {0.0@last|0} {0.0@least|0} {0.0@most|0}"), "2 40 2 40");
    }

    #[test]
    fn a_part_that_lacks_a_value_is_left_out_if_it_is_optional() {
        assert_eq!(filled("a[? {0.1@1}] b[?, {times}]"), "a b, 7");
        assert_eq!(filled("a[? {0.1@*}][? {0.1@places}]"), "a");
        assert_eq!(filled("{0.0@5} {0.2@1} {1.0@1} {other}"), "{0.0@5} {0.2@1} {1.0@1} {other}");
    }

    #[test]
    fn lines_are_joined_and_paragraphs_kept() {
        assert_eq!(joined("a\nb\n\nc\nd\n"), "a b\n\nc d");
    }

    #[test]
    fn each_figure_has_its_texts_and_no_text_lacks_a_figure() {
        let mut ids: Vec<&str> = crate::all().iter().map(|figure| figure.id).collect();
        ids.sort_unstable();
        assert_eq!(file().figures.keys().map(String::as_str).collect::<Vec<_>>(), ids);
    }

    #[test]
    fn texts_have_no_markup_and_fit_into_a_table() {
        for (id, prose) in &file().figures {
            let Prose { title, source, claim_brief, ours_brief, differs, claim, ours, setup, why } = prose;
            let texts = [title, source, claim_brief, ours_brief, claim, ours, setup, why];
            for text in texts.into_iter().chain(differs) {
                assert!(!text.trim().is_empty(), "{id}");
                let literal = filled(text).replace(['{', '}'], "");
                assert!(!text.contains(['`', '<', '_']) || text.contains('{'), "{id}: {text}");
                assert!(!literal.contains(['`', '<']) && !literal.contains("**"), "{id}: {text}");
            }
            for brief in [title, claim_brief, ours_brief].into_iter().chain(differs) {
                assert!(!brief.contains(['|', '\n']) || brief.contains('{'), "{id}: {brief}");
            }
            assert!(title.chars().count() <= 80 && claim_brief.chars().count() <= 72, "{id}");
        }
    }
}
