//! The exceptions of the module.

use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyRuntimeWarning, PyTimeoutError, PyValueError};
use ricochet::{JoinError, RequestError, SendError};

create_exception!(
    undrop.multicast,
    RicochetError,
    PyException,
    "An error that is not caused by a wrong argument."
);
create_exception!(
    undrop.multicast,
    Closed,
    RicochetError,
    "The node or subscription is closed, and all queued messages have been received."
);

create_exception!(
    undrop.multicast,
    LossWarning,
    PyRuntimeWarning,
    "Messages are lost, were dropped because the program reads too slowly, or were received in another order \
     than the members agreed."
);

/// Returns an exception for a wrong argument. The text says what was expected and what was seen.
pub(crate) fn value(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Returns an exception for any other error.
pub(crate) fn other(error: impl std::fmt::Display) -> PyErr {
    RicochetError::new_err(error.to_string())
}

pub(crate) fn closed() -> PyErr {
    Closed::new_err("the node was closed")
}

pub(crate) fn join(error: &JoinError) -> PyErr {
    match error {
        JoinError::Closed => closed(),
        JoinError::Address { .. } | JoinError::Failed(_) => other(error),
        _ => value(error),
    }
}

pub(crate) fn request(error: RequestError) -> PyErr {
    match error {
        RequestError::NoReply { .. } => PyTimeoutError::new_err(error.to_string()),
        RequestError::Send(error) => send(&error),
        RequestError::Inbox(error) => join(&error),
        _ => other(error),
    }
}

pub(crate) fn send(error: &SendError) -> PyErr {
    match error {
        SendError::TooLong { .. }
        | SendError::Name { .. }
        | SendError::Pattern { .. }
        | SendError::Headers { .. }
        | SendError::Deadline { .. }
        | SendError::Key { .. }
        | SendError::NotARequest => value(error),
        SendError::NotHeld { .. } => PyTimeoutError::new_err(error.to_string()),
        SendError::WouldBlock => {
            PyTimeoutError::new_err(format!("{error} in the time given; nothing was sent"))
        }
        SendError::Closed => closed(),
        _ => other(error),
    }
}
