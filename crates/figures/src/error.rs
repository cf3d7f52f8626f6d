//! Why an outcome cannot be stored.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::picture::PictureError;

/// Why an outcome cannot be stored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file cannot be written.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// It cannot be written as JSON.
    #[error("expected an outcome that JSON can hold: {0}")]
    Json(#[from] serde_json::Error),
    /// It cannot be drawn.
    #[error(transparent)]
    Picture(#[from] PictureError),
}

impl StoreError {
    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), error }
    }
}
