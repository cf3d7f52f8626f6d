//! What can go wrong while a laboratory is built or used.

use std::io;

/// An error of the laboratory: the step that failed, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A system call or a file operation failed.
    #[error("{what}: {source}")]
    System {
        /// The step, with the names it concerns.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel refused a netlink request.
    #[error("{what}: {source}")]
    Netlink {
        /// The request, with the names it concerns.
        what: String,
        /// The kernel's answer.
        source: rtnetlink::Error,
    },
    /// This process may not build namespaces.
    #[error("{0}")]
    Unprivileged(String),
    /// An argument is outside what is possible.
    #[error("{0}")]
    Invalid(String),
}

impl LabError {
    /// Names the step at which a system call failed.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }

    /// Whether the kernel refused for lack of privilege.
    #[must_use]
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
