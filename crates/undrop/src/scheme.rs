//! `--scheme` on command lines.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use fec::Scheme;

/// Parses a scheme by its word; the help lists what each scheme does.
pub fn parser() -> impl TypedValueParser<Value = Scheme> {
    let values = Scheme::ALL.map(|scheme| PossibleValue::new(scheme.word()).help(scheme.summary()));
    PossibleValuesParser::new(values).try_map(|word| word.parse::<Scheme>())
}
