//! Errors of parsing a loss model.

/// Reason why a text is not a loss model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LossError {
    /// The name of the model is unknown.
    #[error(
        "expected a loss model (none, uniform:P, bursty:P:LENGTH, markov:P:MEAN, gemodel:P:R:1-H:1-K, trace:FILE), saw {0:?}"
    )]
    UnknownModel(String),
    /// A rate is not a number from 0 to 1, or 0% to 100%.
    #[error("expected a loss rate from 0 to 1 (or 0% to 100%), saw {0:?}")]
    Rate(String),
    /// A burst length is missing or impossible.
    #[error("expected a burst length of at least 1, as in bursty:0.01:20, saw {0:?}")]
    Burst(String),
    /// Bursts of this length cannot make up this share of the packets.
    #[error(
        "expected a rate of at most {limit:.4} for bursts of {burst} packets, because one packet passes between bursts; saw {rate}"
    )]
    TooDense {
        /// The requested burst length.
        burst: String,
        /// The requested rate.
        rate: String,
        /// The highest possible rate.
        limit: f64,
    },
    /// A Gilbert-Elliott model has another number of probabilities.
    #[error("expected 1 to 4 probabilities, as in gemodel:1%:10%:70%:0.1% (P, R, 1-H, 1-K), saw {0:?}")]
    Probabilities(String),
    /// A trace file cannot be read or parsed.
    #[error("loss trace {path:?}: {reason}")]
    Trace {
        /// Path of the file.
        path: String,
        /// Reason.
        reason: String,
    },
}
