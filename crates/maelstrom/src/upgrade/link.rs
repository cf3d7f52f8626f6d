//! The connection between two processes of a gateway: lines of JSON, and descriptors that come with them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use netio::pass;
use zeroize::Zeroizing;

use super::message::Message;

/// Longest line in bytes: far more than the sessions of as many peers as a gateway can have.
const LINE_MAX: usize = 1 << 25;
/// Longest wait until the other process reads.
const PATIENCE: Duration = Duration::from_secs(1);
/// Number of bytes that are read at a time.
const CHUNK: usize = 1 << 16;

/// One end of the connection.
#[derive(Debug)]
pub struct Link {
    stream: UnixStream,
    /// Bytes that were received and are not handled yet.
    bytes: Zeroizing<Vec<u8>>,
    passed: Vec<OwnedFd>,
}

impl Link {
    /// Creates the end of this process, and the one of the process that is to take over.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (near, far) = UnixStream::pair()?;
        Ok((Self::new(near)?, far.into()))
    }

    /// Takes the end of a process that was started to take over: its standard input.
    ///
    /// # Errors
    /// If that is no socket.
    pub fn from_stdin() -> io::Result<Self> {
        let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        stream.local_addr()?;
        Self::new(stream)
    }

    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, bytes: Zeroizing::default(), passed: Vec::new() })
    }

    /// Returns a further handle of this end.
    ///
    /// # Errors
    /// The system's error.
    pub fn try_clone(&self) -> io::Result<Self> {
        Self::new(self.stream.try_clone()?)
    }

    /// Tells the other process why this one cannot take over.
    pub fn fail(&self, reason: &str) {
        // The other process may have ended too.
        let _ = self.send(&Message::Failed { reason: reason.to_owned() }, &[]);
    }

    pub(crate) fn send(&self, message: &Message, passed: &[BorrowedFd<'_>]) -> io::Result<()> {
        // Longer lines are copied while they grow, and the copies are not wiped.
        let mut line = Zeroizing::new(Vec::with_capacity(CHUNK));
        serde_json::to_writer(&mut *line, message)?;
        line.push(b'\n');
        pass::send(&self.stream, &line, passed)
    }

    /// Returns the next message, if it has arrived.
    ///
    /// # Errors
    /// `UnexpectedEof` when the other process has ended; `InvalidData` for anything but a message.
    pub(crate) fn poll(&mut self) -> io::Result<Option<Message>> {
        loop {
            if let Some(message) = self.take_line()? {
                return Ok(Some(message));
            }
            match self.receive(false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                received => received?,
            }
        }
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// As [`Link::poll`], and `WouldBlock` if none arrives in time.
    #[expect(clippy::disallowed_methods, reason = "not a core: bounds the wait for another process")]
    pub(crate) fn wait(&mut self, patience: Duration) -> io::Result<Message> {
        let end = Instant::now() + patience;
        loop {
            if let Some(message) = self.take_line()? {
                return Ok(message);
            }
            let left = end.saturating_duration_since(Instant::now());
            self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            self.receive(true)?;
        }
    }

    /// Returns the descriptor that came last.
    pub(crate) fn take_passed(&mut self) -> Option<OwnedFd> {
        self.passed.pop()
    }

    fn take_line(&mut self) -> io::Result<Option<Message>> {
        let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') else {
            let is_short = self.bytes.len() <= LINE_MAX;
            return if is_short { Ok(None) } else { Err(io::ErrorKind::InvalidData.into()) };
        };
        let line = Zeroizing::new(self.bytes.drain(..=end).collect::<Vec<u8>>());
        serde_json::from_slice(&line).map(Some).map_err(io::Error::from)
    }

    fn receive(&mut self, waits: bool) -> io::Result<()> {
        let filled = self.bytes.len();
        self.bytes.resize(filled + CHUNK, 0);
        let received = pass::receive(&self.stream, &mut self.bytes[filled..], &mut self.passed, waits);
        self.bytes.truncate(filled + *received.as_ref().unwrap_or(&0));
        match received {
            // It has ended without reading everything.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Err(error) => Err(error),
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_and_in_order_and_the_end_is_told() {
        let (mut near, far) = Link::pair().unwrap();
        let mut far = Link::new(UnixStream::from(far)).unwrap();
        assert!(near.poll().unwrap().is_none());
        let late = far.wait(Duration::from_millis(5)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::WouldBlock);
        let long = Message::Failed { reason: "x".repeat(300_000) };
        let sender = near;
        let sent = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                sender.send(&long, &[])?;
                sender.send(&Message::Main, &[sender.as_fd()])
            });
            assert_eq!(far.wait(PATIENCE).unwrap(), long);
            assert_eq!(far.wait(PATIENCE).unwrap(), Message::Main);
            sending.join().unwrap()
        });
        sent.unwrap();
        assert!(far.take_passed().is_some() && far.take_passed().is_none());
        pass::send(&sender.stream, b"{\"step\":\"dance\"}\n", &[]).unwrap();
        assert_eq!(far.poll().unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(sender);
        assert_eq!(far.poll().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
