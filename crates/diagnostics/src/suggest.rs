//! Suggestions for misspelt words.

/// Longest word that is compared, in bytes. The distance takes time quadratic in the length.
const WORD_BYTES_MAX: usize = 64;

/// Returns the word most like `name` if it is near enough for a slip: at most a third of its letters differ.
///
/// ```
/// assert_eq!(diagnostics::nearest("lisen", ["wan", "listen"].into_iter()), Some("listen"));
/// assert_eq!(diagnostics::nearest("xyzzy", ["wan", "listen"].into_iter()), None);
/// ```
pub fn nearest<'w>(name: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    if name.len() > WORD_BYTES_MAX {
        return None;
    }
    let name = name.to_lowercase();
    let distances = words.map(|word| (strsim::damerau_levenshtein(&name, word), word));
    let (distance, word) = distances.min_by_key(|&(distance, _)| distance)?;
    (distance <= (word.len() / 3).max(1)).then_some(word)
}
