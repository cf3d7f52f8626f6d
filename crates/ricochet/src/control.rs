//! The control socket of a node: a client that connects reads the [`Status`](crate::Status) as JSON.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use daemon::control::{Control, ControlError};

use crate::shared::Shared;

/// The server of the control socket, driven by the node's thread.
#[derive(Debug)]
pub(crate) struct StatusServer(Control);

impl StatusServer {
    pub(crate) fn bind(path: &Path) -> Result<Self, ControlError> {
        Control::bind(path).map(Self)
    }

    /// Answers all clients that wait.
    pub(crate) fn answer(&self, shared: &Shared) {
        let document = || {
            let mut document = serde_json::to_vec(&shared.status()).map_err(io::Error::other)?;
            document.push(b'\n');
            Ok(document)
        };
        if let Err(error) = self.0.answer(document) {
            tracing::debug!(%error, "cannot answer a status request");
        }
    }
}

impl AsFd for StatusServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
