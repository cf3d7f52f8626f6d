//! Why a text is no loss model.

/// Why a text is no loss model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LossError {
    /// There is no such model.
    #[error("expected a loss model (none, uniform:P, bursty:L:B, markov:L:M, trace:FILE), got {0:?}")]
    UnknownModel(String),
    /// A rate is not a number from 0 to 1, or 0% to 100%.
    #[error("expected a loss rate from 0 to 1 (or 0% to 100%), got {0:?}")]
    Rate(String),
    /// A burst length is missing or impossible.
    #[error("expected a burst length of at least 1, got {0:?}")]
    Burst(String),
    /// Bursts of this length cannot make up so great a share of the packets.
    #[error(
        "bursts of {burst} packets cannot be a share of {rate}: at most {limit:.4}, one packet passes between bursts"
    )]
    TooDense {
        /// The burst length asked for.
        burst: String,
        /// The rate asked for.
        rate: String,
        /// The greatest possible rate.
        limit: f64,
    },
    /// A trace file cannot be read or understood.
    #[error("loss trace {path:?}: {reason}")]
    Trace {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
}
