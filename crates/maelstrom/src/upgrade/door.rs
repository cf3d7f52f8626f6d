//! The socket beside the control socket by which an operator asks for an upgrade, and the answer.

use std::io::{self, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use daemon::control::Control;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::capture::is_permitted;

/// Interval between looks for a client.
const LOOK_US: u64 = 50_000;
/// Longest wait for the request of a client.
const REQUEST_US: u64 = 2_000_000;
/// The request. A connection alone asks for nothing.
const REQUEST: &[u8] = b"upgrade\n";
/// Longest wait for an answer: longer than all steps of an upgrade may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between looks whether the new process has taken the places of the sockets, and their number.
const PLACE_LOOK: Duration = Duration::from_millis(5);
const PLACE_LOOKS: u32 = 1_000;
/// Longest answer in bytes.
const ANSWER_MAX: u64 = 1 << 16;

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Another process protects.
    Upgraded {
        /// Its number.
        process: u32,
        /// Number of sessions that go on in it.
        sessions: usize,
        /// Time in microseconds between the last packet of the one and the first of the other.
        after_us: u64,
    },
    /// The process that was asked protects as before, for this reason.
    Refused {
        /// The reason.
        reason: String,
    },
}

/// Reason why there is no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// Nobody listens.
    #[error("expected a gateway that can hand over, saw none at {path}: {source}", path = .path.display())]
    Absent {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The gateway does not answer, or to others only.
    #[error("no answer from the gateway at {path}: {source}", path = .path.display())]
    Unanswered {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Asks the gateway of a control socket to hand over to the program that is installed at present, and waits
/// for the outcome.
///
/// # Errors
/// [`RequestError`].
pub fn request(control: &Path) -> Result<Outcome, RequestError> {
    let path = socket(control);
    let connected = UnixStream::connect(&path);
    let mut stream = connected.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            RequestError::Absent { path: path.clone(), source }
        }
        _ => RequestError::Unanswered { path: path.clone(), source },
    })?;
    let mut ask = || {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(REQUEST)?;
        let mut answer = Vec::new();
        Read::by_ref(&mut stream).take(ANSWER_MAX).read_to_end(&mut answer)?;
        Ok(serde_json::from_slice(&answer)?)
    };
    let outcome = ask().map_err(|source| RequestError::Unanswered { path: path.clone(), source })?;
    if matches!(outcome, Outcome::Upgraded { .. }) {
        wait_for_place(&path);
    }
    Ok(outcome)
}

/// Waits until the new process has taken the places of the sockets, of which this one is the last: a command
/// that follows at once must find them.
fn wait_for_place(path: &Path) {
    for _ in 0..PLACE_LOOKS {
        if UnixStream::connect(path).is_ok() {
            return;
        }
        thread::sleep(PLACE_LOOK);
    }
}

fn socket(control: &Path) -> PathBuf {
    let mut path = control.as_os_str().to_owned();
    path.push(".upgrade");
    path.into()
}

/// The socket in the gateway.
#[derive(Debug, Default)]
pub(super) struct Door {
    control: Option<Control>,
    next_look_us: u64,
    /// A client that has not said what it wants, and the time until which it may.
    guest: Option<(UnixStream, u64)>,
}

impl Door {
    /// Listens beside the control socket. Without a socket, upgrades are restarts.
    pub(super) fn listen(&mut self, control: &Path) {
        let opened = Control::bind(&socket(control));
        self.control =
            opened.inspect_err(|error| warn!("`undrop gateway upgrade` will not work: {error}")).ok();
    }

    /// Leaves the place to another process.
    pub(super) fn abandon(&mut self) {
        if let Some(mut control) = self.control.take() {
            control.abandon();
        }
    }

    /// Returns a client that asks for an upgrade.
    pub(super) fn look(&mut self, now_us: u64) -> Option<UnixStream> {
        if now_us < self.next_look_us {
            return None;
        }
        self.next_look_us = now_us + LOOK_US;
        if self.guest.is_none() {
            let guest = self.control.as_ref().and_then(Control::accept)?;
            if !is_permitted(&guest) || guest.set_nonblocking(true).is_err() {
                return None;
            }
            self.guest = Some((guest, now_us + REQUEST_US));
        }
        let (mut guest, until_us) = self.guest.take()?;
        let mut request = [0; REQUEST.len()];
        match guest.read(&mut request) {
            Ok(length) if request[..length] == *REQUEST => Some(guest),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && now_us < until_us => {
                self.guest = Some((guest, until_us));
                None
            }
            _ => None,
        }
    }
}

/// Answers a client, which may have left.
pub(super) fn answer(mut client: UnixStream, outcome: &Outcome) {
    if let Ok(answer) = serde_json::to_vec(outcome) {
        let _ = client.write_all(&answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_comes_when_the_new_process_has_the_socket() {
        let path = std::env::temp_dir().join(format!("undrop-door-place-{}", std::process::id()));
        let mut door = Door::default();
        door.listen(&path);
        let asking = thread::spawn({
            let path = path.clone();
            move || request(&path)
        });
        let mut now_us = 0;
        let client = loop {
            now_us += LOOK_US;
            if let Some(client) = door.look(now_us) {
                break client;
            }
            thread::sleep(Duration::from_millis(1));
        };
        door.abandon();
        let outcome = Outcome::Upgraded { process: 7, sessions: 1, after_us: 900 };
        answer(client, &outcome);
        thread::sleep(Duration::from_millis(100));
        assert!(!asking.is_finished(), "nobody listens");
        door.listen(&path);
        assert_eq!(asking.join().unwrap().unwrap(), outcome);
        drop(door);
        let _ = std::fs::remove_file(socket(&path));
    }

    #[test]
    fn only_a_client_that_asks_is_answered() {
        let path = std::env::temp_dir().join(format!("undrop-door-{}", std::process::id()));
        assert!(matches!(request(&path), Err(RequestError::Absent { .. })));
        let mut door = Door::default();
        door.listen(&path);
        let silent = UnixStream::connect(socket(&path)).unwrap();
        let mut talker = UnixStream::connect(socket(&path)).unwrap();
        talker.write_all(b"upgrade, please\n").unwrap();
        let asking = thread::spawn({
            let path = path.clone();
            move || request(&path)
        });
        let (mut now_us, mut asked) = (0, None);
        // The silent client has two seconds, and the next one says something else.
        while asked.is_none() && now_us < 100 * REQUEST_US {
            now_us += LOOK_US;
            asked = door.look(now_us);
            thread::sleep(Duration::from_millis(1));
        }
        assert!(now_us > REQUEST_US, "the silent one had its time");
        let outcome = Outcome::Upgraded { process: 7, sessions: 1, after_us: 900 };
        answer(asked.unwrap(), &outcome);
        assert_eq!(asking.join().unwrap().unwrap(), outcome);
        drop(silent);
        door.abandon();
        assert!(socket(&path).exists(), "it is another process's");
        std::fs::remove_file(socket(&path)).unwrap();
    }
}
