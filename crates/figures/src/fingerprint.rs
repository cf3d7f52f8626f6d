//! Fingerprints identify a set-up by the values in its debug output, not by the names.
//!
//! Results of hours of runs stay valid when a field or a type is renamed, or a sentence is worded
//! differently. They do not stay valid when a number, a switch or a variant changes.

use xxhash_rust::xxh3::xxh3_64;

/// A number for the values in a text.
pub(crate) fn number(text: &str) -> u64 {
    xxh3_64(values(text).as_bytes())
}

/// The values in a text, separated by spaces: words with a digit, `true` and `false`, quoted text, and names
/// that begin with a capital, which are variants. Field names (before `:`), names of structs (before ` {`)
/// and all other words are left out.
pub(crate) fn values(text: &str) -> String {
    let mut kept = Vec::new();
    // Every second part stands between quotation marks.
    for (part, text) in text.split('"').enumerate() {
        if part % 2 == 1 {
            kept.push(text);
        } else {
            kept.extend(words(text).filter(|(word, rest)| is_value(word, rest)).map(|(word, _)| word));
        }
    }
    kept.join(" ")
}

/// Each word with the text that follows it.
fn words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_part = |letter: char| letter.is_alphanumeric() || "._-".contains(letter);
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = rest.find(is_part)?;
        let word_on = &rest[start..];
        let length = word_on.find(|letter| !is_part(letter)).unwrap_or(word_on.len());
        let word = &word_on[..length];
        rest = &word_on[length..];
        Some((word, rest))
    })
}

fn is_value(word: &str, rest: &str) -> bool {
    let is_name = word.starts_with(char::is_alphabetic) && (rest.starts_with(": ") || rest.starts_with(" {"));
    let is_told = word.contains(|letter: char| letter.is_ascii_digit())
        || word.starts_with(char::is_uppercase)
        || ["true", "false"].contains(&word);
    is_told && !is_name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_and_names_are_not() {
        let text = "Setting { nodes: 16, nak: false, loss: Uniform(0.01), view: Some(4), sender: \"reno tcp\" } for 2.5 s";
        assert_eq!(values(text), "16 false Uniform 0.01 Some 4 reno tcp 2.5");
        let renamed = "Conditions { hosts: 16, asks: false, chance: Uniform(0.01), of_each: Some(4), tcp: \"reno tcp\" }, 2.5 s";
        assert_eq!(number(text), number(renamed));
    }

    #[test]
    fn another_value_switch_or_variant_is_another_number() {
        let of = |change: (&str, &str)| {
            number(&"rate: -1e-9, on: true, Rival(Srm), 400ms".replace(change.0, change.1))
        };
        let same = of(("", ""));
        for change in [("1e-9", "1e-8"), ("true", "false"), ("Srm", "SrmSession"), ("400ms", "40ms")] {
            assert_ne!(of(change), same, "{change:?}");
        }
    }

    #[test]
    fn a_number_in_base_sixteen_is_a_value() {
        assert_eq!(values("behaviour 0a1b2c3d4e5f6a7b, ab"), "0a1b2c3d4e5f6a7b");
    }
}
