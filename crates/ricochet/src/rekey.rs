//! A change of the cluster keys while the node runs.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use crate::error::RekeyError;
use crate::key::ClusterKey;
use crate::shared::Shared;

/// Interval between checks of the key file.
const CHECK_PERIOD_US: u64 = 1_000_000;

/// Facts that change when a file is written or replaced: device, inode, length, and time of the change.
pub(crate) type Facts = (u64, u64, u64, i64, i64);

/// Watches the key file, on the node's thread. When it changes, the node continues with the keys in it.
#[derive(Debug, Default)]
pub(crate) struct KeyFile {
    path: Option<PathBuf>,
    seen: Option<Facts>,
    next_check_us: u64,
}

impl KeyFile {
    /// Watches a file whose keys are about to be read.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: Some(path.to_owned()), seen: facts(path), next_check_us: 0 }
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.path.as_ref().map(|_| self.next_check_us)
    }

    /// Checks the file, if it is time.
    pub(crate) fn handle_timeout(&mut self, now_us: u64, shared: &Shared) {
        let Some(path) = self.path.as_ref().filter(|_| now_us >= self.next_check_us) else { return };
        self.next_check_us = now_us + CHECK_PERIOD_US;
        let facts = facts(path);
        if facts == self.seen {
            return;
        }
        self.seen = facts;
        match shared.reload_keys() {
            Ok(count) => tracing::info!(path = %path.display(), count, "the cluster keys were read again"),
            Err(error) => tracing::warn!(%error, "the node continues with the cluster keys that it has"),
        }
    }
}

pub(crate) fn facts(path: &Path) -> Option<Facts> {
    let metadata = fs::metadata(path).ok()?;
    let changed = (metadata.ctime(), metadata.ctime_nsec());
    Some((metadata.dev(), metadata.ino(), metadata.len(), changed.0, changed.1))
}

impl Shared {
    /// Reads the cluster keys from the configured file again. Returns their number.
    pub(crate) fn reload_keys(&self) -> Result<usize, RekeyError> {
        self.check_process()?;
        let file = self.config.key.file.as_ref().ok_or(RekeyError::NoFile)?;
        let read = ClusterKey::read_all(file);
        let result = match read {
            Ok(keys) => self.set_keys(&keys).map(|()| keys.len()),
            Err(error) => Err(RekeyError::File { file: file.clone(), error }),
        };
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.key_error = result.as_ref().err().map(ToString::to_string);
        published.keys_read += u64::from(result.is_ok());
        result
    }

    /// Continues with other cluster keys.
    pub(crate) fn set_keys(&self, keys: &[ClusterKey]) -> Result<(), RekeyError> {
        self.check_process()?;
        let ring = self.keys.as_ref().ok_or(RekeyError::NoKey)?;
        if keys.is_empty() {
            return Err(RekeyError::Empty);
        }
        ring.replace(keys);
        Ok(())
    }
}
