//! Control socket: a client that connects reads one document, the status of a running process.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tracing::debug;

/// Maximum number of requests answered in one call.
const ANSWERS_MAX: usize = 4;
/// Longest time that a client may take to read its document.
const LEISURE: Duration = Duration::from_secs(5);
/// Number of bytes that are written between two looks at the clock.
const CHUNK: usize = 1 << 16;

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

    /// Listens beside `path`, where another process listens, until [`Control::take_place`].
    ///
    /// # Errors
    /// [`ControlError::System`].
    pub fn bind_beside(path: &Path) -> Result<Self, ControlError> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".next");
        let path = PathBuf::from(beside);
        let listener = listen(&path).map_err(|source| ControlError::System { path: path.clone(), source })?;
        Ok(Self { listener, path, writers: Arc::new(()) })
    }

    /// Listens on `path` from here on, in place of the process that did so. No client finds nobody.
    ///
    /// # Errors
    /// The system's error; then clients are answered at the present place.
    pub fn take_place(&mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        path.clone_into(&mut self.path);
        Ok(())
    }

    /// Leaves the file to another process, which listens there.
    pub fn abandon(&mut self) {
        self.path = PathBuf::new();
    }

    /// Answers waiting clients. The part that a client does not read at once is written by another thread, at
    /// the pace of the client and for [`LEISURE`] at most. While several threads write, a further such client
    /// gets a part.
    ///
    /// # Errors
    /// The first error of `document` or of a client's socket, after all waiting clients were handled.
    pub fn answer(&self, document: impl Fn() -> io::Result<Vec<u8>>) -> io::Result<()> {
        let mut result = Ok(());
        for _ in 0..ANSWERS_MAX {
            let Ok((stream, _)) = self.listener.accept() else { break };
            result = result.and(document().and_then(|document| self.write(stream, document)));
        }
        result
    }

    /// Returns the next waiting client, for an answer of another kind. Reads and writes of it block.
    pub fn accept(&self) -> Option<UnixStream> {
        self.listener.accept().ok().map(|(stream, _)| stream)
    }

    /// Writes what the client takes at once, and leaves the rest to a thread.
    fn write(&self, mut stream: UnixStream, document: Vec<u8>) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let mut written = 0;
        while written < document.len() {
            match stream.write(&document[written..]) {
                Ok(length) => written += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return self.write_at_leisure(stream, move || Ok(document), written);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Answers a waiting client with a document that is long to make. `collect` runs here, if a client waits,
    /// and returns the work that makes the document, for a thread. While several clients are written to,
    /// further ones wait.
    ///
    /// # Errors
    /// The error of the client's socket, or of the thread's start.
    pub fn answer_at_leisure<D>(&self, collect: impl FnOnce() -> D) -> io::Result<()>
    where
        D: FnOnce() -> io::Result<Vec<u8>> + Send + 'static,
    {
        if self.is_busy() {
            return Ok(());
        }
        let Ok((stream, _)) = self.listener.accept() else { return Ok(()) };
        self.write_at_leisure(stream, collect(), 0)
    }

    /// Makes a document and writes it to a client of [`Control::accept`], by a thread.
    ///
    /// # Errors
    /// The error of the client's socket, or of the thread's start, or `WouldBlock` if [`Control::is_busy`].
    pub fn hand_out(
        &self,
        stream: UnixStream,
        document: impl FnOnce() -> io::Result<Vec<u8>> + Send + 'static,
    ) -> io::Result<()> {
        self.write_at_leisure(stream, document, 0)
    }

    /// Whether as many clients as allowed are written to by threads.
    pub fn is_busy(&self) -> bool {
        Arc::strong_count(&self.writers) > ANSWERS_MAX
    }

    /// Makes a document and writes it from byte `from` on, by a thread.
    fn write_at_leisure(
        &self,
        mut stream: UnixStream,
        document: impl FnOnce() -> io::Result<Vec<u8>> + Send + 'static,
        from: usize,
    ) -> io::Result<()> {
        if self.is_busy() {
            return Err(io::Error::new(ErrorKind::WouldBlock, "too many clients read slowly"));
        }
        stream.set_nonblocking(false)?;
        let writer = Arc::clone(&self.writers);
        let write = move || {
            match document() {
                Ok(document) => write_slowly(&mut stream, &document[from..]),
                Err(error) => debug!(%error, "cannot make a document"),
            }
            drop(writer);
        };
        thread::Builder::new().name("control".to_owned()).spawn(write).map(drop)
    }
}

/// Writes at the pace of the reader, for [`LEISURE`] at most.
#[allow(clippy::disallowed_methods, reason = "this is no core")]
fn write_slowly(stream: &mut UnixStream, mut rest: &[u8]) {
    let end = Instant::now() + LEISURE;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        let timed = stream.set_write_timeout(Some(left));
        // A client that leaves early has what it wanted.
        match timed.and_then(|()| stream.write(&rest[..rest.len().min(CHUNK)])) {
            Ok(length) if length < rest.len() => rest = &rest[length..],
            _ => break,
        }
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
        // If this fails, the next start removes the file. Without a path, it is another process's.
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
        let copy = document.clone();
        control.answer_at_leisure(|| move || Ok(copy)).unwrap();
        let none = || -> fn() -> io::Result<Vec<u8>> { panic!("no client waits") };
        control.answer_at_leisure(none).unwrap();
        let mut read = Vec::new();
        client.read_to_end(&mut read).unwrap();
        assert!(read == document);
    }

    #[test]
    fn a_document_that_is_long_to_make_keeps_nobody_waiting() {
        use std::io::Read as _;
        use std::sync::mpsc;
        let path = env::temp_dir().join(format!("undrop-control-test-slow-{}.sock", std::process::id()));
        let control = Control::bind(&path).unwrap();
        let mut patient = UnixStream::connect(&path).unwrap();
        let (release, held) = mpsc::channel::<()>();
        let make = move || {
            held.recv_timeout(Duration::from_secs(20)).map_err(io::Error::other)?;
            Ok(b"[]".to_vec())
        };
        control.answer_at_leisure(|| make).unwrap();
        let mut prompt = UnixStream::connect(&path).unwrap();
        control.answer(|| Ok(b"{}".to_vec())).unwrap();
        let mut read = String::new();
        prompt.read_to_string(&mut read).unwrap();
        release.send(()).unwrap();
        patient.read_to_string(&mut read).unwrap();
        assert_eq!(read, "{}[]");
    }

    #[test]
    fn a_client_that_reads_late_gets_the_whole_document_and_keeps_nobody_waiting() {
        use std::io::Read as _;
        let path = env::temp_dir().join(format!("undrop-control-test-late-{}.sock", std::process::id()));
        let control = Control::bind(&path).unwrap();
        let mut late = UnixStream::connect(&path).unwrap();
        let document = vec![7; 1 << 20];
        control.answer(|| Ok(document.clone())).unwrap();
        let mut prompt = UnixStream::connect(&path).unwrap();
        control.answer(|| Ok(b"{}".to_vec())).unwrap();
        let mut read = Vec::new();
        prompt.read_to_end(&mut read).unwrap();
        assert_eq!(read, b"{}");
        read.clear();
        late.read_to_end(&mut read).unwrap();
        assert!(read == document, "{} bytes", read.len());
        while Arc::strong_count(&control.writers) > 1 {
            thread::yield_now();
        }
        // More clients that do not read than are written to.
        let silent: Vec<_> = (0..2 * ANSWERS_MAX).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let answers: Vec<_> = (0..3).map(|_| control.answer(|| Ok(document.clone())).is_ok()).collect();
        assert_eq!(answers, [true, false, true], "four of them are written to, and nobody else waits");
        drop(silent);
    }

    #[test]
    fn a_process_takes_the_place_of_another_and_no_client_finds_nobody() {
        use std::io::Read as _;
        let path = env::temp_dir().join(format!("undrop-control-test-place-{}.sock", std::process::id()));
        let mut first = Control::bind(&path).unwrap();
        let mut second = Control::bind_beside(&path).unwrap();
        let mut early = UnixStream::connect(&path).unwrap();
        second.take_place(&path).unwrap();
        first.abandon();
        let mut late = UnixStream::connect(&path).unwrap();
        first.answer(|| Ok(b"first".to_vec())).unwrap();
        second.answer(|| Ok(b"second".to_vec())).unwrap();
        drop(first);
        for (client, expected) in [(&mut early, "first"), (&mut late, "second")] {
            let mut read = String::new();
            client.read_to_string(&mut read).unwrap();
            assert_eq!(read, expected);
        }
        assert!(path.exists(), "it is the second one's");
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn the_socket_of_a_killed_process_is_replaced() {
        let path = env::temp_dir().join(format!("undrop-control-test-{}.sock", std::process::id()));
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        // A program that another test starts has a copy of the listener for a moment.
        let tries = std::iter::repeat_with(|| {
            thread::sleep(Duration::from_millis(10));
            Control::bind(&path)
        });
        let is_bound =
            |bound: &Result<Control, ControlError>| !matches!(bound, Err(ControlError::Running(_)));
        let control = tries.take(1_000).find(is_bound).expect("nobody listens").unwrap();
        assert!(matches!(Control::bind(&path), Err(ControlError::Running(_))));
        drop(control);
        assert!(!path.exists());
    }
}
