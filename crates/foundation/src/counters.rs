//! Counters by reason.

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
