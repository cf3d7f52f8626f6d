//! Names of groups.

/// Maximum length of the name of a group in bytes.
pub const GROUP_NAME_MAX: usize = 1_024;

/// Mistake in the name of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameMistake {
    /// It is empty or too long.
    Length,
    /// It has a `*`, as if it were a pattern.
    Pattern,
}

/// Checks the name of a group.
pub(crate) fn check_group_name(name: &str) -> Result<(), NameMistake> {
    if !(1..=GROUP_NAME_MAX).contains(&name.len()) {
        return Err(NameMistake::Length);
    }
    if name.contains('*') { Err(NameMistake::Pattern) } else { Ok(()) }
}
