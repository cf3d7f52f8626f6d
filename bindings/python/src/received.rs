//! What is received.

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
    /// The name of the group that it was sent to.
    #[getter]
    fn group(&self) -> &str {
        self.0.group()
    }

    /// Who sent it: one life of a node.
    #[getter]
    fn sender(&self) -> u32 {
        self.0.sender().0
    }

    /// Its place in what this sender sends to this group, from 0, modulo 2**32.
    #[getter]
    fn sequence(&self) -> u32 {
        self.0.seq()
    }

    /// What was sent.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.payload())
    }

    /// Whether it was lost on its way, and brought back.
    #[getter]
    fn recovered(&self) -> bool {
        self.0.recovered()
    }

    /// For how many seconds this node knew that it was missing.
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

/// Messages that will not come.
#[pyclass(module = "ricochet", frozen)]
pub(crate) struct Lost(ricochet::Lost);

impl From<ricochet::Lost> for Lost {
    fn from(lost: ricochet::Lost) -> Self {
        Self(lost)
    }
}

#[pymethods]
impl Lost {
    /// The name of the group.
    #[getter]
    fn group(&self) -> &str {
        self.0.group()
    }

    /// Who sent them.
    #[getter]
    fn sender(&self) -> u32 {
        self.0.sender().0
    }

    /// Place of the first of them in what this sender sends to this group.
    #[getter]
    fn first(&self) -> u32 {
        *self.0.range().start()
    }

    /// Place of the last of them.
    #[getter]
    fn last(&self) -> u32 {
        *self.0.range().end()
    }

    /// Why they were given up.
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
