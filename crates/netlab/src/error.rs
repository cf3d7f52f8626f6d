//! Errors of building and using a laboratory.

use std::io;

/// An error of the laboratory: the failed step and its cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A system call or a file operation failed.
    #[error("{what}: {source}")]
    System {
        /// The step, with the names that it concerns.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refused a netlink request.
    #[error("{what}: {source}")]
    Netlink {
        /// The request, with the names that it concerns.
        what: String,
        /// The kernel's error.
        source: rtnetlink::Error,
    },
    /// This process must not build namespaces.
    #[error("{0}")]
    Unprivileged(String),
    /// An argument is out of range.
    #[error("{0}")]
    Invalid(String),
}

impl LabError {
    /// Makes the error of a failed system call at a named step.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }

    /// Returns whether the kernel refused for lack of privilege.
    pub fn is_permission(&self) -> bool {
        match self {
            Self::System { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            Self::Netlink { source: rtnetlink::Error::NetlinkError(message), .. } => {
                message.to_io().kind() == io::ErrorKind::PermissionDenied
            }
            Self::Unprivileged(_) => true,
            Self::Netlink { .. } | Self::Invalid(_) => false,
        }
    }
}
