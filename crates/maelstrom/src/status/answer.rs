//! Reads the status of a gateway from its control socket.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::Status;

/// Largest document that is read, in bytes.
pub const DOCUMENT_BYTES_MAX: u64 = 1 << 22;

/// Longest wait for an answer. The gateway answers between two rounds of its loop.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the status could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// No process listens on the socket.
    #[error("no gateway answers on `{path}`")]
    Absent {
        /// The control socket.
        path: String,
        /// The reason.
        source: io::Error,
    },
    /// The socket exists but cannot be used, or the answer is incomplete.
    #[error("cannot read the status from `{path}`")]
    Unreadable {
        /// The control socket.
        path: String,
        /// The reason.
        source: io::Error,
    },
    /// The answer is not a status.
    #[error("expected the status of a gateway of this version on `{path}`, saw another answer")]
    Foreign {
        /// The control socket.
        path: String,
        /// The mistake in the answer.
        source: serde_json::Error,
    },
}

/// Reads the status of the gateway at a control socket.
///
/// # Errors
/// [`StatusError`].
pub fn read(control: &Path) -> Result<Status, StatusError> {
    document(control, DOCUMENT_BYTES_MAX)
}

/// Reads the JSON document, of at most `bytes_max` bytes, that a gateway writes to each client of a socket.
pub(crate) fn document<T: DeserializeOwned>(socket: &Path, bytes_max: u64) -> Result<T, StatusError> {
    ask(socket, "", bytes_max)
}

/// The same for a gateway that reads a request first.
pub(crate) fn ask<T: DeserializeOwned>(
    socket: &Path,
    request: &str,
    bytes_max: u64,
) -> Result<T, StatusError> {
    let path = || socket.display().to_string();
    let mut stream = UnixStream::connect(socket).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            StatusError::Absent { path: path(), source }
        }
        _ => StatusError::Unreadable { path: path(), source },
    })?;
    let mut document = Vec::new();
    stream
        .set_read_timeout(Some(ANSWER_TIMEOUT))
        .and_then(|()| stream.write_all(request.as_bytes()))
        .and_then(|()| stream.take(bytes_max).read_to_end(&mut document))
        .map_err(|source| StatusError::Unreadable { path: path(), source: explained(source) })?;
    serde_json::from_slice(&document).map_err(|source| StatusError::Foreign { path: path(), source })
}

/// Says that the wait ended, which the kernel reports as a resource that is unavailable.
fn explained(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::WouldBlock {
        return error;
    }
    let waited = format!("expected an answer within {} s, saw none", ANSWER_TIMEOUT.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, waited)
}
