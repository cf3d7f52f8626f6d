//! The control socket: whoever connects reads one JSON document, the gateway's status.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::StartError;

/// Requests answered in one round of the loop.
const ANSWERS_MAX: usize = 4;

/// A listening control socket; its file goes away with it.
#[derive(Debug)]
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Listens on `path`, taking the place of a file that a killed gateway left.
    pub(crate) fn bind(path: &Path) -> Result<Self, StartError> {
        let step = |error| StartError::new(format!("listen on control socket {}", path.display()), error);
        if UnixStream::connect(path).is_ok() {
            return Err(StartError::Running(path.display().to_string()));
        }
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => fs::remove_file(path).map_err(step)?,
            Ok(_) => return Err(step(io::Error::other("there is a file of that name which is no socket"))),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(step(error)),
        }
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(step)?;
        }
        let listener = UnixListener::bind(path).map_err(step)?;
        listener.set_nonblocking(true).map_err(step)?;
        // Counters are no secret, but which networks are protected is the operator's business.
        fs::set_permissions(path, fs::Permissions::from_mode(0o660)).map_err(step)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Answers those who wait; a reader that does not take its document at once gets what fits the socket.
    pub(crate) fn answer<T: Serialize>(&self, status: impl Fn() -> T) {
        for _ in 0..ANSWERS_MAX {
            let Ok((mut stream, _)) = self.listener.accept() else { return };
            let written = stream.set_nonblocking(true).and_then(|()| {
                let mut document = serde_json::to_vec(&status()).map_err(io::Error::other)?;
                document.push(b'\n');
                stream.write_all(&document)
            });
            if let Err(error) = written {
                tracing::debug!(%error, "answering a status request");
            }
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Nothing is lost if it cannot be removed: the next start does.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let path = env::temp_dir().join(format!("undrop-control-test-{}", std::process::id()));
        fs::write(&path, "a key").unwrap();
        let refused = Control::bind(&path).err().map(|error| error.to_string()).unwrap_or_default();
        let kept = fs::read_to_string(&path);
        fs::remove_file(&path).unwrap();
        assert!(refused.contains("no socket"), "{refused}");
        assert_eq!(kept.unwrap(), "a key");
    }

    #[test]
    fn the_socket_of_a_killed_gateway_is_taken_over() {
        let path = env::temp_dir().join(format!("undrop-control-test-{}.sock", std::process::id()));
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let control = Control::bind(&path).unwrap();
        assert!(matches!(Control::bind(&path), Err(StartError::Running(_))));
        drop(control);
        assert!(!path.exists());
    }
}
