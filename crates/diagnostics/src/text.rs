//! Values as parts of a message.

use std::path::Path;

/// Longest value in a message, in characters.
const CHARS_MAX: usize = 64;

/// Quotes a value for a message: escaped, and cut off if it is long.
///
/// ```
/// assert_eq!(diagnostics::quoted("a\tb"), r#""a\tb""#);
/// ```
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", bounded(text))
}

/// The same in backquotes, for identifiers.
pub(crate) fn ticked(text: &str) -> String {
    format!("`{}`", bounded(text))
}

fn bounded(text: &str) -> String {
    let mut shown: String = text.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

/// Puts the indefinite article before a noun.
pub(crate) fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {noun}")
}

/// Quotes a path for a command line where that is necessary.
///
/// ```
/// assert_eq!(diagnostics::shell_word("/etc/peer.key".as_ref()), "/etc/peer.key");
/// assert_eq!(diagnostics::shell_word("my key".as_ref()), "'my key'");
/// ```
pub fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:".contains(c);
    if text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.escape_debug()) }
}
