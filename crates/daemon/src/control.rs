//! Control socket: a client that connects reads one document, the status of a running process.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Maximum number of requests answered in one call.
const ANSWERS_MAX: usize = 4;
/// Longest time that a client of [`Control::answer_at_leisure`] may take to read a part of its document.
const LEISURE: Duration = Duration::from_secs(5);

/// A listening control socket; dropping it removes its file.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::Read as _;
/// let path = std::env::temp_dir().join(format!("control-example-{}.sock", std::process::id()));
/// let control = daemon::control::Control::bind(&path)?;
/// let mut asking = std::os::unix::net::UnixStream::connect(&path)?;
/// control.answer(|| Ok(b"{}\n".to_vec()))?;
/// let mut answer = String::new();
/// asking.read_to_string(&mut answer)?;
/// assert_eq!(answer, "{}\n");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
    /// Held by the threads that write long documents.
    writers: Arc<()>,
}

/// Reason why the control socket could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Another process answers on it.
    #[error(
        "expected an unused control socket {path}, saw a process that answers on it; stop that process, or \
         choose another path",
        path = .0.display()
    )]
    Running(PathBuf),
    /// The system refused.
    #[error("cannot listen on control socket {path}: {source}", path = path.display())]
    System {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Control {
    /// Listens on `path`, and replaces a file that a killed process left.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn bind(path: &Path) -> Result<Self, ControlError> {
        if UnixStream::connect(path).is_ok() {
            return Err(ControlError::Running(path.to_owned()));
        }
        let listener =
            listen(path).map_err(|source| ControlError::System { path: path.to_owned(), source })?;
        Ok(Self { listener, path: path.to_owned(), writers: Arc::new(()) })
    }

    /// Answers waiting clients. A client that does not read its document at once gets as much as fits the
    /// socket.
    ///
    /// # Errors
    /// The first error of `document` or of a client's socket, after all waiting clients were handled.
    pub fn answer(&self, document: impl Fn() -> io::Result<Vec<u8>>) -> io::Result<()> {
        let mut result = Ok(());
        for _ in 0..ANSWERS_MAX {
            let Ok((mut stream, _)) = self.listener.accept() else { break };
            let written = stream.set_nonblocking(true).and_then(|()| stream.write_all(&document()?));
            result = result.and(written);
        }
        result
    }
}

impl Control {
    /// Answers a waiting client with a document that may be longer than a socket's buffer. Another thread
    /// writes it; while several do, further clients wait.
    ///
    /// # Errors
    /// The error of `document`, of the client's socket, or of the thread's start.
    pub fn answer_at_leisure(&self, document: impl FnOnce() -> io::Result<Vec<u8>>) -> io::Result<()> {
        if Arc::strong_count(&self.writers) > ANSWERS_MAX {
            return Ok(());
        }
        let Ok((mut stream, _)) = self.listener.accept() else { return Ok(()) };
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(LEISURE))?;
        let (document, writer) = (document()?, Arc::clone(&self.writers));
        let write = move || {
            // A client that leaves early has what it wanted.
            let _ = stream.write_all(&document);
            drop(writer);
        };
        thread::Builder::new().name("control".to_owned()).spawn(write).map(drop)
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => {
            return Err(io::Error::other("expected a socket or no file there, saw another kind of file"));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    // Counters are not secret, but the list of peers is only for the operator.
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // If this fails, the next start removes the file.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    #[test]
    fn a_file_that_is_not_a_socket_is_kept() {
        let path = env::temp_dir().join(format!("undrop-control-test-{}", std::process::id()));
        fs::write(&path, "a key").unwrap();
        let refused = Control::bind(&path).err().map(|error| error.to_string()).unwrap_or_default();
        let kept = fs::read_to_string(&path);
        fs::remove_file(&path).unwrap();
        assert!(refused.contains("saw another kind of file"), "{refused}");
        assert_eq!(kept.unwrap(), "a key");
    }

    #[test]
    fn a_long_document_is_written_at_the_pace_of_its_reader() {
        use std::io::Read as _;
        let path = env::temp_dir().join(format!("undrop-control-test-long-{}.sock", std::process::id()));
        let control = Control::bind(&path).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        let document = vec![7; 8 << 20];
        control.answer_at_leisure(|| Ok(document.clone())).unwrap();
        control.answer_at_leisure(|| panic!("no client waits")).unwrap();
        let mut read = Vec::new();
        client.read_to_end(&mut read).unwrap();
        assert!(read == document);
    }

    #[test]
    fn the_socket_of_a_killed_process_is_replaced() {
        let path = env::temp_dir().join(format!("undrop-control-test-{}.sock", std::process::id()));
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let control = Control::bind(&path).unwrap();
        assert!(matches!(Control::bind(&path), Err(ControlError::Running(_))));
        drop(control);
        assert!(!path.exists());
    }
}
