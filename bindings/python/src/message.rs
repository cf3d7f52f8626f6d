//! Messages, whose payload Python reads in place.

use std::ffi::c_int;
use std::time::UNIX_EPOCH;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;

/// A message of a group.
#[pyclass(module = "undrop.multicast", frozen)]
pub(crate) struct Message(ricochet::Message, PyOnceLock<Py<PyBytes>>);

impl From<ricochet::Message> for Message {
    fn from(message: ricochet::Message) -> Self {
        Self(message, PyOnceLock::new())
    }
}

impl Message {
    pub(crate) fn inner(&self) -> &ricochet::Message {
        &self.0
    }
}

#[pymethods]
impl Message {
    /// Whether the sender waits for replies.
    #[getter]
    fn is_request(&self) -> bool {
        self.0.is_request()
    }

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

    /// Number of the message in total order; None in other orders.
    #[getter]
    fn number(&self) -> Option<u64> {
        self.0.number()
    }

    /// Shows the payload where it is, read-only: `memoryview(message)` copies nothing.
    ///
    /// # Safety
    /// Python calls it, with a view to be filled (PEP 3118).
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let payload = slf.get().0.payload();
        let (start, length) = (payload.as_ptr().cast_mut().cast(), payload.len().cast_signed());
        // SAFETY: the view refers to the message, which is frozen: its payload lives as long, and stays where
        // it is. The view is read-only.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    /// Payload as it was sent. It is copied the first time.
    #[getter]
    fn payload(&self, py: Python<'_>) -> Py<PyBytes> {
        let copy = || PyBytes::new(py, self.0.payload()).unbind();
        self.1.get_or_init(py, copy).clone_ref(py)
    }

    /// Address of the sender, such as `10.0.0.7:7900`; None if it is not known.
    #[getter]
    fn address(&self) -> Option<String> {
        self.0.address().map(|address| address.to_string())
    }

    /// Time at which the message was sent, in seconds since 1970, by the sender's clock; None if the sender
    /// does not tell.
    #[getter]
    fn sent(&self) -> Option<f64> {
        let since_1970 = self.0.sent()?.duration_since(UNIX_EPOCH).ok()?;
        Some(since_1970.as_secs_f64())
    }

    /// Whether this node sent the message itself.
    #[getter]
    fn own(&self) -> bool {
        self.0.is_own()
    }

    /// Type of the payload, if the sender has given one.
    #[getter]
    fn content_type(&self) -> Option<&str> {
        self.0.content_type()
    }

    /// Bytes that the sender has given to the message beside the payload.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.headers())
    }

    /// Key of which the message is the value; None if it has none. An empty payload deletes the key.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.key().map(|key| PyBytes::new(py, key))
    }

    /// Whether the message was lost at first, and then recovered or retransmitted.
    #[getter]
    fn recovered(&self) -> bool {
        self.0.recovered()
    }

    /// Whether the message was sent before the subscription, and kept by a member.
    #[getter]
    fn past(&self) -> bool {
        self.0.is_past()
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
