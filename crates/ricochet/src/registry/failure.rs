//! Why a registry did not answer as expected.

use std::io;

use thiserror::Error;

/// Reason why an operation on a registry failed.
#[derive(Debug, Error)]
pub(super) enum Failure {
    /// No connection.
    #[error("cannot connect to {endpoint}: {error}")]
    Connect { endpoint: String, error: io::Error },
    /// The connection broke, or the answer came too late.
    #[error("{endpoint}: {error}")]
    Broken { endpoint: String, error: io::Error },
    /// The service refused.
    #[error("{endpoint}: expected the HTTP status 200, saw {status}: {text}")]
    Status { endpoint: String, status: u16, text: String },
    /// The service reported an error.
    #[error("the registry reported an error: {0}")]
    Reported(String),
    /// The answer is none of this protocol.
    #[error("an answer of the registry: {0}")]
    Answer(String),
    /// The service has discarded the changes that were asked for.
    #[error("the registry has forgotten old changes")]
    Compacted,
    /// The service has ended the stream of changes.
    #[error("the registry has ended the stream of changes")]
    Ended,
    /// The service does not know the lease.
    #[error("the lease has expired")]
    NoLease,
    /// The node is being closed.
    #[error("the node was closed")]
    Closing,
}

impl Failure {
    pub(super) fn answer(what: impl Into<String>) -> Self {
        Self::Answer(what.into())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Answer(format!("expected JSON, saw: {error}"))
    }
}
