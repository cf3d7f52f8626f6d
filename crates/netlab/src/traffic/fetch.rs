//! Transfers of a given length, each on a connection of its own.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use socket2::Socket;

use super::between::Between;
use super::connection::{Ends, connect, listen, local_address, prepare};
use super::pattern::Pattern;
use super::watch::{Stop, Watcher, is_timeout, micros, watch};
use crate::clock::now_us;
use crate::error::LabError;

/// Length of the request in bytes.
const REQUEST_LEN: usize = 100;

/// Which end sends the bytes of a fetch, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Course {
    /// The server, when the client has asked for them.
    #[default]
    Asked,
    /// The server, as soon as it has the connection.
    Unasked,
    /// The client, as soon as it has the connection.
    Sent,
}

/// Settings of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpFetch {
    /// Congestion control of both ends by its kernel name; `None` uses the kernel's default.
    pub congestion: Option<String>,
    /// Number of bytes.
    pub bytes: u64,
    /// Which end sends them.
    pub course: Course,
    /// Port of the listening host; 0 for any.
    pub port: u16,
    /// Receive buffer of both ends in bytes; `None` for the kernel's default, which grows.
    pub receive_buffer: Option<usize>,
    /// Longest time that the fetch may take.
    pub patience: Duration,
}

/// Connects `between.from` to `between.to`, and moves bytes. Returns the time in microseconds from the first
/// packet of the connection to the last byte at the end that gets them; `None` if it exceeds the patience.
///
/// # Errors
/// If the connection does not come up or breaks, another byte arrives than was sent, or the kernel refuses
/// the congestion control.
pub fn tcp_fetch(
    between: Between<'_>,
    plan: &TcpFetch,
    watcher: Watcher<'_>,
) -> Result<Option<u64>, LabError> {
    let ends =
        Ends { congestion: plan.congestion.as_deref(), port: plan.port, receive_buffer: plan.receive_buffer };
    let listener = between.to.run(|| listen(between, ends))?;
    let to = local_address(&listener)?;
    let (pattern, stop, received) = (Pattern::new(), Stop::default(), AtomicU64::new(0));
    let moved = Moved { plan, pattern: &pattern, received: &received, stop: &stop };
    thread::scope(|scope| {
        let stopper = stop.on_drop();
        let server = scope.spawn(|| moved.serve(&listener));
        let start_us = now_us();
        let client = scope.spawn(|| moved.call(between, to, ends));
        let got = || received.load(Ordering::Relaxed);
        let is_over = || client.is_finished() || plan.course == Course::Sent && server.is_finished();
        watch(start_us, start_us + micros(plan.patience), watcher, got, is_over);
        stop.set();
        let client = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        drop(stopper);
        let server = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let called = client?;
        // The watch ends a moment later.
        let in_time = |time_us: &u64| *time_us <= micros(plan.patience);
        if plan.course == Course::Sent {
            return Ok(server?.map(|end_us| end_us - start_us).filter(in_time));
        }
        // A client that gave up has closed the connection.
        if called.is_some() {
            server?;
        }
        Ok(called.map(|end_us| end_us - start_us).filter(in_time))
    })
}

/// The common state of both ends of a fetch.
struct Moved<'a> {
    plan: &'a TcpFetch,
    pattern: &'a Pattern,
    received: &'a AtomicU64,
    stop: &'a Stop,
}

impl Moved<'_> {
    /// Serves one connection, and keeps it until the run stops. Returns when the last byte arrived, if this
    /// end gets them.
    fn serve(&self, listener: &Socket) -> Result<Option<u64>, LabError> {
        let broken = |e| LabError::system("cannot serve a fetch", e);
        let (socket, _) = listener.accept().map_err(broken)?;
        prepare(&socket).map_err(broken)?;
        let stream = TcpStream::from(socket);
        match self.plan.course {
            Course::Sent => return self.take_all(&stream),
            Course::Asked => self.take_request(&stream).map_err(broken)?,
            Course::Unasked => {}
        }
        self.send_all(&stream).map_err(broken)?;
        self.wait();
        Ok(None)
    }

    /// Opens the connection. Returns when the last byte arrived, if this end gets them.
    fn call(&self, between: Between<'_>, to: SocketAddr, ends: Ends<'_>) -> Result<Option<u64>, LabError> {
        let socket = between.from.run(|| connect(to, ends))?;
        let broken = |e| LabError::system(format!("a connection to {to} broke"), e);
        prepare(&socket).map_err(broken)?;
        let stream = TcpStream::from(socket);
        match self.plan.course {
            Course::Sent => {
                self.send_all(&stream).map_err(broken)?;
                self.wait();
                return Ok(None);
            }
            Course::Asked => (&stream).write_all(&[0; REQUEST_LEN]).map_err(broken)?,
            Course::Unasked => {}
        }
        self.take_all(&stream)
    }

    fn take_request(&self, stream: &TcpStream) -> io::Result<()> {
        let mut request = [0; REQUEST_LEN];
        let mut asked = 0;
        while asked < REQUEST_LEN && !self.stop.is_set() {
            asked += take(stream, &mut request[asked..])?;
        }
        Ok(())
    }

    fn send_all(&self, mut stream: &TcpStream) -> io::Result<()> {
        let (bytes, mut sent) = (self.plan.bytes, 0);
        while sent < bytes && !self.stop.is_set() {
            let piece = self.pattern.at(sent);
            let length = usize::try_from(bytes - sent).map_or(piece.len(), |rest| rest.min(piece.len()));
            match stream.write(&piece[..length]) {
                Ok(length) => sent += length as u64,
                Err(e) if is_timeout(&e) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Returns when the last byte arrived; `None` if the run stopped before.
    fn take_all(&self, stream: &TcpStream) -> Result<Option<u64>, LabError> {
        let mut buffer = vec![0; Pattern::PIECE_MAX];
        let mut offset = 0;
        while offset < self.plan.bytes && !self.stop.is_set() {
            let length = take(stream, &mut buffer)
                .map_err(|e| LabError::system(format!("a fetch broke after {offset} bytes"), e))?;
            if let Some(at) = self.pattern.first_mismatch(offset, &buffer[..length]) {
                let text = format!("expected the bytes that were sent, saw another one at {at} of a fetch");
                return Err(LabError::Invalid(text));
            }
            offset += length as u64;
            self.received.store(offset, Ordering::Relaxed);
        }
        Ok((offset == self.plan.bytes).then(now_us))
    }

    fn wait(&self) {
        while !self.stop.is_set() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Reads what has arrived; 0 if nothing did for a moment.
fn take(mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    match stream.read(buffer) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(e) if is_timeout(&e) => Ok(0),
        other => other,
    }
}
