//! Names of groups.

/// Maximum length of the name of a group in bytes.
pub const GROUP_NAME_MAX: usize = 1_024;

/// Returns whether a group may have this name.
pub(crate) fn is_group_name(name: &str) -> bool {
    (1..=GROUP_NAME_MAX).contains(&name.len())
}
