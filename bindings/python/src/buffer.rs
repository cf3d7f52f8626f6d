//! Bytes that Python passes.

use std::ops::Deref;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// Bytes of a payload, of headers or of a key.
///
/// `bytes` are used where they are. Any other buffer is copied once: another thread could change it while the
/// message is sent.
pub(crate) struct Buffer<'py>(Bound<'py, PyBytes>);

impl<'py> FromPyObject<'_, 'py> for Buffer<'py> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = given.cast::<PyBytes>() {
            return Ok(Self(bytes.to_owned()));
        }
        let copy = PyMemoryView::from(&given)?.call_method0("tobytes")?;
        Ok(Self(copy.cast_into()?))
    }
}

impl Deref for Buffer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
