//! A stream of messages over one TCP connection, with the arrival time of each.
//!
//! TCP delivers in order: one lost packet delays every message behind it, even those that have arrived. So
//! this measures the latency of all messages (Maelstrom §5.2), not of lost packets.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::between::Between;
use super::connection::{Connection, Ends};
use super::pattern::Pattern;
use super::watch::{Stop, Watcher, is_timeout, micros, sleep_until, watch};
use crate::clock::now_us;
use crate::error::LabError;

/// Length of sequence number and time of sending, 8 bytes each, big-endian.
const HEADER_BYTES: usize = 16;

/// Maximum length of a message.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of messages in one stream.
const MESSAGES_MAX: u64 = 10_000_000;

/// Settings of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageStream {
    /// Congestion control of both ends by its kernel name; `None` uses the kernel's default.
    pub congestion: Option<String>,
    /// Messages per second.
    pub rate_hz: f64,
    /// Bytes per message, 16 to 65,536.
    pub message_bytes: usize,
    /// Time of sending.
    pub duration: Duration,
    /// How long to wait for messages in flight after the last one was sent.
    pub patience: Duration,
}

impl Default for MessageStream {
    fn default() -> Self {
        Self {
            congestion: None,
            rate_hz: 100.0,
            message_bytes: 1024,
            duration: Duration::from_secs(8),
            patience: Duration::from_secs(10),
        }
    }
}

/// Result of a message stream.
#[derive(Clone, Debug, Default)]
pub struct MessageReport {
    /// All messages sent, in order.
    pub messages: Vec<Message>,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Sending time, in microseconds since the first message.
    pub sent_us: u64,
    /// Time until the message was complete at the other end, in microseconds; `None` if it was not within the
    /// patience.
    pub latency_us: Option<u64>,
}

impl MessageReport {
    /// Returns the latencies of the arrived messages in microseconds, in ascending order.
    pub fn sorted_latencies_us(&self) -> Vec<u64> {
        let mut latencies: Vec<u64> = self.messages.iter().filter_map(|message| message.latency_us).collect();
        latencies.sort_unstable();
        latencies
    }

    /// Returns the number of messages that did not arrive in time.
    pub fn missing(&self) -> usize {
        self.messages.iter().filter(|message| message.latency_us.is_none()).count()
    }
}

/// Sends messages at a steady rate over one connection with Nagle's algorithm off and reports the latency of
/// each.
///
/// # Errors
/// If the connection does not come up or breaks, other content arrives than was sent, or a number is out of
/// range.
pub fn message_stream(
    between: Between<'_>,
    plan: &MessageStream,
    watcher: Watcher<'_>,
) -> Result<MessageReport, LabError> {
    let interval_us = check(plan)?;
    let ends = Ends { congestion: plan.congestion.as_deref(), ..Ends::default() };
    let Connection { client, server } = Connection::open(between, ends)?;
    client.set_nodelay(true).map_err(|e| LabError::system("cannot switch Nagle's algorithm off", e))?;
    let stream =
        Stream { client, server, plan, interval_us, pattern: Pattern::new(), delivered: AtomicU64::new(0) };
    stream.run(watcher)
}

/// Returns the time between two messages in microseconds.
fn check(plan: &MessageStream) -> Result<f64, LabError> {
    if !(HEADER_BYTES..=MESSAGE_BYTES_MAX).contains(&plan.message_bytes) {
        return Err(LabError::Invalid(format!(
            "expected messages of {HEADER_BYTES} to {MESSAGE_BYTES_MAX} bytes, saw {}",
            plan.message_bytes
        )));
    }
    let count = plan.rate_hz * plan.duration.as_secs_f64();
    if !(plan.rate_hz > 0.0 && count <= MESSAGES_MAX as f64) {
        return Err(LabError::Invalid(format!(
            "expected a rate above 0 and at most {MESSAGES_MAX} messages, saw {} per second for {:?}",
            plan.rate_hz, plan.duration
        )));
    }
    Ok(1e6 / plan.rate_hz)
}

struct Stream<'a> {
    client: TcpStream,
    server: TcpStream,
    plan: &'a MessageStream,
    interval_us: f64,
    pattern: Pattern,
    /// Number of arrived messages.
    delivered: AtomicU64,
}

impl Stream<'_> {
    fn run(&self, watcher: Watcher<'_>) -> Result<MessageReport, LabError> {
        let broke = |e| LabError::system("the message stream broke", e);
        let stop = &Stop::default();
        let start_us = now_us();
        let end_us = start_us + micros(self.plan.duration) + micros(self.plan.patience);
        thread::scope(|scope| {
            let stopper = stop.on_drop();
            let sender = scope.spawn(move || self.send(start_us, stop));
            let receiver = scope.spawn(move || self.receive(stop));
            let received = || self.delivered.load(Ordering::Relaxed) * self.plan.message_bytes as u64;
            watch(start_us, end_us, watcher, received, || receiver.is_finished() || stop.is_set());
            drop(stopper);
            let sent_us = resume(sender.join()).map_err(broke)?;
            let arrived_us = resume(receiver.join()).map_err(broke)?;
            Ok(report(&sent_us, &arrived_us))
        })
    }

    /// Returns the sending time of each message.
    fn send(&self, start_us: u64, stop: &Stop) -> io::Result<Vec<u64>> {
        let count = (micros(self.plan.duration) as f64 / self.interval_us) as u64;
        let mut sent_us = Vec::new();
        let mut free_us = start_us;
        for sequence in 0..count {
            let due_us = start_us + (sequence as f64 * self.interval_us) as u64;
            if !sleep_until(due_us, stop) {
                return Ok(sent_us);
            }
            // A message delayed because TCP had not accepted the one before counts from its due time.
            let last_us = sent_us.last().copied().unwrap_or(start_us);
            let stamp_us = if free_us > due_us { due_us.max(last_us) } else { now_us() };
            sent_us.push(stamp_us);
            let message = self.compose(sequence, stamp_us);
            if !write_all(&self.client, &message, stop).inspect_err(|_| stop.set())? {
                return Ok(sent_us);
            }
            free_us = now_us();
        }
        self.client.shutdown(std::net::Shutdown::Write)?;
        Ok(sent_us)
    }

    fn compose(&self, sequence: u64, stamp_us: u64) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.plan.message_bytes);
        message.extend_from_slice(&sequence.to_be_bytes());
        message.extend_from_slice(&stamp_us.to_be_bytes());
        message.extend_from_slice(&self.pattern.at(sequence)[..self.plan.message_bytes - HEADER_BYTES]);
        message
    }

    /// Returns the arrival time of each message.
    fn receive(&self, stop: &Stop) -> io::Result<Vec<u64>> {
        let mut arrived_us = Vec::new();
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let mut filled = 0;
        while !stop.is_set() {
            // One message at a time: the data of a read has just arrived, and the rates are low.
            match (&self.server).read(&mut buffer[filled..self.plan.message_bytes]) {
                Ok(0) => break,
                Ok(length) => filled += length,
                Err(e) if is_timeout(&e) => {}
                Err(e) => {
                    stop.set();
                    return Err(e);
                }
            }
            if filled == self.plan.message_bytes {
                filled = 0;
                let now = now_us();
                let sequence = arrived_us.len() as u64;
                self.verify(sequence, &buffer[..self.plan.message_bytes]).inspect_err(|_| stop.set())?;
                arrived_us.push(now);
                self.delivered.store(arrived_us.len() as u64, Ordering::Relaxed);
            }
        }
        Ok(arrived_us)
    }

    fn verify(&self, sequence: u64, message: &[u8]) -> io::Result<()> {
        let (head, body) = message.split_at(HEADER_BYTES);
        let is_next = head.starts_with(&sequence.to_be_bytes());
        if is_next && self.pattern.first_mismatch(sequence, body).is_none() {
            return Ok(());
        }
        Err(io::Error::other(format!("expected message {sequence} as it was sent, saw other content")))
    }
}

/// Writes a whole message; returns false if stopped before its end.
fn write_all(mut stream: &TcpStream, message: &[u8], stop: &Stop) -> io::Result<bool> {
    let mut rest = message;
    while !rest.is_empty() {
        if stop.is_set() {
            return Ok(false);
        }
        match stream.write(rest) {
            Ok(length) => rest = &rest[length..],
            Err(e) if is_timeout(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

fn resume<T>(joined: thread::Result<T>) -> T {
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Messages arrive in order, so the n-th arrival is the n-th message.
fn report(sent_us: &[u64], arrived_us: &[u64]) -> MessageReport {
    let first_us = sent_us.first().copied().unwrap_or(0);
    let message = |(index, &sent): (usize, &u64)| Message {
        sent_us: sent - first_us,
        latency_us: arrived_us.get(index).map(|arrived| arrived.saturating_sub(sent)),
    };
    MessageReport { messages: sent_us.iter().enumerate().map(message).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_did_not_arrive_are_missing() {
        let report = report(&[1000, 2000, 3000], &[1500, 2100]);
        assert_eq!(report.messages[0], Message { sent_us: 0, latency_us: Some(500) });
        assert_eq!(report.messages[2], Message { sent_us: 2000, latency_us: None });
        assert_eq!(report.sorted_latencies_us(), [100, 500]);
        assert_eq!(report.missing(), 1);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for plan in [
            MessageStream { message_bytes: 15, ..MessageStream::default() },
            MessageStream { message_bytes: MESSAGE_BYTES_MAX + 1, ..MessageStream::default() },
            MessageStream { rate_hz: 0.0, ..MessageStream::default() },
            MessageStream { rate_hz: f64::NAN, ..MessageStream::default() },
            MessageStream { rate_hz: 1e9, ..MessageStream::default() },
        ] {
            assert!(matches!(check(&plan), Err(LabError::Invalid(_))), "{plan:?}");
        }
        assert!(check(&MessageStream::default()).is_ok());
    }
}
