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

/// Settings of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpFetch {
    /// Congestion control of both ends by its kernel name; `None` uses the kernel's default.
    pub congestion: Option<String>,
    /// Length of the answer in bytes.
    pub bytes: u64,
    /// Port of the listening host; 0 for any.
    pub port: u16,
    /// Receive buffer of both ends in bytes; `None` for the kernel's default, which grows.
    pub receive_buffer: Option<usize>,
    /// Longest time that the fetch may take.
    pub patience: Duration,
}

/// Connects `between.from` to `between.to`, asks for bytes and reads them. Returns the time in microseconds
/// from the first packet of the connection to the last byte; `None` if it exceeds the patience.
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
    thread::scope(|scope| {
        let stopper = stop.on_drop();
        let server = scope.spawn(|| serve(&listener, plan.bytes, &pattern, &stop));
        let client = scope.spawn(|| fetch(between, (to, ends), plan.bytes, (&pattern, &received), &stop));
        let start_us = now_us();
        let got = || received.load(Ordering::Relaxed);
        watch(start_us, start_us + micros(plan.patience), watcher, got, || client.is_finished());
        stop.set();
        let fetched = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        drop(stopper);
        let served = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let fetched = fetched?;
        // A client that gave up has closed the connection.
        if fetched.is_some() {
            served.map_err(|e| LabError::system("cannot serve a fetch", e))?;
        }
        Ok(fetched)
    })
}

/// Answers a connection, and keeps it until the run stops.
fn serve(listener: &Socket, bytes: u64, pattern: &Pattern, stop: &Stop) -> io::Result<()> {
    let (socket, _) = listener.accept()?;
    prepare(&socket)?;
    let stream = TcpStream::from(socket);
    let mut request = [0; REQUEST_LEN];
    let mut asked = 0;
    while asked < REQUEST_LEN && !stop.is_set() {
        asked += take(&stream, &mut request[asked..])?;
    }
    let mut sent = 0;
    while sent < bytes && !stop.is_set() {
        let piece = pattern.at(sent);
        let length = usize::try_from(bytes - sent).map_or(piece.len(), |rest| rest.min(piece.len()));
        match (&stream).write(&piece[..length]) {
            Ok(length) => sent += length as u64,
            Err(e) if is_timeout(&e) => {}
            Err(e) => return Err(e),
        }
    }
    while !stop.is_set() {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn fetch(
    between: Between<'_>,
    (to, ends): (SocketAddr, Ends<'_>),
    bytes: u64,
    (pattern, received): (&Pattern, &AtomicU64),
    stop: &Stop,
) -> Result<Option<u64>, LabError> {
    let start_us = now_us();
    let socket = between.from.run(|| connect(to, ends))?;
    let broken = |e| LabError::system(format!("a connection to {to} broke"), e);
    prepare(&socket).map_err(broken)?;
    let stream = TcpStream::from(socket);
    (&stream).write_all(&[0; REQUEST_LEN]).map_err(broken)?;
    let mut buffer = vec![0; Pattern::PIECE_MAX];
    let mut offset = 0;
    while offset < bytes && !stop.is_set() {
        let length = take(&stream, &mut buffer).map_err(broken)?;
        if let Some(at) = pattern.first_mismatch(offset, &buffer[..length]) {
            let text = format!("expected the bytes that were sent, saw another one at {at} of a fetch");
            return Err(LabError::Invalid(text));
        }
        offset += length as u64;
        received.store(offset, Ordering::Relaxed);
    }
    Ok((offset == bytes).then(|| now_us() - start_us))
}

/// Reads what has arrived; 0 if nothing did for a moment.
fn take(mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    match stream.read(buffer) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(e) if is_timeout(&e) => Ok(0),
        other => other,
    }
}
