//! Counters by reason.

use std::fmt::Display;

/// A reason by which something is counted. Displayed as a text for people.
pub trait Reason: Copy + Display + 'static {
    /// All reasons, in order of declaration.
    const REASONS: &'static [Self];

    /// Returns the name of the reason for programs: stable, in snake case.
    fn name(self) -> &'static str;

    /// Returns the text of the reason with this name, or else the words of the name.
    fn text_of(name: &str) -> String {
        let reason = Self::REASONS.iter().find(|reason| reason.name() == name);
        reason.map_or_else(|| name.replace('_', " "), ToString::to_string)
    }
}

/// Declares an enum of reasons with their texts, and an array of counters indexed by it.
#[macro_export]
macro_rules! reasons {
    ($(#[$doc:meta])* $enum:ident, $counts:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, $crate::thiserror::Error)]
        #[non_exhaustive]
        pub enum $enum {
            $($(#[$variant_doc])* #[error($name)] $variant,)+
        }

        impl $enum {
            /// All reasons, in order of declaration.
            pub const ALL: &[$enum] = &[$($enum::$variant,)+];

            /// Returns the name of the reason for programs: stable, in snake case.
            pub const fn id(self) -> &'static str {
                match self {
                    $($enum::$variant => {
                        const NAME: &str = stringify!($variant);
                        const ID: [u8; $crate::snake_len(NAME)] = $crate::snake(NAME);
                        match ::core::str::from_utf8(&ID) {
                            Ok(id) => id,
                            Err(_) => panic!("names are ASCII"),
                        }
                    })+
                }
            }
        }

        impl $crate::Reason for $enum {
            const REASONS: &'static [$enum] = $enum::ALL;

            fn name(self) -> &'static str {
                self.id()
            }
        }

        /// Number of drops by reason.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $counts([u64; $enum::ALL.len()]);

        impl $counts {
            /// Counts one drop.
            pub fn add(&mut self, reason: $enum) {
                self.add_times(reason, 1);
            }

            /// Counts `times` drops.
            pub fn add_times(&mut self, reason: $enum, times: u64) {
                self.0[reason as usize] += times;
            }

            /// Returns the count of one reason.
            pub fn count(&self, reason: $enum) -> u64 {
                self.0[reason as usize]
            }

            /// Returns reasons and counts, in order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = ($enum, u64)> + '_ {
                $enum::ALL.iter().map(|&reason| (reason, self.count(reason)))
            }
        }
    };
}

/// Returns the length of a name in snake case.
#[doc(hidden)]
pub const fn snake_len(name: &str) -> usize {
    let (name, mut at, mut len) = (name.as_bytes(), 0, 0);
    while at < name.len() {
        len += if at > 0 && name[at].is_ascii_uppercase() { 2 } else { 1 };
        at += 1;
    }
    len
}

/// Returns a name such as `NoPeer` in snake case.
#[doc(hidden)]
pub const fn snake<const LEN: usize>(name: &str) -> [u8; LEN] {
    let (name, mut at, mut len, mut id) = (name.as_bytes(), 0, 0, [0; LEN]);
    while at < name.len() {
        if at > 0 && name[at].is_ascii_uppercase() {
            id[len] = b'_';
            len += 1;
        }
        id[len] = name[at].to_ascii_lowercase();
        len += 1;
        at += 1;
    }
    id
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macro declares items for other crates")]
mod tests {
    reasons! {
        /// Reasons of a test.
        Reason, Counts {
            /// Two words.
            NoPeer = "destination of no peer",
            /// One word.
            Truncated = "truncated",
        }
    }

    #[test]
    fn ids_are_the_names_in_snake_case() {
        assert_eq!(Reason::NoPeer.id(), "no_peer");
        assert_eq!(Reason::Truncated.id(), "truncated");
        assert_eq!(<Reason as crate::Reason>::text_of("no_peer"), "destination of no peer");
        assert_eq!(<Reason as crate::Reason>::text_of("of_later_versions"), "of later versions");
        let mut counts = Counts::default();
        counts.add(Reason::NoPeer);
        assert_eq!(counts.iter().map(|(reason, count)| (reason.id(), count)).next(), Some(("no_peer", 1)));
    }
}
