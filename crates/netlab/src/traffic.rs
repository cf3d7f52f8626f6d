//! Traffic between two namespaces through the kernel's own sockets: bulk TCP, TCP messages, UDP packets.
//!
//! | file | what |
//! |---|---|
//! | `bulk.rs` | [`tcp_transfer`]: as much as TCP carries, in one or both directions, checked bit for bit |
//! | `messages.rs` | [`message_stream`]: messages at a steady rate over one TCP connection, and when each arrived |
//! | `datagrams.rs` | [`udp_stream`]: UDP packets at a steady rate, each late, lost or duplicated |
//! | `connection.rs` | TCP connections with a named congestion control |
//! | `pattern.rs` | the content, known from its offset |
//!
//! Both ends are threads of this process and share one clock, so a latency is that of one way. Every wait is bounded: a
//! link that carries nothing gives an empty report or an error, never a hang.

mod bulk;
mod connection;
mod datagrams;
mod messages;
mod pattern;

use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

pub use bulk::{Direction, Sample, TcpReport, TcpTransfer, Throughput, tcp_transfer};
pub use datagrams::{Pace, UdpReport, UdpStream, udp_stream};
pub use messages::{Message, MessageReport, MessageStream, message_stream};

pub use crate::clock::now_us;
use crate::{LabError, Namespace};

/// How often progress is told, and how long a worker may sleep before it looks whether it is to stop.
const TICK: Duration = Duration::from_millis(100);

/// Who sends to whom.
#[derive(Clone, Copy, Debug)]
pub struct Between<'a> {
    /// The namespace of the host that connects and sends.
    pub from: &'a Namespace,
    /// The namespace of the host that listens and receives.
    pub to: &'a Namespace,
    /// An address of the receiving host.
    pub address: IpAddr,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Time since traffic began, in microseconds.
    pub elapsed_us: u64,
    /// Payload delivered so far, in bytes; with both directions, the sum.
    pub received_bytes: u64,
}

/// Told the progress ten times a second; [`ControlFlow::Break`] ends the traffic early, with a report of what was seen
/// until then.
pub type Watcher<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// A watcher that never looks.
pub fn unwatched(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Segments sent again by all TCP connections of a namespace since it was made (`RetransSegs` of RFC 2012).
///
/// # Errors
/// When the kernel does not show its counters.
pub fn tcp_retransmits(namespace: &Namespace) -> Result<u64, LabError> {
    // The kernel resolves /proc/net by the namespace of the process' first thread; this one is that of the caller.
    const FILE: &str = "/proc/thread-self/net/snmp";
    let what = || format!("cannot read {FILE} in {:?}", namespace.label());
    let text = namespace.run(|| std::fs::read_to_string(FILE)).map_err(|e| LabError::system(what(), e))?;
    column_of_snmp(&text, "RetransSegs")
        .ok_or_else(|| LabError::system(what(), io::Error::other("no Tcp RetransSegs in it")))
}

/// A value of the `Tcp:` pair of lines: names on the first, values on the second.
fn column_of_snmp(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let column = names.split_whitespace().position(|word| word == name)?;
    values.split_whitespace().nth(column)?.parse().ok()
}

/// Tells workers to stop, also when the thread that watches them panics.
#[derive(Debug, Default)]
struct Stop(AtomicBool);

impl Stop {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn on_drop(&self) -> StopOnDrop<'_> {
        StopOnDrop(self)
    }
}

struct StopOnDrop<'a>(&'a Stop);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Whether a socket operation only ran out of its time.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Sleeps until `due_us`, in steps, and returns false as soon as it is to stop.
fn sleep_until(due_us: u64, stop: &Stop) -> bool {
    loop {
        if stop.is_set() {
            return false;
        }
        let left_us = due_us.saturating_sub(now_us());
        if left_us == 0 {
            return true;
        }
        thread::sleep(Duration::from_micros(left_us).min(TICK));
    }
}

/// A duration in microseconds.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Tells the watcher every tick until `end_us`, or until it breaks, or `done` says that there is nothing left to watch.
fn watch(
    start_us: u64,
    end_us: u64,
    watcher: Watcher<'_>,
    received: impl Fn() -> u64,
    done: impl Fn() -> bool,
) {
    let mut next_us = start_us;
    while now_us() < end_us && !done() {
        next_us += micros(TICK);
        let now = now_us();
        thread::sleep(Duration::from_micros(next_us.min(end_us).saturating_sub(now)));
        let progress = Progress { elapsed_us: now_us() - start_us, received_bytes: received() };
        if watcher(progress).is_break() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_found_by_its_name() {
        let text =
            "Ip: Forwarding\nIp: 1\nTcp: RtoMin OutSegs RetransSegs InErrs\nTcp: -1 9 42 0\nUdp: A\nUdp: 7\n";
        assert_eq!(column_of_snmp(text, "RetransSegs"), Some(42));
        assert_eq!(column_of_snmp(text, "RtoMin"), None);
        assert_eq!(column_of_snmp(text, "A"), None);
        assert_eq!(column_of_snmp("Tcp: RetransSegs\n", "RetransSegs"), None);
    }

    #[test]
    fn a_watcher_ends_the_watch() {
        let mut told = 0;
        let start_us = now_us();
        let mut watcher = |progress: Progress| {
            told += 1;
            assert_eq!(progress.received_bytes, 5);
            if told == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        watch(start_us, u64::MAX, &mut watcher, || 5, || false);
        assert_eq!(told, 2);
    }

    #[test]
    fn sleep_ends_when_told_to_stop() {
        let stop = Stop::default();
        assert!(sleep_until(now_us() + 10, &stop));
        drop(stop.on_drop());
        assert!(!sleep_until(u64::MAX, &stop));
    }
}
