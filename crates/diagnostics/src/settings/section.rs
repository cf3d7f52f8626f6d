//! Sections as types, and the macro that declares them.

use super::key::KeyInfo;
use super::table::Table;
use crate::report::Findings;
use crate::span::Span;

/// A section of a configuration. [`settings!`](crate::settings!) implements it.
pub trait Section: Sized {
    /// The section with the place of each value, and with gaps where the file is wrong.
    type Draft: Draft;

    /// The section in the file: `peer`.
    const NAME: &'static str;

    /// The section's header: `[[peer]]`.
    const HEADER: &'static str;

    /// The table of keys.
    fn keys() -> Vec<KeyInfo>;

    /// One key of the table.
    ///
    /// # Panics
    /// If the section has no such key.
    fn key(name: &str) -> KeyInfo {
        Self::keys().into_iter().find(|key| key.name == name).unwrap_or_else(|| panic!("no key `{name}`"))
    }

    /// Reads all keys of the section.
    fn read(table: &mut Table<'_, '_>) -> Self::Draft;

    /// The section of a draft without gaps.
    ///
    /// # Panics
    /// If there is a gap; a reader reports an error for every gap.
    fn finish(draft: Self::Draft) -> Self;

    /// The draft of settings that come from a program: no gaps, no places.
    fn to_draft(&self) -> Self::Draft;

    /// Checks settings that come from a program against the forms of their keys.
    fn check(&self, findings: &mut Findings);

    /// The section of an empty file.
    ///
    /// # Panics
    /// If a key is required.
    fn defaults() -> Self {
        let (empty, keys, mut findings) = (toml::de::DeTable::new(), Self::keys(), Findings::default());
        let mut table = Table::new(Self::HEADER.to_owned(), None, &empty, &keys, &mut findings);
        Self::finish(Self::read(&mut table))
    }
}

/// Functions that all drafts have.
pub trait Draft: Default {
    /// The place of a key's value; `None` if the key has its default or is wrong.
    fn span_of(&self, key: &str) -> Option<Span>;
}

/// Declares a section: a struct, its draft, and [`Section`] for it.
///
/// `pub struct Name(Draft): "name" as "[header]" { entries }`; an entry is its documentation, then `key: type
/// { form: …, default: …, example: … }`, and `only: …` for a key that has a meaning under a condition. The
/// [module](mod@crate::settings) has an example.
#[macro_export]
macro_rules! settings {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Name:ident($Draft:ident): $name:literal as $header:literal {
            $(
                $(#[doc = $doc:literal])+
                $key:ident: $type:ty {
                    form: $form:expr,
                    default: $default:expr,
                    example: $example:expr
                    $(, only: $only:expr)?
                    $(,)?
                }
            )+
        }
    ) => {
        $(#[$meta])*
        #[allow(unreachable_pub, reason = "whether the section is public is its owner's decision")]
        $vis struct $Name {
            $( $(#[doc = $doc])+ pub $key: $type, )+
        }

        #[doc = concat!("The draft of [`", stringify!($Name), "`].")]
        #[derive(Clone, Debug, Default)]
        #[allow(unreachable_pub, reason = "whether the section is public is its owner's decision")]
        $vis struct $Draft {
            $( $(#[doc = $doc])+ pub $key: Option<$crate::settings::Setting<$type>>, )+
        }

        impl $crate::settings::Draft for $Draft {
            fn span_of(&self, key: &str) -> Option<$crate::Span> {
                $(
                    if key == $crate::settings::word(stringify!($key)) {
                        return self.$key.as_ref()?.span.clone();
                    }
                )+
                None
            }
        }

        impl $crate::settings::Section for $Name {
            type Draft = $Draft;

            const NAME: &'static str = $name;

            const HEADER: &'static str = $header;

            fn keys() -> Vec<$crate::settings::KeyInfo> {
                vec![$(
                    $crate::settings!(@key $key: $type, concat!($($doc),+), $form, $default, $example $(, $only)?)
                        .info(),
                )+]
            }

            fn read(table: &mut $crate::settings::Table<'_, '_>) -> $Draft {
                $Draft {
                    $( $key: table.read(
                        &$crate::settings!(@key $key: $type, concat!($($doc),+), $form, $default, $example $(, $only)?)
                    ), )+
                }
            }

            fn finish(draft: $Draft) -> Self {
                Self {
                    $( $key: draft.$key.expect("every gap in a draft has an error of its own").value, )+
                }
            }

            fn to_draft(&self) -> $Draft {
                $Draft {
                    $( $key: Some($crate::settings::Setting { value: self.$key.clone(), span: None }), )+
                }
            }

            fn check(&self, findings: &mut $crate::Findings) {
                $(
                    $crate::settings!(@key $key: $type, concat!($($doc),+), $form, $default, $example $(, $only)?)
                        .check($header, &self.$key, findings);
                )+
            }
        }
    };
    (@key $key:ident: $type:ty, $doc:expr, $form:expr, $default:expr, $example:expr $(, $only:expr)?) => {
        $crate::settings::Key::<$type> {
            name: $crate::settings::word(stringify!($key)),
            doc: $doc,
            form: Box::new($form),
            default: $default,
            example: $example,
            only: $crate::settings!(@only $($only)?),
        }
    };
    (@only) => { None };
    (@only $only:expr) => { Some($only) };
}
