//! Messages and loss reports.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A message of a group.
#[pyclass(module = "ricochet", frozen)]
pub(crate) struct Message(ricochet::Message);

impl From<ricochet::Message> for Message {
    fn from(message: ricochet::Message) -> Self {
        Self(message)
    }
}

#[pymethods]
impl Message {
    /// Name of the group that the message was sent to.
    #[getter]
    fn group(&self) -> &str {
        self.0.group()
    }

    /// Identifier of the sender: one life of a node.
    #[getter]
    fn sender(&self) -> u32 {
        self.0.sender().0
    }

    /// Sequence number among this sender's messages to this group, from 0, modulo 2**32.
    #[getter]
    fn sequence(&self) -> u32 {
        self.0.seq()
    }

    /// Payload as it was sent.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.payload())
    }

    /// Whether the message was lost at first, and then recovered or retransmitted.
    #[getter]
    fn recovered(&self) -> bool {
        self.0.recovered()
    }

    /// Seconds for which this node knew that the message was missing.
    #[getter]
    fn latency(&self) -> f64 {
        self.0.latency().as_secs_f64()
    }

    fn __repr__(&self) -> String {
        format!(
            "Message(group={:?}, sender={}, sequence={}, {} bytes, recovered={})",
            self.group(),
            self.sender(),
            self.sequence(),
            self.0.payload().len(),
            if self.recovered() { "True" } else { "False" }
        )
    }
}

/// A report of messages that will not arrive.
#[pyclass(module = "ricochet", frozen)]
pub(crate) struct Lost(ricochet::Lost);

impl From<ricochet::Lost> for Lost {
    fn from(lost: ricochet::Lost) -> Self {
        Self(lost)
    }
}

#[pymethods]
impl Lost {
    /// Name of the group.
    #[getter]
    fn group(&self) -> &str {
        self.0.group()
    }

    /// Identifier of the sender.
    #[getter]
    fn sender(&self) -> u32 {
        self.0.sender().0
    }

    /// Sequence number of the first of them among this sender's messages to this group.
    #[getter]
    fn first(&self) -> u32 {
        *self.0.range().start()
    }

    /// Sequence number of the last of them.
    #[getter]
    fn last(&self) -> u32 {
        *self.0.range().end()
    }

    /// Reason why they were given up.
    #[getter]
    fn reason(&self) -> String {
        self.0.reason().to_string()
    }

    fn __repr__(&self) -> String {
        format!(
            "Lost(group={:?}, sender={}, first={}, last={}, reason={:?})",
            self.group(),
            self.sender(),
            self.first(),
            self.last(),
            self.reason()
        )
    }
}
