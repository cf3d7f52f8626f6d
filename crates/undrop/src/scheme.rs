//! `--scheme` on command lines.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use maelstrom::config::SchemeChoice;

/// Parses the choice of a scheme by its word; the help lists what each does.
pub fn parser() -> impl TypedValueParser<Value = SchemeChoice> {
    let values = SchemeChoice::ALL.map(|choice| PossibleValue::new(choice.word()).help(choice.summary()));
    PossibleValuesParser::new(values).try_map(|word| word.parse::<SchemeChoice>())
}
